"""Python values as Python prints them, which some servers send for JSON: `[{'id': 1, 'at': None}]`."""

import ast
import json
import re
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any, cast

from mcpbridge.results.exact_json import NotReadable, parse_json

__all__ = ["read_python"]

_TOKEN = re.compile(
    r"""
    (?P<string>'[^'\\\n]*(?:\\.[^'\\\n]*)*'?|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?)
    |(?P<call>(?:datetime\.)?(?:datetime|date|time|timedelta)\([^()\n]{0,200}\)|(?:Decimal|UUID)\('[^'\n]{0,200}'\))
    |(?P<bytes>\b[bB](?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"))
    |(?P<word>\b(?:True|False|None)\b|(?<![\w.])-?(?:inf|nan)\b)
    |(?P<tuple>(?:,|(?<![\s,]))\s*\)|\()
    |(?P<other>(?<![\d.])[A-Za-z_]\w*)
    """,
    re.VERBOSE,
)
_LONGEST_TREE = 500_000
"""Characters that are parsed as Python where the fast way fails (sets, numbers as names, text in several pieces)."""
_STRING = re.compile(r"""('[^'\\\n]*(?:\\.[^'\\\n]*)*'?|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?)""")
"""Also one without an end, lest its rest be searched for strings again and again."""
_BEFORE_TEXT = re.compile(r"\0(?<=[\w)]\0)")
"""The text of a call, or one with a prefix; `\0` stands for a text."""
_BEHIND_TEXT = re.compile(r"\0\s*[\w(\0]")
"""Two texts side by side, or something else that belongs to the text."""
_NOT_PLAIN = re.compile(r"[A-DF-Za-df-z_()]|(?<![0-9])[Ee]")
_LETTER = re.compile(r"[A-Za-z_()]")
"""What `_NOT_PLAIN` finds has one of these, which are found several times as fast."""
_PLAIN_WORDS = {"True": "true", "False": "false", "None": "null"}
_WORDS = {**_PLAIN_WORDS, "nan": '"nan"', "inf": '"inf"', "-inf": '"-inf"'}
"""And what they are in JSON, which has no such numbers as the last: those are strings."""
_COMMON_ESCAPES = re.compile(r"""(?:[^\\\x00-\x1f]|\\[\\nrt'"])*""")
"""Python and JSON mean the same by them."""


class _NotPlain(Exception):
    """Something that the fast way does not know."""


def read_python(text: str) -> Any:
    """The value: tuples and sets are lists, dates are strings as ISO 8601 has them. None if it is no such text."""
    stripped = text.strip()
    if stripped[:1] + stripped[-1:] not in {"[]", "{}", "()"}:
        return None
    for way in (_quoted, _by_tokens):
        try:
            return parse_json(way(stripped))
        except (_NotPlain, NotReadable, ArithmeticError):
            continue
    return _by_syntax_tree(stripped)


def _by_tokens(text: str) -> str:
    """The text as JSON, token by token."""
    return _TOKEN.sub(_as_json, text)


def _quoted(text: str) -> str:
    """The text as JSON where all strings stand by themselves, as most do: what is between them is looked at at once."""
    if "\0" in text:
        raise _NotPlain
    if '"' in text or "\\" in text:
        pieces = _STRING.split(text)
        pieces[1::2] = map(_string, pieces[1::2])
    else:
        pieces = text.split("'")
        pieces[1::2] = [f'"{inner}"' for inner in pieces[1::2]]
    code = "\0".join(pieces[::2])
    if len(pieces) % 2 == 0 or _BEFORE_TEXT.search(code) or _BEHIND_TEXT.search(code):
        raise _NotPlain
    pieces[::2] = _code(code).split("\0")
    return "".join(pieces)


def _code(code: str) -> str:
    """What is between strings, as JSON."""
    without_words, as_json = code, code
    for word, json_word in _PLAIN_WORDS.items():
        without_words = without_words.replace(word, "")
        as_json = as_json.replace(word, json_word)
    is_plain = not _LETTER.search(without_words) or not _NOT_PLAIN.search(without_words)
    return as_json if is_plain else _TOKEN.sub(_as_json, code)


def _as_json(match: re.Match[str]) -> str:
    token = match[0]
    match match.lastgroup:
        case "string":
            return _string(token)
        case "word":
            return _WORDS.get(token, f'"{token}"')
        case "bytes":
            return json.dumps(token, ensure_ascii=False)
        case "tuple":
            return "]" if token.endswith(")") else "["
        case "call":
            return _call(token)
        case _:
            raise _NotPlain
    return token


def _string(token: str) -> str:
    """A string as JSON. Control characters stay: JSON has none, so such a text is read in another way."""
    quote, inner = token[0], token[1:-1]
    if token[1:][-1:] != quote:
        raise _NotPlain
    if "\\" not in inner:
        return token if quote == '"' else json.dumps(inner, ensure_ascii=False) if '"' in inner else f'"{inner}"'
    if _COMMON_ESCAPES.fullmatch(inner):
        if quote == '"' and "\\'" not in inner:
            return token
        if quote == "'" and '"' not in inner:
            # Each `'` in it has the backslash that keeps it from ending the string.
            return '"' + inner.replace("\\'", "'") + '"'
    try:
        return json.dumps(ast.literal_eval(token), ensure_ascii=False)
    except (ValueError, SyntaxError) as error:
        raise _NotPlain from error


def _call(token: str) -> str:
    name, _, inner = token[:-1].partition("(")
    if name in {"Decimal", "UUID"}:
        inside = inner.strip("'")
        return inside if name == "Decimal" and re.fullmatch(r"-?\d+(\.\d+)?", inside) else f'"{inside}"'
    return f'"{_time(name.rpartition(".")[2], inner)}"'


def _time(name: str, inner: str) -> str:
    """A date or time in ISO 8601; what it does not know stays as Python has it."""
    from datetime import date, datetime, time

    parts = [part.strip() for part in inner.split(",") if part.strip()]
    numbers = [int(part) for part in parts if part.isdecimal()]
    zone = "+00:00" if any("utc" in part.lower() for part in parts) else ""
    kinds: dict[str, Callable[..., Any]] = {"datetime": datetime, "date": date, "time": time}
    if len(numbers) + bool(zone) < len(parts) or name not in kinds:
        return f"{name}({inner})".replace('"', "'").replace("\\", "")
    try:
        return kinds[name](*numbers).isoformat() + zone
    except (ValueError, TypeError, OverflowError):
        return f"{name}({inner})"


def _by_syntax_tree(text: str) -> Any:
    if len(text) > _LONGEST_TREE:
        return None
    try:
        value = ast.literal_eval(text)
        return _value(value, 0) if isinstance(value, (dict, list, tuple, set)) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _value(value: Any, depth: int) -> Any:
    """The value as JSON has them."""
    if depth > 200:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            name if isinstance(name, str) else str(name): _value(member, depth + 1) for name, member in members.items()
        }
    if isinstance(value, (list, tuple)):
        return [_value(member, depth + 1) for member in cast("list[Any]", value)]
    if isinstance(value, (set, frozenset)):
        return sorted((_value(member, depth + 1) for member in cast("set[Any]", value)), key=repr)
    if isinstance(value, float):
        return Decimal(repr(value)) if isfinite(value) else str(value)
    if isinstance(value, (bytes, complex)) or value is ...:
        return repr(cast("object", value))
    return value
