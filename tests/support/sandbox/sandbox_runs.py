"""What tests of sandboxes need: things outside that must not be reached, and runs as a user without privileges."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from mcpbridge.sandbox.isolation import seccomp as system_calls
from mcpbridge.sandbox.isolation.launcher import Launcher, launched
from mcpbridge.sandbox.isolation.readable_files import interpreter, interpreter_places
from mcpbridge.sandbox.job import Job, Limits
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings

UID = 4242
VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PWD", "LC_CTYPE", "MCPBRIDGE_COOKIE")
MEMORY, FILE_SIZE = 96 << 20, 1 << 20
NEWEST = 99
TIERS = ("launcher", "bubblewrap")


_made: dict[str, Isolation] = {}


def isolation(mode: str = "auto", **more: object) -> Isolation:
    return Isolation(SandboxSettings.model_validate({"mode": mode, **more}))


def python(source: str, *arguments: str, **more: object) -> Job:
    """A job that runs this source."""
    return Job((interpreter(), "-I", "-S", "-c", source, *arguments), **more)  # type: ignore[arg-type]


class Outside:
    """A directory and a file that anybody may use, listening sockets, and a process."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(8)
        self.place = Path(tempfile.mkdtemp(prefix="isolation-"))
        self.place.chmod(0o777)
        self.file = self.place / "file"
        self.file.write_text(self.secret)
        self.file.chmod(0o666)
        self.program = self.place / "program"
        self.program.write_text("#!/bin/sh\nexit 0\n")
        self.program.chmod(0o777)
        self.before = sorted(path.name for path in self.place.iterdir())
        self.sockets: list[socket.socket] = [socket.create_server(("127.0.0.1", 0))]
        for name, kind in (("letters", socket.SOCK_DGRAM), ("socket", socket.SOCK_STREAM)):
            self._bound(str(self.place / name), kind)
            (self.place / name).chmod(0o777)
        self.abstract = f"isolation-{self.secret}"
        self._bound(f"\0{self.abstract}", socket.SOCK_STREAM)
        self.echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.echo.bind(("127.0.0.1", 0))
        self.answering = threading.Thread(target=self._answer)
        self.answering.start()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", self.secret],
            stdin=subprocess.PIPE,
            env={"CANARY": self.secret},
        )

    def _bound(self, address: str, kind: int) -> None:
        bound = socket.socket(socket.AF_UNIX, kind)
        bound.bind(address)
        if kind == socket.SOCK_STREAM:
            bound.listen()
        self.sockets.append(bound)

    def _answer(self) -> None:
        while True:
            said, who = self.echo.recvfrom(100)
            if not said:
                return
            self.echo.sendto(b"heard", who)

    def world(self, tier: str) -> dict[str, object]:
        column = 0 if os.uname().machine == "x86_64" else 1
        return {
            "tier": tier,
            "file": str(self.file),
            "outside": str(self.place),
            "program": str(self.program),
            "process": self.process.pid,
            "secret": self.secret,
            "port": self.sockets[0].getsockname()[1],
            "socket": str(self.place / "socket"),
            "letters": str(self.place / "letters"),
            "abstract": self.abstract,
            "echo": self.echo.getsockname()[1],
            "memory": MEMORY,
            "file_size": FILE_SIZE,
            "variables": VARIABLES,
            "calls": {name: numbers[column] or -1 for name, numbers in system_calls._CALLS.items()},
        }

    def is_untouched(self) -> bool:
        names = sorted({path.name for path in self.place.iterdir()} - {"letters", "socket"})
        same = names == self.before and self.file.read_text() == self.secret
        return same and self.file.stat().st_mode & 0o777 == 0o666 and self.process.poll() is None

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.echo.getsockname())
        self.answering.join()
        for opened in (*self.sockets, self.echo):
            opened.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.place)


async def usable(mode: str) -> Isolation:
    """A sandbox of this kind, whose canaries are run once for all tests; skips where it cannot be had at all."""
    sandbox = _made.setdefault(mode, isolation(mode))
    (report,) = (await sandbox.readiness()).tiers
    if report.lacks:
        pytest.skip(report.lacks)
    return sandbox


async def attempts(mode: str, landlock: int = NEWEST) -> tuple[list[str], int, bool]:
    """Which ways out of this sandbox were open, how many were tried, and whether all outside is as it was."""
    outside = Outside()
    try:
        source = Path(__file__).with_name("escape_attempts.py").read_bytes()
        if landlock == NEWEST:
            sandbox = await usable(mode)
        else:
            sandbox = Isolation(SandboxSettings(), tiers=[Launcher(landlock)])
        ran = await sandbox.run(
            Job(
                (interpreter(), "-I", "-S", "attempts.py"),
                stdin=json.dumps(outside.world(mode)).encode(),
                files={"attempts.py": source},
                limits=Limits(memory=MEMORY, file_size=FILE_SIZE, pids=16),
            )
        )
        assert ran.code == 0, ran.stderr.decode()
        results: dict[str, bool] = json.loads(ran.stdout)
        return [name for name, through in results.items() if through], len(results), outside.is_untouched()
    finally:
        outside.close()


def as_user(*argv: str, env: dict[str, str] | None = None, **orders: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the test environment as a user without privileges, where we are root; else as we are."""
    command = [sys.executable, *argv]
    if os.geteuid() == 0:
        ways: dict[str, list[str]] = {}
        for place in interpreter_places():
            for parent in reversed(Path(place).parents):
                if not parent.stat().st_mode & 1:
                    ways.setdefault(str(parent), []).append(place)
                    break
        orders |= {"ways": ways, "uid": UID}
    command = [*launched({"keeps": True, **orders}), *command]
    tests = str(Path(__file__).parents[2])
    whole = {"PATH": os.environ["PATH"], "PYTHONPATH": tests, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, env=whole, cwd="/", timeout=150, check=False)
