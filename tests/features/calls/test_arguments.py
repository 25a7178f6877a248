"""Arguments are checked before anything runs, and mended where there is no doubt (issue 4, Arguments)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.harness import Place, python_server
from support.rpc import Message, Refused, Reply, StdioClient, envelope

ERAS = ("legacy", "modern")


@asynccontextmanager
async def booking(place: Place, **settings: Any) -> AsyncIterator[StdioClient]:
    """A bridge before the servers of `checked.py`, one of each era and called after it, with these settings."""
    async with place.bridge({era: python_server("checked", era, **settings) for era in ERAS}) as client:
        await client.initialize()
        for era in ERAS:
            await client.tools_with(f"{era}__book")
        yield client


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    """A client of one bridge with nothing configured, for all tests that need no more."""
    place = Place(tmp_path_factory.mktemp("arguments"))
    async with booking(place) as client:
        yield client
    place.clean()


async def book(client: StdioClient, arguments: Any, tool: str = "legacy__book", era: str = "legacy") -> Reply:
    """Call with arguments that may be no object, as a client of this era."""
    params: Message = {"name": tool, "arguments": arguments}
    return await client.request("tools/call", params if era == "legacy" else {**params, "_meta": envelope()})


async def calls_of(client: StdioClient, server: str = "legacy") -> int:
    """How many calls of `book` the server saw."""
    journal = json.loads((await client.call(f"{server}__journal")).text)
    return sum((message.get("params") or {}).get("name") == "book" for message in journal)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_refused_call_says_what_is_wrong_and_what_would_be_right(
    client: StdioClient, era: str, server: str
) -> None:
    before = await calls_of(client, server)
    reply = await book(client, {"guests": 40, "arae": "Terrace", "wishes": "quiet, cheap"}, f"{server}__book", era)
    assert reply.failed
    assert "`guests` must be at most 12, not 40" in reply.text
    assert "`arae` is unknown; did you mean `area`?" in reply.text
    assert "`wishes` must be an array" in reply.text
    meta = reply.result["_meta"]
    assert meta["mcpbridge/error"] == "ArgumentsRefused"
    assert {fault["path"] for fault in meta["mcpbridge/faults"]} == {"guests", "arae", "wishes"}
    piece = meta["mcpbridge/schema"]
    assert json.dumps(piece, separators=(",", ":")) in reply.text
    assert piece["properties"]["guests"]["maximum"] == 12
    assert piece["properties"]["area"]["enum"] == ["Inside", "Terrace"]
    assert "contact" not in piece["properties"], "only what the faults are about"
    assert piece["required"] == ["guests"]
    assert await calls_of(client, server) == before, "nothing may reach the server"
    assert not (await book(client, {"guests": 4}, f"{server}__book", era)).failed, "only that call fails"


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_harmless_slips_are_mended_and_told_of(client: StdioClient, era: str, server: str) -> None:
    slips = {"Guests": "4", "area": "TERRACE", "wishes": "quiet", "contact": '{"phone": 5551234}'}
    reply = await book(client, slips, f"{server}__book", era)
    assert json.loads(reply.text) == {
        "guests": 4,
        "area": "Terrace",
        "wishes": ["quiet"],
        "contact": {"phone": "5551234", "call_first": False},
    }
    told = {(one["path"], one["what"]) for one in reply.result["_meta"]["mcpbridge/coerced"]}
    assert told == {
        ("Guests", "renamed"),
        ("guests", "converted"),
        ("area", "respelled"),
        ("wishes", "wrapped"),
        ("contact", "parsed"),
        ("contact.phone", "converted"),
    }


async def test_a_right_call_crosses_byte_for_byte_and_says_nothing(client: StdioClient) -> None:
    id_ = client.next_id()
    client.expect(id_)
    arguments = r'{ "area" : "Inside", "guests":4.0e0, "wishes" : ["\u00e9", "/"] }'
    params = f'{{"name":"legacy__book","arguments":{arguments}}}'
    await client.write(f'{{"jsonrpc":"2.0","id":{id_},"method":"tools/call","params":{params}}}\n'.encode())
    reply = await client.answer_to(id_)
    assert reply.text == arguments
    assert "_meta" not in reply.result


async def test_the_server_sees_the_defaults_of_what_was_left_out(client: StdioClient) -> None:
    reply = await book(client, {"guests": 2})
    assert reply.text == '{"guests": 2,"area":"Inside"}'
    assert "_meta" not in reply.result, "nothing of the client's was changed"
    reply = await book(client, {"guests": 2, "area": "Terrace", "contact": {"phone": "1"}})
    assert json.loads(reply.text)["contact"] == {"phone": "1", "call_first": False}


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_that_come_as_text_are_read(client: StdioClient, era: str) -> None:
    reply = await book(client, '{"guests": "3"}', era=era)
    assert json.loads(reply.text) == {"guests": 3, "area": "Inside"}
    told = [(one["path"], one["what"]) for one in reply.result["_meta"]["mcpbridge/coerced"]]
    assert told == [("guests", "converted"), ("", "parsed")]


@pytest.mark.parametrize("arguments", ["three", "[3]", '{"guests": 3', 3, [3], True])
async def test_arguments_that_are_no_object_break_the_protocol(client: StdioClient, arguments: Any) -> None:
    with pytest.raises(Refused, match="must be a JSON object") as refused:
        _ = (await book(client, arguments)).result
    assert refused.value.code == -32602


async def test_no_arguments_count_as_an_empty_object(client: StdioClient) -> None:
    for params in ({"name": "legacy__book"}, {"name": "legacy__book", "arguments": None}):
        reply = await client.request("tools/call", params)
        assert reply.failed
        assert "`guests` is missing" in reply.text


async def test_a_schema_that_leads_elsewhere_is_not_fetched_and_not_checked(client: StdioClient) -> None:
    reply = await book(client, {"guests": "anybody"}, tool="legacy__elsewhere")
    assert reply.text == '{"guests": "anybody"}'


async def test_check_mends_nothing(place: Place) -> None:
    async with booking(place, arguments="check") as client:
        reply = await book(client, {"guests": "4"})
        assert reply.failed
        assert '`guests` must be an integer, not "4"' in reply.text
        assert await calls_of(client) == 0


async def test_pass_leaves_all_to_the_server_and_one_tool_may_differ(place: Place) -> None:
    """The nearest setting wins: the server passes arguments, one tool of it checks them."""
    settings = {"arguments": "pass", "inject_defaults": False, "tool": {"elsewhere": {"arguments": "coerce"}}}
    async with booking(place, **settings) as client:
        assert (await book(client, {"guests": "many"})).text == '{"guests": "many"}'
    settings = {"arguments": "pass", "inject_defaults": False, "tool": {"book": {"arguments": "coerce"}}}
    async with booking(place, **settings) as client:
        assert (await book(client, {"guests": "many"})).failed
        assert (await book(client, {"guests": "4"})).text == '{"guests":4}'


async def test_an_unknown_tool_is_answered_with_the_nearest_names(client: StdioClient) -> None:
    with pytest.raises(Refused, match="did you mean legacy__book"):
        _ = (await book(client, {"guests": 1}, tool="legacy__bok")).result
