"""How many errors a wrong value can be, by the alternatives of its schema."""

import json
import re
from typing import Any

import pytest

from mcpbridge.pipeline.validation.error_messages import MAX_CHARACTERS, schema_piece, width_of
from mcpbridge.pipeline.validation.schema_check import Width

Schema = dict[str, Any]

WORDS = [{"const": "a"}, {"const": "b"}, {"const": "c"}]
OBJECTS = [{"properties": {"a": {"anyOf": WORDS}}}, {"required": ["b"]}]
LOOP = {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]}


@pytest.mark.parametrize(
    ("schema", "width"),
    [
        ({}, Width(1, 0)),
        ({"properties": {"anyOf": {"type": "integer"}, "b": True}}, Width(1, 0)),
        ({"anyOf": WORDS}, Width(3, 0)),
        ({"properties": {"a": {"items": {"oneOf": WORDS}}, "b": {"anyOf": WORDS[:2]}}}, Width(3, 0)),
        ({"anyOf": OBJECTS}, Width(4, 4)),
        ({"items": {"$ref": "#/$defs/o"}, "$defs": {"o": {"oneOf": OBJECTS}}}, Width(4, 4)),
        ({"allOf": [{"anyOf": WORDS}, {"anyOf": WORDS}]}, Width(6, 0)),
        ({"dependentSchemas": {"a": {"anyOf": WORDS}}}, Width(3, 0)),
        (LOOP, Width(2, 2)),
        ({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "string"}]}}}, Width(2, 2)),
        ({"anyOf": 1, "items": [True, {"oneOf": WORDS}]}, Width(3, 0)),
    ],
)
def test_the_width_is_that_of_the_widest_place(schema: Schema, width: Width) -> None:
    assert width_of(schema) == width


@pytest.mark.parametrize("members", [1, 2, 5, 10, 40])
@pytest.mark.parametrize("parts", [1, 3, 10])
def test_a_piece_of_a_schema_has_descriptions_whole_or_cut_to_some_words_or_none(members: int, parts: int) -> None:
    """It gets smaller step by step until it fits; a letter of a description would say nothing."""
    said = "words of this place " * 20
    deep = {
        f"p{at}": {"type": "string", "description": said, "enum": [f"value {at} {one}" * 3 for one in range(6)]}
        for at in range(parts)
    }
    inner = {f"m{at}": {"type": "object", "description": said, "properties": deep} for at in range(members)}
    whole = {"type": "object", "description": said, "properties": inner}
    piece = schema_piece({"type": "object", "properties": {"x": whole}}, [("x",)])
    text = json.dumps(piece, separators=(",", ":"), ensure_ascii=False)
    assert len(text) <= MAX_CHARACTERS
    assert piece["properties"]["x"]["type"] == "object"
    for words in re.findall(r'"description":"([^"]*)"', text):
        assert said.startswith(words.rstrip("…").rstrip())
        assert len(words) >= 10
