"""Which of this user's bridges commands find."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from mcpbridge.app.admin.control_client import sockets
from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.base.directories import runtime_directory


@contextmanager
def answering(path: Path, answer: bytes) -> Generator[None]:
    """A control socket whose bridge answers so, and closes the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.sendall(answer)
                connection.close()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(("answer", "is_silent"), [(b"", False), (b"[]", True)], ids=["it ends", "nonsense"])
def test_a_bridge_that_is_about_to_end_is_none_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, is_silent: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = runtime_directory(os.environ)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with answering(directory / f"{process.pid}.sock", answer):
            assert [path.stem for path in sockets(directory)] == [str(process.pid)]
            found = survey(None)
        assert found.bridges == []
        assert found.silent == ([process.pid] if is_silent else [])
