"""How many errors a wrong value can be, by the alternatives of its schema."""

from typing import Any

import pytest

from mcpbridge.pipeline.validation.error_messages import width_of
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
        ({"anyOf": 1, "items": [True, {"oneOf": WORDS}]}, Width(3, 0)),
    ],
)
def test_the_width_is_that_of_the_widest_place(schema: Schema, width: Width) -> None:
    assert width_of(schema) == width
