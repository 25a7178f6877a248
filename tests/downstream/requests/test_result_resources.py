"""Kept results as resources: the whole, its text, and its parts."""

import asyncio
import base64
import json
import threading
from typing import Any

import pytest

from mcpbridge.base.errors import UnknownName
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.requests import result_resources as module
from mcpbridge.downstream.requests.result_resources import ResultResources
from mcpbridge.protocol.body import Body
from mcpbridge.results.header_line import uri_of
from mcpbridge.results.kept_results import RESULTS, KeptResults, ResultSummary
from mcpbridge.storage.memory_store import MemoryStore

PIXEL = base64.b64encode(b"\x89PNG").decode()
RESULT: dict[str, Any] = {
    "content": [
        {"type": "text", "text": '{"a": 1.10}'},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA"},
        {"type": "resource", "resource": {"uri": "file:///a.md", "mimeType": "text/markdown", "text": "# Hé"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA", "_meta": {"x": 1}}},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
        {"type": "image", "data": 7, "mimeType": "image/png"},
    ],
    "structuredContent": {"a": 1.1},
}


def me() -> Client:
    return Client(push=lambda _: None, principal="me")


def request(uri: str, client: Client | None = None) -> Call:
    return Call("resources/read", BRIDGE, uri, Body(), caller=client or me())


class Place:
    """Kept results and the resources that read them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.kept_results = KeptResults(self.store, lifetime=1000)
        self.resources = ResultResources(self.kept_results)

    async def keeps(self, result: object) -> str:
        data = result if isinstance(result, bytes) else json.dumps(result).encode()
        handle = await self.kept_results.handle_of(data, principal="me")
        await self.kept_results.keep(data, ResultSummary(handle=handle, tool="s/t"), principal="me")
        return uri_of(handle)

    async def reads(self, uri: str, client: Client | None = None) -> dict[str, Any]:
        """The one content that comes of it."""
        answer = json.loads((await self.resources.read(request(uri, client))).data)
        [contents] = answer["contents"]
        assert contents.pop("uri") == uri
        return contents


async def test_the_whole_result_is_the_bytes_that_the_server_sent() -> None:
    place = Place()
    data = b'{ "content" : [{"type":"text","text":"\\u0041 1.10"}],"n":12345678901234567890123 }'
    assert await place.reads(await place.keeps(data)) == {"mimeType": "application/json", "text": data.decode()}


@pytest.mark.parametrize(
    ("block", "contents"),
    [
        (0, {"mimeType": "application/json", "text": '{"a": 1.10}'}),
        (1, {"mimeType": "image/png", "blob": PIXEL}),
        (2, {"mimeType": "application/octet-stream", "blob": "AAAA"}),
        (3, {"mimeType": "text/markdown", "text": "# Hé"}),
        (4, {"blob": "AAAA", "_meta": {"x": 1}}),
        (5, {"mimeType": "application/json", "text": json.dumps(RESULT["content"][5])}),
        (6, {"mimeType": "application/json", "text": json.dumps(RESULT["content"][6])}),
    ],
)
async def test_a_block_is_read_as_what_it_is(block: int, contents: dict[str, Any]) -> None:
    place = Place()
    assert await place.reads(f"{await place.keeps(RESULT)}/content/{block}") == contents


async def test_the_text_is_that_of_all_blocks() -> None:
    place = Place()
    assert await place.reads(f"{await place.keeps(RESULT)}/text") == {
        "mimeType": "text/plain",
        "text": '{"a": 1.10}\n# Hé',
    }
    structured = await place.keeps({"content": [], "structuredContent": {"a": 1}})
    assert (await place.reads(f"{structured}/text"))["mimeType"] == "application/json"


CSV = "id,name,city\n" + "".join(f"{number},n{number},c{number}\n" for number in range(30))


@pytest.mark.parametrize(
    ("text", "mime"),
    [
        ("[1, 2]", "application/json"),
        ('{"a":1}\n{"a":2}\n{"a":3}\n', "application/x-ndjson"),
        (CSV, "text/csv"),
        ("<!DOCTYPE html><html><body><p>Hi</p></body></html>", "text/html"),
        ("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 9, "text/markdown"),
        ("Hello there.", "text/plain"),
        ('Found 2 items: [{"a":1},{"a":2}]', "text/plain"),
        ("{not json", "text/plain"),
        ("[" * 100_000, "text/plain"),
        ("\0", "text/plain"),
    ],
)
async def test_texts_say_what_they_are(text: str, mime: str) -> None:
    place = Place()
    uri = await place.keeps({"content": [{"type": "text", "text": text}]})
    for part in ("text", "content/0"):
        assert await place.reads(f"{uri}/{part}") == {"mimeType": mime, "text": text}


@pytest.mark.parametrize(
    ("text", "mime"),
    [
        (f"[{'1,' * 800_000}1]", "application/json"),
        (f"  [{'1,' * 800_000}1", "text/plain"),
        ("id,name\n" + "1,some\n" * 300_000, "text/csv"),
        ("x" * 1_200_000, "text/plain"),
    ],
    ids=["json", "cut json", "csv", "one line"],
)
async def test_long_texts_are_told_by_their_beginning(text: str, mime: str) -> None:
    place = Place()
    uri = await place.keeps({"content": [{"type": "text", "text": text}]})
    contents = await place.reads(f"{uri}/content/0")
    assert contents["mimeType"] == mime
    assert contents["text"] == text
    assert contents == await place.reads(f"{uri}/text")
    assert json.loads((await place.reads(uri))["text"])["content"][0]["text"] == text


@pytest.mark.parametrize(
    "part",
    [
        "/",
        "/content",
        "/content/",
        "/content/7",
        "/content/999999",
        "/content/9999999999999999999999",
        "/content/-1",
        "/content/٣",
        "/content/0/",
        "/texts",
        "/text\n",
        "?a",
        "x",
        "A" * 10_000,
    ],
)
async def test_what_is_not_there_is_an_unknown_resource(part: str) -> None:
    place = Place()
    uri = await place.keeps(RESULT) + part
    with pytest.raises(UnknownName) as unknown:
        await place.reads(uri)
    assert (unknown.value.kind, unknown.value.name) == ("resource", uri)


@pytest.mark.parametrize("uri", ["mcpbridge://results/", "mcpbridge://results//text", "file:///a", ""])
async def test_a_uri_without_a_handle_is_an_unknown_resource(uri: str) -> None:
    with pytest.raises(UnknownName):
        await Place().reads(uri)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"null",
        b'{"content":7}',
        b'{"content":[7]}',
        b'{"content":["a"]}',
        b"{",
        b'{"content":[{"type":"text","text":"\\ud800"}]}',
    ],
)
async def test_of_an_odd_result_the_whole_can_be_read(data: bytes) -> None:
    place = Place()
    uri = await place.keeps(data)
    assert (await place.reads(uri))["text"] == data.decode()
    with pytest.raises(UnknownName):
        await place.reads(f"{uri}/text")
    try:
        assert (await place.reads(f"{uri}/content/0"))["mimeType"] == "application/json"
    except UnknownName:
        pass


async def test_results_of_others_are_not_there() -> None:
    place = Place()
    uri = await place.keeps(RESULT)
    for principal in ("", "you"):
        with pytest.raises(UnknownName):
            await place.reads(uri, Client(push=lambda _: None, principal=principal))


async def test_late_results_are_there_as_well() -> None:
    """They have handles of another kind."""
    place = Place()
    handle = "0123456789abcdef" * 2
    await place.store.put(RESULTS, b'{"content":[]}', principal="me", expires_in=100, handle=handle)
    assert (await place.reads(uri_of(handle)))["text"] == '{"content":[]}'


async def test_reading_counts_as_use() -> None:
    place = Place()
    handle = "0123456789abcdef" * 2
    await place.store.put(RESULTS, b'{"content":[]}', principal="me", expires_in=100, handle=handle)
    [before] = await place.store.entries(RESULTS, principal="me")
    await place.reads(uri_of(handle))
    [after] = await place.store.entries(RESULTS, principal="me")
    assert after.expires > before.expires + 500


async def test_what_may_take_long_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 100,000 characters may take a tenth of a second to be told what it is."""
    where: list[bool] = []

    def told(data: bytes, named: object) -> dict[str, object]:
        where.append(threading.current_thread() is threading.main_thread())
        return {"text": ""}

    monkeypatch.setattr(module, "_contents", told)
    place = Place()
    for size in (1000, 100_000):
        await place.reads(await place.keeps({"content": [{"type": "text", "text": "x" * size}]}))
    assert where == [True, False]


async def test_others_are_served_while_a_large_one_is_read() -> None:
    place = Place()
    uri = await place.keeps({"content": [{"type": "text", "text": "line\n" * 2_000_000}]})
    reading = asyncio.ensure_future(place.resources.read(request(f"{uri}/text")))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    assert len((await reading).data) > 10_000_000
