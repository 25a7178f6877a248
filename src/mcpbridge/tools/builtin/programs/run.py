"""Runs a program whose arguments were judged, in the sandbox or without it, and makes a result of its output.

`PlainRunner` runs without a sandbox: the program gets the environment of the job and nothing more, a session of its
own, and is killed with its group when its time is up. It costs a tenth of a sandbox's interpreter; most calls here are
two short runs of git.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcpbridge.base.errors import ArgumentsRefused, NotPermitted, ToolInactive
from mcpbridge.base.units import show_bytes
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.header_line import defused
from mcpbridge.sandbox.job import SANDBOX, Access, Job, JobResult, Limits, Runner, decoded
from mcpbridge.sandbox.python.process import PipedProcess
from mcpbridge.tools.builtin.programs.allow_list import Verdict
from mcpbridge.tools.builtin.programs.command_line import display_command
from mcpbridge.tools.builtin.programs.settings import CliSettings, InSandbox

_PATIENCE = 1.0
"""Seconds for output to end after the program has: what it left behind may hold the pipes."""


class PlainRunner:
    """A `Runner` that isolates nothing."""

    @property
    def is_off(self) -> bool:
        """See `Runner`."""
        return True

    async def run(self, job: Job) -> JobResult:
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


async def _run(job: Job, folder: str) -> JobResult:
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
    streams = [_BoundedStream(process.stdout, job.limits.output), _BoundedStream(process.stderr, job.limits.output)]
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
    return JobResult(
        ended="timeout" if is_late else "signal" if code < 0 else "exit",
        code=abs(code),
        stdout=bytes(streams[0].data),
        stderr=bytes(streams[1].data),
        cut=(streams[0].cut, streams[1].cut),
        seconds=time.monotonic() - began,
        tier="off",
    )


class _BoundedStream:
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


_MEMORY, _PIDS, _FILE, _OUTPUT_LIMIT = 1 << 30, 256, 8 << 30, 4 << 20
"""Programs in Go reserve far more memory than they use; git starts several processes, and what it fetches is one file.
"""
_MARGIN = 5.0
"""Seconds that a call may take beyond the program's own time."""

_PASSWORD = re.compile(rb"(?:(?<=http://)|(?<=https://))[^/\s'\"]+(?=@)|(?<=://)[^/\s@:'\"]*:[^/\s@'\"]*(?=@)")
"""User and password of an address; over HTTP the user alone may be a token, and odd characters may be in it."""


class Running:
    """Runs one program."""

    def __init__(self, tool: str, program: str, settings: CliSettings, runner: Callable[[], Runner]) -> None:
        """`tool` and `program`: `git-cli`, `git`. `runner`: the sandbox; asked for when it is first needed."""
        self._tool, self._program, self._settings, self._runner = tool, program, settings, runner
        self._plain: Runner = PlainRunner()

    @property
    def treatment(self) -> CallSettings:
        """How calls are treated; the permission of each is what `question` says of it."""
        return CallSettings(
            permission="allow",
            risk="high",
            read_only=False,
            destructive=True,
            idempotent=False,
            call_timeout=self._settings.timeout + _MARGIN,
        )

    def program_file(self) -> str:
        """The program's file. Only absolute entries of PATH count: nothing of a working directory is ever started.

        Raises:
            ToolInactive: it is not installed.
        """
        places = os.pathsep.join(one for one in _path().split(os.pathsep) if Path(one).is_absolute())
        found = shutil.which(self._program, path=places)
        if found is None:
            raise self._missing()
        return found

    def _missing(self) -> ToolInactive:
        return ToolInactive(
            self._tool,
            f"there is no program `{self._program}` in PATH",
            f"Tell the user that `{self._program}` has to be installed where the bridge runs.",
        )

    def check(self, verdict: Verdict) -> None:
        """Whether the settings let it be run at all.

        Raises:
            NotPermitted: they do not.
        """
        if verdict.level == "write" and not self._settings.write:
            called = " ".join((self._program, *verdict.command.words))
            section = self._tool.replace("-", "_")
            raise NotPermitted(f"`{called}` changes something, and `write` of `[builtin.{section}]` is off")

    def question(self, verdict: Verdict, where: str = "") -> str:
        """Why a person must agree to a call; empty: nobody needs to."""
        if verdict.level == "read":
            return ""
        reaches = " over the network" if verdict.command.network else ""
        place = f" in {where}" if where else ""
        return f"it changes something{reaches}{place}: {self._program} {display_command(verdict.argv, 1000)}"

    async def run(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        *,
        in_sandbox: InSandbox,
        cwd: str = "",
        access: Access | None = None,
        files: Mapping[str, bytes] | None = None,
        output_limit: int = _OUTPUT_LIMIT,
    ) -> JobResult:
        """Run the program with these arguments. In a sandbox it reaches `access`. `output_limit`: bytes of its output.

        Raises:
            ToolInactive: it is not there, or the sandbox that it needs is not.
        """
        limits = Limits(self._settings.timeout, _MEMORY, _PIDS, file_size=_FILE, disk=_FILE, output=output_limit)
        job = Job((self.program_file(), *argv), env, cwd, files=files or {}, limits=limits, access=access or Access())
        try:
            if in_sandbox != "never":
                try:
                    return await self._runner().run(job)
                except ToolInactive:
                    if in_sandbox == "require":
                        raise
            return await self._plain.run(job)
        except (FileNotFoundError, PermissionError) as error:
            if cwd and not os.path.isdir(cwd):  # noqa: ASYNC240, PTH112 - of a local directory
                raise ArgumentsRefused(f"{cwd} no longer exists") from error
            raise self._missing() from error

    def result(self, ran: JobResult, verdict: Verdict) -> Body:
        """What the caller gets to see: output and, unless it went well, the complaints and the exit code."""
        called = " ".join((self._program, *verdict.command.words))
        failed = ran.ended != "exit" or (
            ran.code != 0 and not (ran.code in verdict.command.quiet and not ran.stderr.strip())
        )
        limit = self._settings.max_output
        parts = [_cut(ran.stdout, ran.cut[0], limit)]
        if failed or not ran.stdout.strip():
            parts.append(_cut(ran.stderr, ran.cut[1], max(256, limit - len(parts[0]))))
        parts.append(_ending(called, ran, failed=failed, has_output=any(part.strip() for part in parts)))
        result: dict[str, Any] = {
            "content": [
                {"type": "text", "text": defused("\n".join(part.rstrip("\n") for part in parts if part.strip()))}
            ]
        }
        if failed:
            result["isError"] = True
        result["_meta"] = {SANDBOX: ran.tier}
        return Body(encode(result))


def _ending(called: str, ran: JobResult, *, failed: bool, has_output: bool) -> str:
    if ran.ended == "timeout":
        return f"[{called} took longer than {ran.seconds:.0f} s and was stopped]"
    if ran.ended == "memory":
        return f"[{called} needed too much memory and was stopped]"
    if ran.ended == "disk":
        return f"[{called} wrote too many files and was stopped]"
    if ran.ended == "signal":
        return f"[{called} ended by signal {ran.code}]"
    if failed:
        return f"[{called} failed with exit code {ran.code}]"
    if ran.code:
        return f"[exit code {ran.code}: nothing found, or different]"
    return "" if has_output else f"[{called} ended well, without output]"


def _cut(data: bytes, dropped: int, limit: int) -> str:
    """The beginning of it, ended at a line if one ends nearby; passwords of addresses are taken out."""
    data = _PASSWORD.sub(b"***", data)
    if len(data) <= limit and not dropped:
        return data.decode("utf-8", "replace")
    beginning = data[:limit]
    line = beginning.rfind(b"\n")
    if line > limit * 3 // 4:
        beginning = beginning[: line + 1]
    whole = len(data) + dropped
    text = decoded(beginning, is_cut=True).rstrip("\n")
    length = len(beginning)
    return (
        f"{text}\n[cut: these are the first {length:,} of {whole:,} bytes; {whole - length:,} bytes "
        f"({show_bytes(whole - length)}) are missing: narrow the command, such as with a limit, a path or a summary]"
    )


def _path() -> str:
    return os.environ.get("PATH", os.defpath)
