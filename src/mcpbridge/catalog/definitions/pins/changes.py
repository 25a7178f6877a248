"""What a change of a definition means, as a list of `Change`. Pure.

Any two definitions have an answer: none if they mean the same, else at least one change.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.catalog.definitions.pins.canonical import canonical

Meaning = Literal[
    "definition added",
    "definition removed",
    "text changed",
    "optional parameter added",
    "required parameter added",
    "parameter removed",
    "parameter became required",
    "parameter became optional",
    "type changed",
    "enum changed",
    "default changed",
    "constraint changed",
    "annotation weakened",
    "annotation changed",
    "output changed",
    "new URL",
    "new command",
    "new e-mail address",
    "names another tool",
    "instructions grown",
    "server renamed",
    "server version changed",
    "command changed",
    "package version changed",
    "origin changed",
    "other member changed",
]
"""What changed, by what it means to whoever relies on the definition."""

GRAVE: frozenset[str] = frozenset(
    {
        "required parameter added",
        "annotation weakened",
        "new URL",
        "new command",
        "new e-mail address",
        "names another tool",
        "instructions grown",
        "command changed",
        "origin changed",
    }
)
"""Meanings that a person should look at first."""

_LONGEST_SHOWN = 200
_TEXTS = frozenset({"title", "description", "summary", "$comment"})
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>)\]]{1,500}", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_COMMAND = re.compile(
    r"(?:^|[\s`$(;|&])((?:sudo|curl|wget|bash|sh|zsh|powershell|cmd|python3?|node|npx|uvx|pipx?|npm|rm|chmod|chown|cat"
    r"|ssh|scp|nc|eval|exec|base64|dd|crontab)\s+[-~/.\w$\"'][^\n`]{0,200})"
)
_WEAK_WHEN_FALSE, _WEAK_WHEN_TRUE = ("readOnlyHint", "idempotentHint"), ("destructiveHint", "openWorldHint")


class Change(Struct, frozen=True):
    """One thing that changed."""

    meaning: Meaning
    where: str = ""
    """The member, such as `parameter repo`; empty: the whole definition."""
    before: str = ""
    """What was there, shortened; empty: nothing."""
    after: str = ""
    """What is there now, likewise."""

    @property
    def is_grave(self) -> bool:
        """A person should look at it first."""
        return self.meaning in GRAVE

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        values = f": {self.before or 'nothing'} → {self.after or 'nothing'}" if self.before or self.after else ""
        return f"{self.meaning}{where}{values}"


def classify(kind: str, old: bytes | None, new: bytes | None, others: Collection[str] = ()) -> tuple[Change, ...]:
    """What became of a definition (`tool`, `prompt`, `instructions`, …); None: there is none.

    `others`: names of tools that the texts of this one should not speak of.
    """
    if old is None or new is None:
        if old is None and new is None:
            return ()
        return (Change("definition added" if old is None else "definition removed"),)
    if canonical(old) == canonical(new):
        return ()
    before, after = _read(old), _read(new)
    found = list(dict.fromkeys(_changes(kind, before, after, others)))
    return tuple(found) or (Change("other member changed", "", _shortened(before), _shortened(after)),)


def _read(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


def _changes(kind: str, old: object, new: object, others: Collection[str]) -> Iterator[Change]:
    yield from _texts(old, new, others)
    if isinstance(old, str) and isinstance(new, str):
        if kind == "instructions" and len(new) > len(old):
            yield Change("instructions grown", "", f"{len(old)} characters", f"{len(new)} characters")
        yield Change("origin changed" if kind == "origin" else "text changed", "", _shortened(old), _shortened(new))
    elif isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
        for key in sorted({*before, *after}):
            if _differ(before.get(key), after.get(key)) or (key in before) != (key in after):
                yield from _member(kind, key, before.get(key), after.get(key))


_OF_SERVERS: Mapping[tuple[str, str], Meaning] = {
    ("identity", "name"): "server renamed",
    ("identity", "title"): "server renamed",
    ("identity", "version"): "server version changed",
    ("origin", "command"): "command changed",
    ("origin", "args"): "command changed",
    ("origin", "image"): "command changed",
    ("origin", "package"): "package version changed",
    ("origin", "url"): "origin changed",
}


def _member(kind: str, key: str, old: object, new: object) -> Iterator[Change]:
    if (meaning := _OF_SERVERS.get((kind, key))) is not None:
        yield Change(meaning, "", _shortened(old), _shortened(new))
    elif key in _TEXTS:
        yield Change("text changed", key, _shortened(old), _shortened(new))
    elif key == "annotations":
        yield from _annotations(_table(old), _table(new))
    elif key == "inputSchema":
        yield from _schema("", old, new)
    elif key == "outputSchema":
        yield Change("output changed", "", _shortened(old), _shortened(new))
    elif key == "arguments" and kind == "prompt":
        yield from _schema("", _of_arguments(old), _of_arguments(new))
    else:
        yield Change("other member changed", key, _shortened(old), _shortened(new))


def _annotations(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if not _differ(before, after) and (key in old) == (key in new):
            continue
        if key in _TEXTS:
            yield Change("text changed", f"annotations.{key}", _shortened(before), _shortened(after))
            continue
        # What is not declared counts as the cautious value (MCP, ToolAnnotations), so losing a promise weakens it.
        is_lost = key in _WEAK_WHEN_FALSE and before is True
        is_gained = key in _WEAK_WHEN_TRUE and (after is True or before is False)
        yield Change(
            "annotation weakened" if is_lost or is_gained else "annotation changed",
            key,
            _shortened(before),
            _shortened(after),
        )


def _of_arguments(value: object) -> object:
    """The arguments of a prompt as a schema."""
    entries = cast("list[object]", value) if isinstance(value, list) else []
    named = {str(one.get("name")): one for entry in entries if (one := _table(entry))}
    properties = {
        name: {key: inner for key, inner in one.items() if key not in ("name", "required")}
        for name, one in named.items()
    }
    return {"properties": properties, "required": [name for name, one in named.items() if one.get("required") is True]}


_KEYWORDS: Mapping[str, Meaning] = {
    "type": "type changed",
    "enum": "enum changed",
    "const": "enum changed",
    "default": "default changed",
    **dict.fromkeys(_TEXTS, "text changed"),
}


def _schema(path: str, old: object, new: object) -> Iterator[Change]:
    before, after = _table(old), _table(new)
    where = f"parameter {path}" if path else "parameters"
    if (not before and old != {}) or (not after and new != {}):
        yield Change("constraint changed", where, _shortened(old), _shortened(new))
        return
    needed_before, needed_after = _names(before.get("required")), _names(after.get("required"))
    members_before, members_after = _table(before.get("properties")), _table(after.get("properties"))
    for name in sorted({*members_before, *members_after, *needed_before, *needed_after}):
        inner = f"{path}.{name}" if path else name
        at = f"parameter {inner}"
        if name in members_before and name not in members_after:
            yield Change("parameter removed", at, _shortened(members_before[name]))
            continue
        if name not in members_before and name in members_after:
            is_required = name in needed_after
            yield Change(
                "required parameter added" if is_required else "optional parameter added",
                at,
                "",
                _shortened(members_after[name]),
            )
            continue
        if (name in needed_before) != (name in needed_after):
            yield Change("parameter became required" if name in needed_after else "parameter became optional", at)
        if name in members_before and _differ(members_before[name], members_after[name]):
            yield from _schema(inner, members_before[name], members_after[name])
    for key in sorted({*before, *after} - {"properties", "required"}):
        if not _differ(before.get(key), after.get(key)) and (key in before) == (key in after):
            continue
        if key == "items" and _table(before.get(key)) and _table(after.get(key)):
            yield from _schema(f"{path}[]", before[key], after[key])
        else:
            meaning: Meaning = _KEYWORDS.get(key, "constraint changed")
            at = where if meaning == "type changed" or key in _KEYWORDS else f"{where}, {key}"
            yield Change(meaning, at, _shortened(before.get(key)), _shortened(after.get(key)))


def _texts(old: object, new: object, others: Collection[str]) -> Iterator[Change]:
    """What the texts speak of that they did not before."""
    before, after = "\n".join(_strings(old)), "\n".join(_strings(new))
    patterns: tuple[tuple[Meaning, re.Pattern[str]], ...] = (
        ("new URL", _URL),
        ("new e-mail address", _EMAIL),
        ("new command", _COMMAND),
    )
    for meaning, pattern in patterns:
        known = set(pattern.findall(before))
        for text in sorted(set(pattern.findall(after)) - known):
            yield Change(meaning, "", "", _shortened(text))
    words = set(re.findall(r"[\w./-]+", after)) - set(re.findall(r"[\w./-]+", before))
    for name in sorted({word.rstrip(".") for word in words} & {*others}):
        yield Change("names another tool", "", "", _shortened(name))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, object]", value).items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _strings(inner)


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _names(value: object) -> set[str]:
    return {one for one in cast("list[object]", value) if isinstance(one, str)} if isinstance(value, list) else set()


def _differ(old: object, new: object) -> bool:
    return _form(old) != _form(new)


def _form(value: object) -> bytes:
    return canonical(json.dumps(value).encode())


def _shortened(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) and value.isprintable() else json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"
