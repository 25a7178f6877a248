"""The three kinds of hooks: a program, a function of the program that the bridge runs in, an address.

A hook that is a program gets the event on its standard input and answers on its standard output. It is started for each
call, in a process group of its own, and ended with all that it started: when it has answered, when its time is over,
and when the call is cancelled. What it writes to standard error goes to the log alone. An address gets the event as a
POST and answers in the body of the response. What a function returns or raises becomes the same verdict.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from msgspec import Raw

from mcpbridge.base.errors import CallRefused, ConfigError, HookRefused
from mcpbridge.base.log import get_logger
from mcpbridge.base.process.environment import child_environment
from mcpbridge.base.process.pipes import FdReader, FdWriter
from mcpbridge.base.process.process import ProcessSpec, ServerProcess
from mcpbridge.pipeline.hooks.call import (
    LARGEST_ANSWER,
    PASS,
    Answer,
    Happening,
    Hook,
    HookFailedError,
    Verdict,
    result_of,
)
from mcpbridge.pipeline.hooks.settings import HookEvent
from mcpbridge.protocol.jsonrpc import encode

if TYPE_CHECKING:
    from mcpbridge.protocol.http.bearer_auth import Send


log = get_logger("mcpbridge.hooks")

MAX_RUNNING = 8
"""Processes of one hook that run at a time; further calls wait for their turn."""
_KEPT_OF_STDERR = 4096


class HookProgram:
    """Runs the program of one hook."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        directory: str | None,
        redact: Callable[[str], str],
    ) -> None:
        """`directory`: where it runs, and where a relative path of it starts; None: the bridge's own."""
        program, *args = command
        whole = child_environment(env, inherit=False, parent=os.environ)
        self._name, self._redact = name, redact
        self._spec = ProcessSpec(program, tuple(args), whole, directory)
        self._turns = asyncio.Semaphore(MAX_RUNNING)

    async def __call__(self, event: bytes) -> bytes:
        """What it answers to the event.

        Raises:
            HookFailedError: it cannot be started, failed, or answered too much.
        """
        async with self._turns:
            try:
                process = ServerProcess.start(self._spec)
            except OSError as error:
                raise HookFailedError(f"it cannot be started: {error}") from error
            run = _Run(process)
            has_ended = False
            try:
                await run.answer(event)
                has_ended = True
            finally:
                run.stop_talking()
                with anyio.CancelScope(shield=True):  # bounded: it is killed unless it has ended by itself
                    await process.stop(before_closing=run.close, at_once=True)
                if run.stderr and not (has_ended and process.exit_text == "exit code 0"):
                    said = self._redact(run.stderr.decode("utf-8", "replace")).strip()
                    log.warning("hook wrote to stderr", hook=self._name, text=said[-1000:])
            if run.failure:
                raise HookFailedError(run.failure)
            if process.exit_text != "exit code 0":
                raise HookFailedError(f"it ended with {process.exit_text}")
            return bytes(run.stdout)


class _Run:
    """One run: feeds the process, and gathers what it says."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self.stdout, self.stderr, self.failure = bytearray(), bytearray(), ""
        self._over = asyncio.Event()
        self._out = FdReader(process.stdout, self._answered, lambda: None)
        self._err = FdReader(process.stderr, self._complained, lambda: None)
        self._in: FdWriter | None = None

    async def answer(self, event: bytes) -> None:
        """Return when the program has ended, or said too much."""
        self._in = FdWriter(
            self._process.stdin,
            on_broken=self._not_read,
            stall_after=3600,
            on_stall=_nothing,
            on_drained=self._fed,
        )
        self._in.write_line(event)
        self._in.tell_drained()
        watch = asyncio.ensure_future(self._watch())
        try:
            await self._over.wait()
        finally:
            watch.cancel()

    def stop_talking(self) -> None:
        """Feed it nothing more, and read no further answer."""
        if self._in is not None:
            self._in.close()
        self._out.close()

    def close(self) -> None:
        """Let go of the last pipe."""
        self._err.close()

    async def _watch(self) -> None:
        await self._process.wait()
        # What it wrote before it ended may still stand in the pipes; a descendant may hold them open for ever.
        self._out.drain()
        self._err.drain()
        self._over.set()

    def _fed(self) -> None:
        self._process.close_stdin()

    def _not_read(self) -> None:
        """It did not want to know all, or anything: that is its business."""
        self._process.close_stdin()

    def _answered(self, data: bytes) -> None:
        self.stdout += data
        if len(self.stdout) > LARGEST_ANSWER:
            self.failure = f"its answer is larger than {LARGEST_ANSWER >> 20} MiB"
            self._out.close()
            self._over.set()

    def _complained(self, data: bytes) -> None:
        self.stderr += data
        del self.stderr[:-_KEPT_OF_STDERR]


def _nothing() -> None:
    """The time limit of the hook sees to it."""


def asking(hook: Hook) -> Callable[[Happening], Awaitable[Verdict]]:
    """How to ask the function of a hook. What it raises beside refusals is logged, and reported as HookFailedError."""

    async def ask(happening: Happening) -> Verdict:
        try:
            given = hook.function(happening.value(hook.event))
            if isawaitable(given):
                given = await given
        except HookRefused as refused:
            return Verdict(refusal=str(refused))
        except CallRefused:
            raise
        except Exception as error:
            log.exception("hook failed", hook=hook.name, tool=happening.tool.id)
            raise HookFailedError(f"it raised {type(error).__name__}") from error
        return _from_value(given, hook.event)

    return ask


def _from_value(given: object, event: HookEvent) -> Verdict:
    """The verdict that a function returned."""
    if given is None:
        return PASS
    kind = type(given).__name__
    try:
        if isinstance(given, Answer):
            return Verdict(result=result_of(Raw(encode(given.result))))
        if isinstance(given, Mapping) and event == "tool_call.before":
            arguments = cast("Mapping[str, Any]", given)
            return Verdict(arguments=Raw(encode(dict(arguments))))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise HookFailedError("it returned what is no JSON") from error
    raise HookFailedError(f"it returned {kind}, which means nothing here")


class HookUrl:
    """Asks the address of one hook. Connections are kept for the next call."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers = url, headers
        self._stack: AsyncExitStack | None = None
        self._send: Send | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """It may be asked meanwhile; leaving closes its connections."""
        async with AsyncExitStack() as stack:
            self._stack = stack
            try:
                yield
            finally:
                self._stack = self._send = None

    async def __call__(self, event: bytes) -> bytes:
        """What it answers to the event; empty for 204.

        Raises:
            HookFailedError: it cannot be reached, answered with another status than 2xx, or too much.
        """
        import httpx2  # takes long to import, and is seldom needed here

        send = self._send or await self._opened()
        headers = {"content-type": "application/json", "accept": "application/json", **self._headers}
        # Nothing limits the single steps: the time of the whole is limited.
        none = {"connect": None, "read": None, "write": None, "pool": None}
        request = httpx2.Request("POST", self._url, headers=headers, content=event, extensions={"timeout": none})
        try:
            response = await send(request)
            try:
                if not 200 <= response.status_code < 300:
                    raise HookFailedError(f"it answered with HTTP status {response.status_code}")
                answer = bytearray()
                async for piece in response.aiter_bytes():
                    answer += piece
                    if len(answer) > LARGEST_ANSWER:
                        raise HookFailedError(f"its answer is larger than {LARGEST_ANSWER >> 20} MiB")
                return bytes(answer)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise HookFailedError(f"it cannot be asked: {error}") from error

    async def _opened(self) -> "Send":
        import httpx2

        from mcpbridge.protocol.http.client import open_client

        async with self._opening:
            if self._send is None:
                if self._stack is None:
                    raise HookFailedError("the bridge is not running")
                try:
                    self._send = await self._stack.enter_async_context(open_client(httpx2.URL(self._url), None))
                except ConfigError as error:
                    raise HookFailedError(f"it cannot be asked: {error}") from error
            return self._send
