"""What `doctor --fix` would do to a servers.toml: that one thing, and nothing else."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.doctor.finding import Edit
from mcpbridge.app.doctor.fix import applied, difference
from mcpbridge.app.doctor.launchers import (
    launcher_of,
    package_of,
    with_input,
    with_older_sdk,
    with_yes,
    without_terminal,
)
from mcpbridge.upstream.settings import ServerSettings

COMMENTED = """\
# mine
[servers.db]   # a database
command = "uvx"
args = ["mcp-server-sqlite", "--db-path", "x"]  # where it is

[servers.box]
command = "docker"
args = [
  "run",   # go
  "-it",   # talk
  "image", # last
]

[servers.box.env]
A = "1" # first

[servers.bare]
command = "npx"
"""


def server(command: str, *args: str) -> ServerSettings:
    return ServerSettings(command=command, args=list(args))


def changed_lines(edit: Edit) -> list[str]:
    lines = difference(COMMENTED, applied(COMMENTED, edit), "servers.toml").splitlines()
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_arguments_go_in_and_the_comment_stays() -> None:
    assert changed_lines(Edit("db", args=("--with", "mcp<2"))) == [
        '-args = ["mcp-server-sqlite", "--db-path", "x"]  # where it is',
        '+args = ["--with", "mcp<2", "mcp-server-sqlite", "--db-path", "x"]  # where it is',
    ]


def test_a_list_over_several_lines_keeps_its_lines() -> None:
    changed = applied(COMMENTED, Edit("box", args=("-i",), at=1, instead="-it"))
    assert tomllib.loads(changed)["servers"]["box"]["args"] == ["run", "-i", "image"]
    assert "# go" in changed
    assert "# last" in changed
    changed = applied(COMMENTED, Edit("box", args=(), at=1, instead="-it"))
    assert tomllib.loads(changed)["servers"]["box"]["args"] == ["run", "image"]


def test_a_server_without_arguments_gets_some() -> None:
    assert changed_lines(Edit("bare", args=("-y",))) == ['+args = ["-y"]']


def test_a_key_is_set_in_its_table_or_in_a_new_one() -> None:
    assert changed_lines(Edit("box", key=("env", "B"), value="${B}")) == ['+B = "${B}"']
    changed = applied(COMMENTED, Edit("db", key=("env", "B"), value="${B}"))
    assert tomllib.loads(changed)["servers"]["db"]["env"] == {"B": "${B}"}
    changed = applied(COMMENTED, Edit("db", key=("transport",), value="sse"))
    assert tomllib.loads(changed)["servers"]["db"]["transport"] == "sse"


@pytest.mark.parametrize(
    "edit",
    [Edit("gone", args=("-y",)), Edit("box", args=("-i",), at=1, instead="-t"), Edit("box", instead="x", at=7)],
)
def test_what_is_not_as_expected_is_left_alone(edit: Edit) -> None:
    assert applied(COMMENTED, edit) == COMMENTED


def test_a_text_that_is_no_toml_is_left_alone() -> None:
    assert applied("[servers", Edit("db", args=("-y",))) == "[servers"


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(args=st.lists(_TEXT, max_size=4), more=st.lists(_TEXT, min_size=1, max_size=3), one_line=st.booleans())
def test_the_arguments_are_those_that_were_meant(args: list[str], more: list[str], one_line: bool) -> None:
    import tomlkit

    document: Any = tomlkit.document()
    written = tomlkit.array().multiline(not one_line)
    written.extend(args)
    document["servers"] = {"x": {"command": "uvx", "args": written}, "y": {"command": "other"}}
    text = tomlkit.dumps(document)
    changed = tomllib.loads(applied(text, Edit("x", args=tuple(more), at=min(1, len(args)))))
    at = min(1, len(args))
    assert changed["servers"]["x"] == {"command": "uvx", "args": args[:at] + more + args[at:]}
    assert changed["servers"]["y"] == {"command": "other"}


@pytest.mark.parametrize(
    ("command", "args", "launcher", "package"),
    [
        ("npx", ["-y", "@scope/name@1.2", "x"], "npx", "@scope/name"),
        ("npx.cmd", ["--package", "p", "program"], "npx", "p"),
        ("/usr/bin/npx", ["p@latest"], "npx", "p"),
        ("npm", ["exec", "p"], "npx", "p"),
        ("uvx", ["--from", "pkg==1.0", "program"], "uvx", "pkg"),
        ("uvx", ["--with", "mcp<2", "-p", "3.12", "pkg"], "uvx", "pkg"),
        ("uv", ["tool", "run", "pkg"], "uvx", "pkg"),
        ("uv", ["run", "server.py"], "uv run", ""),
        ("pipx", ["run", "--spec", "pkg", "program"], "pipx", "pkg"),
        ("podman", ["run", "-i", "image"], "docker", ""),
        ("python3.12", ["-m", "x"], "python", ""),
        ("./mine", [], "other", ""),
    ],
)
def test_a_launcher_is_known_by_its_command_line(command: str, args: list[str], launcher: str, package: str) -> None:
    settings = server(command, *args)
    assert (launcher_of(settings), package_of(settings)) == (launcher, package)


def test_npx_gets_its_yes_once() -> None:
    assert with_yes("x", server("npx", "p")) == Edit("x", args=("-y",))
    assert with_yes("x", server("npx", "-y", "p")) is None
    assert with_yes("x", server("uvx", "p")) is None
    assert with_older_sdk("x", server("npx", "p")) is None


@pytest.mark.parametrize(
    ("args", "edit"),
    [
        (["run", "--rm", "image"], Edit("x", args=("-i",), at=1)),
        (["run", "-e", "A", "image", "-i"], Edit("x", args=("-i",), at=1)),
        (["run", "-i", "--rm", "image"], None),
        (["run", "--rm", "--interactive", "image"], None),
        (["run", "-e", "A", "-it", "image"], None),
        (["compose", "up"], None),
    ],
)
def test_a_container_gets_its_input(args: list[str], edit: Edit | None) -> None:
    assert with_input("x", server("docker", *args)) == edit


@pytest.mark.parametrize(
    ("args", "instead", "words"),
    [
        (["run", "-it", "image"], "-it", ("-i",)),
        (["run", "--rm", "-t", "image"], "-t", ()),
        (["run", "-i", "--tty", "image"], "--tty", ()),
    ],
)
def test_a_container_loses_its_terminal(args: list[str], instead: str, words: tuple[str, ...]) -> None:
    edit = without_terminal("x", server("docker", *args))
    assert edit is not None
    assert (edit.instead, edit.args, args[edit.at]) == (instead, words, instead)
    assert without_terminal("x", server("docker", "run", "-i", "image", "-t")) is None
