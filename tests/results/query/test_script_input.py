"""Documents as scripts get them: `result` is the value, however the text brings it."""

import json
from typing import Any

import pytest

from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.content import document_of
from mcpbridge.results.document import Document, read
from mcpbridge.results.query.script_input import Source, script_input

ROWS = [{"id": 90000000000000000001 + number, "name": f"row {number}"} for number in range(20)]
JSON = json.dumps(ROWS)
SHORT = json.dumps(ROWS, separators=(",", ":"))
LINES = "\n".join(map(json.dumps, ROWS))


@pytest.mark.parametrize("text", [JSON, f"\n {JSON} \n", json.dumps({"items": ROWS}, indent=1)])
def test_json_is_parsed_from_its_own_text(text: str) -> None:
    assert script_input(read(text)) == Source(text, "json")


@pytest.mark.parametrize(
    "text",
    [
        f"Found 20 rows:\n\n{JSON}",
        f"{JSON}\n\nDone.",
        f"```json\n{JSON}\n```",
        f"Rows:\n```\n{JSON}\n```\nDone.",
        f"[2024] rows:\n{JSON}",
        f"\ufeff{JSON}",
    ],
)
def test_of_json_with_something_around_it_the_value_is_taken(text: str) -> None:
    assert script_input(read(text)) == Source(SHORT, "json")


def test_of_several_blocks_the_value_is_taken() -> None:
    blocks = [{"type": "text", "text": JSON}, {"type": "text", "text": "That was all."}]
    assert script_input(document_of(encode({"content": blocks}))) == Source(SHORT, "json")


def test_json_lines_are_a_list_odd_ones_are_texts_in_it() -> None:
    assert script_input(read(LINES)) == Source(LINES, "ndjson")
    source = script_input(read(f"{LINES}\nDone."))
    assert source.binding == "json"
    assert json.loads(source.text) == [*ROWS, "Done."]


def test_python_values_are_values_and_tables_are_texts_with_rows() -> None:
    assert script_input(read("[{'a': 1, 'b': None}]")) == Source('[{"a":1,"b":null}]', "json")
    text = "id,name\n1,ann\n2,bob\n3,cid\n"
    source = script_input(read(text, "text/csv"))
    assert (source.text, source.binding) == (text, "text")
    assert json.loads(source.rows)[1] == {"id": 2, "name": "bob"}
    assert script_input(Document("plain \ud800", "text")) == Source("plain \ufffd", "text")


@pytest.mark.parametrize("value", [5, "five", True, None])
def test_parts_may_be_single_values(value: Any) -> None:
    assert script_input(Document(json.dumps(value), "json", value)) == Source(json.dumps(value), "json")
