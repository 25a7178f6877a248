"""What commands print with `--json` is what docs/reference/json.md says of it: no field more, none less."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from jsonschema_rs import Draft202012Validator

SCHEMA = Path(__file__).resolve().parents[2] / "docs/reference/json.schema.json"
LINES = ("logs/1", "log/1", "log-events/1", "audit-show/1", "audit-export/1")
_OPEN = ("logs/1",)
"""Formats of which it is said that they have further fields."""


def documents(words: Sequence[str], out: str, err: str) -> list[dict[str, Any]]:
    """The documents that a command printed; each must be as it is documented. None, if it was asked for none."""
    if not _asks_for_json(words):
        return []
    found = [json.loads(line) for line in err.splitlines() if line.startswith('{"format"')]
    assert all(one["format"] == "error/1" for one in found), err
    if out.strip():
        lines = out.splitlines()
        is_many = json.loads(lines[0]).get("format") in LINES if lines[0].endswith("}") else False
        found += [json.loads(line) for line in lines] if is_many else [json.loads(out)]
    for one in found:
        check(one)
    return found


def _asks_for_json(words: Sequence[str]) -> bool:
    """Not with `call --json ARGS`, which is arguments."""
    if "--json" not in words:
        return False
    value = [*words, ""][[*words].index("--json") + 1]
    return words[0] != "call" or not (value == "-" or value.startswith(("{", "[")))


def check(document: Mapping[str, Any]) -> None:
    """A document is one of those that are documented.

    Raises:
        AssertionError: it is not; says where.
    """
    name = document.get("format")
    assert name in _validators(), f"{name!r} is not documented: {json.dumps(document)[:300]}"
    assert next(iter(document)) == "format"
    faults = [f"{[*one.instance_path]}: {one.message[:300]}" for one in _validators()[str(name)].iter_errors(document)]
    assert not faults, f"{name}: {faults}; say what is new in src/mcpbridge/app/cli/json_formats, then run `make docs`"


@cache
def _validators() -> Mapping[str, Draft202012Validator]:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    _close(schema["$defs"])
    validators: dict[str, Draft202012Validator] = {}
    for one in schema["oneOf"]:
        name = one["properties"]["format"]["const"]
        if name not in _OPEN:
            _close(one)
        validators[name] = Draft202012Validator({**one, "$defs": schema["$defs"]})
    return validators


def _close(schema: object) -> None:
    """Allow no fields but those that are documented."""
    if isinstance(schema, dict):
        known = cast("dict[str, Any]", schema)
        if isinstance(known.get("properties"), dict) and known.get("type") == "object":
            known["additionalProperties"] = False
        for inner in known.values():
            _close(inner)
