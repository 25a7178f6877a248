"""Which sub-commands and options of a program may be called, as a table, and the verdict on a command line. Pure.

What is not in the table is refused. Options have their exact names (programs accept abbreviations, this does not), a
cluster such as `-sb` is accepted if every letter is known, and nothing is before the sub-command. The command that
runs is built anew from what was understood, so the program cannot read it differently: every value is joined to its
option, and options come before arguments.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, NotPermitted
from mcpbridge.base.suggestions import nearest
from mcpbridge.tools.builtin.programs.command_line import KINDS, display_command

Level = Literal["read", "write"]
"""What a call does: nothing is changed, or a person has to agree."""


class Option(Struct, frozen=True):
    """One option of a sub-command."""

    name: str
    """As it is written, with its dashes; `-#` stands for a number, as in `-5`."""
    kind: str = ""
    """What its value looks like, see `cli_kinds`; empty: it has none."""
    is_value_optional: bool = False
    """The value is joined to it, or left out: `--stat`, `--stat=80`."""
    level: Level = "read"


class Command(Struct, frozen=True):
    """One sub-command."""

    words: tuple[str, ...]
    """As it is called: `("stash", "list")`."""
    options: Mapping[str, Option]
    takes: tuple[str, ...] = ()
    """Kinds of its arguments in order; one that ends with `*` holds for all that follow."""
    needs: int = 0
    """How many arguments it must have."""
    paths: bool = False
    """Whether `--` and paths may follow."""
    level: Level = "read"
    arguments: Level = "read"
    """What it does if it has arguments; a branch is listed by `git branch`, and made by `git branch name`."""
    lists: frozenset[str] = frozenset()
    """Options with which arguments are mere patterns."""
    wants: frozenset[str] = frozenset()
    """Options of which one must be there: without it the program would ask, or open an editor."""
    network: bool = False
    """Whether it needs the network."""
    runs: tuple[str, ...] = ()
    """What is executed in place of `words`, with options that it always gets; empty: `words`."""
    ends: frozenset[str] = frozenset()
    """Options that go with no others, so that those of `runs` are left out: `--abort`."""
    quiet: frozenset[int] = frozenset()
    """Exit codes beside 0 that are an answer, not a failure: `git grep` found nothing."""


class Program(Struct, frozen=True):
    """What is known of one program."""

    name: str
    commands: Mapping[tuple[str, ...], Command]
    never: Mapping[tuple[str, ...], str] = {}
    """Sub-commands that are never run, and why: a clause."""
    never_options: Mapping[str, str] = {}
    """Options that no sub-command takes here, and why."""
    before: str = "nothing may come before the sub-command"


def for_each(names: str, why: str) -> dict[str, str]:
    """The same reason for each of these names, which are written with blanks between them."""
    return dict.fromkeys(names.split(), why)


def command(
    words: str,
    options: str = "",
    takes: str = "",
    *,
    writes: str = "",
    level: Level = "read",
    arguments: Level = "read",
    needs: int = 0,
    lists: str = "",
    wants: str = "",
    network: bool = False,
    runs: str = "",
    ends: str = "",
    quiet: Sequence[int] = (),
) -> Command:
    """A row of a table, written short.

    `options`: `--flag`, `-n:number` (it has a value), `--stat?text` (it may have one, joined to it). `writes`: further
    options, with which the sub-command changes something. `takes`: kinds of arguments, `--` last if paths may follow.
    """
    kinds = tuple(takes.split())
    sources: tuple[tuple[str, Level], ...] = ((options, "read"), (writes, "write"))
    listed = [_option(text, effect) for source, effect in sources for text in source.split()]
    return Command(
        words=tuple(words.split()),
        options={option.name: option for option in listed},
        takes=tuple(kind for kind in kinds if kind != "--"),
        needs=needs,
        paths="--" in kinds,
        level=level,
        arguments=arguments,
        lists=frozenset(lists.split()),
        wants=frozenset(wants.split()),
        network=network,
        runs=tuple(runs.split()) or tuple(words.split()),
        ends=frozenset(ends.split()),
        quiet=frozenset(quiet),
    )


def _option(text: str, level: Level) -> Option:
    sign = next((one for one in text if one in ":?"), "")
    name, _, kind = text.partition(sign) if sign else (text, "", "")
    return Option(name, kind, sign == "?", level)


_MOST_LISTED = 40


class Verdict(Struct, frozen=True):
    """A command line that was understood."""

    command: Command
    argv: tuple[str, ...]
    """What runs, without the program."""
    level: Level
    given: tuple[str, ...] = ()
    """Names of the options that are there."""
    positionals: tuple[str, ...] = ()


def judge(program: Program, words: Sequence[str]) -> Verdict:
    """What these words mean, if they may be run.

    Raises:
        ArgumentsRefused: they are not in the table; says what is.
        NotPermitted: they would run another program, or reach where nobody may; a person cannot allow it either.
    """
    found, rest = _command_of(program, words[1:] if words[:1] == [program.name] else words)
    reading = _Reading(program, found)
    reading.read(rest)
    return reading.verdict()


class _Reading:
    """One pass over the words behind a sub-command."""

    def __init__(self, program: Program, command: Command) -> None:
        self._program, self._command = program, command
        self._called = " ".join((program.name, *command.words))
        self._options: list[str] = []
        self._given: list[Option] = []
        self._arguments: list[str] = []
        self._paths: list[str] | None = None

    def read(self, words: Sequence[str]) -> None:
        """Take the words in their order."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if self._paths is not None:
                self._check("path", word, f"the path {display_command([word])}")
                self._paths.append(word)
            elif word == "--":
                if not self._command.paths:
                    raise ArgumentsRefused(f"`{self._called}` takes no paths behind `--` here")
                self._paths = []
            elif word.startswith("--"):
                self._long(word, rest)
            elif word.startswith("-") and word != "-":
                self._short(word, rest)
            else:
                self._argument(word)

    def verdict(self) -> Verdict:
        """What came of it."""
        found, names = self._command, tuple(option.name for option in self._given)
        if len(self._arguments) < found.needs:
            raise ArgumentsRefused(f"`{self._called}` needs {found.needs} of: {' '.join(found.takes)}")
        if found.wants and not found.wants & set(names):
            raise ArgumentsRefused(f"`{self._called}` needs one of {', '.join(sorted(found.wants))} here")
        levels = [found.level, *(option.level for option in self._given)]
        if self._arguments and not found.lists & set(names):
            levels.append(found.arguments)
        paths = [] if self._paths is None else ["--", *self._paths]
        return Verdict(
            found,
            (*(found.words if found.ends & set(names) else found.runs), *self._options, *self._arguments, *paths),
            "write" if "write" in levels else "read",
            names,
            tuple(self._arguments),
        )

    def _long(self, word: str, rest: list[str]) -> None:
        name, sign, value = word.partition("=")
        option = self._option(name, word)
        if not option.kind:
            if sign:
                raise ArgumentsRefused(f"`{self._called}` takes {name} without a value")
            self._add(option, "")
        elif sign:
            self._add(option, value, f"{name}={value}")
        elif option.is_value_optional:
            self._add(option, "", name)
        else:
            value = self._next(name, rest)
            self._add(option, value, f"{name}={value}")

    def _short(self, word: str, rest: list[str]) -> None:
        known = self._command.options
        if re.fullmatch(r"-[0-9]{1,9}", word) and "-#" in known:
            self._add(known["-#"], word[1:], word)
            return
        while word:
            option = self._option(word[:2], word)
            joined = word[2:]
            if not option.kind:
                self._add(option, "")
                word = f"-{joined}" if joined else ""
                continue
            if joined or option.is_value_optional:
                self._add(option, joined, f"{option.name}{joined}")
            else:
                value = self._next(option.name, rest)
                if value:
                    self._add(option, value, f"{option.name}{value}")
                else:
                    self._add(option, value, option.name, value)
            return

    def _next(self, name: str, rest: list[str]) -> str:
        if not rest:
            raise ArgumentsRefused(f"`{self._called}`: {name} needs a value")
        return rest.pop(0)

    def _option(self, name: str, word: str) -> Option:
        option = self._command.options.get(name)
        if option is not None:
            return option
        called = f"`{self._called}` with {display_command([name], 60)}"
        for one in (name, word.partition("=")[0]):
            if one in self._program.never_options:
                raise NotPermitted(f"{called} is never run: {self._program.never_options[one]}")
        known = [one for one in self._command.options if one != "-#"]
        close = nearest(name, known)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        more = "…" if len(known) > _MOST_LISTED else ""
        listed = f"there are {' '.join(known[:_MOST_LISTED])}{more}" if known else "it takes no options here"
        raise ArgumentsRefused(f"{called} may not be called: {hint}{listed}")

    def _add(self, option: Option, value: str, *written: str) -> None:
        if option.kind and not (option.is_value_optional and not value):
            self._check(option.kind, value, f"{option.name} {display_command([value], 100)}")
        self._given.append(option)
        self._options += written or (option.name,)

    def _argument(self, word: str) -> None:
        takes, place = self._command.takes, len(self._arguments)
        if word == "-":
            raise NotPermitted(f"`{self._called}` with `-` reads from its standard input, which is empty here")
        if not takes or (place >= len(takes) and not takes[-1].endswith("*")):
            most = f"at most {len(takes)} arguments" if takes else "no arguments"
            raise ArgumentsRefused(f"`{self._called}` takes {most} here: {display_command([word], 100)} is too much")
        self._check(takes[min(place, len(takes) - 1)].rstrip("*"), word, display_command([word], 100))
        self._arguments.append(word)

    def _check(self, kind: str, value: str, what: str) -> None:
        why = KINDS[kind](value)
        if why:
            raise ArgumentsRefused(f"`{self._called}`: {what} is not taken: {why}")


def _command_of(program: Program, words: Sequence[str]) -> tuple[Command, Sequence[str]]:
    if not words:
        raise ArgumentsRefused(f"there is no command: write one of {_names(program)}")
    if words[0].startswith("-"):
        raise NotPermitted(f"`{program.name} {display_command(words[:1], 60)}` is never run: {program.before}")
    for length in range(min(len(words), 4), 0, -1):
        head = tuple(words[:length])
        if head in program.never:
            raise NotPermitted(f"`{program.name} {' '.join(head)}` is never run: {program.never[head]}")
        if head in program.commands:
            return program.commands[head], words[length:]
    return _unknown(program, words)


def _unknown(program: Program, words: Sequence[str]) -> tuple[Command, Sequence[str]]:
    inner = [" ".join(one) for one in program.commands if one[0] == words[0]]
    if inner:
        raise ArgumentsRefused(
            f"`{program.name} {display_command(words[:2], 60)}` may not be called: {', '.join(inner)}"
        )
    close = nearest(words[0], {one[0] for one in program.commands}, limit=1)
    hint = f"did you mean {close[0]}? " if close else ""
    said = display_command(words[:1], 60)
    raise ArgumentsRefused(f"`{program.name} {said}` may not be called: {hint}there are {_names(program)}")


def _names(program: Program) -> str:
    return ", ".join(dict.fromkeys(one[0] for one in program.commands))
