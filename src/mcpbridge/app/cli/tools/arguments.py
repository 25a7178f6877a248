"""The arguments of `mcpbridge call` and `manage`, from `key=value` words or a JSON object. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from mcpbridge.app.cli.failures import fail
from mcpbridge.app.exit_codes import USAGE

Schema = Mapping[str, Any]


def from_json(text: str, option: str = "--args") -> dict[str, Any]:
    """The arguments as one JSON object, given with this option.

    Raises:
        CommandFailed: it is none.
    """
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        fail(USAGE, f"{option}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}")
    except RecursionError:
        fail(USAGE, f"{option}: nested too deeply")
    if not isinstance(value, dict):
        fail(USAGE, f"{option}: expected a JSON object", f'For instance {option} \'{{"city": "Berlin"}}\'.')
    return cast("dict[str, Any]", value)


def from_words(words: Sequence[str], schema: Schema, option: str = "--args") -> dict[str, Any]:
    """The arguments given as `key=value`. What the schema calls a string stays text; the rest is JSON if it parses.

    Raises:
        CommandFailed: a word is no `key=value`, or a key occurs twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            fail(USAGE, f"expected key=value, found {word!r}", f"Or give all at once with {option} '{{…}}'.")
        if key in arguments:
            fail(USAGE, f"the argument {key!r} is given twice", 'A list is written as JSON: key=\'["a", "b"]\'.')
        arguments[key] = text if _is_text(schema, key) else _json_or_text(text)
    return arguments


def _is_text(schema: Schema, key: str) -> bool:
    """The schema wants a string for `key`, and nothing else that JSON could say."""
    properties = schema.get("properties")
    wanted = cast("Schema", properties).get(key) if isinstance(properties, dict) else None
    if not isinstance(wanted, dict):
        return False
    kinds = cast("Schema", wanted).get("type")
    if isinstance(kinds, list):
        return set(cast("list[object]", kinds)) <= {"string", "null"}
    return kinds == "string"


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
