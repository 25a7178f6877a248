"""A cassette records what crosses to upstreams, and answers in their place: the program notices no difference."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge, RequestFailed
from mcpbridge.base.errors import ConfigError
from mcpbridge.engine.cassettes.cassette import Cassette
from mcpbridge.engine.cassettes.file import CassetteFile
from mcpbridge.engine.cassettes.format import HEADER, read_entries
from mcpbridge.engine.cassettes.masking import Masker
from mcpbridge.engine.cassettes.record import RecordingTransport
from mcpbridge.engine.cassettes.replay import ReplayTransport, Script
from mcpbridge.protocol.jsonrpc import encode, encode_request
from mcpbridge.protocol.transport import Outgoing
from support.harness import python_server
from support.upstreams.scripted_http import Recorder
from support.upstreams.scripted_upstream import SILENCE, ScriptedTransport

Made = list[Any]
Program = Callable[[Bridge], Awaitable[Made]]
SERVERS = Path(__file__).parents[2] / "servers"
GONE = {"command": "no-such-program-anywhere"}
QUESTION = {"message": "Who is there?", "requestedSchema": {"type": "object", "properties": {}}}


@asynccontextmanager
async def opened(config: Mapping[str, Any], cassette: Cassette | Path, **more: Any) -> AsyncIterator[Bridge]:
    with anyio.fail_after(60):
        async with Bridge.open(config, cassette=cassette, environ=more.pop("environ", {}), **more) as bridge:
            assert await bridge.settled(30)
            yield bridge


async def played(servers: Mapping[str, Any], cassette: Cassette | Path, program: Program, **more: Any) -> Made:
    async with opened({"servers": servers}, cassette, **more) as bridge:
        return await program(bridge)


@asynccontextmanager
async def spawned(script: str, *args: str) -> AsyncIterator[str]:
    """The URL of a running server."""
    command = (sys.executable, str(SERVERS / f"{script}.py"), *args)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    assert process.stdin
    assert process.stdout
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()
        process._transport.close()  # pyright: ignore  # asyncio offers no other way to close its pipes


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


async def everything(bridge: Bridge) -> Made:
    """What a program may see of `rich` and `plain`."""
    progress: Made = []

    def heard(params: Any) -> None:
        progress.append({name: value for name, value in params.items() if name != "progressToken"})

    made: Made = [[tool.definition for tool in await bridge.list_tools()]]
    made += [(await bridge.call_tool("rich/work", {"steps": 3}, on_progress=heard)).raw, progress]
    made += [(await bridge.call_tool("plain/echo", {"text": text})).raw for text in ("a", "b", "ü\u2028")]
    made += [(await bridge.call_tool("plain/raw_result", {"raw": raw})).raw for raw in ODD_RESULTS]
    made += [await bridge.request("prompts/get", {"name": "rich__greet", "arguments": {"who": "Ann"}})]
    made += [await bridge.request("resources/read", {"uri": "memo://one"})]
    return made


ODD_RESULTS = (
    '{"content":[],"structuredContent":{"n":12345678901234567890123,"f":1.50,"e":1e400}}',
    '{ "content" : [ {"text":"\\u00fc", "type":"text"} ],"_meta":{"x/y":null}, "isError":true }',
)


async def test_a_replay_gives_what_was_recorded_and_starts_nothing(tmp_path: Path) -> None:
    """Promise of the library."""
    path = tmp_path / "x.jsonl"
    servers = {"rich": python_server("rich"), "plain": python_server("plain")}
    recorded = await played(servers, path, everything)
    gone = {name: {**GONE, "env": {"TOKEN": "${NOT_SET}"}} for name in servers}
    tape = Cassette(path)
    assert tape.is_replay
    assert await played(gone, tape, everything) == recorded
    assert (tape.unmatched, tape.unused) == ([], [])
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.part"))


async def test_two_recordings_are_the_same_file(tmp_path: Path) -> None:
    servers = {"rich": python_server("rich"), "plain": python_server("plain"), "modern": python_server("modern")}
    for name in ("a.jsonl", "b.jsonl"):
        await played(servers, tmp_path / name, everything)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


async def test_calls_that_run_side_by_side_do_not_shuffle_the_file(tmp_path: Path) -> None:
    async def twenty(bridge: Bridge) -> Made:
        calls = [{"name": "plain__echo", "arguments": {"text": f"text {number % 15}"}} for number in range(20)]
        calls += [{"name": "rich__say", "arguments": {"level": "info"}}]
        return [dict(result.raw) for result in await bridge.call_tools(calls)]

    servers = {"rich": python_server("rich"), "plain": python_server("plain")}
    made = [await played(servers, tmp_path / name, twenty) for name in ("a.jsonl", "b.jsonl")]
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    made.append(await played(dict.fromkeys(servers, GONE), tmp_path / "a.jsonl", twenty))
    assert made[0] == made[1] == made[2]


async def test_equal_requests_are_answered_in_their_order_and_the_last_is_repeated(tmp_path: Path) -> None:
    async def count(bridge: Bridge, times: int) -> Made:
        return [(await bridge.call_tool("up/count", {})).text for _ in range(times)]

    path = tmp_path / "x.jsonl"
    await played({"up": python_server("leaking")}, path, lambda bridge: count(bridge, 3))
    assert await played({"up": GONE}, path, lambda bridge: count(bridge, 5)) == ["1", "2", "3", "3", "3"]
    tape = Cassette(path, repeat=False)
    assert (await played({"up": GONE}, tape, lambda bridge: count(bridge, 4)))[3].startswith("The cassette")
    assert "more often" in tape.unmatched[0]
    tape = Cassette(path)
    await played({"up": GONE}, tape, lambda bridge: count(bridge, 1))
    assert len(tape.unused) == 2


@pytest.mark.parametrize(
    ("script", "args"),
    [("sse_upstream", ()), ("sse_upstream", ("http",)), ("ws_upstream", ())],
    ids=["sse", "http", "ws"],
)
async def test_servers_on_other_transports(tmp_path: Path, script: str, args: tuple[str, ...]) -> None:
    """The official SDK's server behind an address, which is stopped before the replay."""

    async def shout(bridge: Bridge) -> Made:
        progress: Made = []
        result = await bridge.call_tool("up/shout", {"text": "hi"}, on_progress=progress.append)
        return [result.raw, len(progress), [tool.id for tool in await bridge.list_tools()]]

    path = tmp_path / "x.jsonl"
    async with spawned(script, *args) as url:
        recorded = await played({"up": {"url": url}}, path, shout)
    assert recorded[1] == 1
    assert await played({"up": {"url": url}}, path, shout) == recorded
    assert "127.0.0.1" not in path.read_text()


async def test_what_servers_have_a_model_say_is_asked_again(tmp_path: Path) -> None:
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
    steps = [{"send": {"id": "it", "method": "sampling/createMessage", "params": params}}, {"await": ["it"]}]
    asked: Made = []

    def answer(params: dict[str, Any]) -> str:
        asked.append(params)
        return "hello"

    async def program(bridge: Bridge) -> Made:
        return [(await bridge.call_tool("up/play", {"steps": steps})).raw]

    path = tmp_path / "x.jsonl"
    recorded = await played({"up": python_server("asking", "legacy")}, path, program, on_sampling=answer)
    assert "hello" in str(recorded)
    assert await played({"up": GONE}, path, program, on_sampling=answer) == recorded
    assert asked[0] == asked[1]


@pytest.mark.parametrize(("era", "tool"), [("legacy", "play"), ("modern", "rounds")])
async def test_what_servers_ask_is_asked_again_and_answered_by_the_program(tmp_path: Path, era: str, tool: str) -> None:
    ask = {"method": "elicitation/create", "params": QUESTION}
    steps = [{"send": {"id": "who", **ask}}, {"await": ["who"]}]
    arguments = {"steps": steps} if era == "legacy" else {"rounds": [{"inputRequests": {"who": ask}}]}
    answers: list[str] = []

    async def program(bridge: Bridge) -> Made:
        return [(await bridge.call_tool(f"up/{tool}", arguments)).raw for _ in list(answers)]

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        assert params["message"] == "[up] Who is there?"
        return {"action": "accept", "content": {"name": answers.pop(0)}}

    path = tmp_path / "x.jsonl"
    answers += ["Ann", "Bob"]
    up = {"up": python_server("asking", era)}
    recorded = await played(up, path, program, on_elicitation=answer)
    assert "Ann" in str(recorded[0])
    answers += ["Ann", "Bob"]
    assert await played({"up": GONE}, path, program, on_elicitation=answer) == recorded
    answers += ["Bob", "Bob"]
    assert await played({"up": GONE}, path, program, on_elicitation=answer) == [recorded[1]] * 2
    answers += ["Eve"]
    tape = Cassette(path)
    (other,) = await played({"up": GONE}, tape, program, on_elicitation=answer)
    assert other["isError"]
    assert "Eve" in tape.unmatched[0]
    assert "recorded" in tape.unmatched[0]


async def test_a_list_is_another_once_the_server_has_told_so(tmp_path: Path) -> None:
    async def grow(bridge: Bridge) -> Made:
        before = [tool.id for tool in await bridge.list_tools()]
        async with anyio.create_task_group() as tasks:
            changed = anyio.Event()

            async def wait() -> None:
                while not any("grown" in tool.id for tool in await bridge.list_tools()):
                    await anyio.sleep(0.01)
                changed.set()

            tasks.start_soon(wait)
            await bridge.call_tool("up/grow", {})
            await changed.wait()
        return [before, [tool.id for tool in await bridge.list_tools()]]

    path = tmp_path / "x.jsonl"
    recorded = await played({"up": python_server("modern")}, path, grow)
    assert not any("grown" in name for name in recorded[0])
    assert await played({"up": GONE}, path, grow) == recorded


async def test_a_list_that_was_under_way_when_it_changed_is_the_one_of_after_that(tmp_path: Path) -> None:
    """The bridge looked at it again, for a reason of its own, while a call made the server offer more."""
    path = tmp_path / "x.jsonl"
    old, new = ({"tools": [{"name": name} for name in names]} for names in ("a", "ab"))
    server, tape = ScriptedTransport({"tools/list": SILENCE, "tools/call": SILENCE}), CassetteFile(path, str)
    tape.open()
    async with RecordingTransport("up", server, tape).connect(Recorder()) as channel:
        for id_, method, came in ((b"1", "tools/list", old), (b"2", "tools/call", None), (b"3", "tools/list", None)):
            channel.send(Outgoing(encode_request(id_, method, b"{}"), method, id_))
            if came:
                server.line.gives({"jsonrpc": "2.0", "id": 1, "result": came})
        server.line.says("notifications/tools/list_changed")
        for id_, came in ((2, {"content": []}), (3, new)):
            server.line.gives({"jsonrpc": "2.0", "id": id_, "result": came})
    tape.keep()
    lists = [entry for entry in entries(path) if entry["request"] == "tools/list"]
    assert [(entry.get("changes", 0), entry["result"]) for entry in lists] == [(0, old), (1, new)]


async def test_errors_and_a_crash_are_replayed_too(tmp_path: Path) -> None:
    async def fail(bridge: Bridge) -> Made:
        with pytest.raises(RequestFailed) as refused:
            await bridge.call_tool("up/refuse", {})
        result = await bridge.call_tool("up/crash", {})
        return [str(refused.value), result.is_error, result.text]

    path = tmp_path / "x.jsonl"
    recorded = await played({"up": python_server("leaking")}, path, fail)
    assert "was refused" in recorded[0]
    assert "it crashed" in recorded[2]
    assert await played({"up": GONE}, path, fail) == recorded


async def test_what_goes_wrong_over_http_goes_wrong_again(tmp_path: Path) -> None:
    async def fail(bridge: Bridge) -> Made:
        made: Made = []
        for how in ("status 503", "status 403", "html", "sse-cut", "malformed", "hang-up"):
            result = await bridge.call_tool("up/fail", {"how": how})
            made.append([result.is_error, result.text, result.meta])
        await bridge.call_tool("up/forget_sessions", {})
        return [*made, (await bridge.call_tool("up/echo", {"text": "again"})).text]

    path = tmp_path / "x.jsonl"
    async with spawned("http_upstream") as url:
        recorded = await played({"up": {"url": url}}, path, fail)
    assert recorded[-1] == "again"
    assert all(is_error for is_error, *_ in recorded[:-1])
    assert "SessionExpired" not in path.read_text()
    assert await played({"up": {"url": url}}, path, fail) == recorded


async def test_a_server_that_could_not_be_reached_cannot_be_in_replay(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"

    async def status(bridge: Bridge) -> Made:
        return [server["reason"] for server in bridge.status()["servers"]]

    (why,) = await played({"up": GONE}, path, status)
    assert "no-such-program-anywhere" in why
    assert await played({"up": python_server("plain")}, path, status) == [why]


async def test_a_request_that_is_not_in_the_recording_is_told_with_the_nearest(tmp_path: Path) -> None:
    async def echo(bridge: Bridge, text: str) -> Made:
        return [await bridge.call_tool("up/echo", {"text": text})]

    path = tmp_path / "x.jsonl"
    await played({"up": python_server("plain")}, path, lambda bridge: echo(bridge, "hello"))
    tape = Cassette(path, "replay")
    (result,) = await played({"up": GONE, "new": GONE}, tape, lambda bridge: echo(bridge, "hallo"))
    assert result.is_error
    for words in (str(path), "up/echo", '-    "text": "hello"', '+    "text": "hallo"', 'mode="record"'):
        assert words in result.text
    assert tape.unmatched == [result.text]


async def test_a_server_without_a_recording_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    await played({"up": python_server("plain")}, path, lambda bridge: bridge.list_tools())
    async with opened({"servers": {"new": GONE}}, path) as bridge:
        (server,) = bridge.status()["servers"]
    assert "has nothing of this server; it has up" in server["reason"]


async def test_a_cassette_may_be_edited(tmp_path: Path) -> None:
    async def echo(bridge: Bridge) -> Made:
        return [(await bridge.call_tool("up/echo", {"text": "hello"})).text]

    path = tmp_path / "x.jsonl"
    await played({"up": python_server("plain")}, path, echo)
    lines = path.read_text().replace('"text": "hello"}', '"text": "edited"}').splitlines()
    path.write_text("\n".join([lines[0], "// by hand", "", *reversed(lines[1:])]))
    assert await played({"up": GONE}, path, echo) == ["edited"]


async def test_a_failed_recording_leaves_the_file_as_it_was_and_what_came_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"mcpbridge_cassette":1}\n')

    async def fail(bridge: Bridge) -> Made:
        await bridge.call_tool("up/echo", {"text": "hello"})
        raise ValueError("the test failed")

    with pytest.raises(ValueError, match="the test failed"):
        await played({"up": python_server("plain")}, Cassette(path, "record"), fail)
    assert path.read_text() == '{"mcpbridge_cassette":1}\n'
    part = tmp_path / "x.jsonl.part"
    assert "hello" in part.read_text()
    assert part.stat().st_mode & 0o777 == 0o600
    part.replace(path)  # it is a cassette as well
    async with opened({"servers": {"up": GONE}}, path) as bridge:
        assert (await bridge.call_tool("up/echo", {"text": "hello"})).text == "hello"


async def test_recording_anew_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("not a cassette at all")
    await played({"up": python_server("plain")}, Cassette(path, "record"), lambda bridge: bridge.list_tools())
    assert [entry["request"] for entry in entries(path)] == ["initialize", "tools/list"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", ":1: not a cassette"),
        (b'{"other":1}\n', ":1: not a cassette"),
        (b'{"mcpbridge_cassette":2}\n', ":1: a cassette of a format"),
        (b'{"mcpbridge_cassette":1}\n{"server":"a"', ":2: not a line"),
        (b'{"mcpbridge_cassette":1}\n\n{"server":"a"}\n', ":3: not a line of a cassette: it needs one of"),
        (b'{"mcpbridge_cassette":1}\n{"server":"a","request":"x"}\n', "needs one of `result`"),
        (b'{"mcpbridge_cassette":1}\n{"server":"a","request":"x","result":[]}\n', "are objects"),
        (b'{"mcpbridge_cassette":1}\n{"server":"a","request":"x","reslt":{}}\n', "reslt"),
        (b'{"mcpbridge_cassette":1}\n{"server":"a","request":"x","result":{},"meanwhile":[{}]}\n', "`tell` or `ask`"),
        (b'{"mcpbridge_cassette":1}\n\xff\xfe\n', ":2: not a line"),
    ],
    ids=range(10),
)
def test_a_bad_cassette_is_refused_with_its_line(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        Cassette(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


async def test_a_cassette_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bridge = Bridge.open({"servers": {"up": GONE}}, cassette=tmp_path / "file" / "x.jsonl")
    with pytest.raises(ConfigError, match="cannot be written"):
        await bridge.__aenter__()
    Bridge.open({"servers": {"up": GONE}}, cassette=tmp_path / "x.jsonl")  # which never runs
    assert not (tmp_path / "x.jsonl.part").exists()


def test_a_cassette_that_is_to_be_replayed_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Cassette(tmp_path / "x.jsonl", "replay")
    with pytest.raises(ConfigError, match="no mode"):
        Cassette(tmp_path / "x.jsonl", "play")  # type: ignore[arg-type]


async def test_secrets_do_not_reach_the_file_and_replay_all_the_same(tmp_path: Path) -> None:
    """Promise of the bridge: arguments, results, errors, environment, headers, addresses."""

    async def tell(bridge: Bridge) -> Made:
        made: Made = [(await bridge.call_tool("up/leak", {})).raw]
        login = await bridge.call_tool("up/login", {"password": "hunter22-mine"})
        made.append(login.structured)
        token = login.structured["access_token"]
        made.append((await bridge.call_tool("up/echo", {"text": f"header {token} and {SECRETS[0]}"})).text)
        url = "https://ann:pass-in-url@example.com/x?api_key=key-in-query&page=2"
        made.append((await bridge.call_tool("up/open", {"url": url})).text)
        with pytest.raises(RequestFailed, match="was refused") as refused:
            await bridge.call_tool("up/refuse", {})
        made.append(str(refused.value))
        return made

    path = tmp_path / "x.jsonl"
    up = {"up": {**python_server("leaking"), "env": {"LEAKED": "${LEAKED_KEY}"}}}
    await played(up, path, tell, environ={"LEAKED_KEY": SECRETS[0]})
    text = path.read_text()
    for secret in SECRETS:
        assert secret not in text
    assert '"user": "ann"' in text or '"user":"ann"' in text
    assert "page=2" in text
    tape = Cassette(path)
    replayed = await played({"up": {**GONE, "env": {"LEAKED": "${LEAKED_KEY}"}}}, tape, tell)  # without the variable
    assert tape.unmatched == []
    assert replayed[1] == {"access_token": "[redacted]", "user": "ann", "tokens_left": 7, "author": "bob"}
    assert not any(secret in json.dumps(replayed) for secret in SECRETS if secret != SECRETS[0])


SECRETS = (
    "s3cret-of-the-environment",
    "czNjcmV0LW9mLXRoZS1lbnZpcm9ubWVud",
    "minted-by-login-77",
    "hunter22-mine",
    "pass-in-url",
    "key-in-query",
    "abcdefghijkl",
)


async def test_what_a_failed_recording_leaves_has_no_secrets_that_were_met_late(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"

    async def fail(bridge: Bridge) -> Made:
        await bridge.call_tool("up/echo", {"text": "it is hunter22-mine"})
        await bridge.call_tool("up/login", {"password": "hunter22-mine"})
        raise ValueError("the test failed")

    with pytest.raises(ValueError, match="the test failed"):
        await played({"up": python_server("leaking")}, path, fail)
    assert "up" in (tmp_path / "x.jsonl.part").read_text()
    assert "hunter22-mine" not in (tmp_path / "x.jsonl.part").read_text()


async def test_a_cassette_is_of_one_bridge_at_a_time(tmp_path: Path) -> None:
    tape = Cassette(tmp_path / "x.jsonl")
    async with opened({"servers": {}}, tape):
        with pytest.raises(ConfigError, match="a bridge runs with this cassette"):
            Bridge.open({"servers": {}}, cassette=tape)
    async with opened({"servers": {}}, tape):
        pass


async def test_a_secret_of_the_program_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    tape = Cassette(path, redact=lambda text: text.replace("Mallory", "[somebody]"))

    async def echo(bridge: Bridge) -> Made:
        return [(await bridge.call_tool("up/echo", {"text": "I am Mallory"})).text]

    assert await played({"up": python_server("plain")}, tape, echo) == ["I am Mallory"]
    assert "Mallory" not in path.read_text()
    tape = Cassette(path, redact=tape._redact)
    assert await played({"up": GONE}, tape, echo) == ["I am [somebody]"]


async def test_the_manifest_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "x.jsonl"
    for up in (python_server("plain"), GONE):
        async with Bridge.open({"servers": {"up": up}}, cassette=path) as bridge:
            assert await bridge.settled(30)
    assert not list((tmp_path / "cache").rglob("*up*"))


async def test_a_server_of_a_project_needs_none_in_replay(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    await played({"up": python_server("plain")}, path, lambda bridge: bridge.list_tools())
    up = {"command": sys.executable, "args": ["${PROJECT_ROOT}"]}
    async with opened({"servers": {"up": up}}, path) as bridge:
        assert [server["state"] for server in bridge.status()["servers"]] == ["ready"]


async def test_servers_that_come_while_it_runs_are_recorded_too(tmp_path: Path) -> None:
    async def late(bridge: Bridge) -> Made:
        await bridge.add_server("late", up)
        assert await bridge.settled(30)
        return [(await bridge.call_tool("late/echo", {"text": "hi"})).raw]

    path, up = tmp_path / "x.jsonl", python_server("plain")
    recorded = await played({}, path, late)
    up = GONE
    assert await played({}, path, late) == recorded


async def test_updates_of_resources_come_with_the_call_that_made_them(tmp_path: Path) -> None:
    async def touch(bridge: Bridge) -> Made:
        await bridge.request("resources/subscribe", {"uri": "memo://one"})
        while (
            await bridge.call_tool("rich/touch", {"uri": "memo://two"})
        ).text == "[]":  # it is told in the background
            await anyio.sleep(0.01)
        made: Made = [(await bridge.call_tool("rich/touch", {"uri": "memo://one"})).raw]
        await bridge.request("resources/unsubscribe", {"uri": "memo://one"})
        return made

    path = tmp_path / "x.jsonl"
    one, recorded = {"uri": "memo://one"}, await played({"rich": python_server("rich")}, path, touch)
    (call,) = [entry for entry in entries(path) if entry.get("params", {}).get("arguments") == one]
    assert call["meanwhile"] == [{"tell": "notifications/resources/updated", "params": {"uri": "memo://one"}}]
    assert await played({"rich": GONE}, path, touch) == recorded


async def test_what_a_server_told_by_itself_comes_first_or_with_the_first_call() -> None:
    """Several calls ran then, or none: it belongs to no request."""
    lines = [
        {"server": "up", "told": "first", "meanwhile": [{"ask": "roots/list"}]},
        {"server": "up", "told": "calls", "meanwhile": [{"tell": "notifications/message", "params": {"data": "x"}}]},
        {"server": "up", "request": "initialize", "result": {"protocolVersion": "2025-11-25"}},
        {"server": "up", "request": "tools/call", "params": {"name": "x"}, "unanswered": True},
    ]
    script = Script("x", read_entries(b"\n".join([HEADER, *map(encode, lines)]), "x"), Masker(), repeat=True)
    heard = Recorder()
    async with ReplayTransport("up", "stdio", script).connect(heard) as channel:
        channel.send(Outgoing(encode_request(b"1", "initialize", b"{}"), "initialize", b"1"))
        channel.send(Outgoing(encode_request(b"2", "ping", b"{}"), "ping", b"2"))
        await heard.until(lambda heard: len(heard.messages) == 2)
        channel.negotiated("2025-11-25")
        await heard.until(lambda heard: len(heard.messages) == 3)
        channel.send(Outgoing(b'{"jsonrpc":"2.0","id":"asked-1","result":{"roots":[]}}'))
        channel.send(Outgoing(encode_request(b"3", "tools/call", b'{"name":"x"}'), "tools/call", b"3"))
        await heard.until(lambda heard: len(heard.messages) == 4)
        channel.withdraw(b"3")
    assert [frame.method for frame, _ in heard.messages] == ["", "", "roots/list", "notifications/message"]


async def test_the_answer_to_what_nobody_waited_for_is_not_taken_for_another() -> None:
    """The server had withdrawn its first question when the second was answered."""
    ask = {"ask": "elicitation/create", "params": {"message": "x"}}
    steps = [ask, {**ask, "answer": {"action": "accept"}}]
    lines = [{"server": "up", "request": "tools/call", "params": {"name": "x"}, "meanwhile": steps, "result": {"n": 1}}]
    script = Script("x", read_entries(b"\n".join([HEADER, *map(encode, lines)]), "x"), Masker(), repeat=True)
    heard = Recorder()
    async with ReplayTransport("up", "stdio", script).connect(heard) as channel:
        channel.send(Outgoing(encode_request(b"3", "tools/call", b'{"name":"x"}'), "tools/call", b"3"))
        await heard.until(lambda heard: len(heard.messages) == 2)
        channel.send(Outgoing(b'{"jsonrpc":"2.0","id":"asked-1","result":{"action":"decline"}}'))
        channel.send(Outgoing(b'{"jsonrpc":"2.0","id":"asked-2","result":{"action":"accept"}}'))
        await heard.until(lambda heard: len(heard.messages) == 3)
    assert bytes(heard.messages[2][0].result) == b'{"n":1}'
    assert script.unmatched == []
