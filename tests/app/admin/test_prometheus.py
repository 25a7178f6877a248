"""`/metrics`: what is counted, in both text formats, readable for the official parsers; and who may read it."""

import threading
from typing import Any

import anyio
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from mcpbridge.app.admin.prometheus import exposition, make_metrics
from mcpbridge.pipeline.observability.metrics import Metrics

Sample = tuple[str, tuple[tuple[str, str], ...]]

OPEN = "application/openmetrics-text; version=1.0.0"


class Running:
    """A bridge with one server, as far as its counts go."""

    def __init__(self, version: object = "1.2") -> None:
        self.version, self.metrics = version, Metrics()
        series = self.metrics.series("files", "files/read", "tools/call", 'an "odd"\nname')
        series.ended("ok", 0.03, 0.02, 9, 4001)
        series.ended("refused", 0.001, 0.0, 3, 0)
        series.went_wrong("refused", "NotPermitted")
        series.ended("failed", 400, 399, 3, 0)
        series.went_wrong("failed", "UpstreamTimeout")
        series.took_note({"retries": 2, "cache": "hit", "coerced": ["n"], "approval": "once by ann"})
        series.rewrote("preview", came=900, sent=100, stored=890)
        series.recalled(30)
        self.metrics.series("gone", "", "prompts/get", "").ended("ok", 0.5, 0.5, 1, 1)

    def status(self) -> dict[str, Any]:
        known = {"name": "files", "transport": "stdio", "state": "ready", "running": 1, "braked": "", "restarts": 4}
        return {
            "version": self.version,
            "uptime_s": 3.5,
            "clients": 2,
            "servers": [known, {"name": "off", "state": "disabled"}],
        }


def samples(text: str, parse: Any = parse_text) -> dict[Sample, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", "text/plain", OPEN])
def test_the_official_parser_reads_what_was_counted(accept: str) -> None:
    body, kind = exposition(Running(), accept)
    found = samples(body.decode(), parse_open if accept == OPEN else parse_text)
    assert kind.startswith("application/openmetrics-text" if accept == OPEN else "text/plain")
    of = (
        ("backend", "stdio"),
        ("client", 'an "odd"\nname'),
        ("method", "tools/call"),
        ("server", "files"),
        ("tool", "files/read"),
    )

    def counted(name: str, **more: str) -> float:
        return found[name, tuple(sorted({**dict(of), **more}.items()))]

    assert [counted("mcpbridge_calls_total", outcome=how) for how in ("ok", "refused", "failed")] == [1, 1, 1]
    assert counted("mcpbridge_refused_calls_total", error="NotPermitted") == 1
    assert counted("mcpbridge_failed_calls_total", error="UpstreamTimeout") == 1
    assert counted("mcpbridge_approvals_total", answer="granted") == 1
    assert counted("mcpbridge_argument_bytes_total") == 15
    assert counted("mcpbridge_result_bytes_total") == 4001
    assert counted("mcpbridge_argument_tokens_estimated_total") == 5
    assert counted("mcpbridge_result_tokens_estimated_total") == 1251
    assert counted("mcpbridge_retries_total") == 2
    assert counted("mcpbridge_cache_hits_total") == 1
    assert counted("mcpbridge_coerced_calls_total") == 1
    assert counted("mcpbridge_rewritten_results_total", form="preview") == 1
    tokens = {"came": 900, "shown": 100, "stored": 890, "recalled": 30}
    assert {kind: counted("mcpbridge_rewritten_result_tokens_estimated_total", kind=kind) for kind in tokens} == tokens
    server = (("backend", "stdio"), ("server", "files"))
    assert found["mcpbridge_server_up", server] == 1
    assert found["mcpbridge_server_running_calls", server] == 1
    assert found["mcpbridge_server_restarts_total", server] == 4
    assert found["mcpbridge_info", (("version", "1.2"),)] == 1
    assert (found["mcpbridge_uptime_seconds", ()], found["mcpbridge_clients", ()]) == (3.5, 2)


def test_durations_are_histograms_by_the_names_of_the_conventions() -> None:
    found = samples(exposition(Running())[0].decode())
    of = {
        "gen_ai_tool_name": "files/read",
        "mcp_method_name": "tools/call",
        "network_transport": "pipe",
        "server": "files",
    }
    for name, counts in (("server", {"0.02": 1, "0.05": 2, "300.0": 2, "+Inf": 3}), ("client", {"0.02": 1, "+Inf": 2})):
        family = f"mcp_{name}_operation_duration_seconds"
        for bound, count in counts.items():
            assert found[f"{family}_bucket", tuple(sorted({**of, "le": bound}.items()))] == count
        assert found[f"{family}_count", tuple(sorted(of.items()))] == counts["+Inf"]
    assert found["mcp_server_operation_duration_seconds_sum", tuple(sorted(of.items()))] == pytest.approx(400.031)


def test_durations_are_of_all_clients_together() -> None:
    """Each has 34 lines, and clients choose their names."""
    bridge = Running()
    before = exposition(bridge)[0].count(b"_bucket{")
    for name in ("one", "other"):
        bridge.metrics.series("files", "files/read", "tools/call", name).ended("ok", 0.03, 0.02, 9, 4001)
    text = exposition(bridge)[0].decode()
    assert text.count("_bucket{") == before
    counts = [
        value for (name, _), value in samples(text).items() if name == "mcp_server_operation_duration_seconds_count"
    ]
    assert sorted(counts) == [1, 5]
    assert text.count("mcpbridge_argument_bytes_total{") == 4


def test_what_is_counted_meanwhile_is_not_in_a_copy() -> None:
    series = Running().metrics.series("files", "files/read", "tools/call", "c")
    series.ended("ok", 0.03, 0.02, 9, 4001)
    copy = series.copy()
    series.ended("refused", 0.03, 0.02, 9, 4001)
    series.went_wrong("refused", "NotPermitted")
    series.took_note({"retries": 2, "cache": "hit", "coerced": ["n"], "approval": "once by ann"})
    assert (copy.outcomes, copy.refused, copy.approvals) == ({"ok": 1}, {}, {})
    assert (copy.durations.count, copy.upstream.seconds, copy.bytes_in) == (1, 0.02, 9)
    assert (copy.retries, copy.cache_hits, copy.coerced) == (0, 0, 0)
    assert (copy.server, copy.tool, copy.method, copy.client) == ("files", "files/read", "tools/call", "c")


async def get(*, method: str = "GET", bridge: Any = None, **who: Any) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be read")

    app = make_metrics(bridge or Running(), readers=frozenset({"prometheus"}))
    scope: Any = {"type": "http", "method": method, "headers": [], "state": {"principal": "", "is_admin": False, **who}}
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def test_who_administers_or_is_named_reads_it_and_nobody_else() -> None:
    assert (await get(principal="ann"))[0] == 403
    assert b"metrics = true" in (await get(principal="ann"))[1]
    for who in ({"principal": "ann", "is_admin": True}, {"principal": "prometheus"}, {"principal": ""}):
        status, body = await get(**who)
        assert (status, body[:6]) == (200, b"# HELP")


async def test_it_can_only_be_read() -> None:
    assert (await get(method="POST"))[0] == 405
    assert await get(method="HEAD") == (200, b"")


class WrittenWhenAllowed:
    """A version that is in a page once the loop has said so: what is written on the loop waits in vain."""

    def __init__(self) -> None:
        self.allowed = threading.Event()

    def __str__(self) -> str:
        assert self.allowed.wait(20), "nothing else went on while the page was written"
        return "1.2"


async def test_calls_go_on_while_pages_are_written() -> None:
    version, bodies = WrittenWhenAllowed(), list[bytes]()
    bridge = Running(version)

    async def read() -> None:
        status, body = await get(bridge=bridge)
        assert (status, b'version="1.2"' in body) == (200, True)
        bodies.append(body)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert bodies == []
            version.allowed.set()
    assert bodies[0] == bodies[1]
