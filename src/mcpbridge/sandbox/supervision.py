"""One job from its start to the end of all its processes: streams, time and memory."""

import asyncio
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import anyio
from msgspec import Struct

from mcpbridge.sandbox.job import Limits
from mcpbridge.sandbox.streams import Fed, Kept
from mcpbridge.sandbox.tree import Tree
from mcpbridge.sandbox.written import Written
from mcpbridge.wire.guard import COOKIE_NAME

__all__ = ["Descriptors", "Outcome", "supervise"]

_EOF_WITHIN = 2.0
"""Seconds until streams are given up that somebody holds open although all is killed."""
_PID = re.compile(rb'"child-pid":\s*(\d+)')
_MOST_SAID = 4096

_T = TypeVar("_T")
_Ended = Literal["exit", "timeout", "memory", "disk"]


class Outcome(Struct, frozen=True):
    """What came of it; as `Ran`, without the tier."""

    ended: Literal["exit", "signal", "timeout", "memory", "disk"]
    code: int
    stdout: bytes
    stderr: bytes
    cut: tuple[int, int]
    seconds: float
    cookie: str
    """What the environment of all its processes carried."""
    files: Mapping[str, int] = {}


class Descriptors:
    """Two pipes between a job and us: one that closes when we are gone, one on which the sandbox says who it is."""

    def __init__(self) -> None:
        self.lifeline, self._ours = os.pipe()
        self._told, self.information = os.pipe()
        os.set_blocking(self._told, False)

    def passed(self) -> tuple[int, ...]:
        """What the job inherits."""
        return () if sys.platform == "win32" else (self.lifeline, self.information)

    def started(self) -> None:
        """Close what the job has now."""
        os.close(self.lifeline)
        os.close(self.information)
        self.lifeline = self.information = -1

    async def first_process(self) -> int:
        """The process id of the sandbox's first process; 0 if it closes its end and never says."""
        loop, said = asyncio.get_running_loop(), b""
        while len(said) < _MOST_SAID:
            ready = asyncio.Event()
            loop.add_reader(self._told, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self._told)
            piece = os.read(self._told, _MOST_SAID)
            said += piece
            if found := _PID.search(said):
                return int(found[1])
            if not piece:
                break
        return 0

    def close(self) -> None:
        """Close all that is still open here."""
        for descriptor in (self.lifeline, self.information, self._ours, self._told):
            if descriptor >= 0:
                os.close(descriptor)
        self.lifeline = self.information = self._ours = self._told = -1


async def supervise(
    command: Sequence[str],
    env: Mapping[str, str],
    stdin: bytes,
    folder: str,
    limits: Limits,
    pipes: Descriptors,
    *,
    has_first: bool,
    is_swept: bool,
) -> Outcome:
    """Run the command. Cancelled, all its processes are killed before this returns.

    `folder`: its work folder, which may not become too large. `has_first`: a sandbox with processes of its own, which
    tells the id of the first. `is_swept`: processes may leave the group, and are looked for by their environment at the
    end.

    Raises:
        OSError: it could not be started.
    """
    loop, cookie = asyncio.get_running_loop(), secrets.token_hex(16)
    began = loop.time()
    popen = subprocess.Popen(  # noqa: ASYNC220 - on this thread: children end with the one that began them
        command,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=None if sys.platform == "win32" else "/",
        env={**env, COOKIE_NAME: cookie},
        start_new_session=True,
        pass_fds=pipes.passed(),
    )
    tree = Tree(popen, cookie=cookie, is_swept=is_swept)
    pipes.started()
    kept = [Kept(_own(pipe), limits.output) for pipe in (popen.stdout, popen.stderr)]
    fed = Fed(_own(popen.stdin), stdin) if stdin else None
    ended: _Ended = "exit"
    try:
        ended = await _first_of(tree, Written(folder, limits, tree.pids), pipes if has_first else None, limits)
    finally:
        code = await _to_its_end(_end(tree, kept, fed))
    return Outcome(
        ended="signal" if ended == "exit" and code < 0 else ended,
        code=abs(code),
        stdout=kept[0].data,
        stderr=kept[1].data,
        cut=(kept[0].cut, kept[1].cut),
        seconds=loop.time() - began,
        cookie=cookie,
    )


def _own(pipe: Any) -> int:
    """The descriptor of a pipe, which is ours to close from now on."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor


async def _first_of(tree: Tree, written: Written, pipes: Descriptors | None, limits: Limits) -> _Ended:
    """What ended it."""
    exit_, memory = asyncio.ensure_future(tree.exited()), asyncio.ensure_future(tree.exceeds(limits.memory))
    disk = asyncio.ensure_future(written.exceeds())
    others = [asyncio.ensure_future(_know_first(tree, pipes))] if pipes else []
    try:
        done, _ = await asyncio.wait({exit_, memory, disk}, timeout=limits.timeout, return_when=asyncio.FIRST_COMPLETED)
        if exit_ in done and others:
            await others[0]  # said, or never: whoever would say it has ended
        return "exit" if exit_ in done else "memory" if memory in done else "disk" if disk in done else "timeout"
    finally:
        for task in (exit_, memory, disk, *others):
            task.cancel()
        await _to_its_end(_over(exit_, memory, disk, *others))


async def _over(*tasks: Awaitable[Any]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def _know_first(tree: Tree, pipes: Descriptors) -> None:
    if pid := await pipes.first_process():
        tree.has_first(pid)


async def _end(tree: Tree, kept: Sequence[Kept], fed: Fed | None) -> int:
    code = await tree.end()
    with suppress(TimeoutError):
        async with asyncio.timeout(_EOF_WITHIN):
            for stream in kept:
                await stream.over()
    for stream in kept:
        stream.close()
    if fed is not None:
        fed.close()
    return code


async def _to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Whoever cancels meanwhile has to wait, and is obeyed afterwards."""
    task, interrupted = asyncio.ensure_future(work), None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as cancelled:
                interrupted = cancelled
    if interrupted is not None:
        raise interrupted
    return task.result()
