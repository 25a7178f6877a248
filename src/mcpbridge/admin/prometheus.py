"""`/metrics`: what is counted of calls, and how the servers are, in the text formats of Prometheus and OpenMetrics.

Made from the bridge's own counts at each request for it; the client library is loaded at the first one. Principals are
no label: who calls is nobody's business here. Tokens are estimates, and named so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from mcpbridge.downstream.http_exchange import Receive, Scope, Send
from mcpbridge.downstream.http_mounts import App
from mcpbridge.pipeline.metrics import BUCKETS, Durations, Metrics, Series
from mcpbridge.pipeline.token_estimates import estimated_tokens

__all__ = ["Counted", "exposition", "make_metrics"]

_FORBIDDEN = (
    b"The counts are for those who administer the bridge: send a token of `http.tokens` with `metrics = true` or "
    b"`admin = true`.\n"
)
_TEXT = b"text/plain; charset=utf-8"
_BOUNDS = [str(bound) for bound in BUCKETS] + ["+Inf"]


class Counted(Protocol):
    """A running bridge, as far as its counts go; `mcpbridge.bridge.Bridge` is one."""

    @property
    def metrics(self) -> Metrics:
        """What is counted of calls."""
        ...

    def status(self) -> Mapping[str, Any]:
        """How it and its servers are."""
        ...


def make_metrics(bridge: Counted, *, readers: frozenset[str]) -> App:
    """The application at `/metrics`. `readers`: the principals who may read it, besides those who administer.

    Where no token is asked for at all, everyone may who reaches the address.
    """

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        who: Mapping[str, Any] = scope["state"]
        if scope["method"] not in ("GET", "HEAD"):
            await _send(send, 405, _TEXT, b"Only GET is served here.\n", (b"allow", b"GET"))
        elif not (who["is_admin"] or not who["principal"] or who["principal"] in readers):
            await _send(send, 403, _TEXT, _FORBIDDEN)
        else:
            accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
            body, kind = exposition(bridge, accept.decode("latin-1"))
            await _send(send, 200, kind.encode(), body if scope["method"] == "GET" else b"")

    return app


def exposition(bridge: Counted, accept: str = "") -> tuple[bytes, str]:
    """The document, and its media type: the one of those it is known in that the `Accept` header wants."""
    from prometheus_client.exposition import choose_encoder

    encode, kind = choose_encoder(accept)
    return encode(_Collector(bridge)), kind  # pyright: ignore[reportArgumentType] - all that is asked of it is `collect`


class _Collector:
    def __init__(self, bridge: Counted) -> None:
        self._bridge = bridge

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        status = self._bridge.status()
        servers = [server for server in status["servers"] if server.get("transport")]
        backends = {str(server["name"]): str(server["transport"]) for server in servers}
        info = core.GaugeMetricFamily("mcpbridge_info", "The bridge that runs.", labels=["version"])
        info.add_metric([str(status["version"])], 1)
        yield info
        yield core.GaugeMetricFamily("mcpbridge_uptime_seconds", "Since the start.", value=status["uptime_s"])
        yield core.GaugeMetricFamily("mcpbridge_clients", "Open sessions and streams.", value=status["clients"])
        yield from _of_servers(servers, core)
        yield from _of_calls(list(self._bridge.metrics), backends, core)


def _of_servers(servers: Iterable[Mapping[str, Any]], core: Any) -> Iterator[Any]:
    labels = ["server", "backend"]
    up = core.GaugeMetricFamily("mcpbridge_server_up", "1 while a server is ready.", labels=labels)
    running = core.GaugeMetricFamily("mcpbridge_server_running_calls", "Calls it works on now.", labels=labels)
    restarts = core.CounterMetricFamily("mcpbridge_server_restarts", "Connections made anew.", labels=labels)
    for server in servers:
        values = [str(server["name"]), str(server["transport"])]
        up.add_metric(values, int(server["state"] == "ready"))
        running.add_metric(values, server["running"])
        restarts.add_metric(values, server["restarts"])
    yield from (up, running, restarts)


_COUNTERS: tuple[tuple[str, str, Callable[[Series], int]], ...] = (
    ("argument_bytes", "Bytes of arguments.", lambda one: one.bytes_in),
    ("result_bytes", "Bytes of results.", lambda one: one.bytes_out),
    ("argument_tokens_estimated", "Tokens of arguments, estimated.", lambda one: estimated_tokens(one.bytes_in)),
    ("result_tokens_estimated", "Tokens of results, estimated.", lambda one: estimated_tokens(one.bytes_out)),
    ("retries", "Tries beyond the first.", lambda one: one.retries),
    ("cache_hits", "Calls answered without the server.", lambda one: one.cache_hits),
    ("coerced_calls", "Calls whose arguments were mended.", lambda one: one.coerced),
)
"""One number of each series: name without `mcpbridge_`, help, value."""

_BY_NAME: tuple[tuple[str, str, str, Callable[[Series], Mapping[str, int]]], ...] = (
    ("calls", "outcome", "Calls, by how they ended.", lambda one: one.outcomes),
    ("refused_calls", "error", "Calls that the bridge refused.", lambda one: one.refused),
    ("failed_calls", "error", "Calls that failed at the server or on the way.", lambda one: one.failed),
    ("approvals", "answer", "Calls that a person was asked about.", lambda one: one.approvals),
)
"""Several numbers of each series by one more label."""


def _of_calls(all_series: Iterable[Series], backends: Mapping[str, str], core: Any) -> Iterator[Any]:
    labels = ["server", "backend", "tool", "method", "client"]
    own = {id(one): [one.server, backends.get(one.server, ""), one.tool, one.method, one.client] for one in all_series}
    for name, text, value in _COUNTERS:
        family = core.CounterMetricFamily(f"mcpbridge_{name}", text, labels=labels)
        for one in all_series:
            family.add_metric(own[id(one)], value(one))
        yield family
    for name, label, text, numbers in _BY_NAME:
        family = core.CounterMetricFamily(f"mcpbridge_{name}", text, labels=[*labels, label])
        for one in all_series:
            for key, number in numbers(one).items():
                family.add_metric([*own[id(one)], key], number)
        yield family
    # By the names of the semantic conventions, labels too, as far as there are any.
    conventional = ["server", "network_transport", "gen_ai_tool_name", "mcp_method_name", "client"]
    whole = core.HistogramMetricFamily(
        "mcp_server_operation_duration_seconds", "Requests of clients, waiting included.", labels=conventional
    )
    part = core.HistogramMetricFamily(
        "mcp_client_operation_duration_seconds", "What the servers took of these.", labels=conventional
    )
    for one in all_series:
        _, backend, *rest = own[id(one)]
        values = [one.server, "pipe" if backend == "stdio" else "tcp" if backend else "", *rest]
        _add(whole, values, one.durations)
        if one.upstream.count:
            _add(part, values, one.upstream)
    yield from (whole, part)


def _add(family: Any, values: list[str], durations: Durations) -> None:
    buckets = list(zip(_BOUNDS, durations.cumulated(), strict=True))
    family.add_metric(values, buckets=buckets, sum_value=durations.seconds)


async def _send(send: Send, status: int, kind: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
