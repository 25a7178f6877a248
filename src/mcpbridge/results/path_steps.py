"""How paths are written: their text, and the steps that it says."""

import re

from msgspec import Struct

from mcpbridge.results.query_refused import QueryRefused, clipped

__all__ = ["Deep", "Each", "Index", "Name", "Slice", "Step", "parse_steps", "scan_steps", "show_name", "string_at"]

LONGEST = 2000
"""Characters of a path."""

_LOOSE = re.compile(r"[^.\[\]]+")
_STRICT = re.compile(r"[^\W\d][\w-]*|[$@][\w$@-]*|\d+(?![\w.])", re.UNICODE)
_PLAIN = re.compile(r"[^\W\d][\w-]*", re.UNICODE)
_NUMBER = re.compile(r"\s*(-?\d{1,15})\s*", re.ASCII)
_RANGE = re.compile(r"\s*(-?\d{1,15})?\s*:\s*(-?\d{1,15})?\s*(?::\s*(-?\d{1,9})?\s*)?", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class Name(Struct, frozen=True):
    """The member of that name."""

    name: str


class Index(Struct, frozen=True):
    """One element; below 0 from the end."""

    at: int


class Slice(Struct, frozen=True):
    """Some elements."""

    start: int | None
    stop: int | None
    step: int | None


class Each(Struct, frozen=True):
    """Every element or member."""


class Deep(Struct, frozen=True):
    """The value itself and everything in it."""


Step = Name | Index | Slice | Each | Deep


def parse_steps(text: str) -> tuple[Step, ...]:
    """The steps of a path that stands alone.

    Raises:
        QueryRefused: it is none.
    """
    if len(text) > LONGEST:
        raise QueryRefused(f"a path of more than {LONGEST} characters")
    path = text.strip()
    if path.startswith("/"):
        return (
            tuple(Name(part.replace("~1", "/").replace("~0", "~")) for part in path[1:].split("/")) if path[1:] else ()
        )
    steps, end = _scan(path, 0, _LOOSE)
    if end != len(path):
        raise _wrong(path, end)
    return steps


def scan_steps(text: str, start: int) -> tuple[tuple[Step, ...], int]:
    """The steps of the path at `start` of an expression, where names are words, and where it ends.

    Raises:
        QueryRefused: there is none.
    """
    steps, end = _scan(text, start, _STRICT)
    if end == start:
        raise QueryRefused(f"expected a field at character {start + 1} of {clipped(text)!r}")
    return steps, end


def show_name(key: str | int) -> str:
    """A step as paths write it: `.name`, `["odd name"]`, `[3]`."""
    if isinstance(key, int):
        return f"[{key}]"
    if _PLAIN.fullmatch(key):
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'["{escaped}"]'


def string_at(text: str, start: int) -> tuple[str, int] | None:
    """The quoted string at `start` and where it ends; None if there is none, or it has no end."""
    found = _STRING.match(text, start)
    return (_ESCAPE.sub(_unescape, found.group()[1:-1]), found.end()) if found else None


def _scan(text: str, start: int, names: re.Pattern[str]) -> tuple[tuple[Step, ...], int]:
    steps: list[Step] = []
    at = start
    if text[at : at + 1] in ("$", "@") and text[at + 1 : at + 2] in ("", ".", "[", " ", ")", ","):
        at += 1
    elif text[at : at + 1] == "." and text[at + 1 : at + 2] in ("", " "):
        return (), at + 1
    while at < len(text):
        before = at
        at = _step(text, at, names, steps, is_first=at == start)
        if at == before:
            break
    if sum(isinstance(step, Deep) for step in steps) > 1:
        raise QueryRefused("at most one `**` or `..` in a path")
    return tuple(steps), at


def _step(text: str, at: int, names: re.Pattern[str], steps: list[Step], *, is_first: bool) -> int:
    """Add the step at `at`, if there is one; where it ends."""
    if text.startswith("[", at):
        return _bracket(text, at, steps)
    if text.startswith("..", at):
        steps.append(Deep())
        at += 2
        if text.startswith(("[", "*"), at):
            return at if text.startswith("[", at) else _star(at, steps)
    elif text.startswith(".", at):
        at += 1
        if text.startswith("[", at):
            return at
    elif not is_first and not text.startswith(("*", "[")) and steps and not isinstance(steps[-1], Deep):
        return at
    if text.startswith("**", at):
        steps.append(Deep())
        return at + 2
    if text.startswith("*", at):
        return _star(at, steps)
    if quoted := string_at(text, at) if text[at : at + 1] in ('"', "'") else None:
        steps.append(Name(quoted[0]))
        return quoted[1]
    found = names.match(text, at)
    if found is None:
        if text[at - 1 : at] == ".":
            raise _wrong(text, at, "expected a name")
        return at
    steps.append(Name(found.group().strip()))
    return found.end()


def _star(at: int, steps: list[Step]) -> int:
    steps.append(Each())
    return at + 1


def _bracket(text: str, at: int, steps: list[Step]) -> int:
    end = text.find("]", at)
    if quoted := string_at(text, at + 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip())):
        end = quoted[1] + len(text[quoted[1] :]) - len(text[quoted[1] :].lstrip())
        if not text.startswith("]", end):
            raise _wrong(text, end, "expected ]")
        steps.append(Name(quoted[0]))
        return end + 1
    if end < 0:
        raise _wrong(text, at, "a bracket without end")
    inside = text[at + 1 : end]
    if inside.strip() in ("", "*"):
        steps.append(Each())
    elif found := _NUMBER.fullmatch(inside):
        steps.append(Index(int(found.group(1))))
    elif found := _RANGE.fullmatch(inside):
        start, stop, step = (int(part) if part else None for part in found.groups())
        if step == 0:
            raise _wrong(text, at, "steps of 0")
        steps.append(Slice(start, stop, step))
    elif inside.lstrip().startswith(("?", "(")):
        raise _wrong(text, at, "filters belong into `where`")
    else:
        raise _wrong(text, at, "expected [0], [-1], [2:5], [] or a quoted name")
    return end + 1


def _unescape(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def _wrong(text: str, at: int, what: str = "not understood") -> QueryRefused:
    return QueryRefused(f"path {clipped(text)!r}, character {at + 1}: {what}")
