"""Hooks: programs, addresses and functions that see calls, change, answer or refuse them (issue 4, Hooks)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import HookRefused
from mcpbridge.config.load import load
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.hooks.call import Answer, Hook, HookCall, after, before
from support.harness import Place, eventually, python_server
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.rpc import Message, Reply
from support.upstreams.scripted_http import Ask, http_server, reply
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, ScriptedTransport
from support.virtual_time import pass_time

BEFORE, AFTER = "tool_call.before", "tool_call.after"
HOOK = str(Path(__file__).parents[2] / "servers" / "hook.py")


def program(what: str, *more: str, event: str = BEFORE, **settings: Any) -> dict[str, Any]:
    """A hook that is a program."""
    return {"event": event, "command": [sys.executable, "-ES", HOOK, what, *more], "timeout": 10, **settings}


class Local:
    """A client in the process of the bridge, whose servers are real ones."""

    def __init__(self, bridge: Bridge, ear: Ear) -> None:
        self.bridge, self.ear = bridge, ear

    async def call(self, tool: str, **arguments: Any) -> Reply:
        """Call a tool."""
        return Reply(b"", await self.ear.ask("tools/call", {"name": tool, "arguments": arguments}))


@asynccontextmanager
async def served(
    *hooks: Mapping[str, Any], functions: Sequence[Hook] = (), servers: Mapping[str, Any] | None = None, **sections: Any
) -> AsyncIterator[Local]:
    """A bridge with these hooks, in front of a plain server unless there are others, and its client."""
    document = {
        "servers": servers or {"p": python_server("plain")},
        "hooks": hooks,
        "results": {"strategy": "off"},
        **sections,
    }
    with anyio.fail_after(60):
        async with Bridge(Settings.model_validate(document), hooks=functions) as bridge:
            assert await bridge.settled(10)
            ear = Ear(bridge.server)
            await ear.initialize()
            yield Local(bridge, ear)


def refused(answer: Reply, *words: str) -> None:
    """It was refused by a hook, and says this."""
    assert answer.failed
    assert answer.result["_meta"]["mcpbridge/error"] == "HookRefused"
    for word in words:
        assert word in answer.text


# -- programs


async def test_a_program_changes_arguments_and_the_server_gets_them_checked(place: Place) -> None:
    hooks: Any = [
        program("add", " and more", tools=["p/echo"]),
        program("add", " again", tools=["ech*"]),
        program("say", '{"arguments": {"raw": [1]}}', tools=["p/raw_result"]),
    ]
    async with place.bridge({"p": python_server("plain")}, hooks=hooks) as client:
        await client.initialize()
        await client.tools_with("p__echo")
        assert (await client.call("p__echo", text="hello")).text == "hello and more again"
        journal = json.loads((await client.call("p__journal")).text)
        sent = [message["params"] for message in journal if message.get("method") == "tools/call"]
        assert sent[0]["arguments"] == {"text": "hello and more again"}
        answer = await client.call("p__raw_result", raw="{}")
        assert answer.failed
        assert answer.result["_meta"]["mcpbridge/error"] == "ArgumentsRefused"


async def test_a_program_sees_the_call_before_and_after(tmp_path: Path) -> None:
    file = tmp_path / "events"
    hooks = [program("keep", str(file)), program("keep", str(file), event=AFTER)]
    async with served(*hooks) as client:
        params = {
            "name": "p__echo",
            "arguments": {"text": "hello"},
            "_meta": {
                "mcpbridge/run": "run-1",
                "mcpbridge/context": {"tenant": "acme", "user": "ann", "metadata": {"ticket": 7}},
            },
        }
        await client.ear.ask("tools/call", params)
        assert (await client.call("p__raw_arguments", text=2**70, number=1.0)).text
    first, second, third, fourth = [json.loads(line) for line in file.read_text().splitlines()]
    assert first["event"] == BEFORE
    shared = {key: first[key] for key in ("tool", "server", "name", "client", "run", "tenant", "user", "metadata")}
    assert shared == {
        "tool": "p/echo",
        "server": "p",
        "name": "echo",
        "client": "ear",
        "run": "run-1",
        "tenant": "acme",
        "user": "ann",
        "metadata": {"ticket": 7},
    }
    assert first["arguments"] == {"text": "hello"}
    assert first["principal"] == ""
    assert first["session"] == third["session"]
    assert second["event"] == AFTER
    assert second["id"] == first["id"] != third["id"]
    assert second["result"]["content"][0]["text"] == "hello"
    assert second["is_error"] is False
    assert second["duration"] > 0
    assert "error" not in second
    assert third["arguments"] == {"text": 2**70, "number": 1.0}
    assert fourth["facts"]["hooks"] == {"hook 1": "passed"}


async def test_without_content_a_program_sees_who_calls_what(tmp_path: Path) -> None:
    file = tmp_path / "events"
    async with served(
        program("keep", str(file), content=False), program("keep", str(file), event=AFTER, content=False)
    ) as client:
        await client.call("p__echo", text="secret")
    told = file.read_text()
    assert "secret" not in told
    assert told.count("p/echo") == 2


async def test_a_program_answers_the_call_itself(tmp_path: Path) -> None:
    file = tmp_path / "events"
    result = {"content": [{"type": "text", "text": "from the hook"}], "structuredContent": {"a": 1}, "isError": False}
    hooks = [
        program("say", json.dumps({"result": result}), tools=["echo"]),
        program("say", json.dumps({"result": "just text"}), tools=["raw_result"]),
        program("keep", str(file), event=AFTER),
    ]
    async with served(*hooks) as client:
        assert (await client.call("p__echo", text="hello")).result == result
        assert (await client.call("p__raw_result", raw="{}")).text == "just text"
        journal = json.loads((await client.call("p__journal")).text)
        assert [m["params"]["name"] for m in journal if m.get("method") == "tools/call"] == ["journal"]
    seen = [json.loads(line) for line in file.read_text().splitlines()]
    assert seen[0]["result"] == result
    assert seen[0]["facts"]["hooks"] == {"hook 1": "answered"}


async def test_a_program_refuses_with_a_reason_and_nothing_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "events"
    hooks = [
        program("say", '{"refuse": "not on Fridays"}', name="calendar", tools=["p/echo"]),
        program("keep", str(file)),
        program("keep", str(file), event=AFTER),
    ]
    async with served(*hooks) as client:
        refused(await client.call("p__echo", text="hello"), "'calendar'", "not on Fridays", "Nothing was sent")
        journal = json.loads((await client.call("p__journal")).text)
        assert [m["params"]["name"] for m in journal if m.get("method") == "tools/call"] == ["journal"]
    seen = [json.loads(line) for line in file.read_text().splitlines()]
    assert (seen[0]["event"], seen[0]["tool"], seen[0]["error"]["class"]) == (AFTER, "p/echo", "HookRefused")
    assert seen[0]["is_error"] is True


BROKEN = {
    "crash": ("exit code 1",),
    "garbage": ("no JSON",),
    "wrong key": ("not as it must be",),
    "two": ("`arguments` and `result`",),
    "no object": ("no object",),
    "no result": ("no tool result",),
    "huge": ("larger than 1 MiB",),
    "missing": ("cannot be started",),
}


def broken(how: str) -> dict[str, Any]:
    """A hook that fails in this way."""
    words = {
        "garbage": "hello, I am no JSON",
        "wrong key": '{"refused": "typo"}',
        "two": '{"arguments": {}, "result": "x"}',
        "no object": '{"arguments": [1]}',
        "no result": '{"result": {"text": "x"}}',
    }
    if how == "missing":
        return {"event": BEFORE, "command": ["/nowhere/program"]}
    return program("say", words[how]) if how in words else program(how)


@pytest.mark.parametrize("how", BROKEN)
async def test_a_program_that_fails_lets_nothing_pass_unless_it_is_open(how: str) -> None:
    async with served({**broken(how), "name": "guard"}) as client:
        answer = await client.call("p__echo", text="hello")
        refused(answer, "'guard'", "failed", *BROKEN[how], "Nothing was sent")
        assert "hunter2" not in json.dumps(answer.message)
    async with served({**broken(how), "failure": "open"}) as client:
        assert (await client.call("p__echo", text="hello")).text == "hello"


async def test_a_program_need_not_read_nor_answer() -> None:
    async with served(program("deaf"), program("deaf", event=AFTER)) as client:
        assert (await client.call("p__echo", text="x" * 500_000)).text == "x" * 500_000


async def test_a_program_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with served(program("hang", str(file), timeout=10)) as client:
        call = asyncio.create_task(client.call("p__echo", text="hello"))
        pids = await _written(file)
        assert len(pids) == 2
        assert not call.done()
        pass_time(10)
        refused(await call, "'hook 1'", "within 10 s")
        await _ended(pids)


async def test_a_program_is_killed_when_the_call_is_cancelled(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with served(program("hang", str(file), timeout=60)) as client:
        params = {"name": "p__echo", "arguments": {"text": "x"}}
        call = asyncio.create_task(client.ear.ask("tools/call", params, b"77"))
        pids = await _written(file)
        client.ear.tell("notifications/cancelled", {"requestId": 77})
        await call
        await _ended(pids)


async def test_a_child_that_a_program_leaves_behind_is_no_reason_to_wait() -> None:
    async with served(program("leave")) as client:
        assert (await client.call("p__echo", text="hello")).text == "answered"


async def _written(file: Path) -> list[int]:
    """The processes of a hook that hangs, as soon as it has told them."""

    async def look() -> list[int]:
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    return await eventually(look, bool)


async def _ended(pids: list[int]) -> None:
    """Return when they are gone: the one that is not the bridge's child needs a moment to die of its signal."""

    async def living() -> list[int]:
        return [pid for pid in pids if _lives(pid)]

    await eventually(living, lambda left: not left)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_program_runs_in_the_directory_of_the_file_with_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "x")
    hook = program("where", env={"OWN": "1"})
    async with served(hook, source=str(tmp_path / "servers.toml")) as client:
        where, names = json.loads((await client.call("p__echo", text="x")).text)
    assert Path(where) == tmp_path
    assert "OWN" in names
    assert "SOME_SECRET" not in names


async def test_a_relative_program_is_found_beside_the_file_and_its_secrets_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = tmp_path / "hooks" / "guard"
    guard.parent.mkdir()
    guard.write_text(f'#!{sys.executable} -S\nprint(\'{{"refuse": "by the guard"}}\')\n')
    guard.chmod(0o700)
    file = tmp_path / "servers.toml"
    file.write_text(
        """
        [[hooks]]
        event = "tool_call.before"
        command = ["./hooks/guard"]
        env = { SOMETHING = "${FROM_OUTSIDE}" }

        [[hooks]]
        event = "tool_call.after"
        url = "https://example.com/"
        headers = { Authorization = "Bearer plain-text-key" }
        tools = ["nothing"]
        """
    )
    monkeypatch.setenv("FROM_OUTSIDE", "what-it-brought")
    loaded = load(str(file))
    assert {"what-it-brought", "plain-text-key"} <= set(loaded.secrets)
    document = loaded.settings.model_dump(include={"hooks", "source"})
    async with served(*document["hooks"], source=document["source"]) as client:
        refused(await client.call("p__echo", text="x"), "by the guard")


# -- after the call


async def test_an_after_hook_replaces_or_withholds_a_result_and_says_that_it_ran() -> None:
    hooks = [
        program("say", '{"result": "redacted"}', event=AFTER, tools=["echo"]),
        program("say", '{"refuse": "contains a secret"}', event=AFTER, tools=["raw_arguments"], name="dlp"),
    ]
    async with served(*hooks) as client:
        assert (await client.call("p__echo", text="hello")).text == "redacted"
        answer = await client.call("p__raw_arguments")
        refused(answer, "'dlp'", "withholds", "contains a secret", "The call ran")
        assert "Nothing was sent" not in answer.text


async def test_an_after_hook_that_fails_changes_nothing_unless_it_is_closed() -> None:
    failing = program("crash", event=AFTER)
    async with served(failing, program("say", '{"arguments": {}}', event=AFTER)) as client:
        assert (await client.call("p__echo", text="hello")).text == "hello"
    async with served({**failing, "failure": "closed"}) as client:
        refused(await client.call("p__echo", text="hello"), "'hook 1'", "The call ran")


async def test_an_after_hook_sees_failures_of_all_kinds(tmp_path: Path) -> None:
    file = tmp_path / "events"
    async with served(program("keep", str(file), event=AFTER), servers={"c": python_server("counting")}) as client:
        await client.call("c__get_failed")
        await client.call("c__get_error")
        await client.call("c__get_large", size=[])
    failed, error, unfit = [json.loads(line) for line in file.read_text().splitlines()]
    assert failed["result"]["isError"] is True
    assert failed["is_error"] is True
    assert error["error"]["class"] == "UpstreamAnswered"
    assert error["error"]["answer"]["message"] == "error 1"
    assert unfit["error"]["class"] == "ArgumentsRefused"
    assert "size" in unfit["error"]["message"]


# -- addresses


async def test_an_address_gets_the_event_and_answers() -> None:
    async def script(ask: Ask) -> bytes:
        tool = ask.message["tool"]
        if tool == "p/echo":
            return reply({"arguments": {"text": ask.message["arguments"]["text"].upper()}})
        return reply(status=204)

    async with http_server(script) as server:
        hook = {"event": BEFORE, "url": server.url, "headers": {"Authorization": "Bearer t"}}
        async with served(hook) as client:
            assert (await client.call("p__echo", text="hello")).text == "HELLO"
            assert (await client.call("p__raw_arguments")).text == "{}"
        ask = server.asks[0]
        assert (ask.method, ask.headers["authorization"], ask.message["event"]) == ("POST", "Bearer t", BEFORE)
        assert ask.headers["content-type"] == "application/json"
        assert server.connections == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(status=500), "HTTP status 500"),
        (reply(status=302, location="http://127.0.0.1:1/"), "HTTP status 302"),
        (reply(b"x" * (2 << 20)), "larger than 1 MiB"),
        (reply(b"<html>"), "no JSON"),
        (None, "within 0.3 s"),
    ],
)
async def test_an_address_that_fails_is_treated_by_its_policy(answer: bytes | None, words: str) -> None:
    async def script(ask: Ask) -> bytes | None:
        if answer is None:
            await ask.gone()
        return answer

    async with http_server(script) as server:
        hook = {"event": BEFORE, "url": server.url, "timeout": 0.3 if answer is None else 10}
        async with served(hook) as client:
            refused(await client.call("p__echo", text="hello"), words)
        async with served({**hook, "failure": "open"}) as client:
            assert (await client.call("p__echo", text="hello")).text == "hello"


async def test_an_address_where_nobody_is_refuses_the_call() -> None:
    async with served({"event": BEFORE, "url": "http://127.0.0.1:1/"}) as client:
        refused(await client.call("p__echo", text="hello"), "cannot be asked")


# -- functions of the program


async def test_functions_change_answer_refuse_and_see(tmp_path: Path) -> None:
    seen: list[HookCall] = []

    @before(tools="p/echo")
    async def shout(call: HookCall) -> Mapping[str, Any] | None:
        if call.arguments["text"] == "stop":
            raise HookRefused("it says stop")
        call.arguments["unseen"] = True  # a change of the value changes nothing
        return {"text": call.arguments["text"].upper()} if call.arguments["text"] != "as it is" else None

    @before(tools=["raw_*"])
    def answer(call: HookCall) -> Answer:
        call.context.state["answered"] = call.context.state.get("answered", 0) + 1
        return Answer({"content": [{"type": "text", "text": f"answered {call.context.state['answered']}"}]})

    @after
    def see(call: HookCall) -> None:
        seen.append(call)

    async with served(functions=[shout, answer, see]) as client:
        assert (await client.call("p__echo", text="hello")).text == "HELLO"
        assert (await client.call("p__echo", text="as it is")).text == "as it is"
        refused(await client.call("p__echo", text="stop"), "'shout'", "it says stop")
        texts = [(await client.call("p__raw_arguments")).text for _ in range(2)]
        assert texts == ["answered 1", "answered 2"]
    assert [call.tool for call in seen] == ["p/echo"] * 3 + ["p/raw_arguments"] * 2
    assert seen[0].arguments == {"text": "HELLO"}
    assert seen[0].result == {"content": [{"type": "text", "text": "HELLO"}]}
    assert seen[0].facts["hooks"] == {"shout": "changed"}
    assert isinstance(seen[2].error, HookRefused)
    assert seen[2].result is None


async def test_hooks_see_arguments_as_the_tool_gets_them_so_that_none_slips_by() -> None:
    """What is mended below a hook must not be what it would have refused."""
    seen: list[dict[str, Any]] = []

    @before
    def refuse_large(call: HookCall) -> None:
        seen.append(call.arguments)
        if call.arguments["size"] == 1000:
            raise HookRefused("too large")

    async with served(functions=[refuse_large], servers={"c": python_server("counting")}) as client:
        refused(await client.call("c__get_large", size="1000"), "too large")
        mended = await client.call("c__get_large", size="3")
        assert mended.text == "1 xxx"
        assert mended.result["_meta"]["mcpbridge/coerced"]
        wrong = await client.call("c__get_large", size={"a": 1})
        assert wrong.result["_meta"]["mcpbridge/error"] == "ArgumentsRefused"
    assert seen == [{"size": 1000}, {"size": 3}, {"size": {"a": 1}}]


async def test_a_function_that_fails_is_treated_by_its_policy() -> None:
    def fails(call: HookCall) -> None:
        raise ZeroDivisionError("a secret")

    async def sleeps(call: HookCall) -> None:
        await asyncio.sleep(600)

    def returns_nonsense(call: HookCall) -> object:
        return 17

    reasons = ((fails, 10, "ZeroDivisionError"), (sleeps, 0.2, "within 0.2 s"), (returns_nonsense, 10, "int"))
    for function, seconds, reason in reasons:
        async with served(functions=[before(timeout=seconds)(function)]) as client:
            answer = await client.call("p__echo", text="hello")
            refused(answer, function.__name__, reason)
            assert "a secret" not in answer.text
        open_ = [before(timeout=seconds, failure="open")(function), after(timeout=seconds)(function)]
        async with served(functions=open_) as client:
            assert (await client.call("p__echo", text="hello")).text == "hello"


async def test_hooks_see_only_what_their_globs_match_and_cost_others_nothing() -> None:
    seen: list[str] = []

    @before(tools="echo", servers="q*")
    def see(call: HookCall) -> None:
        seen.append(call.tool)

    servers = {"p": python_server("plain"), "q": python_server("plain")}
    async with served(functions=[see], servers=servers) as client:
        for tool in ("p__echo", "q__echo", "q__raw_arguments"):
            await client.call(tool, text="x")
    assert seen == ["q/echo"]


@pytest.mark.parametrize("glob", ["echo", "shout", "p/echo", "p/shout", "p*/*ut"])
async def test_a_renamed_tool_keeps_its_hooks(glob: str) -> None:
    """By either name, as for rules: nobody takes a guard off by renaming."""

    @before(tools=glob)
    def guard(_: HookCall) -> None:
        raise HookRefused("not this one")

    renamed = {"p": python_server("plain", tool={"echo": {"rename": "shout"}})}
    async with served(functions=[guard], servers=renamed) as client:
        reply = await client.call("p__shout", text="x")
        assert "not this one" in reply.text
        assert not (await client.call("p__raw_arguments")).failed


def asking(params: Message) -> Message:
    """A modern server asks before it answers."""
    if "inputResponses" in params:
        return {"resultType": "complete", "content": []}
    question = {"mode": "form", "message": "Really?", "requestedSchema": {"type": "object", "properties": {}}}
    return {
        "resultType": "input_required",
        "requestState": "s",
        "inputRequests": {"q": {"method": "elicitation/create", "params": question}},
    }


async def test_a_call_that_comes_back_with_answers_keeps_its_changes_and_is_not_asked_again(tmp_path: Path) -> None:
    """A modern client sends the arguments again that it sent before; the hook was asked about those already."""
    file = tmp_path / "events"
    upstream = ScriptedTransport(MODERN_SERVER, **{"tools/call": asking})
    hooks = [
        program("keep", str(file)),
        program("say", '{"arguments": {"text": "changed"}}'),
        program("keep", str(file), event=AFTER),
    ]
    async with bridged({"up": upstream}, hooks=hooks) as bridge:
        ear = Ear(bridge.server)
        capable: Any = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        params: Message = {"name": "up__echo", "arguments": {"text": "first"}}
        first = (await ear.ask_modern("tools/call", params, **capable))["result"]
        (key,) = first["inputRequests"]
        params |= {
            "requestState": first["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {}}},
        }
        second = (await ear.ask_modern("tools/call", params, **capable))["result"]
        assert second["resultType"] == "complete"
    assert [call["params"]["arguments"] for call in upstream.asked("tools/call")] == [{"text": "changed"}] * 2
    seen = [json.loads(line) for line in file.read_text().splitlines()]
    # Once before the call, and once after its result: a question is none.
    assert [event["event"] for event in seen] == [BEFORE, AFTER]


# -- functions that call tools themselves


@pytest.mark.parametrize("when", [before, after])
async def test_a_function_calls_another_tool_through_the_bridge(when: Any) -> None:
    """In the very task of the call that it sees: each of the two ends as it would alone."""
    around: list[Local] = []
    inner: list[Any] = []

    @when(tools="p/echo")
    async def look_up(call: HookCall) -> None:
        params = {"name": "p__raw_arguments", "arguments": {"of": call.arguments["text"]}}
        inner.append(await around[0].bridge.request("tools/call", params))

    async with served(functions=[look_up]) as client:
        around.append(client)
        assert (await client.call("p__echo", text="front")).text == "front"
        result = await client.bridge.request("tools/call", {"name": "p__echo", "arguments": {"text": "program"}})
        assert result["content"][0]["text"] == "program"
    assert [json.loads(one["content"][0]["text"]) for one in inner] == [{"of": "front"}, {"of": "program"}]


SCRIPTED: Any = {"servers": {"up": {"command": "scripted"}}, "store": {"kind": "memory"}}
INNER, OUTER = ({"name": "up__echo", "arguments": {"text": text}} for text in ("inner", "outer"))


@asynccontextmanager
async def hooked(upstream: ScriptedTransport, function: Hook) -> AsyncIterator[tuple[BridgeToScripts, Ear]]:
    """A bridge with this hook, in front of a script, and a client."""
    settings = Settings.model_validate(SCRIPTED)
    bridge = BridgeToScripts(settings, {"up": upstream})
    Bridge.__init__(bridge, settings, hooks=[function])
    with anyio.fail_after(20):
        async with bridge:
            assert await bridge.settled(30)
            ear = Ear(bridge.server)
            await ear.initialize()
            yield bridge, ear


@pytest.mark.parametrize("reason", ["the user pressed escape", "timed out after 1s"])
async def test_a_call_that_is_cancelled_while_its_hook_calls_another_tool_never_runs(reason: str) -> None:
    """Neither is the other call taken for it, nor does that one swallow the cancel: also where a hook may fail."""
    bridges: list[Bridge] = []

    @before(failure="open")
    async def look_up(call: HookCall) -> None:
        if call.arguments["text"] == "outer":
            await bridges[0].request("tools/call", INNER)

    upstream = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with hooked(upstream, look_up) as (bridge, ear):
        bridges.append(bridge)
        asking = asyncio.ensure_future(ear.ask("tools/call", OUTER, b"7"))
        await upstream.hears("tools/call")
        ear.tell("notifications/cancelled", {"requestId": 7, "reason": reason})
        assert await asking == {}
        await upstream.hears("notifications/cancelled")
    assert [call["params"]["arguments"] for call in upstream.asked("tools/call")] == [INNER["arguments"]]


async def test_a_late_call_is_kept_though_its_hook_calls_a_tool_that_fails() -> None:
    bridges: list[Bridge] = []

    @after(failure="open")
    async def report(call: HookCall) -> None:
        if call.arguments["text"] == "outer":
            await bridges[0].request("tools/call", {"name": "nothing"})

    upstream = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with hooked(upstream, report) as (bridge, ear):
        bridges.append(bridge)
        asking = asyncio.ensure_future(ear.ask("tools/call", OUTER, b"7"))
        id_ = (await upstream.hears("tools/call"))["id"]
        ear.tell("notifications/cancelled", {"requestId": 7, "reason": "timed out after 1s"})
        upstream.line.gives({"jsonrpc": "2.0", "id": id_, "result": LEGACY_SERVER["tools/call"]})
        assert await asking == {}
        assert (await ear.ask("tools/call", OUTER))["result"]["_meta"]["mcpbridge/late"]
