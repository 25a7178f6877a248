"""Write what the commands take for completion in a shell, from the commands themselves: `app/cli/help/options.json`.

    python scripts/completion_table.py            write the table anew
    python scripts/completion_table.py --check    exit with 1 if it is not what would be written

Completion has to be quick, so it loads this table and none of the commands. A line a command: what it is, its options
with the kind of their values (empty: they take none), and the kinds of its other words, where `...` ends a kind that
may be repeated. Kinds are explained by `app/cli/help/complete.py`.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from mcpbridge.app.cli import serve
from mcpbridge.app.cli.commands import COMMANDS, command_of
from mcpbridge.app.cli.daemon import run as daemon
from mcpbridge.app.cli.help import complete

FILE = Path(complete.__file__).with_name("options.json")

_PARSERS = {"serve": serve.options_parser, "daemon": daemon.options_parser}
"""Commands that read their command line without click."""
_BY_METAVAR = {"FILE": "files", "DIR": "folders"}
_BY_NAME = {"server": "server", "profile": "profile"}
"""Options with a name as their value."""
_TAKES: Mapping[tuple[str, str], str] = {
    ("call", "tool"): "tool",
    ("call", "words"): "argument...",
    ("read", "uri"): "resource",
    ("login", "server"): "server",
    ("logout", "server"): "server",
    ("doctor", "servers"): "server...",
    ("check", "names"): "name...",
    ("enable", "name"): "name",
    ("disable", "name"): "name",
    ("remove", "name"): "name",
    ("install", "clients"): "client...",
    ("uninstall", "clients"): "client...",
    ("import", "sources"): "client or file...",
    ("lock diff", "server"): "server",
    ("approve", "id_"): "approval",
    ("deny", "id_"): "approval",
    ("manage", "name"): "table",
    ("trust", "path"): "files",
    ("untrust", "path"): "files",
}
"""The kinds of words by command and argument; the others are anything."""
_ANYTHING = "anything"


def table() -> dict[str, dict[str, Any]]:
    """What each command takes."""
    found: dict[str, dict[str, Any]] = {}
    for name, (_, about) in COMMANDS.items():
        if name in _PARSERS:
            found[name] = {"about": about, "options": list(_of_argparse(_PARSERS[name]())), "takes": []}
            continue
        command = command_of(name)
        found[name] = _of_click(name, command, about)
        if isinstance(command, click.Group):
            found[name]["commands"] = {inner: one.get_short_help_str(100) for inner, one in command.commands.items()}
            for inner, one in command.commands.items():
                found[f"{name} {inner}"] = _of_click(f"{name} {inner}", one, one.get_short_help_str(100))
    return found


def _of_click(name: str, command: click.Command, about: str) -> dict[str, Any]:
    options = [_option(one) for one in command.params if isinstance(one, click.Option) and not one.hidden]
    takes = [_argument(name, one) for one in command.params if isinstance(one, click.Argument)]
    return {"about": about, "options": [*options, _HELP], "takes": takes}


_HELP = {"names": ["--help"], "value": "", "about": "Show how the command is used."}


def _option(option: click.Option) -> dict[str, Any]:
    value = "" if option.is_flag else _kind(option.type, option.metavar, option.name or "")
    found = {"names": list(option.opts), "value": value, "about": _first_sentence(option.help or "")}
    return {**found, "again": True} if option.multiple else found


def _argument(command: str, argument: click.Argument) -> str:
    kind = _TAKES.get((command, str(argument.name))) or _kind(argument.type, None, "")
    return kind if argument.nargs == 1 or kind.endswith("...") else f"{kind}..."


def _kind(type_: Any, metavar: str | None, name: str) -> str:
    if isinstance(type_, click.Choice):
        choices: Any = vars(type_)["choices"]
        return f"one of {' '.join(map(str, choices))}"
    if isinstance(type_, click.Path):
        return "files" if type_.file_okay else "folders"
    return _BY_METAVAR.get(metavar or "") or _BY_NAME.get(name, _ANYTHING)


def _of_argparse(parser: argparse.ArgumentParser) -> Iterator[dict[str, Any]]:
    for action in vars(parser)["_actions"]:
        if action.help == argparse.SUPPRESS or not action.option_strings:
            continue
        if action.dest == "help":
            yield _HELP
            continue
        choices = " ".join(map(str, action.choices or ()))
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        named = _BY_METAVAR.get(metavar) or _BY_NAME.get(action.dest, _ANYTHING)
        value = "" if action.nargs in (0, "?") else f"one of {choices}" if choices else named
        yield {"names": list(action.option_strings), "value": value, "about": _first_sentence(action.help or "")}


def _first_sentence(text: str) -> str:
    sentence = re.split(r"(?<=[^.]\.) |; ", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
    return sentence if sentence.startswith("servers.toml") else f"{sentence[:1].upper()}{sentence[1:]}"


def text() -> str:
    """The file as it should be: a line a command."""
    lines = [f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in table().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Write the file, or compare it."""
    wanted = text()
    if "--check" in sys.argv[1:]:
        if FILE.exists() and FILE.read_text("utf-8") == wanted:
            return 0
        print(f"{FILE.name} is not what the commands take: run `make docs`", file=sys.stderr)
        return 1
    FILE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
