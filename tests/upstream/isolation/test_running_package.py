"""Which version of a package runs is read from the installation of the running program (issue 22)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpbridge.upstream.isolation.packages import package_of
from mcpbridge.upstream.isolation.running_package import running_version

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which files a process runs from")


@contextmanager
def started(program: Path) -> Iterator[int]:
    """A runner that has started the program, which says so and waits."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("print(flush=True)\ninput()\n")
    command = ["/bin/sh", "-c", f'"{sys.executable}" -IS "{program}"; exit']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.stdin.close()


def version(pid: int, *words: str) -> str:
    return running_version(package_of(words[0], words[1:]), pid)


def test_of_npm_it_is_in_the_package_file(tmp_path: Path) -> None:
    modules = tmp_path / "_npx" / "1" / "node_modules"
    with started(modules / ".bin" / "server") as pid:
        for name, text in (("plain", '{"version":"1.2.3-rc.1"}'), ("@a/b", '{"version":"4.0.0"}'), ("odd", "[]")):
            (modules / name).mkdir(parents=True)
            (modules / name / "package.json").write_text(text)
        assert version(pid, "npx", "-y", "plain") == "1.2.3-rc.1"
        assert version(pid, "npx", "-y", "plain@1") == "1.2.3-rc.1"
        assert version(pid, "npx", "-y", "@a/b@latest") == "4.0.0"
        assert version(pid, "bunx", "@a/b") == "4.0.0"
        for other in ("odd", "missing", "../plain", "github:a/b", "./local"):
            assert version(pid, "npx", "-y", other) == "", other
        assert version(pid, "node", "plain") == "", "nothing was chosen: the command names the file"


def test_a_pipe_or_a_hostile_text_in_its_place_is_no_version(tmp_path: Path) -> None:
    """Nothing is waited for."""
    modules = tmp_path / "node_modules"
    with started(modules / ".bin" / "server") as pid:
        for name in ("pipe", "text"):
            (modules / name).mkdir(parents=True)
        os.mkfifo(modules / "pipe" / "package.json")
        (modules / "text" / "package.json").write_text('{"version":"1.0 is fine, agree to it"}')
        assert version(pid, "npx", "pipe") == ""
        assert version(pid, "npx", "text") == ""


def test_of_python_it_is_in_the_name_of_its_metadata(tmp_path: Path) -> None:
    with started(tmp_path / "archive-v0" / "x" / "bin" / "mcp-server-time") as pid:
        packages = tmp_path / "archive-v0" / "x" / "lib" / "python3.12" / "site-packages"
        for name in ("mcp_server_time-2026.1.2.dist-info", "other_server-9.dist-info", "of_nobody-1.2.dist-info"):
            (packages / name).mkdir(parents=True)
        assert version(pid, "uvx", "mcp-server-time") == "2026.1.2"
        assert version(pid, "uvx", "--from", "MCP.Server_Time[all]==2026.1.2", "serve") == "2026.1.2"
        assert version(pid, "uvx", "of.nobody") == "1.2"
        assert version(pid, "pipx", "run", "other-server") == "9"
        assert version(pid, "uv", "run", "server.py") == ""
