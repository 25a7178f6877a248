"""Long work shows on a terminal what happens, and says nothing of it in a pipe (issue 19)."""

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from mcpbridge.app.cli import output
from mcpbridge.app.cli.output import StatusLine, counted, progress
from support.harness import COOKIE, Place, python_server
from support.programs.terminal import on_terminal
from support.upstreams.oauth_server import oauth_world

VISIT = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=20).read()"
"""What the stand-in for a browser does with the address that it is started with."""


@pytest.mark.parametrize(
    ("count", "what", "text"),
    [
        (1, "entry", "1 entry"),
        (5, "entry", "5 entries"),
        (0, "query", "0 queries"),
        (2, "key", "2 keys"),
        (3, "tool", "3 tools"),
    ],
)
def test_what_is_counted_has_its_plural(count: int, what: str, text: str) -> None:
    assert counted(count, what) == text


CASES: Sequence[tuple[Sequence[str], Sequence[str], str]] = [
    (["list", "--standalone"], ["starting 1 server …"], "one__echo"),
    (["search", "echo", "--standalone"], ["starting 1 server …", "indexing the tools"], "one__echo"),
    (["tokens", "--standalone"], ["starting 1 server …", "counting tokens …"], "total"),
    (["check"], ["starting 1 server …", "checking the tools …"], "one"),
    (["bench", "routing"], ["starting 1 server …", "queries …"], "found first"),
    (["doctor", "one"], ["starting servers, 0 of 1 done"], "1 of 1 servers work"),
    (["import", "--dry-run"], ["looking for servers in the files of your clients …"], "no servers were found"),
    (["init", "--yes", "--config", "new.toml"], ["looking for servers in the files of your clients …"], "new.toml"),
    (["up"], ["starting the daemon …"], "started: process"),
    (["list"], ["asking the daemon …"], "one__echo"),
    (["reload"], ["waiting for the bridges to read the configuration …"], "nothing changed"),
    (["disable", "one"], ["waiting for the bridges to take it in …"], "has taken it in"),
    (["restart"], ["starting the daemon again …"], "started anew"),
    (["down"], ["waiting for the end of process"], "stopped the daemon"),
]
"""Commands in their order, what a person sees meanwhile, and in the end."""


async def test_a_person_sees_what_happens(place: Place) -> None:
    configure(place)
    try:
        for words, meanwhile, end in CASES:
            _, shown = await on_terminal(place, "", *words)
            assert [text for text in [*meanwhile, end] if text not in shown] == [], f"{words}: {shown!r}"
            assert last_screen(shown).strip() != "", words
            assert not any(text in last_screen(shown) for text in meanwhile), f"{words}: {shown!r}"
    finally:
        await place.run("down")


async def test_a_pipe_gets_nothing_of_it(place: Place) -> None:
    configure(place)
    place.env["MCPBRIDGE_STANDALONE"] = "1"
    for words, meanwhile, end in CASES[:8]:
        done = await place.run(*words)
        assert end in done.out + done.err, words
        assert not any(text in done.out + done.err for text in meanwhile), f"{words}: {done.err!r}"
        assert "\r" not in done.out + done.err


def configure(place: Place) -> None:
    place.env["MCPBRIDGE_STANDALONE"] = ""
    config = place.folder / "servers.toml"
    server = python_server("plain")
    config.write_text(
        f"[servers.one]\ncommand = {json.dumps(server['command'])}\nargs = {json.dumps(server['args'])}\n"
        f"env = {{ {COOKIE} = {json.dumps(place.cookie)} }}\n"
    )
    place.env["MCPBRIDGE_CONFIG"] = str(config)


def last_screen(shown: str) -> str:
    """What is left on the terminal: a line is what was written to it last."""
    lines: list[str] = []
    for line in shown.split("\n"):
        left = ""
        for piece in line.split("\r"):
            left = piece + left[len(piece) :]
        lines.append(left.rstrip())
    return "\n".join(lines)


async def test_a_sign_in_says_that_it_waits(place: Place) -> None:
    script = place.folder / "browser"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(VISIT)} "$1" >/dev/null 2>&1\n')
    script.chmod(0o755)
    place.env["BROWSER"] = str(script)
    async with oauth_world() as world:
        config = str(place.config({"up": {"url": world.url, "era": "legacy"}}))
        code, shown = await on_terminal(place, "", "login", "up", "--config", config)
        assert code == 0, shown
        assert "asking up how to sign in …" in shown
        assert "waiting until you have signed in …" in shown
        assert "signed in to up at" in last_screen(shown)
        assert "waiting" not in last_screen(shown)


class _Terminal:
    """Keeps what is written to it."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        self._is_terminal, self.written = is_terminal, ""

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> None:
        self.written += text

    def flush(self) -> None:
        pass


def test_the_line_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = _Terminal(), [100.0]
    monkeypatch.setattr(output.sys, "stderr", terminal)
    monkeypatch.setattr(output, "monotonic", lambda: now[0])
    line = StatusLine()
    line.show("asking …")
    now[0] += 1.9
    line.tick()
    assert "(" not in terminal.written
    now[0] += 1
    line.tick()
    assert terminal.written.endswith("\rasking … (2 s)")
    line.show("still asking …")
    assert terminal.written.endswith("\rstill asking … (2 s)")
    line.clear()
    assert last_screen(terminal.written) == ""
    before = terminal.written
    line.tick()
    line.clear()
    assert terminal.written == before
    line.show("another")
    assert terminal.written.endswith("\ranother")


def test_nothing_is_written_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe: Any = _Terminal(is_terminal=False)
    monkeypatch.setattr(output.sys, "stderr", pipe)
    with progress("asking …") as line:
        line.show("still asking …")
        line.tick()
    assert pipe.written == ""
