"""Paths into JSON values: parsed, written, and followed.

`items[0].user.login`, `items[].name`, `a["odd key"]`, `/items/0/body`, `..name`, `**`. `[]` and `*` take every element
or member, `[2:5]` some, `..name` that member at any depth, `**` every value at any depth, the value itself first. A
name asked of a list is asked of each of its elements, and a number (`items.0`) is an index. Evaluation is lazy, and
linear in what is visited.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.errors import Meter, QueryRefused, clipped, known_names
from mcpbridge.results.query.limits import PATH_LENGTH, SAMPLE_VALUES

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
    if len(text) > PATH_LENGTH:
        raise QueryRefused(f"a path of more than {PATH_LENGTH} characters")
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
    elif text[at : at + 1] == "." and text[at + 1 : at + 2] in ("", " ", ")", ","):
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


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def _wrong(text: str, at: int, what: str = "not understood") -> QueryRefused:
    return QueryRefused(f"path {clipped(text)!r}, character {at + 1}: {what}")


class Place:
    """A value, and where it is: as `key` in the value of `parent`. The root's key is the handle of its document."""

    __slots__ = ("key", "parent", "value")

    def __init__(self, parent: "Place | None", key: str | int, value: Any) -> None:
        self.parent, self.key, self.value = parent, key, value

    @property
    def path(self) -> str:
        """The path to it, as `parse_path` reads it."""
        return "".join(reversed([show_name(place.key) for place in self._way()])).removeprefix(".") or "$"

    @property
    def handle(self) -> str:
        """The handle of its document."""
        place = self
        while place.parent is not None:
            place = place.parent
        return str(place.key)

    @property
    def trail(self) -> str:
        """The names of the named objects that it is in, itself the last: in a tree of files, the path of the file."""
        names = [name for place in self._way() if (name := _name_of(place.value))]
        return "/".join(reversed(names))

    def _way(self) -> Iterator["Place"]:
        place = self
        while place.parent is not None:
            yield place
            place = place.parent


class Path(Struct, frozen=True):
    """A parsed path."""

    text: str
    steps: tuple[Step, ...]

    @property
    def is_many(self) -> bool:
        """It says that it may lead to several values."""
        return any(isinstance(step, Each | Slice | Deep) for step in self.steps)

    @property
    def first_name(self) -> str | None:
        """The member that it begins with; None if it begins otherwise."""
        step = self.steps[0] if self.steps else None
        return step.name if isinstance(step, Name) else None

    def places(self, root: Place, meter: Meter) -> Iterator[Place]:
        """Where it leads; nothing if it leads nowhere."""
        return _follow(self.steps, root, meter)

    def values(self, root: Place, meter: Meter) -> list[Any]:
        """The values that it leads to from a row. A row that is a list has no names, though its elements may."""
        value = root.value
        if isinstance(value, list) and self.first_name is not None and not self.first_name.isdecimal():
            return []
        for position, step in enumerate(self.steps):
            if not isinstance(step, Name) or not isinstance(value, dict):
                rest = Place(root.parent, root.key, value)
                return [place.value for place in _follow(self.steps[position:], rest, meter)]
            members = cast("dict[str, Any]", value)
            if step.name not in members:
                return []
            value = members[step.name]
        return [value]

    def resolve(self, root: Place, meter: Meter) -> Iterator[Place]:
        """Where it leads.

        Raises:
            QueryRefused: nowhere; says what there is instead. A list without elements leads nowhere without an error.
        """
        places = self.places(root, meter)
        first = next(places, None)
        if first is None:
            self._explain(root, meter)
            return
        yield first
        yield from places

    def _explain(self, root: Place, meter: Meter) -> None:
        reached = [root]
        for position, step in enumerate(self.steps):
            after = list(islice(_follow(self.steps[: position + 1], root, meter), SAMPLE_VALUES))
            if not after:
                _refuse(step, reached)
                return
            reached = after


def parse_path(text: str) -> Path:
    """Read a path that stands alone: names may hold anything but dots and brackets.

    Raises:
        QueryRefused: it is none; says where.
    """
    return Path(text.strip(), parse_steps(text))


def path_from(text: str, start: int) -> tuple[Path, int]:
    """Read the path that begins at `start` of an expression, and where it ends.

    Raises:
        QueryRefused: see `parse_path`.
    """
    steps, end = scan_steps(text, start)
    return Path(text[start:end], steps), end


def _follow(steps: tuple[Step, ...], root: Place, meter: Meter) -> Iterator[Place]:
    places: Iterator[Place] = iter((root,))
    before: Step | None = None
    for step in steps:
        places = _step_to(step, places, meter, is_any_depth=isinstance(before, Deep))
        before = step
    return places


def _step_to(step: Step, places: Iterable[Place], meter: Meter, *, is_any_depth: bool) -> Generator[Place, None, None]:
    """One step from each of the places. `is_any_depth`: they are all values there are, lists and their elements."""
    for place in places:
        meter.spend()
        value = place.value
        if isinstance(step, Name):
            if not is_any_depth or isinstance(value, dict):
                yield from _named(step.name, place, meter)
        elif isinstance(step, Each):
            yield from _children(place, meter)
        elif isinstance(step, Deep):
            yield from _descendants(place, meter)
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            if isinstance(step, Slice):
                indexes = range(*slice(step.start, step.stop, step.step).indices(len(items)))
                meter.spend(len(indexes))
                yield from (Place(place, index, items[index]) for index in indexes)
            elif -len(items) <= step.at < len(items):
                yield Place(place, step.at % len(items), items[step.at])


def _named(name: str, place: Place, meter: Meter) -> Iterator[Place]:
    value = place.value
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if name in members:
            yield Place(place, name, members[name])
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if name.isdecimal() and name.isascii() and len(name) < 10:
            if int(name) < len(items):
                yield Place(place, int(name), items[int(name)])
            return
        meter.spend(len(items))
        has_any = False
        for index, item in enumerate(items):
            if isinstance(item, dict) and name in item:
                has_any = True
                yield Place(Place(place, index, item), name, item[name])
        if name == "length" and not has_any:  # as JavaScript has it
            yield Place(place, name, len(items))


def _children(place: Place, meter: Meter) -> Iterator[Place]:
    value = place.value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        meter.spend(len(items))
        yield from (Place(place, index, item) for index, item in enumerate(items))
    elif isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        meter.spend(len(members))
        yield from (Place(place, name, member) for name, member in members.items())


def _descendants(place: Place, meter: Meter) -> Iterator[Place]:
    waiting = [iter((place,))]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
            continue
        yield found
        if isinstance(found.value, dict | list):
            waiting.append(_children(found, meter))


def _refuse(step: Step, reached: list[Place]) -> None:
    """Say why `step` leads nowhere from all of `reached`."""
    place = reached[0]
    at = "$" if place.parent is None else place.path if len(reached) == 1 else f"{place.path} and its like"
    value = place.value
    if isinstance(step, Name):
        names = [name for place in reached for name in _names(place.value)]
        if names:
            raise QueryRefused(f"no member '{step.name}' at {at}; there are: {known_names(step.name, names)}")
        if not all(value == [] for value in (place.value for place in reached)):
            raise QueryRefused(f"no member '{step.name}': {at} is {_kind(value)}")
    elif isinstance(step, Index):
        if isinstance(value, list):
            count = len(cast("list[Any]", value))
            raise QueryRefused(f"no [{step.at}] at {at}: it has {count} elements")
        hint = f"; its members: {known_names('', names)}" if (names := _names(value)) else ""
        raise QueryRefused(f"no [{step.at}]: {at} is {_kind(value)}{hint}")
    elif not isinstance(value, list | dict):
        raise QueryRefused(f"nothing to go through: {at} is {_kind(value)}")


def _names(value: Any) -> list[str]:
    """The names that may follow a value; of a list, those of its first elements."""
    if isinstance(value, dict):
        return list(islice(cast("dict[str, Any]", value), 1000))
    if isinstance(value, list):
        items = cast("list[Any]", value)[:20]
        return [name for item in items if isinstance(item, dict) for name in islice(cast("dict[str, Any]", item), 100)]
    return []


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return f"a list of {len(cast('list[Any]', value))}"
        case dict():
            return "an object"
        case _:
            return "a number"


def _name_of(value: Any) -> str:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        for known in ("name", "title", "key", "id"):
            if isinstance(name := members.get(known), str | int) and not isinstance(name, bool):
                return str(name)
    return ""
