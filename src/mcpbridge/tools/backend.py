"""The Backend protocol: tools that are not behind an MCP server, and what keeps a failing one from harming the others.

A backend has one tool (`[tools.weather]` is the tool `weather`, its id `tools/weather`) or several, which then come as
those of a server do (`[tools.petstore]`: `petstore/listPets`). What happens around a call (arguments checked against
the schema, permission, approval, limits, retries, cache, deadline, log) is the pipeline's; a backend only does the
work.

A backend is made without touching anything: no file, no socket, no import of the user's code. All that happens in
`running`. What takes time there (an OpenAPI document to fetch, a server to reflect on) happens in a task of its own, so
that a sick backend takes nobody else down: it is `starting`, then `ready` or `failed`, and is tried again by itself
(one whose code could not be imported when `check` is called). `changed` is called whenever its tools or its state
change.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.job import Runner

State = Literal["starting", "ready", "failed"]


class Condition(Struct, frozen=True):
    """How a backend is."""

    state: State
    reason: str = ""
    """Why it is not ready: what failed, and what to do; never a secret."""
    is_lasting: bool = False
    """A person has to mend something first: a package, a program or code is missing or wrong."""


class Health(Struct, frozen=True):
    """What looking at a backend found."""

    ok: bool
    detail: str = ""
    """What was looked at and found, a line; never a secret."""
    seconds: float = 0.0
    """How long it took."""


class BackendContext(Struct, frozen=True):
    """What backends are made with besides their settings."""

    runner: Runner
    """Runs programs in the sandbox."""
    redact: Callable[[str], str] = lambda text: text
    """Masks secrets in what backends say before it is shown or logged."""
    directory: Path = Path()
    """Where relative paths of the configuration start; Python modules beside it can be named."""


class Backend(Protocol):
    """One source of tools.

    One that has `asks` (see `Asks`) says there for each call whether a person must agree to it.
    """

    @property
    def kind(self) -> str:
        """`function`, `executor`, `manual`, `human`, `pack`, `http`, `openapi`, `grpc`, `command` or `agent`."""
        ...

    @property
    def condition(self) -> Condition:
        """How it is now. What is not ready keeps the tools that it had, if any."""
        ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Definitions as `tools/list` shows them: name, description, inputSchema, outputSchema, annotations."""
        ...

    def running(self, changed: Callable[[], None]) -> AbstractAsyncContextManager[object]:
        """It works meanwhile. Entering returns at once; leaving ends all that it holds, in seconds at most."""
        ...

    async def run(self, call: Call) -> Body:
        """The result of a call (`content`, perhaps `structuredContent`, `isError`).

        `call.target` is the tool's own name; its arguments were checked. Cancelled, what it began ends too.

        Raises:
            UpstreamError: it is not there, does not answer, or answers what cannot be read (`call.upstream` names it).
            CallRefused: it is not to be done.
        """
        ...

    async def check(self) -> Health:
        """Look whether it works, without doing anything that matters; what has failed is tried again.

        Never raises; bounded to seconds. Cancelled, it stops looking, and the tools stay as they are.
        """
        ...

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """Do a management command (`warmup`, `reindex`) and return a JSON value.

        Cancelled, it ends as soon as it can; what it did by then stays.

        Raises:
            UnknownName: it has no such command; names those that it has.
        """
        ...


log = get_logger("mcpbridge.backends")

ENTERING_SECONDS = 10.0
"""Seconds that a backend may take to begin, which is to be at once."""
ENDING_SECONDS = 15.0
"""Seconds that a backend may take to end; then it is cancelled."""


def keeping_secrets(backend: Backend, redact: Callable[[str], str]) -> Backend:
    """The same backend, which masks secrets of the bridge in what it says, if it runs code of the user.

    A program makes its backends before it has a bridge.
    """
    keep: Callable[[Callable[[str], str]], None] | None = getattr(backend, "keep_secrets", None)
    if keep is not None:
        keep(redact)
    return backend


class ManagedBackend:
    """One backend, of a program or of the settings."""

    def __init__(self, backend: Backend, redact: Callable[[str], str]) -> None:
        """`redact` masks secrets in what it fails with, and in what it says of itself."""
        self.backend, self._redact = keeping_secrets(backend, redact), redact
        self.failed: Condition | None = None
        """Why it could not begin."""
        self._last_offered: tuple[object, tuple[bytes, ...]] = (), ()
        """What it offered last, and that as bytes."""

    @property
    def condition(self) -> Condition:
        """How it is."""
        return self.failed or self.backend.condition

    @property
    def offered(self) -> tuple[bytes, ...]:
        """The definitions of its tools."""
        if self.failed is not None:
            return ()
        tools = self.backend.tools
        if not isinstance(tools, tuple):  # it may change in place
            return tuple(encode(dict(tool)) for tool in tools)
        if tools is not self._last_offered[0]:
            encoded: tuple[bytes, ...] | None = getattr(self.backend, "encoded_tools", None)
            self._last_offered = tools, encoded if encoded is not None else tuple(encode(dict(tool)) for tool in tools)
        return self._last_offered[1]

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """It works meanwhile. One that cannot begin is `failed`, and nothing is raised."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(ENTERING_SECONDS):  # of no scope that would have to be left in its order
                    await stack.enter_async_context(self.backend.running(changed))
                self.failed = None
            except Exception as error:  # a program's own code
                reason = self._redact(f"{type(error).__name__}: {error}").removesuffix(": ")[:300]
                log.error("a backend failed to start", kind=self.backend.kind, exc_info=error)
                self.failed = Condition("failed", f"it could not begin: {reason}", is_lasting=True)
                changed()
            yield
