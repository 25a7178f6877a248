"""Which tools clients are listed, and how they find and call the others (issue 6)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.protocol.meta import QUERY
from support.answering_clients import ACCEPT, FORM, Person, ask, in_rounds, world
from support.harness import Place, python_server
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.rpc import Client, HttpClient, Message, Refused, StdioClient, envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

pytestmark = pytest.mark.anyio

DEEDS = {"deeds": python_server("deeds")}
META = ["call_tool", "describe_tools", "find_tools"]
# A search sees what is there once the wait for starting servers is over: here that is when they are up.
SEARCH: dict[str, Any] = {"expose": {"mode": "search"}, "bridge": {"startup_wait": 60}}
BOTH_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])


async def listed(client: Client, **meta: Any) -> list[str]:
    params = {"_meta": meta} if meta else {}
    return [tool["name"] for tool in (await client.request("tools/list", params)).result["tools"]]


async def through(client: Client, tool: str, **arguments: Any) -> Any:
    """A call by way of `call_tool`."""
    return await client.call("call_tool", name=tool, arguments=arguments)


# -- what is not listed


async def test_what_is_not_listed_is_found_described_and_called(place: Place) -> None:
    async with place.bridge(DEEDS, **SEARCH) as client:
        await client.initialize()
        assert await client.tools_with("find_tools") == META
        found = (await client.call("find_tools", query="delete a note")).text
        assert found.startswith("deeds__delete_note(note?: str)"), found
        described = (await client.call("describe_tools", names=["deeds__pay", "deeds__nothing"])).text
        assert "currency" in described
        assert "Unknown tool: deeds__nothing" in described
        by_itself = await client.call("deeds__get_note", note="a")
        assert by_itself.text == 'did get_note {"note": "a"}'
        assert (await through(client, "deeds__get_note", note="a")).result == by_itself.result
        assert (await through(client, "deeds/get_note", note="a")).result == by_itself.result


async def test_a_wrong_argument_is_answered_with_the_signature(place: Place) -> None:
    async with place.bridge(DEEDS, **SEARCH) as client:
        await client.initialize()
        reply = await through(client, "deeds__pay", amount={})
        assert reply.failed
        assert "deeds__pay(amount?: int, to?: str, currency?: str=" in reply.text, reply.text
        with pytest.raises(Refused, match="did you mean"):
            _ = (await through(client, "deeds__paye")).result
        assert "needs the `name`" in (await client.call("call_tool")).text
        with pytest.raises(Refused, match="not itself"):
            _ = (await through(client, "call_tool", name="deeds__peek")).result


async def test_models_may_say_the_arguments_of_call_tool_otherwise(place: Place) -> None:
    async with place.bridge(DEEDS, **SEARCH) as client:
        await client.initialize()
        expected = (await client.call("deeds__get_note", note="a")).text
        for arguments in (
            {"name": "deeds__get_note", "note": "a"},
            {"name": "deeds__get_note", "args": {"note": "a"}},
            {"tool": "deeds__get_note", "arguments": '{"note": "a"}'},
        ):
            assert (await client.request("tools/call", {"name": "call_tool", "arguments": arguments})).text == expected
        params = {"name": "call_tool", "arguments": {"name": "deeds__get_note", "arguments": {}, "note": "a"}}
        stray = await client.request("tools/call", params)
        assert stray.failed
        assert "note belongs into `arguments`" in stray.text


async def test_the_policy_decides_about_the_tool_whatever_the_way(place: Place) -> None:
    rules = [
        {"tools": "delete_note", "permission": "deny"},
        {"tools": "pay", "when": "args.amount > 100", "permission": "deny", "reason": "too much"},
    ]
    async with place.bridge(DEEDS, **SEARCH, permissions=rules) as client:
        await client.initialize()
        await client.tools_with("find_tools")
        assert "delete_note" not in (await client.call("find_tools", query="delete a note")).text
        assert "Unknown tool" in (await client.call("describe_tools", names=["deeds__delete_note"])).text
        assert "denied by the policy" in (await through(client, "deeds__delete_note", note="a")).text
        assert "too much" in (await through(client, "deeds__pay", amount=101, to="x")).text
        assert "did pay" in (await through(client, "deeds__pay", amount=100, to="x")).text


async def test_call_tool_itself_can_be_denied(place: Place) -> None:
    rules = [{"tools": "mcpbridge/call_tool", "permission": "deny"}]
    async with place.bridge(DEEDS, **SEARCH, permissions=rules) as client:
        await client.initialize()
        assert len(await client.tools_with("deeds__peek")) == 6, "nothing can be found, so all is listed"
        assert "denied by the policy" in (await through(client, "deeds__peek")).text
        assert "did peek" in (await client.call("deeds__peek")).text


async def test_rules_about_call_tool_itself_are_obeyed(place: Place) -> None:
    rules = [{"tools": "mcpbridge/call_tool", "when": "args.name == 'deeds__wipe'", "permission": "deny"}]
    async with place.bridge(DEEDS, **SEARCH, permissions=rules) as client:
        await client.initialize()
        assert await client.tools_with("find_tools") == META
        assert "denied by the policy" in (await through(client, "deeds__wipe")).text
        assert "did wipe" in (await client.call("deeds__wipe")).text
        assert "did peek" in (await through(client, "deeds__peek")).text
        assert "deeds__pay(amount?: int" in (await through(client, "deeds__pay", amount={})).text


async def test_what_is_denied_by_default_can_still_be_searched(place: Place) -> None:
    rules = [{"tools": "deeds/get_note", "permission": "allow"}]
    async with place.bridge(DEEDS, **SEARCH, permissions=rules, calls={"permission": "deny"}) as client:
        await client.initialize()
        assert await client.tools_with("find_tools") == META
        found = (await client.call("find_tools", query="notes")).text
        assert "deeds__get_note" in found
        assert "delete_note" not in found


async def test_a_search_waits_for_servers_that_start(place: Place) -> None:
    marker = place.folder / "marker"
    async with place.bridge({"up": python_server("stubborn", "starts-when-told", str(marker))}, **SEARCH) as client:
        await client.initialize()
        search = asyncio.create_task(client.call("find_tools", query="echo", within=60))
        await asyncio.sleep(0)  # it is written first
        await client.request("ping")
        marker.touch()
        assert (await search).text.startswith("up__echo")


@BOTH_ERAS
async def test_a_call_by_call_tool_asks_its_user_as_a_direct_one_does(tmp_path: Path, modern: bool) -> None:
    servers = {"old": ["legacy"], "new": ["modern"]}
    async with world("http", tmp_path, servers, **SEARCH) as around:
        person = await around.person(modern=modern)

        def answers(_: Message) -> Message:
            return ACCEPT

        direct = json.loads((await person.calls("new__rounds", answers, rounds=in_rounds(FORM))).text)
        own: Message = {"name": "new__rounds", "arguments": {"rounds": in_rounds(FORM)}}
        assert json.loads((await person.calls("call_tool", answers, **own)).text) == direct
        played = await person.calls("call_tool", answers, name="old__play", arguments={"steps": ask(FORM)})
        assert list(json.loads(played.text).values()) == [ACCEPT]
        assert len(person.asked) == 3


@BOTH_ERAS
async def test_progress_and_cancelling_reach_through_call_tool(tmp_path: Path, modern: bool) -> None:
    progress = {
        "send": {"method": "notifications/progress", "params": {"progressToken": "$token", "progress": 1, "total": 2}}
    }
    async with world("stdio", tmp_path, {"old": ["legacy"]}, **SEARCH) as around:
        person = await around.person(modern=modern)
        arguments = {"steps": [progress, {"await": ["never"]}]}
        id_ = person.client.next_id()
        meta = {"progressToken": "t"}
        params = person.params("call_tool", {"name": "old__play", "arguments": arguments}, meta)
        call = person.front.start("tools/call", params, id_)
        # Below zero is what the bridge tells itself while the server starts.
        told = await person.client.notice("notifications/progress", lambda params: params["progress"] >= 0)
        assert told["params"] == {"progressToken": "t", "progress": 1, "total": 2}
        sent = await around.gets("old", "tools/call")
        assert (sent["params"]["name"], sent["params"]["arguments"]) == ("play", arguments)
        await person.client.tell("notifications/cancelled", requestId=id_, reason="enough")
        assert (await around.gets("old", "notifications/cancelled"))["params"]["requestId"] == sent["id"]
        call.cancel()


# -- lists


@BOTH_ERAS
async def test_lists_do_not_depend_on_earlier_calls(tmp_path: Path, modern: bool) -> None:
    async with world("http", tmp_path, {"old": ["legacy"], "new": ["modern"]}, **SEARCH) as around:
        person = await around.person(modern=modern)
        before = await listing_of(person)
        await person.client.request("tools/call", person.params("find_tools", {"query": "play a game in rounds"}))
        await person.client.request("tools/call", person.params("describe_tools", {"names": ["old__play"]}))
        assert await listing_of(person) == before
        other = await around.person(modern=not modern)
        assert [tool["name"] for tool in await listing_of(other)] == [tool["name"] for tool in before] == META


async def listing_of(person: Person, **meta: Any) -> list[Message]:
    params = {"_meta": {**(envelope() if person.modern else {}), **meta}}
    return (await person.client.request("tools/list", params)).result["tools"]


@BOTH_ERAS
async def test_a_list_for_a_request_has_the_tools_that_it_needs(tmp_path: Path, modern: bool) -> None:
    async with world("http", tmp_path, {"old": ["legacy"], "new": ["modern"]}, router={"max_tools": 1}) as around:
        person = await around.person(modern=modern)
        query = "play with old"
        everything = await listing_of(person)
        messages = [
            {"role": "user", "content": {"type": "text", "text": query}},
            {"role": "assistant", "content": {"type": "text", "text": "rounds"}},
        ]
        for said in (query, messages, {"messages": messages}):
            names = [tool["name"] for tool in await listing_of(person, **{QUERY: said})]
            assert names == [*META, "old__play"]
        assert await listing_of(person) == everything
        assert await listing_of(person, **{QUERY: 7}) == everything


async def test_clients_get_the_list_that_suits_them() -> None:
    names = [f"tool_number_{number}" for number in range(90)]
    async with bridged({"up": _scripted(*names)}) as bridge:
        assert await _seen(bridge, "someone") == 90
        assert await _seen(bridge, "Visual Studio Code") == 90
        assert await _seen(bridge, "cursor-vscode") == META, "it takes 80"
    async with bridged({"up": _scripted(*names)}, expose={"auto_tokens": 500}) as bridge:
        assert await _seen(bridge, "codex-mcp-client") == META
        assert await _seen(bridge, "someone") == META
        assert await _seen(bridge, "claude-code") == 90, "it finds tools in long lists by itself"
        assert await _seen(bridge, "") == 90, "a program"


async def test_recall_is_loaded_from_the_start_by_a_client_that_defers_tools() -> None:
    """Previews of results name it, and such a client cannot call what it has not loaded."""
    async with bridged({"up": _scripted("get")}, results={"strategy": "preview"}) as bridge:
        tools = {tool["name"]: tool for tool in await _tools(bridge, "claude-code")}
        assert tools["recall"]["_meta"]["anthropic/alwaysLoad"] is True
        assert "anthropic/alwaysLoad" not in tools["up__get"].get("_meta", {})
        others = {tool["name"]: tool for tool in await _tools(bridge, "someone")}
        assert "_meta" not in others["recall"]


async def test_the_configuration_knows_clients_better() -> None:
    own = {"Codex*": {"mode": "all"}, "claude-*": {"mode": "search"}, "short*": {"slim": "signatures"}}
    async with bridged({"up": _scripted("get", "put")}, expose={"clients": own, "pins": ["up/put"]}) as bridge:
        assert await _seen(bridge, "codex-mcp-client") == ["up__get", "up__put"]
        assert await _seen(bridge, "claude-code") == [*META, "up__put"]
        tools = {tool["name"]: tool for tool in await _tools(bridge, "claude-code")}
        assert tools["find_tools"]["_meta"] == {"anthropic/alwaysLoad": True}
        assert "_meta" not in tools["up__put"]
        [get, _] = await _tools(bridge, "shorty")
        assert get["inputSchema"]["properties"] == {"of": {"type": "string"}}, "shorter than a signature"


async def test_what_is_hidden_is_not_listed_and_is_found_and_called_all_the_same() -> None:
    """Issue 20: on/off, hide, pin. What is hidden costs no tokens and is not forbidden."""
    expose = {"hide": ["up/p*"], "pins": ["up/post"]}
    async with bridged({"up": _scripted("get", "put", "post")}, expose=expose) as bridge:
        ear = await _ear(bridge, "mcp-inspector")
        names = sorted(tool["name"] for tool in (await ear.ask("tools/list"))["result"]["tools"])
        assert names == sorted([*META, "up__get", "up__post"])
        assert "put" in await _text(ear, "find_tools", query="put")
        assert await _text(ear, "up__put") == await _text(ear, "call_tool", name="up__put") == "done"
    async with bridged({"up": _scripted("get")}, expose={"hide": ["other/*"]}) as bridge:
        assert await _seen(bridge, "mcp-inspector") == ["up__get"], "nothing is left out, so nothing finds it"


async def test_hidden_tools_do_not_count_where_the_size_of_the_list_decides() -> None:
    expose = {"clients": {"few": {"max_tools": 2}}}
    tools = _scripted("a", "b", "c")
    async with bridged({"up": tools}, expose=expose) as bridge:
        assert await _seen(bridge, "few") == META
    async with bridged({"up": _scripted("a", "b", "c")}, expose={**expose, "hide": ["up/c"]}) as bridge:
        assert await _seen(bridge, "few") == sorted([*META, "up__a", "up__b"])


async def test_names_that_a_client_would_cut_are_cut_here_and_still_mean_the_tool() -> None:
    long = "a_tool_whose_name_is_longer_than_what_that_client_takes_of_it"
    async with bridged({"up": _scripted(long)}, bridge={"name_length": 100}) as bridge:
        ear = await _ear(bridge, "cursor-vscode")
        [tool] = (await ear.ask("tools/list"))["result"]["tools"]
        assert len(tool["name"]) == 50
        assert (await ear.ask("tools/call", {"name": tool["name"]}))["result"]["content"][0]["text"] == "done"
        assert await _seen(bridge, "someone") == [f"up__{long}"]


async def test_clients_are_told_of_changes_of_their_own_list_only() -> None:
    upstream = _scripted("get")
    own = {"searcher": {"mode": "search"}, "pinner": {"mode": "search"}}
    async with bridged({"up": upstream}, expose={"clients": own, "map": False, "pins": ["up/post"]}) as bridge:
        every, searcher = await _ear(bridge, "every"), await _ear(bridge, "searcher")
        for ear in (every, searcher):
            await ear.ask("tools/list")
        _grow(upstream, "get", "put")
        await every.hears("notifications/tools/list_changed")
        assert searcher.told == []
        assert "put" in (await _text(searcher, "find_tools", query="put")), "a search knows it at once"
        for ear in (every, searcher):  # whoever does not list again can call it all the same
            assert (await _text(ear, "up__put")) == (await _text(ear, "call_tool", name="up__put")) == "done"
        _grow(upstream, "get", "put", "post")
        await searcher.hears("notifications/tools/list_changed")


async def test_what_was_found_can_be_listed_from_then_on() -> None:
    """Where that is switched on, and for clients of the handshake era: modern lists depend on no earlier call."""
    async with bridged({"up": _scripted("get", "put")}, expose={"mode": "search", "activate": True}) as bridge:
        ear, other = await _ear(bridge, "someone"), await _ear(bridge, "someone")
        await _text(ear, "find_tools", query="put", limit=1)
        await ear.hears("notifications/tools/list_changed")
        assert [tool["name"] for tool in (await ear.ask("tools/list"))["result"]["tools"]] == [*META, "up__put"]
        assert [tool["name"] for tool in (await other.ask("tools/list"))["result"]["tools"]] == META
        await ear.ask_modern("tools/call", {"name": "find_tools", "arguments": {"query": "get", "limit": 1}})
        assert [tool["name"] for tool in (await ear.ask_modern("tools/list"))["result"]["tools"]] == META
        assert len(ear.told) == 1
        assert other.told == []


async def test_what_served_before_comes_a_little_earlier_for_the_same_user() -> None:
    names = ("send_by_road", "send_by_rail")
    async with bridged({"up": _scripted(*names)}, search={"feedback": True}) as bridge:
        ear = await _ear(bridge, "someone")
        first, second = (line.partition("(")[0] for line in (await _text(ear, "find_tools", query="send")).splitlines())
        for _ in range(6):
            await ear.ask("tools/call", {"name": second, "arguments": {}})
            last = await _text(ear, "find_tools", query="send")
        assert [line.partition("(")[0] for line in last.splitlines()] == [second, first]
        other = await _ear(bridge, "someone")
        other.client.principal = "another"
        assert (await _text(other, "find_tools", query="send")).startswith(first)


async def test_the_map_tells_what_there_is_and_stays_within_the_budget() -> None:
    names = [f"{verb}_{thing}" for verb in ("create", "list", "delete") for thing in ("issue", "page", "repository")]
    async with bridged({"forge": _scripted(*names)}, expose={"mode": "search"}) as bridge:
        [find] = [tool for tool in await _tools(bridge, "someone") if tool["name"] == "find_tools"]
        assert "forge (" in find["description"]
        again = [tool for tool in await _tools(bridge, "someone else") if tool["name"] == "find_tools"]
        assert again == [find]


@pytest.mark.parametrize("prefix", ["always", "on-collision", "never"])
async def test_names_of_the_bridges_own_tools_are_never_a_servers(prefix: str) -> None:
    names = ("find_tools", "call_tool", "mcpbridge__find_tools", "Find_Tools", "other")
    async with bridged({"up": _scripted(*names)}, bridge={"prefix": prefix}, expose={"mode": "search"}) as bridge:
        assert await _seen(bridge, "someone") == ["call_tool", "describe_tools", "find_tools"]
        ear = await _ear(bridge, "someone")
        for name in ("find_tools", "mcpbridge__find_tools", "mcpbridge/find_tools"):
            assert "up__call_tool(" in await _text(ear, name, query="call_tool")
        assert await _text(ear, "up__find_tools") == await _text(ear, "call_tool", name="up/find_tools")


# -- profiles


PROFILES: Message = {
    "reading": {"tools": ["*/get_*", "*/peek"], "description": "Nothing here changes anything."},
    "money": {"tags": ["money"]},
    "other": {"servers": ["other"], "exclude": ["*/wipe"]},
}


def _two() -> dict[str, Any]:
    return {
        "deeds": python_server("deeds", tool={"pay": {"tags": ["money"]}}),
        "other": python_server("deeds"),
    }


async def test_profiles_have_endpoints_of_their_own(place: Place) -> None:
    async with place.http_bridge(_two(), profiles=PROFILES) as merged:
        await merged.initialize()
        await merged.tools_with("deeds__wipe")
        assert len(await merged.tools_with("other__wipe")) == 12
        base = merged.url.removesuffix("/mcp")
        for profile, expected in (
            ("reading", ["deeds__get_note", "deeds__peek", "other__get_note", "other__peek"]),
            ("money", ["deeds__pay"]),
            ("other", [f"other__{name}" for name in ("delete_note", "get_note", "grow", "pay", "peek")]),
        ):
            async with HttpClient(f"{base}/p/{profile}/mcp", merged.log) as client:
                opened = await client.initialize()
                assert ("Nothing here changes anything." in opened["instructions"]) == (profile == "reading")
                assert await listed(client) == expected
                assert await listed(client, **envelope()) == expected
                assert "did" in (await client.call(expected[0])).text or expected[0].endswith("note")
                with pytest.raises(Refused, match="Unknown tool: other__wipe"):
                    _ = (await client.call("other__wipe")).result
                with pytest.raises(Refused, match="Unknown tool: other__wipe"):
                    _ = (await through(client, "other__wipe")).result
                assert "other__wipe" not in (await client.call("find_tools", query="wipe everything")).text
        async with HttpClient(f"{base}/p/nobody/mcp", merged.log) as client:
            with pytest.raises(Refused, match=r"No profile is called 'nobody'; known: money, other, reading"):
                await client.initialize()


async def test_a_profile_can_be_served_on_stdio_and_given_to_a_client(place: Place) -> None:
    config = place.config(_two(), profiles=PROFILES, expose={"clients": {"reader": {"profile": "reading"}}})
    async with place.started("serve", "--config", str(config), "--profile", "money") as command:
        assert command.process.stdin
        assert command.process.stdout
        client = StdioClient(command.process.stdout, command.process.stdin, command)
        async with client.reading():
            await client.initialize()
            assert await client.tools_with("deeds__pay") == ["deeds__pay"]
    finished = await place.run("serve", "--config", str(config), "--profile", "monye")
    assert finished.code != 0
    assert "no profile is called 'monye'" in finished.err


async def test_a_profile_that_is_not_there_is_a_mistake_of_the_configuration(place: Place) -> None:
    config = place.config(_two(), expose={"profile": "x"})
    finished = await place.run("list", "--config", str(config))
    assert "names the profile 'x', which does not exist" in finished.err


# -- parts


def _scripted(*names: str) -> ScriptedTransport:
    return ScriptedTransport({**LEGACY_SERVER, "tools/list": _listing(names)})


def _listing(names: tuple[str, ...]) -> Message:
    schema = {"type": "object", "properties": {"of": {"type": "string", "description": "which one"}}}
    return {"tools": [{"name": name, "description": f"It is to {name}.", "inputSchema": schema} for name in names]}


def _grow(upstream: ScriptedTransport, *names: str) -> None:
    upstream.script["tools/list"] = _listing(names)
    upstream.lines[-1].says("notifications/tools/list_changed")


async def _ear(bridge: BridgeToScripts, name: str) -> Ear:
    ear = Ear(bridge.server)
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
    await ear.ask("initialize", info)
    ear.tell("notifications/initialized")
    return ear


async def _tools(bridge: BridgeToScripts, name: str) -> list[Message]:
    ear = await _ear(bridge, name)
    return (await ear.ask("tools/list"))["result"]["tools"]


async def _seen(bridge: BridgeToScripts, name: str) -> list[str] | int:
    """The names that a client of this name is listed; many only counted."""
    names = [tool["name"] for tool in await _tools(bridge, name)]
    return len(names) if len(names) > 10 else names


async def _text(ear: Ear, tool: str, **arguments: Any) -> str:
    reply = await ear.ask("tools/call", {"name": tool, "arguments": arguments})
    return reply["result"]["content"][0]["text"]
