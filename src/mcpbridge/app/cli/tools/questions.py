"""Questions of servers, and of the bridge itself about approvals, put to the person at the terminal (elicitation).

The standard library is all that this loads: commands that ask the daemon wait for it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from mcpbridge.app.cli.output import visible

_Schema = Mapping[str, Any]
_TRIES = 5
"""Times that a person may type something that does not fit, before the question is dismissed."""


class _Dismissed(Exception):
    """The person gives no answer."""


def answer_question(params: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `elicitation/create` with these params, as the person at the terminal answers it.

    End of input, or nothing where something is required, is `cancel`.
    """
    _say(visible(str(params.get("message", ""))))
    try:
        if params.get("mode") == "url":
            _say(visible(f"It asks you to open: {params.get('url', '')}"))
            return {"action": "accept" if _agrees("Continue once you have been there? [y/N] ") else "decline"}
        return {"action": "accept", "content": _filled(params.get("requestedSchema"))}
    except _Dismissed:
        return {"action": "cancel"}


def _filled(schema: object) -> dict[str, Any]:
    members = _object(schema)
    required = members.get("required")
    filled: dict[str, Any] = {}
    for name, field in _object(members.get("properties")).items():
        is_required = isinstance(required, list) and name in cast("list[object]", required)
        value = _field(name, _object(field), is_required=is_required)
        if value is not None:
            filled[name] = value
    return filled


def _object(value: object) -> _Schema:
    """The value; an empty object where it is none."""
    return cast("_Schema", value) if isinstance(value, dict) else cast("_Schema", {})


def _field(name: str, field: _Schema, *, is_required: bool) -> Any:
    """What the person enters for one field; None: nothing, and it may be left out."""
    title = str(field.get("title") or name)
    about = f" - {field['description']}" if field.get("description") else ""
    choices = _choices(field)
    _say(visible(f"{title}{about}"))
    for number, (_, shown) in enumerate(choices, 1):
        _say(visible(f"  {number}) {shown}"))
    default = field.get("default")
    hint = "" if default is None else f" [{json.dumps(default, ensure_ascii=False)}]"
    for _ in range(_TRIES):
        typed = _line(visible(f"{name}{hint}{'' if is_required or hint else ' (may be left out)'}: "))
        if not typed:
            if default is not None or not is_required:
                return default
            raise _Dismissed
        try:
            return _value(typed, field, choices)
        except ValueError as error:
            _say(visible(str(error)))
    raise _Dismissed


def _choices(field: _Schema) -> Sequence[tuple[Any, str]]:
    """Values to choose from, each as a person reads it."""
    holder = _object(field.get("items")) if field.get("type") == "array" else field
    titled = holder.get("oneOf") or holder.get("anyOf")
    if isinstance(titled, list):
        options = map(_object, cast("list[object]", titled))
        return [(one.get("const"), str(one.get("title") or one.get("const"))) for one in options]
    values = holder.get("enum")
    names = holder.get("enumNames")
    if not isinstance(values, list):
        return ()
    known = cast("list[object]", names) if isinstance(names, list) else []
    return [
        (value, str(known[number] if number < len(known) else value))
        for number, value in enumerate(cast("list[object]", values))
    ]


def _value(typed: str, field: _Schema, choices: Sequence[tuple[Any, str]]) -> Any:
    """What was typed, as the field wants it.

    Raises:
        ValueError: it does not fit; says what does.
    """
    kind = field.get("type")
    if kind == "array":
        return [_choice(word.strip(), choices) for word in typed.split(",")]
    if choices:
        return _choice(typed, choices)
    if kind == "boolean":
        if typed.lower() not in ("y", "yes", "true", "n", "no", "false"):
            raise ValueError("Type yes or no.")
        return typed.lower() in ("y", "yes", "true")
    if kind == "integer":
        try:
            return int(typed)
        except ValueError:
            raise ValueError("Type a whole number.") from None
    if kind == "number":
        try:
            return float(typed)
        except ValueError:
            raise ValueError("Type a number.") from None
    return typed


def _choice(typed: str, choices: Sequence[tuple[Any, str]]) -> Any:
    if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1][0]
    for value, shown in choices:
        if typed in (value, shown):
            return value
    raise ValueError(f"Type a number from 1 to {len(choices)}.")


def _agrees(question: str) -> bool:
    return _line(question).lower() in ("y", "yes")


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
        raise _Dismissed
    return line.strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr)
