"""The rows of a table of what may be called of a program: sub-commands, their options, and what they do. Values."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

__all__ = ["Command", "Level", "Option", "Program", "command"]

Level = Literal["read", "write"]
"""What a call does: nothing is changed, or a person has to agree."""


class Option(Struct, frozen=True):
    """One option of a sub-command."""

    name: str
    """As it is written, with its dashes; `-#` stands for a number, as in `-5`."""
    kind: str = ""
    """What its value looks like, see `cli_kinds`; empty: it has none."""
    may_stand_alone: bool = False
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
    before: str = "nothing may stand before the sub-command"


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
