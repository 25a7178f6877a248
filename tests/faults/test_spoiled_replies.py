"""A reply that is spoiled is mended, or fails its own call at once; nothing else notices (issue 2).

The tests of single replies share one bridge and one server: what one reply spoils, the next test sees.
"""

import json
from collections.abc import AsyncIterator

import pytest

from support.harness import Place, explains, python_server, undisturbed
from support.rpc import StdioClient

SERVERS = {"bad": python_server("spoiler", call_timeout=30), "healthy": python_server("plain")}
"""A caller left to its deadline would wait 30 s; the tests wait 15 s."""

READABLE = [
    "bom",
    "pretty printed",
    "two on a line",
    "batch",
    "carriage returns",
    "no version",
    "noise before",
    "logs as json",
    "wrong id first",
    "answers twice",
    "20,000 digits",
    "unknown content",
    "bad utf-8 in a log",
    "text id",
]

MENDED_OR_FAILED = [
    "bad utf-8",
    "latin-1",
    "lone surrogate",
    "encoded surrogate",
    "duplicate id",
    "nan",
    "raw newline in a string",
    "control character",
    "result and error",
]

HOPELESS = [
    "malformed",
    "truncated",
    "id at the end",
    "null result",
    "number result",
    "no result",
    "error is null",
    "100,000 levels",
    "100,000 open",
]

ODD_ERRORS = ["error is a text", "error code is a text", "error without message"]


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    """A client in session with the bridge that the tests share."""
    place = Place(tmp_path_factory.mktemp("spoiled"))
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("bad__spoil")
        yield client
    place.clean()


@pytest.mark.parametrize("how", READABLE)
async def test_what_an_indulgent_reader_can_make_out_is_passed_on(client: StdioClient, how: str) -> None:
    async with undisturbed(client):
        reply = await client.call("bad__spoil", how=how)
        assert not reply.failed, reply.text
        assert reply.text == "readable"
        assert (await client.call("bad__echo", text="and on")).text == "and on"


@pytest.mark.parametrize("how", MENDED_OR_FAILED)
async def test_a_reply_that_can_be_mended_is_mended_or_fails_at_once(client: StdioClient, how: str) -> None:
    async with undisturbed(client):
        reply = await client.call("bad__spoil", how=how)
        if reply.message.get("error") is None and reply.failed:
            explains(reply, "bad", "cannot be read")
        assert (await client.call("bad__echo", text="and on")).text == "and on"
    json.dumps(reply.message, ensure_ascii=False).encode()  # what the bridge sends is proper Unicode


@pytest.mark.parametrize("how", HOPELESS)
async def test_a_reply_that_cannot_be_read_fails_its_call_at_once(client: StdioClient, how: str) -> None:
    async with undisturbed(client):
        explains(await client.call("bad__spoil", how=how), "bad", "answer")
        assert (await client.call("bad__echo", text="and on")).text == "and on"


@pytest.mark.parametrize("how", ODD_ERRORS)
async def test_an_error_of_odd_shape_reaches_the_client_as_a_proper_error(client: StdioClient, how: str) -> None:
    async with undisturbed(client):
        reply = await client.call("bad__spoil", how=how)
        error = reply.message.get("error")
        if error is None:
            explains(reply, "bad")
        else:
            assert isinstance(error["code"], int)
            assert isinstance(error["message"], str)
        assert (await client.call("bad__echo", text="and on")).text == "and on"


@pytest.mark.parametrize(
    ("how", "why"),
    [("wrong id", "the id"), ("duplicate id, ours first", "the id"), ("silence", "3 s")],
)
async def test_a_call_that_gets_no_answer_of_its_own_ends_with_the_reason(place: Place, how: str, why: str) -> None:
    """At its deadline, and cancelled; or before, where the answer came under an id that nobody waits for."""
    servers = {"bad": python_server("spoiler", call_timeout=3), "healthy": python_server("plain")}
    async with place.bridge(servers) as client:
        await client.initialize()
        async with undisturbed(client):
            explains(await client.call("bad__spoil", how=how), "bad", why)
            journal = json.loads((await client.call("bad__journal")).text)
    [call] = [m for m in journal if m.get("params", {}).get("name") == "spoil"]
    cancelled = [m["params"]["requestId"] for m in journal if m.get("method") == "notifications/cancelled"]
    assert cancelled == ([call["id"]] if how == "silence" else [])


async def test_the_spoiled_reply_of_one_call_fails_none_of_the_others(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        held = client.expect(900)
        await client.write(b'{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"bad__hold"}}\n')
        explains(await client.call("bad__spoil", how="malformed"), "bad")
        explains(await client.call("bad__spoil", how="truncated"), "bad")
        assert not held.done()
        assert (await client.call("bad__release")).text == "1"
        assert (await client.answer_to(900)).text == "released"


@pytest.mark.parametrize("id_last", [False, True])
async def test_a_reply_over_the_limit_fails_its_call_and_is_not_kept(place: Place, *, id_last: bool) -> None:
    async with place.bridge(SERVERS, limits={"max_frame": 1_000_000}) as client:
        await client.initialize()
        before = client.command.peak_memory()
        async with undisturbed(client):
            reply = await client.call("bad__oversized", size=30_000_000, id_last=id_last, within=25)
            explains(reply, "bad", "limit")
            assert (await client.call("bad__echo", text="and on")).text == "and on"
        assert client.command.peak_memory() - before < 20_000_000


async def test_a_reply_of_40_mb_arrives_whole(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        reply = await client.call("bad__spoil", how="long", within=60)
        assert len(reply.text) == 40_000_000
        assert set(reply.text) == {"x"}
