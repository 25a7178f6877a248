"""Write the options of the commands into docs/reference/commands.md, from the commands themselves.

    python scripts/commands_reference.py            write the tables anew
    python scripts/commands_reference.py --check    exit with 1 if they are not what would be written

In the page, what is between `<!-- options: NAMES -->` and `<!-- end -->` is a table of the options of these commands,
separated by commas: `<!-- options: results show, results rm -->`. An option that only some of them have names those.
The rest of the page is written by people. Each option of each command has to be in one of the tables.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from mcpbridge.app.cli import commands, serve
from mcpbridge.app.cli.daemon import run as daemon

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/commands.md"

_BLOCK = re.compile(r"(<!-- options: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PARSERS = {"serve": serve.options_parser, "daemon": daemon.options_parser}
"""Commands that read their command line without click."""


class Option(NamedTuple):
    """One option of a command, as the page shows it."""

    spelling: str
    text: str


class Unknown(Exception):
    """The page names a command that does not exist, or leaves one out."""


def command_names() -> list[str]:
    """Every command, in the order of `mcpbridge --help`; a group by its commands, and by itself if it runs alone."""
    names: list[str] = []
    for name in commands.COMMANDS:
        command = _find(name)
        if isinstance(command, click.Group):
            names += [name] if command.invoke_without_command else []
            names += [f"{name} {inner}" for inner in command.commands]
        else:
            names.append(name)
    return names


def _find(name: str) -> click.Command:
    group: Any = vars(commands)["_mcpbridge"]
    with click.Context(group) as context:
        for word in name.split():
            group = group.get_command(context, word)
            if group is None:
                raise Unknown(f"there is no command {name!r}")
    return group


def options_of(name: str) -> Iterator[Option]:
    """The options of a command, but `--help`."""
    if name in _PARSERS:
        for action in vars(_PARSERS[name]())["_actions"]:
            if action.option_strings and action.help != argparse.SUPPRESS and action.dest != "help":
                yield _of_argparse(action)
        return
    for parameter in _find(name).params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield _of_click(parameter)


def _of_argparse(action: argparse.Action) -> Option:
    value = action.metavar if isinstance(action.metavar, str) else "WORD"
    value = "" if action.nargs == 0 else f" [{value}]" if action.nargs == "?" else f" {value}"
    choices = [str(choice) for choice in action.choices or ()]
    text = (action.help or "").split(" (default: ")[0] if action.nargs == 0 else action.help or ""
    names = [one for one in action.option_strings if not one.startswith("--no-") or len(action.option_strings) == 1]
    return Option("`, `".join([*names[:-1], names[-1] + value]), _sentence(text, choices))


def _of_click(option: click.Option) -> Option:
    choices = [str(one) for one in option.type.choices] if isinstance(option.type, click.Choice) else []
    value = "" if option.is_flag else f" {option.metavar or ('WORD' if choices else 'N')}"
    names = sorted(option.opts, key=lambda one: one.startswith("--"))
    return Option("`, `".join([*names[:-1], names[-1] + value]), _sentence(option.help or "", choices))


def _sentence(text: str, choices: list[str]) -> str:
    """The help of an option, with the words that it takes."""
    text = text if text.startswith("servers.toml") else f"{text[:1].upper()}{text[1:]}"
    text = text.rstrip(".") + "."
    if choices:
        text += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return text.replace("|", r"\|")


def table(names: list[str]) -> str:
    """The options of some commands, each once."""
    found: dict[Option, list[str]] = {}
    for name in names:
        for option in options_of(name):
            found.setdefault(option, []).append(name)
    first = {option.spelling: place for place, option in reversed([*enumerate(found)])}
    rows = ["| option | |", "|---|---|"]
    for option in sorted(found, key=lambda one: first[one.spelling]):
        having = found[option]
        only = "" if len(having) == len(names) else f"{', '.join(f'`{name}`' for name in having)}: "
        rows.append(f"| `{option.spelling}` | {only}{option.text} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page as it should be.

    Raises:
        Unknown: it names a command that does not exist, or one twice, or has no table for one.
    """
    text = PAGE.read_text("utf-8")
    named = [name.strip() for block in _BLOCK.finditer(text) for name in block[2].split(",")]
    wrong = {name for name in {*command_names()} ^ {*named} if list(options_of(name))}
    if wrong or len(named) != len({*named}):
        raise Unknown(f"tables that are missing, not needed or there twice: {sorted(wrong) or named}")
    return _BLOCK.sub(lambda found: f"{found[1]}{table([one.strip() for one in found[2].split(',')])}{found[3]}", text)


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text("utf-8") == text:
            return 0
        print(f"{PAGE.name} is not what the commands say: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
