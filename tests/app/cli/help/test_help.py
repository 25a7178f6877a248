"""Each command's `--help` is in plain English and has an example that the command takes (issue 19)."""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from mcpbridge.app import exit_codes
from mcpbridge.app.cli import serve
from mcpbridge.app.cli.commands import COMMANDS, command_of
from mcpbridge.app.cli.daemon import run as daemon

ROOT = Path(__file__).parents[4]
WORDS = tomllib.loads((ROOT / "tests/docs/words.toml").read_text("utf-8"))["word"]
PARSERS = {"serve": serve.options_parser, "daemon": daemon.options_parser}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS.keys() - PARSERS.keys():
        command = command_of(name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())


HELP: dict[str, Callable[[], str]] = {
    **{name: lambda one=one, name=name: one.get_help(click.Context(one, info_name=name)) for name, one in commands()},
    **{name: lambda parser=parser: parser().format_help() for name, parser in PARSERS.items()},
}
"""By command, what its `--help` prints."""


def examples(name: str) -> list[str]:
    _, _, rest = HELP[name]().partition("Examples:\n")
    lines = [line.strip() for line in rest.splitlines()]
    return lines[: lines.index("")] if "" in lines else lines


@pytest.mark.parametrize("name", sorted(HELP))
def test_a_command_has_examples_that_it_takes(name: str) -> None:
    found = examples(name)
    assert found
    for example in found:
        line = re.sub(r'^eval "\$\((.*)\)"$', r"\1", example)
        program, *words = shlex.split(line.split(" | ")[0].split(" < ")[0])
        assert program == "mcpbridge"
        assert " ".join(words).startswith(name), example
        if words[0] in PARSERS:
            PARSERS[words[0]]().parse_args(words[1:])
            continue
        command, rest = command_of(words[0]), words[1:]
        if isinstance(command, click.Group) and rest and rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context(name, rest, resilient_parsing=False)


@pytest.mark.parametrize("name", sorted(HELP))
def test_help_uses_the_words_of_the_project(name: str) -> None:
    text = re.sub(r"`[^`\n]+`", "", HELP[name]())
    for word in WORDS:
        found = re.search(word["not"], text, re.IGNORECASE)
        assert found is None, f"{found and found[0]!r}; write: {word['write']}"


@pytest.mark.parametrize("name", sorted(HELP))
def test_help_begins_with_a_sentence_of_what_the_command_does(name: str) -> None:
    text = HELP[name]()
    body = text.partition("\n\n")[2].strip()
    assert re.match(r"[A-Z].*?[.:]", body, re.DOTALL), body


def test_the_page_has_every_exit_code() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in row.split(", ")}
    codes = {value for value in vars(exit_codes).values() if isinstance(value, int)}
    assert codes <= listed
