"""Tools in few words: `github__create_issue(repo: str, title: str, state?: "open"|"closed") - Create an issue`.

A signature is made of a tool's name, description and input schema, at one of several levels. Whatever it leaves out is
marked with `…`: within, where it would be, and behind the parameters for what is said of them besides. One without
the mark says all that the definition says. Pure; never raises, whatever a server sends.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.catalog.signatures.schema import Member, as_schema, literal
from mcpbridge.catalog.signatures.short_text import cut, gist, paragraphs
from mcpbridge.catalog.signatures.types import FORMS, NAMES, Detail, Form, Types

Level = Literal["names", "brief", "full"]
"""What of a tool is shown: the name and what it does; types too; all."""

MARK = "…"

_PLAIN = re.compile(r"[A-Za-z0-9_$./-]{1,128}", re.ASCII)
_NAME = 128
_PARAMETERS = 64


_FULL = Detail(depth=8, members=100, literals=2000, is_exact=True, texts=2000, room=24_000)
_FULL_DESCRIPTION = 12_000


class Signature(Struct, frozen=True):
    """A tool in few words."""

    text: str
    is_whole: bool
    """It says all that the definition says; otherwise there is a `…` in it."""


def signature(
    name: str, description: object, schema: object, level: Level | Form = "brief", *, output: object = None
) -> Signature:
    """The signature of a tool: on one line, or at the level `full` with a line for each parameter that needs it.

    `schema` is its `inputSchema`, `output` its `outputSchema`, which only the level `full` shows.
    """
    if level == "full":
        return _full(name, description, schema, output)
    form = NAMES if level == "names" else FORMS[0] if level == "brief" else level
    said, is_whole = gist(description, form.description, most=form.sentences)
    if form.detail is None:
        is_bare = _takes_nothing(schema)
        head = f"{_called(name)}{'()' if is_bare else '(…)' if form.description else MARK}"
        is_whole = is_whole and is_bare
    else:
        parameters, is_all = _fitted(schema, form.detail, lambda told: told.one_line(form.optional))
        head = f"{_called(name)}{parameters}"
        is_whole = is_whole and is_all
    if not said and not is_whole and MARK not in head:
        head += MARK  # all of the description is left out
    return Signature(f"{head} - {said}" if said else head, is_whole)


def call_line(name: str, schema: Mapping[str, Any]) -> str:
    """How a tool is called, with all its parameters, without a word of what it does."""
    parameters, _ = _fitted(schema, FORMS[0].detail or Detail(), lambda told: told.one_line(_PARAMETERS))
    return f"{_called(name)}{parameters}"


def _full(name: str, description: object, schema: object, output: object) -> Signature:
    parameters, is_whole = _fitted(schema, _FULL, _Parameters.lines)
    said, is_all = paragraphs(description, _FULL_DESCRIPTION)
    head = f"{_called(name)}{parameters}{_returned(output)}"
    return Signature("\n".join([head, *(f"  {line}" for line in said)]), is_whole and is_all)


def _fitted(schema: object, detail: Detail, write: "Callable[[_Parameters], str]") -> tuple[str, bool]:
    """The parameters in brackets, in no more characters than the schema has; and whether that is all."""
    told = _Parameters(schema, detail)
    text = write(told)
    if told.has_copies:
        size = _size(schema)
        while len(text) > size and detail.room:
            detail = replace(detail, room=min(detail.room, size) // 2)
            told = _Parameters(schema, detail)
            text = write(told)
    return text, told.is_whole


def _size(schema: object) -> int:
    try:
        return len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError):
        return 0


def _returned(output: object) -> str:
    schema = as_schema(output)
    if schema is None:
        return ""
    types = Types(schema, _FULL)
    kind = types.of(schema)
    return "" if kind == "any" else f" -> {kind}{MARK if types.has_omissions else ''}"


def _called(name: str) -> str:
    """The name of a tool; in quotes if it is none that clients take."""
    if _PLAIN.fullmatch(name):
        return name
    return literal(cut(name, _NAME), 8 * _NAME) or '"…"'


def _takes_nothing(value: object) -> bool:
    schema = as_schema(value)
    if schema is None or schema.get("properties") or schema.get("required"):
        return False
    told = _Parameters(schema, Detail())
    return told.one_line(1) == "()" and told.is_whole


class _Parameters:
    """The parameters of one tool. Told once, by one of the two methods; the rest is known after that."""

    def __init__(self, schema: object, detail: Detail) -> None:
        self._types = Types(schema, detail)
        self._types.reader.refs.opened(schema)  # where a part of it refers to the whole, its name is enough
        self._schema = self._types.reader.flat(schema)
        self._most_members = detail.members * 4
        self._needs = ""

    @property
    def is_whole(self) -> bool:
        """All of them were told, with all that is said of them."""
        return not (self._types.has_omissions or self._types.is_cut)

    @property
    def has_copies(self) -> bool:
        """Parts of the schema were told more than once."""
        return self._types.reader.has_copies

    def one_line(self, optional: int) -> str:
        """The parameters that must be given, and so many of the others."""
        members, total = self._members()
        others, told = optional, list[str]()
        for member in members:
            is_next = isinstance(member, str) or member.is_required or others > 0
            if not is_next or self._types.is_full:
                break
            told.append(member if isinstance(member, str) else self._types.member(member))
            others -= not isinstance(member, str) and not member.is_required
        more = [self._types.more(total - len(told))] if len(told) < total else []
        return f"({', '.join([*told, *more])}){self._mark}"

    def lines(self) -> str:
        """Each parameter, and what is said of it, on a line; on one line where nothing is said."""
        told = list(self._lines())
        if not any(said for _, said in told):
            return f"({', '.join(text for text, _ in told)}){self._mark}"
        lines = [f"  {text}  # {said}" if said else f"  {text}" for text, said in told]
        return "\n".join(["(", *lines, f"){self._mark}"])

    @property
    def _mark(self) -> str:
        """What stands behind the parameters: which of them are needed, and whether there is more to know."""
        mark = MARK if self._types.has_omissions else ""
        return f" needs {self._needs} {mark}".rstrip() if self._needs else mark

    def _lines(self) -> Iterator[tuple[str, str]]:
        members, total = self._members()
        told = 0
        for member in members:
            if self._types.is_full:
                break
            told += 1
            if isinstance(member, str):
                yield member, ""
            else:
                yield self._types.member(member), self._types.text_of(member)
        if told < total:
            yield self._types.more(total - told), ""

    def _members(self) -> tuple[list[Member | str], int]:
        """The first parameters, or what stands in their place; and how many there are."""
        types, schema = self._types, self._schema
        if schema is None:
            types.is_cut = True
            return [MARK], 1
        options = [keyword for keyword in ("anyOf", "oneOf") if schema.get(keyword)]
        if options and not schema.get("properties"):
            return [types.of({**schema, "type": "object"})], 1
        self._needs = types.needs_of(schema)
        found, total = types.reader.members_of(schema, self._most_members)
        members: list[Member | str] = [*found]
        rest = types.rest_of(schema)
        others = f"**: {rest}" if rest is not None else ""
        if schema.get("additionalProperties") is True and not members:
            others = "**"
        return ([*members, others], total + 1) if others else (members, total)
