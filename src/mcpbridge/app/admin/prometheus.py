"""`/metrics`: the counts of calls and the state of servers, in the text formats of Prometheus (0.0.4) and OpenMetrics.

Written by hand: the client library takes 10 µs for each line, and a bridge with two thousand tools has 100,000. The
page is made from a copy of the bridge's own counts at each request for it, in a thread and one at a time, since calls
continue meanwhile. Principals are no label: who calls is nobody's business here. Tokens are estimates, and named so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import anyio
import anyio.to_thread

from mcpbridge.downstream.http.exchange import Receive, Scope, Send
from mcpbridge.downstream.http.routes import App
from mcpbridge.pipeline.observability.metrics import BUCKETS, Durations, Metrics, Series
from mcpbridge.results.token_count import estimated_tokens

_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Line = tuple[str, float]
"""Labels, and the number."""


def labels(names: Sequence[str], values: Iterable[str]) -> str:
    """Labels of one line, as they are written between the braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))


class Page:
    """One document in the making. Names are without what the format appends to them; help texts are plain words."""

    def __init__(self, accept: str = "") -> None:
        """`accept`: the header of that name; OpenMetrics is for who names it."""
        self._is_open = "application/openmetrics-text" in accept
        self._lines: list[str] = []

    @property
    def kind(self) -> str:
        """Its media type."""
        return _OPEN if self._is_open else _PLAIN

    def gauges(self, name: str, text: str, lines: Iterable[Line]) -> None:
        """Numbers that go up and down."""
        self._head(name, "gauge", text)
        self._lines += [f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n" for labels, value in lines]

    def counters(self, name: str, text: str, lines: Iterable[Line]) -> None:
        """Numbers that only grow."""
        self._head(name if self._is_open else f"{name}_total", "counter", text)
        self._lines += [f"{name}_total{{{labels}}} {value}\n" for labels, value in lines]

    def histograms(
        self, name: str, text: str, bounds: Sequence[str], lines: Iterable[tuple[str, Sequence[int], float]]
    ) -> None:
        """Of each: labels, how many were within each bound (the last is no bound), and the sum of all."""
        self._head(name, "histogram", text)
        for labels, within, whole in lines:
            start = f'{name}_bucket{{{labels}{"," if labels else ""}le="'
            self._lines += [f'{start}{bound}"}} {count}\n' for bound, count in zip(bounds, within, strict=True)]
            of = f"{{{labels}}}" if labels else ""
            self._lines.append(f"{name}_count{of} {within[-1]}\n{name}_sum{of} {whole}\n")

    def written(self) -> bytes:
        """The whole document."""
        return "".join([*self._lines, "# EOF\n"] if self._is_open else self._lines).encode()

    def _head(self, name: str, kind: Literal["gauge", "counter", "histogram"], text: str) -> None:
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")


_FORBIDDEN = (
    b"The counts are for those who administer the bridge: send a token of `http.tokens` with `metrics = true` or "
    b"`admin = true`.\n"
)
_TEXT = b"text/plain; charset=utf-8"
_BOUNDS = [str(bound) for bound in BUCKETS] + ["+Inf"]


class Counted(Protocol):
    """A running bridge, as far as its counts go; `mcpbridge.library.bridge.Bridge` is one."""

    @property
    def metrics(self) -> Metrics:
        """What is counted of calls."""
        ...

    def status(self) -> Mapping[str, Any]:
        """How it and its servers are."""
        ...


More = Callable[[], Callable[["Page"], None] | None]
"""Further numbers of one moment, and what writes them, in another thread; None: there are none."""


def make_metrics(bridge: Counted, *, readers: frozenset[str], more: More = lambda: None) -> App:
    """The application at `/metrics`. `readers`: the principals who may read it, besides those who administer.

    Where no token is asked for at all, everyone may who reaches the address.
    """
    one_at_a_time = anyio.Lock()

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        who: Mapping[str, Any] = scope["state"]
        if scope["method"] not in ("GET", "HEAD"):
            await _send(send, 405, _TEXT, b"Only GET is served here.\n", (b"allow", b"GET"))
        elif not (who["is_admin"] or not who["principal"] or who["principal"] in readers):
            await _send(send, 403, _TEXT, _FORBIDDEN)
        else:
            accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
            async with one_at_a_time:
                counts = _Counts(bridge, more())
                body, kind = await anyio.to_thread.run_sync(counts.page, accept.decode("latin-1"))
            await _send(send, 200, kind.encode(), body if scope["method"] == "GET" else b"")

    return app


def exposition(bridge: Counted, accept: str = "", more: More = lambda: None) -> tuple[bytes, str]:
    """The document, and its media type: OpenMetrics where the `Accept` header names it, else Prometheus' own format."""
    return _Counts(bridge, more()).page(accept)


class _Counts:
    """The counts at one moment. Made in the thread that counts calls; written in another."""

    def __init__(self, bridge: Counted, more: Callable[[Page], None] | None) -> None:
        self._more = more
        self._status = bridge.status()
        self._all = [one.copy() for one in bridge.metrics]

    def page(self, accept: str) -> tuple[bytes, str]:
        status = self._status
        servers = [server for server in status["servers"] if server.get("transport")]
        backends = {str(server["name"]): str(server["transport"]) for server in servers}
        page = Page(accept)
        page.gauges(
            "mcpbridge_info", "The running bridge, by version.", [(labels(["version"], [str(status["version"])]), 1)]
        )
        page.gauges("mcpbridge_uptime_seconds", "Seconds since the start.", [("", status["uptime_s"])])
        page.gauges("mcpbridge_clients", "Open sessions and streams of clients.", [("", status["clients"])])
        _add_servers(page, servers)
        _add_health(page, status.get("health", ()))
        if self._more is not None:
            self._more(page)
        _add_counts(page, self._all, backends)
        _add_durations(page, self._all, backends)
        return page.written(), page.kind


def _add_servers(page: Page, servers: Sequence[Mapping[str, Any]]) -> None:
    own = [(labels(["server", "backend"], [str(one["name"]), str(one["transport"])]), one) for one in servers]
    up = [(of, int(one["state"] == "ready" or (one["state"] == "idle" and not one["cause"]))) for of, one in own]
    page.gauges("mcpbridge_server_up", "1 if the server is ready, or idle and would start at its next use.", up)
    page.gauges(
        "mcpbridge_server_running_calls",
        "Calls that the server works on now.",
        [(of, one["running"]) for of, one in own],
    )
    braked = [(of, int(bool(one["braked"]))) for of, one in own]
    page.gauges(
        "mcpbridge_server_braked", "1 while the server sends too much unrequested, and is read with pauses.", braked
    )
    page.counters(
        "mcpbridge_server_restarts", "Connections that were opened again.", [(of, one["restarts"]) for of, one in own]
    )


def _add_health(page: Page, checks: Sequence[Mapping[str, Any]]) -> None:
    """What the last looks found; nothing where nobody looked."""
    found = [(labels(["name", "kind"], [str(one["name"]), str(one["kind"])]), int(one["ok"])) for one in checks]
    if found:
        page.gauges("mcpbridge_health", "1 if the last health check passed.", found)


_COUNTERS: tuple[tuple[str, str, Callable[[Series], int]], ...] = (
    ("argument_bytes", "Bytes of arguments.", lambda one: one.bytes_in),
    ("result_bytes", "Bytes of results.", lambda one: one.bytes_out),
    ("argument_tokens_estimated", "Tokens of arguments, estimated.", lambda one: estimated_tokens(one.bytes_in)),
    ("result_tokens_estimated", "Tokens of results, estimated.", lambda one: estimated_tokens(one.bytes_out)),
    ("retries", "Tries after the first one.", lambda one: one.retries),
    ("cache_hits", "Calls answered from the cache.", lambda one: one.cache_hits),
    ("coerced_calls", "Calls whose arguments were corrected.", lambda one: one.coerced),
)
"""One number of each series: name without `mcpbridge_`, help, value."""

_BY_NAME: tuple[tuple[str, str, str, Callable[[Series], Mapping[str, int]]], ...] = (
    ("calls", "outcome", "Calls, by how they ended.", lambda one: one.outcomes),
    ("refused_calls", "error", "Calls that the bridge refused.", lambda one: one.refused),
    ("failed_calls", "error", "Calls that failed at the server or on the way.", lambda one: one.failed),
    ("approvals", "answer", "Calls that a person was asked about.", lambda one: one.approvals),
    ("rewritten_results", "form", "Large results that were shortened, by form.", lambda one: one.rewritten),
    (
        "rewritten_result_tokens_estimated",
        "kind",
        "Tokens of shortened results, estimated: received, shown instead, stored, recalled later.",
        lambda one: one.tokens,
    ),
)
"""Several numbers of each series by one more label."""

_DURATIONS: tuple[tuple[str, str, Callable[[Series], Durations]], ...] = (
    (
        "mcp_server_operation_duration_seconds",
        "Seconds that requests of clients took, waiting included.",
        lambda one: one.durations,
    ),
    ("mcp_client_operation_duration_seconds", "Seconds that the servers took for them.", lambda one: one.upstream),
)


def _add_counts(page: Page, all_series: Sequence[Series], backends: Mapping[str, str]) -> None:
    names = ["server", "backend", "tool", "method", "client"]
    own = [
        (labels(names, [one.server, backends.get(one.server, ""), one.tool, one.method, one.client]), one)
        for one in all_series
    ]
    for name, text, value in _COUNTERS:
        page.counters(f"mcpbridge_{name}", text, [(of, value(one)) for of, one in own])
    for name, label, text, numbers in _BY_NAME:
        lines = [(f"{of},{labels([label], [key])}", number) for of, one in own for key, number in numbers(one).items()]
        page.counters(f"mcpbridge_{name}", text, lines)


def _add_durations(page: Page, all_series: Sequence[Series], backends: Mapping[str, str]) -> None:
    """By the names of the semantic conventions, labels too; over all clients, since each has a line for each bucket."""
    names = ["server", "network_transport", "gen_ai_tool_name", "mcp_method_name"]
    for name, text, durations in _DURATIONS:
        sums: dict[tuple[str, str, str], Durations] = {}
        for one in all_series:
            sums.setdefault((one.server, one.tool, one.method), Durations()).include(durations(one))
        lines: list[tuple[str, Sequence[int], float]] = []
        for (server, tool, method), whole in sums.items():
            backend = backends.get(server, "")
            transport = "pipe" if backend == "stdio" else "tcp" if backend else ""
            if whole.count:
                of = labels(names, [server, transport, tool, method])
                lines.append((of, whole.cumulated(), whole.seconds))
        page.histograms(name, text, _BOUNDS, lines)


async def _send(send: Send, status: int, kind: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
