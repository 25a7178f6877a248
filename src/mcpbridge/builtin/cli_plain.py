"""Run a job as a program of the user, without a sandbox: for programs whose arguments were checked beforehand.

It gets the environment of the job and no more, a session of its own, and is killed with its group when its time is up.
Without the interpreter that starts jobs in every sandbox it costs a tenth; most calls here are two short runs of git.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from mcpbridge.sandbox.job import Job, Ran
from mcpbridge.sandbox.piped_process import PipedProcess

__all__ = ["PlainRunner"]

_PATIENCE = 1.0
"""Seconds for output to end after the program has: what it left behind may hold the pipes."""


class PlainRunner:
    """A `Runner` that isolates nothing."""

    @property
    def is_off(self) -> bool:
        """See `Runner`."""
        return True

    async def run(self, job: Job) -> Ran:
        """Run a job to its end; see `Runner`. Of its limits, the time and the output hold.

        Raises:
            FileNotFoundError, PermissionError: the program is not there, or not to be run.
        """
        folder = tempfile.mkdtemp(prefix="mcpbridge-")
        try:
            _put(folder, job.files)
            return await _run(job, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _put(folder: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        Path(folder, name).write_bytes(data)


async def _run(job: Job, folder: str) -> Ran:
    began = time.monotonic()
    piped = await PipedProcess.start(
        *job.argv,
        stdin=asyncio.subprocess.PIPE if job.stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**_least(folder), **job.env},
        cwd=job.cwd or folder,
        start_new_session=True,
    )
    process = piped.process
    assert process.stdout is not None
    assert process.stderr is not None
    streams = [_Kept(process.stdout, job.limits.output), _Kept(process.stderr, job.limits.output)]
    readers = [asyncio.ensure_future(stream.read()) for stream in streams]
    is_late = False
    try:
        try:
            async with asyncio.timeout(job.limits.timeout):
                if process.stdin is not None:
                    await _feed(process.stdin, job.stdin)
                await process.wait()
        except TimeoutError:
            is_late = True
            _kill(process)
            await process.wait()
        await asyncio.wait(readers, timeout=_PATIENCE)
    finally:
        if process.returncode is None or not all(reader.done() for reader in readers):
            _kill(process)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        if process.returncode is None:
            await process.wait()
        await piped.close()
    code = process.returncode or 0
    return Ran(
        ended="timeout" if is_late else "signal" if code < 0 else "exit",
        code=abs(code),
        stdout=bytes(streams[0].data),
        stderr=bytes(streams[1].data),
        cut=(streams[0].cut, streams[1].cut),
        seconds=time.monotonic() - began,
        tier="off",
    )


class _Kept:
    """One stream, of which the beginning is kept."""

    def __init__(self, stream: asyncio.StreamReader, limit: int) -> None:
        self.data, self.cut = bytearray(), 0
        self._stream, self._limit = stream, limit

    async def read(self) -> None:
        while chunk := await self._stream.read(65536):
            room = self._limit - len(self.data)
            self.data += chunk[:room]
            self.cut += max(0, len(chunk) - room)


async def _feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    try:
        stdin.write(data)
        await stdin.drain()
        stdin.close()
    except ConnectionError:  # it reads nothing
        pass


def _kill(process: asyncio.subprocess.Process) -> None:
    """End the program and what it started in its group, also after it ended itself."""
    try:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _least(folder: str) -> Mapping[str, str]:
    least = {"PATH": os.defpath, "HOME": folder, "LANG": "C.UTF-8", "TMPDIR": folder}
    if sys.platform == "win32":
        least["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    return least
