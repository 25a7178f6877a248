"""What a model chose, read from what it wrote; pure.

Only names that the model was told can come of it. Asked for is a JSON array of names; taken is also what models make of
that: prose or a fence around it, an object with the array in it, objects with names, an array that was cut, a plain
list, names without their servers'.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from mcpbridge.models.prompt import ModelFailed, without_thoughts
from mcpbridge.routing.model_router_prompt import shown_name
from mcpbridge.routing.tool_text import ToolText

__all__ = ["LONGEST_ANSWER", "chosen_in"]

LONGEST_ANSWER = 20_000
"""Characters of an answer that are looked at: the last ones."""
_MOST_ATTEMPTS = 32
"""Brackets that turn out to begin no JSON value, after which no further one is looked for."""
_MOST_LINES = 200
_LONGEST_SPELLING = 512
"""Characters of a name that are compared."""

_BRACKET = re.compile(r"[\[{]")
_QUOTED = re.compile(r"""(["'])([^"'\\\n]{1,256})\1""")
_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])?\s*")
_AROUND = " \t\r\n`\"'*,"
_LISTS, _NAMES = ("tools", "names", "tool_names"), ("name", "tool", "tool_name", "id")
"""Where objects have the array, or the name of one tool."""

_Find = Callable[[str], str | None]


def chosen_in(answer: str, tools: Mapping[str, ToolText], most: int) -> tuple[str, ...]:
    """The names that it chooses, in its order, each once, at most `most`. None may be what it chose.

    `tools`: those it was told, by these names. What is unknown, or can mean several of them, is left out.

    Raises:
        ModelFailed: it names nothing that it was told, nor says that it chooses nothing.
    """
    text = without_thoughts(answer.strip())[-LONGEST_ANSWER:]
    find = _finder(tools)
    answers = [said for value in _values(text) if (said := _said(value)) is not None]
    if not answers:
        answers = [_loosely(text)] if text else []
    # The last one: models that think aloud come to their answer in the end.
    found = next((found for said in reversed(answers) if (found := _known(said, find))), list[str]())
    if not found and [] not in answers:
        raise ModelFailed("the model named no tool that there is" if answers else "the model wrote nothing")
    return tuple(found[:most])


def _finder(tools: Mapping[str, ToolText]) -> _Find:
    """What finds the tool that a model means."""
    spellings: dict[str, str | None] = {}
    """In lower case; None: several are spelled so."""
    for name, tool in tools.items():
        server, own = tool.server, tool.name
        for spelling in (name, shown_name(name), tool.id, own, f"{server}/{own}", f"{server}.{own}"):
            key = spelling[:_LONGEST_SPELLING].casefold()
            spellings[key] = name if spellings.get(key, name) == name else None

    def find(said: str) -> str | None:
        said = said.strip(_AROUND)
        return said if said in tools else spellings.get(said[:_LONGEST_SPELLING].casefold())

    return find


def _known(said: list[str], find: _Find) -> list[str]:
    """Those that there are, each once."""
    return list(dict.fromkeys(name for one in said if (name := find(one)) is not None))


def _values(text: str) -> Iterator[object]:
    """The outermost arrays and objects in a text, in order."""
    decode = json.JSONDecoder().raw_decode
    place, attempts = 0, 0
    while attempts < _MOST_ATTEMPTS and (bracket := _BRACKET.search(text, place)):
        try:
            value, place = decode(text, bracket.start())
        except (ValueError, RecursionError):
            place = bracket.end()
            attempts += 1
        else:
            yield value


def _said(value: object) -> list[str] | None:
    """The texts that are meant as names in an array, or in the object that has it. None: it is something else."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        names = [name for item in items if (name := _name(item)) is not None]
        return names if names or not items else None
    members = cast("dict[str, Any]", value)
    for key in (*_LISTS, *members):
        if isinstance(members.get(key), list):
            return _said(members[key])
    name = _name(members)
    return [name] if name is not None else None


def _name(item: object) -> str | None:
    """The name that an item of an array is, or has."""
    if isinstance(item, dict):
        members = cast("dict[str, Any]", item)
        item = next((members[key] for key in _NAMES if isinstance(members.get(key), str)), None)
    return item if isinstance(item, str) else None


def _loosely(text: str) -> list[str]:
    """What may be meant as names where there is no JSON: what is quoted in the array, or the lines of a list."""
    begin = text.find("[")
    if begin >= 0:
        return [quoted.group(2) for quoted in _QUOTED.finditer(text, begin)] or [""]
    said: list[str] = []
    for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]:
        item = _BULLET.sub("", line, count=1)
        said += [item, item.partition(":")[0]]
    return said
