"""Options that several subcommands have.

Ask at the terminal which of several things are meant.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

import click

config_option = click.option("--config", metavar="FILE", help="servers.toml, or any mcpServers JSON.")
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
dry_run_option = click.option("--dry-run", "is_dry", is_flag=True, help="Say what would change, and change nothing.")


T = TypeVar("T")


def choose(question: str, options: Sequence[T]) -> list[T]:
    """Those of the options that a person names by their numbers, from 1; asks until it is understood."""

    def read(typed: str) -> list[int]:
        numbers = chosen_numbers(typed, len(options))
        if numbers is None:
            raise click.UsageError(f"Say all, none, or numbers from 1 to {len(options)}, such as 1,3-4.")
        return numbers

    numbers: list[int] = click.prompt(f"{question} (all, none, or numbers)", "all", value_proc=read, err=True)
    return [options[number - 1] for number in numbers]


def chosen_numbers(typed: str, count: int) -> list[int] | None:
    """`all`, `none` or numbers such as `1,3-5 7`, as numbers up to `count` in order; None: it is none of these."""
    words = typed.lower().replace(",", " ").split()
    if words in (["all"], ["a"]):
        return list(range(1, count + 1))
    if words in (["none"], ["n"], ["0"]):
        return []
    chosen: set[int] = set()
    for word in words:
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= count:
            return None
        chosen.update(range(first, last + 1))
    return sorted(chosen) or None
