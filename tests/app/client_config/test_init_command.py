"""`mcpbridge init`: from clients with servers of their own to one bridge in all of them."""

import asyncio
import json
import os
import pty
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.prompts import chosen_numbers
from support.harness import Place

PROGRAM = str(Path(sys.executable).parent / "mcpbridge")
SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A home with two clients, which have a server in common."""
    shared = {"github": {"command": "npx", "args": ["-y", "gh"], "env": {"GITHUB_TOKEN": SECRET}}}
    write(tmp_path / ".cursor/mcp.json", json.dumps({"mcpServers": {**shared, "time": {"command": "t"}}}, indent=2))
    write(tmp_path / ".gemini/settings.json", json.dumps({"theme": "x", "mcpServers": shared}, indent=2))
    return Place(tmp_path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def start(place: Place) -> dict[str, Any]:
    return {"command": PROGRAM, "args": ["serve", "--config", str(place.folder / ".config/mcpbridge/servers.toml")]}


def servers_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["mcpServers"]


def configured(place: Place) -> dict[str, Any]:
    return tomllib.loads((place.folder / ".config/mcpbridge/servers.toml").read_text())["servers"]


async def talk(place: Place, *answers: str) -> tuple[int, str]:
    """The command at a terminal, where a person types these lines; the exit code, and all that was shown."""
    outside, inside = pty.openpty()
    place.env["COLUMNS"] = "300"
    process = await place.start("init", terminal=inside)
    os.close(inside)
    os.write(outside, "".join(f"{answer}\n" for answer in answers).encode())
    shown = b""
    try:
        async with asyncio.timeout(30):
            while chunk := await asyncio.to_thread(read_some, outside):
                shown += chunk
            return await process.wait(), shown.decode()
    finally:
        os.close(outside)


def read_some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody has the other end any more
        return b""


async def test_a_person_chooses_servers_and_clients(place: Place) -> None:
    code, shown = await talk(place, "5", "1", "1-2", "y")
    assert code == 0, shown
    assert "numbers from 1 to 2" in shown, "what was not understood is asked again"
    assert SECRET not in shown
    assert list(configured(place)) == ["github"]
    assert servers_of(place.folder / ".cursor/mcp.json") == {"time": {"command": "t"}, "mcpbridge": start(place)}
    assert servers_of(place.folder / ".gemini/settings.json") == {"mcpbridge": start(place)}
    assert "Restart Cursor and Gemini CLI" in shown
    assert "mcpbridge doctor" in shown


async def test_nothing_is_done_for_who_wants_nothing(place: Place) -> None:
    before = (place.folder / ".cursor/mcp.json").read_text()
    code, shown = await talk(place, "none", "none")
    assert code == 0, shown
    assert (place.folder / ".cursor/mcp.json").read_text() == before
    assert "an example to fill in" in shown
    assert (await place.run("check", "--json")).code == 0


async def test_yes_is_not_said_to_what_a_directory_brings_along(place: Place) -> None:
    repository = place.folder / "repository"
    write(repository / ".mcp.json", json.dumps({"mcpServers": {"evil": {"command": "evil"}}}))
    place.folder, home = repository, place.folder
    place.env["HOME"] = str(home)
    done = await place.run("init", "--yes")
    place.folder = home
    assert f"mcpbridge import {repository / '.mcp.json'}" in done.err + done.out
    written = (home / ".config/mcpbridge/servers.toml").read_text()
    assert "evil" not in written


async def test_without_a_terminal_yes_takes_all(place: Place) -> None:
    refused = await place.run("init")
    assert refused.code == 2
    assert "Say --yes" in refused.err
    assert not (place.folder / ".config").exists()
    done = await place.run("init", "--yes")
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err
    assert configured(place).keys() == {"github", "time"}
    assert configured(place)["github"]["env"] == {"GITHUB_TOKEN": "${file:secrets/GITHUB_TOKEN}"}
    assert servers_of(place.folder / ".cursor/mcp.json").keys() == {"github", "time", "mcpbridge"}
    again = await place.run("init", "--yes", "--replace")
    assert again.code == 0, again.err
    assert servers_of(place.folder / ".cursor/mcp.json") == {"mcpbridge": start(place)}
    assert configured(place).keys() == {"github", "time"}


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ("all", [1, 2, 3, 4]),
        ("None", []),
        ("3, 1", [1, 3]),
        ("2-4 2", [2, 3, 4]),
        ("", None),
        ("0", []),
        ("5", None),
        ("3-2", None),
        ("1,x", None),
    ],
)
def test_numbers_are_read_as_people_write_them(typed: str, numbers: list[int] | None) -> None:
    assert chosen_numbers(typed, 4) == numbers
