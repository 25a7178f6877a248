"""Programs that a run of the suite needs beside it: started, waited for, and ended with everything they started."""

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["TESTS", "environment", "running", "wait_until_ready"]

TESTS = Path(__file__).resolve().parent.parent
"""Where the packages of the tests lie, this one among them."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """The fewest variables that a program needs: nothing of the developer's own settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "HOME": str(home), "PYTHONPATH": path, **more}


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, for as long as the body runs; its output goes to the log."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd, start_new_session=True
        )
    try:
        yield child
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
                break


def wait_until_ready(url: str, child: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    """Until that URL answers with success.

    Raises:
        RuntimeError: it never did; with the end of the log.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until and child.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"nothing was ready at {url}; its log:\n{log.read_text(errors='replace')[-2000:]}")
