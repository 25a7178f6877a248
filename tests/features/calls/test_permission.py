"""Who may call what, and who sees what: the `permissions` of a running bridge (issue 4)."""

import hashlib
import json
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.protocol.transport import Outgoing
from support.harness import Place, eventually, python_server
from support.in_process_bridge import Ear, bridged, frame_of
from support.rpc import Client, HttpClient, Refused, envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, Line, ScriptedTransport

pytestmark = pytest.mark.anyio

DEEDS = {"deeds": python_server("deeds")}
ALL = ["deeds__delete_note", "deeds__get_note", "deeds__grow", "deeds__pay", "deeds__peek", "deeds__wipe"]


def without(*names: str) -> list[str]:
    return [name for name in ALL if name.removeprefix("deeds__") not in names]


async def greet(client: Client, name: str) -> None:
    """The handshake, of a client that calls itself so."""
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
    client.initialized((await client.request("initialize", info, within=10)).result)
    await client.tell("notifications/initialized")


async def denied(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a refusal by the policy."""
    reply = await client.call(tool, **arguments)
    assert reply.failed, f"it was let through: {reply.message}"
    assert "denied by the policy" in reply.text, reply.text
    return reply.text


def rules(*permissions: dict[str, Any]) -> dict[str, Any]:
    return {"permissions": list(permissions)}


async def test_what_is_denied_is_neither_listed_nor_called_nor_suggested(place: Place) -> None:
    deny = rules({"tools": "delete_*", "permission": "deny", "reason": "notes are kept"})
    async with place.bridge(DEEDS, **deny) as client:
        await client.initialize()
        assert await client.tools_with("deeds__pay") == without("delete_note")
        for name in ("deeds__delete_note", "deeds/delete_note", "delete_note"):
            text = await denied(client, name, note="secret")
            assert text.startswith("deeds/delete_note is denied by the policy: notes are kept. Nothing was sent.")
            assert "secret" not in text
        with pytest.raises(Refused) as caught:
            _ = (await client.call("deeds__delete_not")).result
        assert "delete_note" not in caught.value.message
        assert (await client.call("deeds__get_note", note="a")).text == 'did get_note {"note": "a"}'


async def test_settings_of_tools_and_servers_deny_as_rules_do(place: Place) -> None:
    servers = {
        "deeds": python_server("deeds", tool={"pay": {"permission": "deny"}}),
        "other": python_server("deeds", permission="deny", tool={"get_note": {"permission": "allow"}}),
    }
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("deeds__peek")
        assert await client.tools_with("other__get_note") == [*without("pay"), "other__get_note"]
        await denied(client, "deeds__pay")
        await denied(client, "other__peek")


async def test_conditions_look_at_the_arguments(place: Place) -> None:
    deny = rules(
        {"tools": "pay", "when": "args.amount > 100", "permission": "deny", "reason": "too much"},
        {"tools": "pay", "when": "args.to in ['ann', 'bob']", "permission": "allow"},
        {"tools": "pay", "permission": "deny"},
    )
    async with place.bridge(DEEDS, **deny) as client:
        await client.initialize()
        assert await client.tools_with("deeds__pay") == ALL
        assert "too much" in await denied(client, "deeds__pay", amount=101, to="ann")
        assert "did pay" in (await client.call("deeds__pay", amount=100, to="ann")).text
        assert "too much" not in await denied(client, "deeds__pay", amount=1, to="eve")
        text = await denied(client, "deeds__pay", to="ann")
        assert "rule 1 of `permissions` cannot be evaluated ('amount' is missing)" in text
        assert "has(args.x) && …" in text
        await denied(client, "deeds__pay", amount=1)


async def test_conditions_see_arguments_as_the_tool_gets_them(place: Place) -> None:
    """With slips mended and defaults filled in."""
    deny = rules({"tools": "pay", "when": "args.currency == 'EUR' && args.amount > 100", "permission": "deny"})
    async with place.bridge(DEEDS, **deny) as client:
        await client.initialize()
        assert await client.tools_with("deeds__pay") == ALL
        text = await denied(client, "deeds__pay", amount="101")
        assert "cannot be evaluated" not in text
        assert "did pay" in (await client.call("deeds__pay", amount="101", currency="ISK")).text
        assert "did pay" in (await client.call("deeds__pay", amount="99")).text


async def test_annotations_count_as_far_as_the_server_is_trusted(place: Place) -> None:
    servers = {
        "known": python_server("deeds", trusted=True),
        "strange": python_server("deeds"),
    }
    only_reading = rules(
        {"tools": ["known/peek", "strange/peek", "*/wipe", "*/get_note"], "read_only": True, "permission": "allow"},
        {"permission": "deny"},
    )
    async with place.bridge(servers, **only_reading) as client:
        await client.initialize()
        assert await client.tools_with("known__peek") == ["known__peek"]
        await denied(client, "strange__peek")
        await denied(client, "strange__get_note")  # its name is the server's choice as well
        assert not (await client.call("known__peek")).failed


async def test_names_and_annotations_make_a_risk(place: Place) -> None:
    async with place.bridge(DEEDS, **rules({"risk": ["high"], "permission": "deny"})) as client:
        await client.initialize()
        assert await client.tools_with("deeds__pay") == without("delete_note", "wipe")
        await denied(client, "deeds__wipe")


async def test_a_client_sees_what_rules_about_its_name_leave(place: Place) -> None:
    deny = rules({"clients": "careless*", "side_effects": True, "permission": "deny"})
    async with place.http_bridge(DEEDS, **deny) as careful, HttpClient(careful.url, careful.log) as careless:
        await greet(careful, "careful")
        await greet(careless, "careless-9")
        assert await eventually(careful.tools, lambda tools: len(tools) == 6) == ALL
        assert await careless.tools() == without("delete_note", "pay", "wipe")
        await denied(careless, "deeds__wipe")
        assert "did wipe" in (await careful.call("deeds__wipe")).text
        info = {"name": "careless", "version": "1"}
        for name, expected in ((info, without("delete_note", "pay", "wipe")), ({**info, "name": "x"}, ALL)):
            meta = envelope(**{"io.modelcontextprotocol/clientInfo": name})
            async with HttpClient(careful.url, careful.log) as modern:
                listing = (await modern.request("tools/list", {"_meta": meta})).result["tools"]
                assert [tool["name"] for tool in listing] == expected
                reply = await modern.call("deeds__wipe", meta=meta)
                assert reply.failed == (expected != ALL)


async def test_the_holders_of_two_tokens_see_and_may_do_different_things(place: Place) -> None:
    tokens = {"ann": "token-of-ann", "bob": "token-of-bob"}
    sections = {
        "http": {
            "tokens": [
                {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest()} for name, token in tokens.items()
            ]
        },
        **rules(
            {"principals": "ann", "tools": "deeds/*", "permission": "allow"},
            {"tools": ["delete_note", "pay"], "permission": "deny"},
        ),
    }
    async with (
        place.http_bridge(DEEDS, **sections) as ann,
        HttpClient(ann.url, ann.log) as bob,
        HttpClient(ann.url.replace("/mcp", "/servers/deeds/mcp"), ann.log) as one,
    ):
        for client, token in ((ann, tokens["ann"]), (bob, tokens["bob"]), (one, tokens["bob"])):
            client.http.headers["authorization"] = f"Bearer {token}"
            await greet(client, "same")
        assert await eventually(ann.tools, lambda tools: len(tools) == 6) == ALL
        assert await bob.tools() == without("delete_note", "pay")
        assert await one.tools() == ["get_note", "grow", "peek", "wipe"]
        await denied(bob, "deeds__pay", amount=1)
        await denied(one, "pay", amount=1)
        assert "did pay" in (await ann.call("deeds__pay", amount=1)).text


async def test_changes_are_told_to_those_who_see_them(place: Place) -> None:
    deny = rules({"clients": "careless", "tools": "delete_*", "permission": "deny"})
    changed = "notifications/tools/list_changed"
    async with place.http_bridge(DEEDS, **deny) as careful, HttpClient(careful.url, careful.log) as careless:
        await greet(careful, "careful")
        await eventually(careful.tools, lambda tools: len(tools) == 6)
        await greet(careless, "careless")
        await careless.tools()
        async with careless.listening():
            await careful.call("deeds__grow", called="delete_more")
            await eventually(careful.tools, lambda tools: "deeds__delete_more" in tools)
            await careful.call("deeds__grow", called="get_more")
            await careless.notice(changed)
            await eventually(careful.tools, lambda tools: "deeds__get_more" in tools)
        assert await careless.tools() == sorted([*without("delete_note"), "deeds__get_more"])
        told = [message for message in careless.arrived if message.get("method") == changed]
        assert len(told) == 1, "of what it does not see it hears nothing"


async def test_pages_go_on_behind_what_is_hidden(place: Place) -> None:
    deny = rules({"tools": "get_note", "permission": "deny"})
    async with place.bridge(DEEDS, bridge={"page_size": 2}, **deny) as client:
        await client.initialize()
        await eventually(client.tools, lambda tools: len(tools) == 2)
        names: list[str] = []
        cursor: dict[str, str] = {}
        for _ in range(3):
            page = (await client.request("tools/list", cursor)).result
            names += [tool["name"] for tool in page["tools"]]
            cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else {}
        assert names == without("get_note")
        assert not cursor


async def test_the_commands_obey_as_clients_do(place: Place) -> None:
    config = place.config(
        DEEDS, **rules({"tools": "pay", "permission": "deny"}, {"clients": "?*", "permission": "deny"})
    )
    listed = await place.run("list", "--config", str(config))
    assert listed.code == 0, listed.err
    assert "peek" in listed.out
    assert "pay" not in listed.out


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"permission": "deny", "when": "args.amount >"}, "permissions.0.when: not a condition"),
        ({"permission": "deny", "when": "amount > 3"}, "unknown variable `amount`"),
        ({"permission": "maybe"}, "permissions.0.permission"),
        ({"permission": "deny", "risk": "hgih"}, "permissions.0.risk"),
        ({"permission": "deny", "tool": "x"}, "Did you mean `tools`?"),
        ({"tools": "x"}, "permissions.0.permission: missing"),
        ({"permission": "deny", "tools": 3}, "permissions.0.tools: expected a list (found 3)"),
    ],
)
async def test_a_faulty_rule_is_named_when_the_file_is_read(place: Place, rule: dict[str, Any], told: str) -> None:
    config = place.config(DEEDS, **rules(rule))
    finished = await place.run("list", "--config", str(config))
    assert finished.code != 0
    assert told in finished.err
    assert "servers.toml:2" in finished.err


async def test_each_request_on_a_shared_channel_is_judged_by_its_own_sender() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}, permissions=[{"clients": "ear", "permission": "deny"}]) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert (await ear.ask("tools/list"))["result"]["tools"] == []
        other: dict[str, Any] = {"io.modelcontextprotocol/clientInfo": {"name": "other"}}
        modern = await ear.ask_modern("tools/list", **other)
        assert modern["result"]["tools"]
        assert (await bridge.request("tools/list", {}))["tools"], "the program itself has no name"
        told = json.dumps(await ear.ask("tools/call", {"name": "up__echo", "arguments": {}}))
        assert "denied by the policy" in told
        assert transport.asked("tools/call") == []


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (b'{"name":"wipe","arguments":{"a":1},"name":"read"}', b'{"name":"read","arguments":{"a":1}}'),
        (b'{"arguments":{"a":1},"name":"read","arguments":{"a":2}}', b'{"arguments":{"a":2},"name":"read"}'),
        (b'{"name":"read","arguments":{ "a" : 1 }}', b'{"name":"read","arguments":{ "a" : 1 }}'),
    ],
)
async def test_what_arrives_is_what_was_decided_about(
    sent: bytes, arrives: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a name that stands twice, a server may take the other one: also of tools that nothing is set for."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "wipe")]
    transport = ScriptedTransport({**LEGACY_SERVER, "tools/list": {"tools": tools}})
    heard: list[bytes] = []
    send = Line.send

    def listen(line: Line, message: Outgoing) -> None:
        heard.append(bytes(message.data))
        send(line, message)

    monkeypatch.setattr(Line, "send", listen)
    async with bridged({"up": transport}, permissions=[{"tools": "wipe", "permission": "deny"}]) as bridge:
        ear = Ear(bridge.server)
        ear.client.view = "up"
        await ear.initialize()
        answer = json.loads(await ear.raw(frame_of("tools/call", Raw(sent))))
        assert "isError" not in answer["result"]
    called = next(message for message in heard if b"tools/call" in message)
    assert called.endswith(b'"params":%b}' % arrives)
