"""Complete a word of a command line: what a shell asks with `mcpbridge __complete SHELL …` when a person presses Tab.

    mcpbridge __complete bash "mcpbridge call time/con"      the line up to the cursor
    mcpbridge __complete zsh call time/con                   the words up to the cursor, the last one unfinished
    mcpbridge __complete fish call time/con

The answer: a line with what is completed (`words`, `files` or `folders`) and the unfinished word, then a line for each
candidate: the word, a tab, and what it is. Commands and options are in `options.json`, so that none of the commands
has to be loaded; a test holds it to them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mcpbridge.app.cli.help.names import Names, NameSource, matching

_TABLE = Path(__file__).with_name("options.json")
_LONGEST = 60
"""Characters of what a candidate is."""
_MOST = 500
"""Candidates that a shell is shown."""

Table = Mapping[str, Any]
"""What one command takes; see `scripts/completion_table.py`."""
Candidate = tuple[str, str]
"""A word, and what it is."""


class Answer(NamedTuple):
    """What can come next."""

    kind: str
    """`words`, `files` or `folders`."""
    typed: str
    """The unfinished word."""
    candidates: Sequence[Candidate] = ()


def complete(arguments: Sequence[str]) -> int:
    """Print the answer for these arguments; returns the exit code. Prints nothing for a shell that is not known."""
    shell, *rest = arguments or [""]
    words = words_of(rest[0])[1:] if shell == "bash" and rest else rest
    answer = answered(words or [""], json.loads(_TABLE.read_bytes()))
    lines = [f"{answer.kind}\t{answer.typed}"]
    for word, about in answer.candidates[:_MOST]:
        text = "".join(filter(str.isprintable, " ".join(about.split())))
        lines.append(f"{word}\t{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}")
    print("\n".join(lines))
    return 0


def words_of(line: str) -> list[str]:
    """The words of a line of a shell up to the cursor; the last is unfinished, and may be empty."""
    words, word, quote, is_begun = list[str](), "", "", False
    position = 0
    while position < len(line):
        char = line[position]
        position += 1
        if char == "\\" and quote != "'" and position < len(line):
            word, is_begun = word + line[position], True
            position += 1
        elif quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "'\"":
            quote, is_begun = char, True
        elif char.isspace():
            if is_begun:
                words.append(word)
            word, is_begun = "", False
        else:
            word, is_begun = word + char, True
    words.append(word)
    while len(words) > 1 and "=" in words[0]:  # variables before the program
        words.pop(0)
    return words


def answered(words: Sequence[str], table: Mapping[str, Table]) -> Answer:
    """What can come in the place of the last word. `table`: by command, such as `results show`, what it takes."""
    *before, typed = words
    if not before:
        return Answer("words", typed, _beginning(typed, _commands(table)))
    name, *before = before
    if name not in table:
        return Answer("words", typed)
    known = table[name]
    if inner := known.get("commands", {}):
        if before and f"{name} {before[0]}" in table:
            known, before = table[f"{name} {before[0]}"], before[1:]
        elif not any(word in inner for word in before) and not typed.startswith("-"):
            return Answer("words", typed, _beginning(typed, inner.items()))
    return _Line(known, before, typed).answer()


def _commands(table: Mapping[str, Table]) -> Iterator[Candidate]:
    yield from ((name, one["about"]) for name, one in table.items() if " " not in name)
    yield from (("--help", "Show the commands."), ("--version", "Show the version."))


def _beginning(typed: str, candidates: Any) -> list[Candidate]:
    return [(word, about) for word, about in candidates if word.startswith(typed)]


class _Line:
    """The words behind a command."""

    def __init__(self, known: Table, before: Sequence[str], typed: str) -> None:
        self._typed = typed
        self._options: Mapping[str, Any] = {name: one for one in known["options"] for name in one["names"]}
        self._takes: Sequence[str] = known["takes"]
        self._positional: list[str] = []
        self._used: dict[str, str] = {}
        self._waiting = ""
        """The option before the word, if the word is its value."""
        self._is_ended = False
        """After `--` everything is positional."""
        for word in before:
            self._take(word)
        self._source = NameSource(self._used.get("--config"))

    def _take(self, word: str) -> None:
        name, equals, value = word.partition("=")
        if self._waiting:
            self._used[self._waiting] = word
            self._waiting = ""
        elif self._is_ended or not word.startswith("-") or word == "-":
            self._positional.append(word)
        elif word == "--":
            self._is_ended = True
        else:
            option = self._options.get(name)
            for one in option["names"] if option else [name]:
                self._used[one] = value
            if option and option["value"] and not equals:
                self._waiting = name

    def answer(self) -> Answer:
        """What can come now."""
        if self._waiting:
            return self._values(self._options[self._waiting]["value"], self._typed, "")
        name, equals, value = self._typed.partition("=")
        if equals and not self._is_ended and name in self._options and self._options[name]["value"]:
            return self._values(self._options[name]["value"], value, f"{name}=")
        if self._typed.startswith("-") and not self._is_ended:
            return Answer("words", self._typed, list(self._unused()))
        place = len(self._positional)
        kind = self._takes[min(place, len(self._takes) - 1)] if self._takes else ""
        if place >= len(self._takes) and not kind.endswith("..."):
            return Answer("words", self._typed)
        return self._values(kind.removesuffix("..."), self._typed, "")

    def _unused(self) -> Iterator[Candidate]:
        for option in {id(one): one for one in self._options.values()}.values():
            if option.get("again") or not any(name in self._used for name in option["names"]):
                yield from ((name, option["about"]) for name in option["names"] if name.startswith(self._typed))

    def _values(self, kind: str, typed: str, lead: str) -> Answer:
        if kind in ("files", "folders"):
            return Answer(kind, self._typed)
        if kind.startswith("one of "):
            found: Iterator[Candidate] = iter(_beginning(typed, ((one, "") for one in kind[7:].split())))
        elif kind == "argument":
            found = self._arguments(typed)
        elif names := self._names(kind, typed):
            found = matching(typed, names)
        else:
            found = iter(())
        candidates = [(lead + word, about) for word, about in found if word not in self._positional]
        if kind == "client or file" and not candidates:
            return Answer("files", self._typed)
        return Answer("words", self._typed, candidates)

    def _names(self, kind: str, typed: str) -> Callable[[], Names] | None:
        source = self._source
        return {
            "server": source.servers,
            "tool": lambda: source.tools(typed),
            "name": lambda: {**source.servers(), **source.tables(), **(source.tools(typed) if "/" in typed else {})},
            "table": source.tables,
            "profile": source.profiles,
            "resource": source.resources,
            "approval": source.approvals,
            "client": _clients,
            "client or file": _clients,
        }.get(kind)

    def _arguments(self, typed: str) -> Iterator[Candidate]:
        """KEY=VALUE of the tool that stands before: keys that are not there yet, then values where they are few."""
        if not self._positional:
            return
        name, equals, _ = typed.partition("=")
        members = self._source.arguments(self._positional[0])
        if equals:
            yield from matching(typed, lambda: {f"{name}={one}": "" for one in _few_values(members.get(name, {}))})
            return
        given = {word.partition("=")[0] for word in self._positional[1:]}
        left = {f"{one}=": str(about.get("description") or "") for one, about in members.items() if one not in given}
        yield from matching(typed, lambda: left)


def _few_values(schema: Mapping[str, Any]) -> Sequence[str]:
    choices: Any = ["true", "false"] if schema.get("type") == "boolean" else schema.get("enum")
    return [str(one) for one in choices] if isinstance(choices, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON


def _clients() -> Names:
    from mcpbridge.app.client_config.clients import CLIENTS

    return {client.id: client.title for client in CLIENTS}
