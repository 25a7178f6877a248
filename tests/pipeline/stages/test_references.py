"""Kept results as arguments: what stands for what, what is left alone, and nothing holds up the bridge (issue 5)."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.call_options import CallOptions, Hints
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import Session
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.core.settings_precedence import resolve
from mcpbridge.pipeline.stages import references as module
from mcpbridge.pipeline.stages.references import References
from mcpbridge.protocol.body import Body
from mcpbridge.results.kept_results import KeptResults, ResultSummary
from mcpbridge.storage.memory_store import MemoryStore

VALUE = {"rows": [{"id": 12345678901234567890, "price": 1}, {"name": "é"}], "note": "seen"}
UNKNOWN = "abcdefghijklmnopqrstuvwxyz"


class Echo:
    """A tool, as far as references look at it."""

    name = wire = "echo"
    definition = b"{}"
    hints = Hints()

    def __init__(self, server: str = "up") -> None:
        self.headers: dict[tuple[str, ...], str] = {}
        self.server, self.id = server, f"{server}/echo"


class Ann:
    """Who calls."""

    principal, name, version = "ann", "ear", ""

    def __init__(self) -> None:
        self.session = Session()


def options() -> CallOptions:
    return resolve("echo", Hints(), tool=None, server=None, calls=CallDefaults(), is_trusted=False)


class Place:
    """Kept results, and the stage above a tool that gives its arguments back."""

    def __init__(self) -> None:
        self.kept_results = KeptResults(MemoryStore(), lifetime=1000)
        stage = References(self.kept_results).stage(Echo(), options())
        assert stage is not None
        self.stage = stage

    async def keep(self, text: str, principal: str = "ann") -> str:
        data = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
        handle = await self.kept_results.handle_of(data, principal=principal)
        await self.kept_results.keep(data, ResultSummary(handle=handle, tool="s/t"), principal=principal)
        return handle

    async def sent(self, arguments: Any) -> Any:
        """The arguments that the tool gets."""
        data = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
        return json.loads(await self.sent_bytes(data))

    async def sent_bytes(self, arguments: bytes) -> bytes:
        params = Body(b'{"name":"echo"}')
        params.put("arguments", Raw(arguments))
        call = Call("tools/call", "up", "echo", params, caller=Ann())

        async def answer(call: Call) -> Body:
            found = call.params.get("arguments")
            assert found is not None
            return Body(bytes(found))

        with anyio.fail_after(20):
            return bytes((await self.stage(call, answer)).data)


async def test_each_form_stands_for_what_it_says() -> None:
    place = Place()
    text = json.dumps(VALUE)
    handle = await place.keep(text)
    uri = f"mcpbridge://results/{handle}"
    assert await place.sent({"a": {"$ref": handle}}) == {"a": text}
    assert await place.sent({"a": {"$ref": f"{handle}#"}}) == {"a": VALUE}
    assert await place.sent([{"$ref": f" {uri}#/rows/-1/name "}]) == ["é"]
    assert await place.sent({"$ref": f"{handle}#/rows/0"}) == VALUE["rows"][0]
    assert await place.sent(json.dumps({"a": {"$ref": f"{uri}#/note"}}).replace("/", "\\/").encode()) == {"a": "seen"}
    inside = f"<{{{{result:{handle}#/note}}}}, {{{{{{ result: {uri}#/rows/1 }}}}}}>"
    assert await place.sent({"a": inside}) == {"a": '<seen, {{"name":"é"}}>'}


async def test_capitals_are_taken_for_small_letters_where_such_a_result_is_kept() -> None:
    place = Place()
    handle = (await place.keep("words")).upper()
    assert await place.sent({"a": {"$ref": handle}, "b": f"{{{{result:{handle}}}}}"}) == {"a": "words", "b": "words"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"$ref": "#/definitions/x"},
        {"$ref": "CustomerAddressInformation"},
        {"$ref": f"{UNKNOWN}/note"},
        {"$ref": f"mcpbridge://results/{UNKNOWN}/text"},
        {"$ref": f"{UNKNOWN}s"},
        {"$ref": UNKNOWN, "more": 1},
        {"$ref": [UNKNOWN]},
        {"a": f"{{{{result:{UNKNOWN}/note}}}}"},
        {"a": f"{{{{result:{UNKNOWN}#/a"},
        {"a": f"{{{{result:{UNKNOWN}#/a{' ' * 3000}}}}}"},
        {"a": f"{{{{ {UNKNOWN} }}}} result"},
    ],
)
async def test_what_is_of_others_is_left_alone(arguments: Any) -> None:
    assert await Place().sent({"x": [arguments]}) == {"x": [arguments]}


async def test_many_names_that_only_may_be_handles_are_left_alone() -> None:
    schema = {
        f"n{number}": {"$ref": f"{number:026}".translate({48 + n: 65 + n for n in range(10)})} for number in range(2000)
    }
    assert await Place().sent(schema) == schema


async def test_what_is_meant_as_one_but_written_otherwise_is_told_how_it_is_right() -> None:
    place = Place()
    handle = await place.keep(json.dumps(VALUE))
    for written in ({"$ref": f"{handle}/note"}, f"{{{{result:{handle}/note}}}}", {"$ref": f"{handle.upper()}/note"}):
        with pytest.raises(ArgumentsRefused, match=f"as in {handle}#/note"):
            await place.sent({"a": written})


async def test_what_is_not_there_is_refused() -> None:
    place = Place()
    handle, others = await place.keep(json.dumps(VALUE)), await place.keep("hers", "bob")
    for wrong, why in ((UNKNOWN, "No result"), (others, "No result"), (f"{handle}#/rows/7", "finds nothing")):
        with pytest.raises(ArgumentsRefused, match=why):
            await place.sent({"a": {"$ref": wrong}})


async def test_blanks_without_end_hold_up_nobody() -> None:
    """Review of issue 5: `#` and 60,000 blanks took ten seconds of everybody's."""
    for arguments in (
        f"{{{{result:{UNKNOWN}#" + " " * 2_000_000,
        f"{{{{result:{UNKNOWN}#" * 30_000,
        "{{result:" * 200_000 + UNKNOWN,
        "{" * 2_000_000 + f"result:{UNKNOWN}",
        f'"$ref"{" " * 1_000_000}' + f"{{{{result:{UNKNOWN}",
    ):
        assert await Place().sent({"a": arguments}) == {"a": arguments}


@given(
    st.lists(st.sampled_from(["{{", "}}", "{", "}", " ", "result:", UNKNOWN.upper(), "#/a", "/b", "x"]), max_size=30)
)
def test_any_text_is_passed_on_that_names_no_kept_result(parts: list[str]) -> None:
    arguments = {"a": "".join(parts)}
    assert asyncio.run(Place().sent(arguments)) == arguments


class Held:
    """Work that is done, each time, once the loop has said so: on the loop it would wait in vain."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work, self._loop = work, asyncio.get_running_loop()
        self.times = 0

    def __call__(self, value: Any) -> Any:
        allowed = threading.Event()
        self._loop.call_soon_threadsafe(allowed.set)
        assert allowed.wait(20), "nothing else went on meanwhile"
        self.times += 1
        return self._work(value)


async def test_others_are_served_while_large_arguments_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    handle = await place.keep("words")
    rows = [{"id": number, "name": "x" * 20} for number in range(2000)]
    reading, writing = Held(module.parse_json), Held(module.write_json)
    monkeypatch.setattr(module, "parse_json", reading)
    monkeypatch.setattr(module, "write_json", writing)
    sent = await place.sent_bytes(json.dumps({"a": {"$ref": handle}, "rows": rows}).encode())
    assert sent.startswith(b'{"a":"words","rows":[{"id":0,')
    assert (reading.times, writing.times) == (1, 2), "the arguments, and what the reference stands for"


async def test_results_that_cannot_be_loaded_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand results one item each: a few bytes of output, all kept results in memory."""
    monkeypatch.setattr(module, "MOST_LOADED", 10_000)
    place = Place()
    handles = [await place.keep(json.dumps([number] * 1000)) for number in range(5)]
    assert await place.sent([{"$ref": f"{handle}#/0"} for handle in handles[:2]]) == [0, 1]
    assert await place.sent([{"$ref": f"{handles[0]}#/{number}"} for number in range(900)]) == [0] * 900
    with pytest.raises(ArgumentsRefused, match="have more than"):
        await place.sent([{"$ref": f"{handle}#/0"} for handle in handles])


async def test_what_they_stand_for_is_bounded_each_as_often_as_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 10_000)
    place = Place()
    handle = await place.keep("x" * 3000)
    assert await place.sent([{"$ref": handle}] * 3) == ["x" * 3000] * 3
    with pytest.raises(ArgumentsRefused, match="refer to more than"):
        await place.sent([{"$ref": handle}] * 4)
    with pytest.raises(ArgumentsRefused, match="More than 1000 references"):
        await place.sent([{"$ref": UNKNOWN}] * 1001)


async def test_arguments_that_are_nested_deep_and_hold_no_reference_are_passed_on() -> None:
    for depth in (900, 100_000):
        data = b'{"a":"{{result:%s/x}}","b":' % UNKNOWN.encode() + b"[" * depth + b"]" * depth + b"}"
        assert await Place().sent_bytes(data) == data


async def test_what_they_stand_for_is_not_looked_through_again() -> None:
    place = Place()
    secret = await place.keep("secret")
    handle = await place.keep(json.dumps({"a": {"$ref": secret}, "b": f"{{{{result:{secret}}}}}"}))
    sent = await place.sent({"x": {"$ref": f"{handle}#"}, "y": f"{{{{result:{handle}#/b}}}}"})
    assert sent == {"x": {"a": {"$ref": secret}, "b": f"{{{{result:{secret}}}}}"}, "y": f"{{{{result:{secret}}}}}"}


def test_the_bridges_own_tools_get_handles_as_such() -> None:
    stage = References(KeptResults(MemoryStore(), lifetime=1000)).stage
    assert stage(Echo(BRIDGE), options()) is None
    assert stage(None, options()) is None
