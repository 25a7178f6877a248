"""One session: agreeing on a revision in either era, listing all pages, and what every request carries."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import BridgeError, UpstreamGone, UpstreamHttpError, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.peer import Peer
from mcpbridge.upstream.session import session as session_module
from mcpbridge.upstream.session.negotiation import ProbeKilled
from mcpbridge.upstream.session.session import Listing, UpstreamSession
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, Refusal, ScriptedTransport

LIMITS = Timeouts(5, 5)
REFUSES_ALL = {"initialize": Refusal(-32600, "go away")}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only silence is taken for silence, no machine that is slow."""
    monkeypatch.setattr(session_module, "PROBE_SECONDS", 60.0)


@asynccontextmanager
async def connected(
    transport: ScriptedTransport, *, is_plain: bool = True
) -> AsyncIterator[tuple[UpstreamSession, Peer, list[tuple[str, bytes]]]]:
    """A session that has not been opened, its peer, and the notifications that it hears."""
    heard: list[tuple[str, bytes]] = []
    peer = Peer(
        "up",
        on_notification=lambda method, params, via: heard.append((method, bytes(params))),
        on_closed=lambda reason: None,
    )
    with anyio.fail_after(10):
        async with transport.connect(peer) as line:
            peer.attach(line)
            info = {"name": "mcpbridge", "version": "1"}
            yield UpstreamSession("up", peer, line, is_plain=is_plain, client_info=info), peer, heard


@asynccontextmanager
async def opened(
    transport: ScriptedTransport, era: str = "auto", *, is_plain: bool = True
) -> AsyncIterator[UpstreamSession]:
    async with connected(transport, is_plain=is_plain) as (session, _, _):
        await session.open(era, 60)
        yield session


def ending(reason: str) -> Callable[[ScriptedTransport], Callable[[dict[str, Any]], str]]:
    """A script entry: the server ends at this request."""

    def made(transport: ScriptedTransport) -> Callable[[dict[str, Any]], str]:
        def answer(_: dict[str, Any]) -> str:
            transport.line.ends(reason)
            return SILENCE

        return answer

    return made


# -- opening


@pytest.mark.parametrize("is_plain", [True, False], ids=["stdio", "http"])
async def test_a_modern_server_is_found_by_the_probe_alone(is_plain: bool) -> None:
    transport = ScriptedTransport(MODERN_SERVER)
    async with opened(transport, is_plain=is_plain) as session:
        assert (session.modern, session.version, session.instructions) == (True, "2026-07-28", "be modern")
        assert session.server_info["version"] == "2"
        assert session.lists == ["tools", "resources", "templates"]
        assert transport.line.versions == ["2026-07-28"]
    assert [message["method"] for message in transport.line.heard] == ["server/discover"]
    meta = transport.line.heard[0]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


@pytest.mark.parametrize("is_plain", [True, False], ids=["stdio", "http"])
async def test_a_legacy_server_gets_the_handshake_after_it_refused_the_probe(is_plain: bool) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with opened(transport, is_plain=is_plain) as session:
        assert (session.modern, session.version, session.instructions) == (False, "2025-06-18", "be kind")
        assert session.lists == ["tools"]
        assert transport.line.versions == ["2025-06-18"]
    methods = [message["method"] for message in transport.line.heard]
    assert methods == ["server/discover", "initialize", "notifications/initialized"]
    asked = transport.line.heard[1]["params"]
    assert asked["protocolVersion"] == "2025-11-25", "the newest that has a handshake"
    assert "_meta" not in asked


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_legacy_revision_is_spoken(version: str) -> None:
    said = {"protocolVersion": version, "capabilities": {}}
    transport = ScriptedTransport({"initialize": said})
    async with opened(transport, "legacy") as session:
        assert session.version == version
        assert session.lists == []
    assert not transport.asked("server/discover"), "as configured"


async def test_a_server_silent_to_the_probe_is_asked_in_the_old_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """MCP 2026-07-28, stdio, Backward Compatibility: no answer in a reasonable time means legacy."""
    monkeypatch.setattr(session_module, "PROBE_SECONDS", 0.01)
    transport = ScriptedTransport(LEGACY_SERVER, **{"server/discover": SILENCE})
    async with opened(transport) as session:
        assert not session.modern
    assert not transport.asked("notifications/cancelled"), "a probe is not cancelled: old servers die of surprises"


async def test_a_modern_server_that_is_slow_to_start_is_still_found_modern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "PROBE_SECONDS", 0.01)
    transport = ScriptedTransport(MODERN_SERVER)

    def both_at_once(_: dict[str, Any]) -> Any:
        probe = transport.line.asked("server/discover")[0]
        discovered = MODERN_SERVER["server/discover"]
        transport.line.gives({"jsonrpc": "2.0", "id": probe["id"], "result": discovered})
        return Refusal(-32022, "Unsupported protocol version")

    transport.script |= {"server/discover": SILENCE, "initialize": both_at_once}
    async with opened(transport) as session:
        assert session.modern


async def test_a_legacy_answer_to_a_slow_probe_waits_for_the_handshake_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "PROBE_SECONDS", 0.01)
    transport = ScriptedTransport(LEGACY_SERVER)

    def refuse_probe_first(_: dict[str, Any]) -> Any:
        probe = transport.line.asked("server/discover")[0]
        error = {"code": -32601, "message": "Method not found"}
        transport.line.gives({"jsonrpc": "2.0", "id": probe["id"], "error": error})
        return LEGACY_SERVER["initialize"]

    transport.script |= {"server/discover": SILENCE, "initialize": refuse_probe_first}
    async with opened(transport) as session:
        assert not session.modern
    assert len(transport.asked("initialize")) == 1


@pytest.mark.parametrize("dies_at", ["server/discover", "initialize"])
async def test_a_server_that_ends_after_the_probe_is_to_be_started_again_as_legacy(dies_at: str) -> None:
    """Servers built on rmcp exit on any request before `initialize`."""
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.script[dies_at] = ending("exit code 1")(transport)
    async with connected(transport) as (session, _, _):
        with pytest.raises(ProbeKilled, match="exit code 1"):
            await session.open("auto", 60)


async def test_a_server_that_refuses_all_since_the_probe_is_to_be_started_again_as_legacy() -> None:
    async with connected(ScriptedTransport(REFUSES_ALL)) as (session, _, _):
        with pytest.raises(ProbeKilled):
            await session.open("auto", 60)


async def test_a_server_that_refuses_the_handshake_without_a_probe_is_what_it_is() -> None:
    async with connected(ScriptedTransport(REFUSES_ALL)) as (session, _, _):
        with pytest.raises(BridgeError, match="answered with an error"):
            await session.open("legacy", 60)


async def test_a_server_that_answers_nothing_is_given_up_in_time() -> None:
    silent = {"server/discover": SILENCE, "initialize": SILENCE}
    async with connected(ScriptedTransport(silent)) as (session, _, _):
        with pytest.raises(UpstreamTimeout):
            await session.open("auto", 0.05)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"protocolVersion": "1999-01-01"}, "revision '1999-01-01', which the bridge does not speak"),
        ({"protocolVersion": 5}, "its answer to initialize is not valid"),
        ({}, "its answer to initialize is not valid"),
        ({"protocolVersion": "2025-06-18", "capabilities": []}, "its answer to initialize is not valid"),
    ],
)
async def test_an_odd_answer_to_initialize_is_explained(answer: dict[str, Any], words: str) -> None:
    async with connected(ScriptedTransport({"initialize": answer})) as (session, _, _):
        with pytest.raises(UpstreamUnavailable, match=words):
            await session.open("legacy", 60)


async def test_instructions_of_the_wrong_kind_are_left_out() -> None:
    said = {"protocolVersion": "2025-06-18", "capabilities": {}, "instructions": ["a"]}
    async with opened(ScriptedTransport({"initialize": said}), "legacy") as session:
        assert session.instructions == ""


async def test_a_modern_server_of_other_revisions_is_named() -> None:
    found = {"supportedVersions": ["2031-01-01", "2032-01-01"], "capabilities": {}}
    async with connected(ScriptedTransport({"server/discover": found})) as (session, _, _):
        with pytest.raises(UpstreamUnavailable, match="it speaks only 2031-01-01, 2032-01-01"):
            await session.open("auto", 60)


async def test_a_server_that_is_modern_by_its_error_is_asked_for_everything() -> None:
    """An error code of the modern era tells the era and no capabilities."""
    error = Refusal(-32022, "Unsupported protocol version", {"supported": ["2026-07-28"]})
    async with opened(ScriptedTransport({"server/discover": error})) as session:
        assert session.modern
        assert session.lists == ["tools", "prompts", "resources", "templates"]


async def test_where_modern_is_configured_a_legacy_server_is_told_so() -> None:
    transport = ScriptedTransport({**LEGACY_SERVER, "server/discover": {"hello": 1}})
    async with connected(transport) as (session, _, _):
        with pytest.raises(UpstreamUnavailable, match="does not speak a modern revision"):
            await session.open("modern", 60)
    transport = ScriptedTransport(LEGACY_SERVER)
    async with connected(transport) as (session, _, _):
        with pytest.raises(BridgeError):
            await session.open("modern", 60)
    assert not transport.asked("initialize")
    async with opened(ScriptedTransport(MODERN_SERVER), "modern") as modern:
        assert modern.modern


@pytest.mark.parametrize("status", [400, 404, 405, 406])
async def test_an_http_refusal_of_the_probe_means_legacy(status: int) -> None:
    refusal = UpstreamHttpError("up", status, f"HTTP {status}")
    async with opened(ScriptedTransport(LEGACY_SERVER, **{"server/discover": refusal}), is_plain=False) as session:
        assert not session.modern


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_an_http_failure_that_tells_nothing_of_the_era_is_passed_on(status: int) -> None:
    failure = UpstreamHttpError("up", status, f"HTTP {status}")
    for is_plain in (True, False):
        transport = ScriptedTransport(LEGACY_SERVER, **{"server/discover": failure})
        async with connected(transport, is_plain=is_plain) as (session, _, _):
            with pytest.raises(UpstreamHttpError) as caught:
                await session.open("auto", 60)
        assert caught.value.status == status
        assert not transport.asked("initialize")


# -- listing


def pages(*each: list[str], cursors: list[Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answers `tools/list`, one page after the other, with these cursors."""
    at = iter(range(1000))

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        number = next(at)
        page: dict[str, Any] = {"tools": [{"name": name} for name in each[number % len(each)]]}
        cursor = cursors[number % len(cursors)]
        return page if cursor == "none" else {**page, "nextCursor": cursor}

    return answer


async def listed(transport: ScriptedTransport) -> Listing:
    async with opened(transport, "legacy") as session:
        return await session.list_all("tools", LIMITS)


async def names(transport: ScriptedTransport) -> list[str]:
    """The names of a list that is whole."""
    listing = await listed(transport)
    assert not listing.trouble
    return [json.loads(entry)["name"] for entry in listing.entries]


async def test_all_pages_are_listed_and_the_empty_cursor_is_one() -> None:
    script = {"tools/list": pages(["a", "b"], ["c"], ["d"], cursors=["two", "", "none"])}
    transport = ScriptedTransport(LEGACY_SERVER, **script)
    assert await names(transport) == ["a", "b", "c", "d"]
    asked = [message.get("params", {}) for message in transport.asked("tools/list")]
    assert asked == [{}, {"cursor": "two"}, {"cursor": ""}]


async def test_a_null_cursor_ends_the_list() -> None:
    assert await names(ScriptedTransport(LEGACY_SERVER, **{"tools/list": pages(["a"], cursors=[None])})) == ["a"]


async def test_cursors_that_lead_in_a_circle_end_the_list() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/list": pages(["a"], ["b"], cursors=["x", "y", "x"])})
    assert await names(transport) == ["a", "b", "a"]


async def test_a_list_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_ENTRIES", 5)
    endless = pages(["a", "b"], cursors=[str(number) for number in range(1000)])
    assert len(await names(ScriptedTransport(LEGACY_SERVER, **{"tools/list": endless}))) == 5
    monkeypatch.setattr(session_module, "MAX_ENTRIES", 10_000)
    monkeypatch.setattr(session_module, "MAX_PAGES", 3)
    endless = pages(["a", "b"], cursors=[str(number) for number in range(1000)])
    assert len(await names(ScriptedTransport(LEGACY_SERVER, **{"tools/list": endless}))) == 6


@pytest.mark.parametrize("page", [{"tools": 5}, {}, {"tools": [], "nextCursor": 5}, {"tools": None}])
async def test_a_page_that_cannot_be_read_is_trouble_and_keeps_what_came_before(page: dict[str, Any]) -> None:
    whole = {"tools": [{"name": "a"}], "nextCursor": "two"}
    script = {"tools/list": lambda params: page if "cursor" in params else whole}
    listing = await listed(ScriptedTransport(LEGACY_SERVER, **script))
    assert "wrong shape" in listing.trouble
    assert listing.entries == (b'{"name": "a"}',)


async def test_a_list_that_is_not_there_is_an_empty_one() -> None:
    """Servers declare what they do not have."""
    assert await names(ScriptedTransport(LEGACY_SERVER, **{"tools/list": Refusal(-32601)})) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [(Refusal(-32603, "database is locked"), "database is locked"), (UpstreamHttpError("up", 503, "HTTP 503"), "503")],
)
async def test_a_list_that_cannot_be_had_now_is_trouble(answer: Any, words: str) -> None:
    """What was offered before must not vanish for it."""
    listing = await listed(ScriptedTransport(LEGACY_SERVER, **{"tools/list": answer}))
    assert words in listing.trouble
    assert "tools/list" in listing.trouble


async def test_a_list_of_a_server_that_ends_meanwhile_is_its_end() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.script["tools/list"] = ending("exit code 1")(transport)
    with pytest.raises(UpstreamGone):
        await listed(transport)


async def test_definitions_keep_their_bytes() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/list": SILENCE})
    odd = b'{ "name":"a","x":123456789012345678901234567890,"y":null }'
    async with connected(transport) as (session, peer, _), anyio.create_task_group() as tasks:
        await session.open("legacy", 60)

        async def check() -> None:
            assert await session.list_all("tools", LIMITS) == Listing((odd,), "")

        tasks.start_soon(check)
        asked = await transport.hears("tools/list")
        from mcpbridge.protocol.jsonrpc import decode_frame

        peer.frame(decode_frame(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%b]}}' % (asked["id"], odd)), b"")


# -- using


async def test_a_request_carries_the_envelope_in_the_modern_era_only() -> None:
    for script, modern in ((LEGACY_SERVER, False), (MODERN_SERVER, True)):
        transport = ScriptedTransport(script)
        async with opened(transport) as session:
            call = Call(
                "tools/call",
                "up",
                "echo",
                Body(b'{"name":"echo","_meta":{"a":1,"progressToken":"theirs"}}'),
                meta=Body(b'{"a":1,"progressToken":"theirs"}'),
                wants_progress=True,
                log_level="info",
            )
            await session.relay(call, LIMITS, b"")
        [sent] = transport.asked("tools/call")
        meta = sent["params"]["_meta"]
        assert meta["a"] == 1
        assert meta["progressToken"] == sent["id"]
        assert ("io.modelcontextprotocol/protocolVersion" in meta) == modern
        assert ("io.modelcontextprotocol/logLevel" in meta) == modern


@pytest.mark.parametrize(("script", "method"), [(LEGACY_SERVER, "ping"), (MODERN_SERVER, "server/discover")])
async def test_a_sign_of_life_is_asked_for_in_the_words_of_the_era(script: Any, method: str) -> None:
    transport = ScriptedTransport(script)
    async with opened(transport) as session:
        before = len(transport.asked(method))
        await session.ping()
        assert len(transport.asked(method)) == before + 1
        transport.script[method] = Refusal()
        await session.ping()  # an error is a sign of life too
        transport.line.is_open = False
        with pytest.raises(UpstreamGone):
            await session.ping()


async def test_a_listen_stream_waits_without_a_deadline_and_hears_what_comes() -> None:
    transport = ScriptedTransport(MODERN_SERVER)
    heard: list[str] = []
    async with opened(transport) as session, anyio.create_task_group() as tasks:
        kinds = {"tools": True, "prompts": False, "resources": False}
        tasks.start_soon(session.listen, kinds, ["memo://1"], lambda method, params: heard.append(method))
        sent = await transport.hears("subscriptions/listen")
        assert sent["id"] == "listen-1", "its id is no number: some servers take 7 and '7' for the same"
        assert sent["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["memo://1"]}
        assert session.standing_requests == 1
        transport.line.gives({"jsonrpc": "2.0", "id": "listen-1", "result": {"resultType": "complete"}})
    assert session.standing_requests == 0


async def test_subscriptions_and_log_levels_are_requests_of_the_legacy_era() -> None:
    accepts = {"resources/subscribe": {}, "resources/unsubscribe": {}, "logging/setLevel": {}}
    transport = ScriptedTransport({**LEGACY_SERVER, **accepts})
    async with opened(transport) as session:
        await session.subscribe("memo://1", 5)
        await session.unsubscribe("memo://1", 5)
        await session.set_log_level("warning", 5)
    said = [(message["method"], message["params"]) for message in transport.line.heard[-3:]]
    assert said == [
        ("resources/subscribe", {"uri": "memo://1"}),
        ("resources/unsubscribe", {"uri": "memo://1"}),
        ("logging/setLevel", {"level": "warning"}),
    ]


async def test_what_a_server_declared_decides_what_is_asked_of_it() -> None:
    capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": False}, "logging": {}, "prompts": "odd"}
    said = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
    async with opened(ScriptedTransport({"initialize": said}), "legacy") as session:
        assert [kind for kind in ("tools", "prompts", "resources") if session.offers_changes(kind)] == ["tools"]
        assert not session.has_subscriptions
        assert [name for name in ("logging", "completions", "prompts") if session.declares(name)] == [
            "logging",
            "prompts",
        ]
