"""Completion in real shells: what Tab makes of a line in bash, zsh and fish (issue 19)."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpbridge.app.cli.help.completion import SCRIPTS

DEADLINE = 60.0
READY = "READY-$"
"""The prompt: a `$` that the shell has not got to write otherwise."""


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """Where `mcpbridge` is on the PATH, with a configuration and no bridge."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mcpbridge").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mcpbridge "$@"\n')
    (programs / "mcpbridge").chmod(0o755)
    config = tmp_path / "servers.toml"
    config.write_text("".join(f'[servers.{name}]\ncommand = "x"\n' for name in ("github", "gitlab", "time")))
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a file.toml").write_text("")
    own = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "MCPBRIDGE_CONFIG": str(config)}
    return {**own, "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def found(shell: str) -> str:
    """The program of a shell; skips the test without it."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, fd: int) -> None:
        self._fd, self.seen = fd, ""

    def type(self, keys: str) -> None:
        self.seen = ""
        os.write(self._fd, keys.encode())

    def until(self, pattern: str) -> str:
        """What the shell has written since the last keys, once that matches."""
        end = time.monotonic() + DEADLINE
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, f"{pattern!r} did not come: {self.seen!r}"
            if select.select([self._fd], [], [], 1)[0]:
                self.seen += os.read(self._fd, 65536).decode(errors="replace")
        return self.seen


@contextmanager
def interactive(command: list[str], environ: Mapping[str, str]) -> Iterator[Terminal]:
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(environ["HOME"])
        os.execve(command[0], command, dict(environ))
    try:
        yield Terminal(fd)
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_printed(environ: Mapping[str, str], shell: str) -> None:
    done = subprocess.run(
        ["mcpbridge", "completion", shell], env=dict(environ), capture_output=True, text=True, check=True
    )
    assert done.stdout == SCRIPTS[shell]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_can_read_its_script(environ: Mapping[str, str], tmp_path: Path, shell: str) -> None:
    (tmp_path / "script").write_text(SCRIPTS[shell])
    done = subprocess.run([found(shell), "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def bash(environ: Mapping[str, str], line: str, breaks: str = " \t\n\"'><=;|&(:") -> list[str]:
    """What bash would put in the place of the word that the line ends with, separators as bash has them by default."""
    split = r"""
        eval "$(mcpbridge completion bash)"
        COMP_WORDBREAKS=$1 COMP_LINE=$2 COMP_POINT=${#2}
        _mcpbridge mcpbridge
        printf '%s\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        [found("bash"), "--norc", "-c", split, "bash", breaks, line],
        env=dict(environ), cwd=environ["HOME"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all("compopt" in line for line in done.stderr.splitlines()), done.stderr  # it works behind Tab alone
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mcpbridge li", ["list"]),
        ("mcpbridge login gi", ["github", "gitlab"]),
        ("mcpbridge list --server=gi", ["github", "gitlab"]),  # bash has put down what is before the `=`
        ("mcpbridge call ti", ["time/"]),
        ("mcpbridge list --config a\\ f", ["a file.toml", "a folder"]),
        ("mcpbridge install --project a", ["a folder"]),
        ("mcpbridge nonsense x", [""]),
    ],
)
def test_bash(environ: Mapping[str, str], line: str, expected: list[str]) -> None:
    assert sorted(bash(environ, line)) == expected


def test_bash_without_separators_gets_the_whole_word(environ: Mapping[str, str]) -> None:
    assert bash(environ, "mcpbridge list --server=gith", breaks=" \t\n") == ["--server=github"]


def test_bash_runs_nothing_that_a_name_says(environ: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_text(
        "[servers.'$(touch ran)']\ncommand = 'x'\n[servers.'x`touch ran`']\ncommand = 'x'\n"
    )
    assert bash(environ, "mcpbridge login ") == [""]
    assert not (tmp_path / "ran").exists()


def test_tab_in_bash(environ: Mapping[str, str]) -> None:
    with interactive([found("bash"), "--norc", "--noprofile", "-i"], {**environ, "PS1": READY}) as terminal:
        terminal.until("READY-")
        terminal.type('eval "$(mcpbridge completion bash)"; echo do""ne\n')
        terminal.until("done")
        terminal.type("mcpbridge unt\t")
        terminal.until("untrust ")
        terminal.type("\x15mcpbridge call tim\t")
        assert "time/ " not in terminal.until("time/")
        terminal.type("\x15mcpbridge login git\t\t")
        terminal.until("github +gitlab")
        terminal.type("\x15exit\n")


def test_tab_in_zsh(environ: Mapping[str, str]) -> None:
    with interactive([found("zsh"), "-f", "-i"], {**environ, "PS1": READY}) as terminal:
        terminal.until("READY-")
        terminal.type("autoload -U compinit; compinit -u -D; eval \"$(mcpbridge completion zsh)\"; echo do''ne\n")
        terminal.until("done")
        terminal.type("mcpbridge unt\t")
        terminal.until("rust ")
        terminal.type("\x15mcpbridge call tim\t")
        terminal.until("e/")
        terminal.type("\x15mcpbridge login git\t")
        terminal.until(r"(github|gitlab) +(github|gitlab) +-- server")
        terminal.type("\x15exit\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mcpbridge unt", ["untrust\tStop trusting a configuration."]),
        ("mcpbridge login gi", ["github\tserver", "gitlab\tserver"]),
        ("mcpbridge list --server=gi", ["--server=github\tserver", "--server=gitlab\tserver"]),
        ("mcpbridge call 'ti", ["time/\tserver"]),
        ("mcpbridge install --project a", ["a folder/\tDirectory"]),
        ("mcpbridge list --config 'a fi", ["a file.toml"]),
        ("mcpbridge nonsense x", []),
    ],
)
def test_fish(environ: Mapping[str, str], line: str, expected: list[str]) -> None:
    script = "mcpbridge completion fish | source; complete -C $argv[1]"
    done = subprocess.run(
        [found("fish"), "--no-config", "-c", script, line],
        env=dict(environ), cwd=environ["HOME"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == expected
