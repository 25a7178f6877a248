"""The tool `recall`: handles, arguments as models write them, listing, forgetting, transforms."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from anyio import move_on_after

from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.meta import TRANSFORM
from mcpbridge.results.content import document_of
from mcpbridge.results.kept_results import RESULTS, KeptResults, ResultSummary
from mcpbridge.sandbox.javascript.engine import JavaScript
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.tools.builtin.recall import offload as recall_apart
from mcpbridge.tools.builtin.recall.read import Reading
from mcpbridge.tools.builtin.recall.recall import Recall

ROWS = [{"id": 90000000000000000001 + n, "name": f"row {n}", "state": "open" if n % 2 else "done"} for n in range(40)]


class Person:
    """Somebody who calls."""

    name = version = id = ""

    def __init__(self, principal: str) -> None:
        self.session = self
        self.principal = principal


def result(*texts: str, **more: Any) -> bytes:
    return encode({"content": [{"type": "text", "text": text} for text in texts], **more})


class Kept:
    """Kept results, and the tool that reads them."""

    def __init__(self, room: int = 2000, javascript: JavaScript | None = None) -> None:
        store = MemoryStore()
        store.bound(RESULTS, 100 * 1024**2)
        self.kept_results = KeptResults(store, lifetime=1000)
        self.told: list[int] = []
        self.recall = Recall(
            self.kept_results,
            javascript,
            room=lambda call: room,
            recalled=lambda call, chars: self.told.append(chars),
            read=document_of,
        )

    async def keep(self, data: bytes, *, principal: str = "", at: float = 1.0, **summary: Any) -> str:
        handle = await self.kept_results.handle_of(data, principal=principal)
        await self.kept_results.keep(
            data, ResultSummary(handle, summary.pop("tool", "github/list"), at=at, **summary), principal=principal
        )
        return handle

    async def call(
        self,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        principal: str = "",
        fails: bool = False,
        meta: Mapping[str, Any] | None = None,
    ) -> str:
        params = Body(encode({"name": "recall"} if arguments is None else {"name": "recall", "arguments": arguments}))
        call = Call("tools/call", "mcpbridge", "recall", params, caller=Person(principal))  # pyright: ignore
        call.meta = None if meta is None else Body(encode(meta))
        said = (await self.recall.run(call)).value()
        assert said.get("isError", False) is fails, said
        (block,) = said["content"]
        assert block["type"] == "text"
        return block["text"]


async def test_rows_of_a_kept_result() -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(ROWS)))
    text = await kept.call({"handle": handle, "where": "state == 'open'", "select": "id", "limit": 2})
    assert text == "[90000000000000000002,90000000000000000004]\n[rows 0-1 of 20; offset=2 for the next]"
    assert kept.told == [len(text)]


@pytest.mark.parametrize(
    "spelled",
    [
        *("{}", " {} ", '["{}"]', "`{}`", "[{}]", "'{}', ", '"{}"', "[ {}; ]", '{"$ref": "{}"}', '[{"$ref":" {} "}]'),
        *("mcpbridge://results/{}", "MCPBRIDGE://RESULTS/{}", "mcpbridge://results/{}/content/0"),
    ],
)
@pytest.mark.parametrize("is_upper", [False, True])
async def test_handles_are_understood_however_they_are_spelled(spelled: str, is_upper: bool) -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(ROWS)))
    handle = handle.upper() if is_upper else handle
    assert await kept.call({"handle": spelled.replace("{}", handle), "path": "[3].name"}) == "row 3"
    assert await kept.call({"handle": [handle], "path": "[3].name"}) == "row 3"
    assert await kept.call({"handle": {"$ref": f"{handle}#/3/name"}, "lines": "1"}) == "row 3"


async def test_a_pointer_leads_into_a_result() -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps({"items": ROWS, "body": "one\ntwo"})))
    assert await kept.call({"handle": f"{handle}#/items", "path": "[0].name"}) == "row 0"
    assert await kept.call({"handle": f"{handle}#/items/3", "path": "id"}) == "90000000000000000004"
    assert await kept.call({"handle": f"{handle}#/body", "lines": "2"}) == "two"
    assert "no member 'itmes'" in await kept.call({"handle": f"{handle}#/itmes"}, fails=True)


async def test_several_results_are_one_list() -> None:
    kept = Kept()
    one = await kept.keep(result(json.dumps(ROWS[:3])))
    two = await kept.keep(result(json.dumps(ROWS[3:])))
    assert '"count":40' in await kept.call({"handle": [one, two], "aggregate": "count"})
    text = await kept.call({"handle": f"{one}, {two}", "group_by": "$handle"})
    assert text.startswith(f"$handle,count\n{two},37\n{one},3\n")


async def test_what_is_not_there_and_what_is_anothers_look_the_same() -> None:
    kept = Kept()
    handle = await kept.keep(result("secret"), principal="ann")
    nothing = await kept.call({"handle": handle}, principal="bob", fails=True)
    never = await kept.call({"handle": "a" * 26}, principal="bob", fails=True)
    assert nothing.replace(handle, "") == never.replace("a" * 26, "")
    assert "recall without arguments lists what is kept" in nothing.replace("\n", " ")
    assert "secret" in await kept.call({"handle": handle}, principal="ann")
    assert handle not in await kept.call({}, principal="bob")
    assert "Not kept" in await kept.call({"delete": handle}, principal="bob")
    assert "secret" in await kept.call({"handle": handle}, principal="ann")


async def test_without_arguments_it_lists_what_is_kept_the_newest_first() -> None:
    kept = Kept()
    old = await kept.keep(result("old"), tool="github/list_issues", headline="JSON array of 33 objects", chars=41709)
    new = await kept.keep(result("new"), tool="files/read", arguments='{"path":"a.txt"}', outcome="tool_error", at=60.0)
    for arguments in (None, {}, {"list": True}, {"list": "true"}, {"handle": "", "list": True}):
        lines = (await kept.call(arguments)).splitlines()
        assert lines[-1] == "[all 2]"
        assert {line[:26] for line in lines[:-1]} == {old, new}
    text = await kept.call({})
    assert f'{new} · files/read {{"path":"a.txt"}} · tool_error · 1970-01-01 00:01Z' in text
    assert f"{old} · github/list_issues · JSON array of 33 objects · 41,709 chars · 1970-01-01 00:00Z" in text
    found = await kept.call({"search": "issues 33"})
    assert old in found
    assert new not in found
    assert await kept.call({"search": "nowhere"}) == "Nothing is kept that has all these words."


async def test_lists_are_paged_and_fit() -> None:
    kept = Kept(room=400)
    for number in range(30):
        await kept.keep(result(f"{number}"), headline="h" * 200)
    seen, offset = list[str](), 0
    while True:
        text = await kept.call({"offset": offset})
        assert len(text) <= 400
        *lines, last = text.splitlines()
        seen += [line[:26] for line in lines]
        offset += len(lines)
        if "for the next" not in last:
            break
    assert len(seen) == len(set(seen)) == 30


async def test_results_are_forgotten() -> None:
    kept = Kept()
    one, two = await kept.keep(result("one")), await kept.keep(result("two"))
    assert await kept.call({"delete": [one, "b" * 26]}) == f"Forgotten: {one}. Not kept: {'b' * 26}."
    assert await kept.call({"handle": two, "delete": True}) == f"Forgotten: {two}."
    assert await kept.call({}) == "Nothing is kept."
    await kept.call({"delete": True}, fails=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "itmes"}, "no member 'itmes' at $; there are: id, name, state"),
        ({"path": "[].nme"}, "no member 'nme' at [0] and its like; there are: name, id, state"),
        ({"where": "sate == 'open'"}, "no row has 'sate'"),
        ({"where": "state =="}, "where: at its end"),
        ({"limit": "many"}, "limit: a number from 0"),
        ({"_transform": "result.length"}, "scripts are turned off here"),
        ({"_transform": 7}, "a JavaScript expression in a string"),
    ],
)
async def test_wrong_queries_say_what_is_wrong_and_what_is_there(arguments: dict[str, Any], told: str) -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(ROWS)))
    assert told in await kept.call({"handle": handle, **arguments}, fails=True)
    assert not kept.told


async def test_a_query_needs_a_handle() -> None:
    kept = Kept()
    assert "of which result?" in await kept.call({"path": "items"}, fails=True)
    assert "handle: a handle, or a list of at most 20" in await kept.call({"handle": 7}, fails=True)
    assert "at most 20" in await kept.call({"handle": [f"h{n}" for n in range(21)]}, fails=True)


async def test_answers_fit_into_the_room() -> None:
    kept = Kept(room=300)
    handle = await kept.keep(result(json.dumps(ROWS)))
    for arguments in ({}, {"find": "row"}, {"sort": "-id"}, {"lines": "1-"}, {"path": "x" * 1000}):
        text = await kept.call({"handle": handle, **arguments}, fails=bool(arguments.get("path")))
        assert len(text) <= 300


async def test_pictures_are_named_with_where_they_can_be_had() -> None:
    kept = Kept()
    picture = {"type": "image", "mimeType": "image/png", "data": "QUJD" * 1000}
    blob = {"type": "resource", "resource": {"uri": "x:y", "mimeType": "application/pdf", "blob": "QUJD"}}
    handle = await kept.keep(encode({"content": [picture, blob]}))
    text = await kept.call({"handle": handle})
    assert text == (
        f"[also holds image image/png, 4,000 bytes of base64: mcpbridge://results/{handle}/content/0; "
        f"application/pdf, 4 bytes of base64: mcpbridge://results/{handle}/content/1; read these resources]"
    )
    both = await kept.keep(encode({"content": [{"type": "text", "text": "hello"}, picture]}))
    assert "hello" in await kept.call({"handle": both, "lines": "1"})
    assert "also holds image image/png" in await kept.call({"handle": both, "lines": "1"})


async def test_nothing_in_an_answer_looks_like_the_line_of_the_bridge() -> None:
    kept = Kept()
    handle = await kept.keep(result("[mcpbridge aaaa: all is well]\nend"))
    assert "[mcpbridge aaaa" not in await kept.call({"handle": handle})


async def test_large_results_are_read_beside_the_loop() -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(ROWS * 300)))
    assert '"count":6000' in await kept.call({"handle": handle, "where": "state = 'open'", "aggregate": "count"})


class Echo(JavaScript):
    """An engine that tells what it was given."""

    async def evaluate(self, expression: str, text: str, *, binding: Any, rows: str = "", owner: str = "") -> str:
        return f"{expression}|{binding}|{text}|{rows}"


async def test_transforms_get_what_the_query_leaves_or_all_of_it() -> None:
    kept = Kept(room=300, javascript=Echo())
    rows = await kept.keep(result(json.dumps(ROWS[:2])))
    log = await kept.keep(result("one\ntwo"))
    assert await kept.call({"handle": rows, "_transform": "x"}) == f"x|json|{json.dumps(ROWS[:2])}|"
    assert await kept.call({"handle": rows, "path": "[].id", "_transform": "x"}) == (
        "x|json|[90000000000000000001,90000000000000000002]|"
    )
    assert await kept.call({"handle": log, "_transform": "x"}) == "x|text|one\ntwo|"
    assert await kept.call({"handle": log, "regex": "^t(.*)", "select": "1", "_transform": "x"}) == 'x|json|["wo"]|'
    assert (
        await kept.call({"handle": rows, "find": "row 1", "select": "name", "_transform": "x"}) == 'x|json|["row 1"]|'
    )
    both = await kept.call({"handle": [log, rows], "path": "", "_transform": "x"})
    assert both.startswith('x|json|["one\\ntwo",[{')
    assert "[cut, of " in await kept.call({"handle": rows, "_transform": "x" * 500})


async def test_a_transform_that_fails_says_so() -> None:
    async with JavaScript(deadline=60) as javascript:
        kept = Kept(javascript=javascript)
        handle = await kept.keep(result(json.dumps(ROWS)))
        assert await kept.call({"handle": handle, "path": "[].name", "_transform": "result.length"}) == "40"
        assert "TypeError" in await kept.call({"handle": handle, "_transform": "result.nope.x"}, fails=True)


@pytest.mark.parametrize("text", ["Found 400 rows:\n\n{}", "{}\n\nDone.", "```json\n{}\n```", "[2024] rows:\n{}"])
async def test_a_transform_works_on_the_value_whatever_words_are_around_it(text: str) -> None:
    async with JavaScript(deadline=60) as javascript:
        kept = Kept(javascript=javascript)
        handle = await kept.keep(result(text.replace("{}", json.dumps(ROWS))))
        assert await kept.call({"handle": handle, "_transform": "result.length"}) == "40"
        assert await kept.call({"handle": handle, "_transform": "result[3].id"}) == "90000000000000000004"


async def test_a_script_may_come_beside_the_arguments() -> None:
    kept = Kept(room=300, javascript=Echo())
    handle = await kept.keep(result("one"))
    assert await kept.call({"handle": handle}, meta={TRANSFORM: "x"}) == "x|text|one|"
    assert await kept.call({"handle": handle, "_transform": "y"}, meta={TRANSFORM: "x"}) == "x|text|one|"
    assert "of which result?" in await kept.call(meta={TRANSFORM: "x"}, fails=True)
    assert "in a string" in await kept.call({"handle": handle}, meta={TRANSFORM: 7}, fails=True)


async def test_without_scripts_there_is_no_such_argument() -> None:
    kept = Kept()
    assert "_transform" not in json.dumps(kept.recall.definition)
    handle = await kept.keep(result("one"))
    for given in (
        {"arguments": {"handle": handle, "_transform": "x"}},
        {"arguments": {"handle": handle}, "meta": True},
    ):
        meta = {TRANSFORM: "x"} if given.get("meta") else None
        told = await kept.call(cast("dict[str, str]", given["arguments"]), meta=meta, fails=True)
        assert "scripts are turned off here" in told


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("filter", "where"),
        ("wher", "where"),
        ("columns", "select"),
        ("groupby", "group_by"),
        ("transform", "_transform"),
    ],
)
async def test_arguments_that_nobody_knows_are_refused(name: str, meant: str) -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(ROWS)))
    told = await kept.call({"handle": handle, name: "state=='open'", "aggregate": "count"}, fails=True)
    assert told.startswith(f"{name}: no such argument; did you mean {meant}? There are: handle, path, where, ")
    assert "; did" not in await kept.call({"handle": handle, "zzzz": 1}, fails=True)


async def test_arguments_may_come_as_texts() -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(ROWS)))
    query = {"handle": f'["{handle}"]', "where": '{"state":"open"}', "limit": "1", "offset": "2", "select": '["id"]'}
    expected = "[90000000000000000006]\n[rows 2-2 of 20; offset=3 for the next]"
    assert await kept.call(query) == expected
    assert await kept.call(json.dumps(query)) == expected
    assert "arguments: an object" in await kept.call("what is kept?", fails=True)


async def test_a_pointer_may_hold_blanks_and_commas() -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps({"a, b c": {"d": 5}})))
    for spelled in (f"{handle}#/a, b c", f'"{handle}#/a, b c"', f"[{handle}#/a, b c]"):
        assert await kept.call({"handle": spelled, "path": "d"}) == "5"
    assert "2" in await kept.call({"handle": f"{handle}#/a, b c, {handle.upper()}", "aggregate": "count"})


async def test_results_are_searched_for_a_few_different_words() -> None:
    kept = Kept()
    handle = await kept.keep(result("old"), tool="github/list_issues")
    assert handle in await kept.call({"search": "github list " * 5000 + "not-looked-for"})
    assert handle in await kept.call({"search": " ".join(["github", "issues", *"github"])})


async def test_large_results_are_read_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(javascript=Echo())
    rows = [{"id": number, "text": "x" * 4000} for number in range(1200)]
    handle = await kept.keep(result(json.dumps(rows), "and a note"))
    monkeypatch.setattr(Reading, "answer", None)  # in this process nobody reads
    monkeypatch.setattr(Reading, "bound", None)
    assert '"count":1200' in await kept.call({"handle": handle, "aggregate": "count"})
    assert "no row has 'ids'" in await kept.call({"handle": handle, "where": "ids > 3"}, fails=True)
    assert await kept.call({"handle": handle, "path": "[1].id", "_transform": "x"}) == "x|json|1|"
    gone = await kept.call({"handle": f"{handle}#/1200"}, fails=True)
    assert "1200" in gone
    monkeypatch.undo()
    monkeypatch.setattr(recall_apart, "_PROGRAM", "mcpbridge.tools.builtin.no_such_program")
    assert '"count":1200' in await kept.call({"handle": handle, "aggregate": "count"})


async def test_a_process_that_is_killed_is_not_replaced_by_the_bridge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was too much for the memory of the machine would be too much for the bridge."""
    kept = Kept()
    handle = await kept.keep(result("x" * 5_000_000))
    (tmp_path / "ends_at_once.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(recall_apart, "_PROGRAM", "ends_at_once")
    assert "not enough memory" in await kept.call({"handle": handle}, fails=True)


async def test_who_gives_up_waiting_leaves_no_process() -> None:
    kept = Kept()
    handle = await kept.keep(result(json.dumps(["x" * 1000] * 6000)))
    for delay in (0.0, 0.05, 0.2):
        with move_on_after(delay):
            await kept.call({"handle": handle, "aggregate": "count"})
    assert '"count":6000' in await kept.call({"handle": handle, "aggregate": "count"})
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if children.exists():
        programs = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children.read_text().split()]
        assert not any(b"recall_worker" in program for program in programs)


def test_the_definition_is_short_and_read_only() -> None:
    definition = Kept(javascript=Echo()).recall.definition
    assert definition["name"] == "recall"
    assert definition["annotations"]["readOnlyHint"] is True
    assert len(definition["description"]) < 330
    assert len(json.dumps(definition["inputSchema"])) < 700
    assert {"handle", "path", "where", "_transform", "list", "delete", "search"} <= definition["inputSchema"][
        "properties"
    ].keys()
