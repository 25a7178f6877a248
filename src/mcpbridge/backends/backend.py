"""The Backend protocol: tools that are not behind an MCP server.

A backend has one tool (`[tools.weather]` is the tool `weather`, its id `tools/weather`) or several, which then come as
those of a server do (`[tools.petstore]`: `petstore/listPets`). What happens around a call (arguments checked against
the schema, permission, approval, limits, retries, cache, deadline, log) is the pipeline's; a backend only does the
work.

A backend is made without touching anything: no file, no socket, no import of the user's code. All that happens in
`running`, and what takes time there (an OpenAPI document to fetch, a server to reflect on) in a task of its own, so
that a sick one takes nobody else down: it is `starting`, then `ready` or `failed`, is tried again by itself (one whose
code could not be imported when `check` is called), and `changed` is called whenever its tools or its state are others.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from mcpbridge.model import Call
from mcpbridge.sandbox.job import Runner
from mcpbridge.wire.body import Body

__all__ = ["Backend", "Condition", "Health", "Surroundings"]

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


class Surroundings(Struct, frozen=True):
    """What backends are made with besides their settings."""

    runner: Runner
    """Runs programs in the sandbox."""
    redact: Callable[[str], str] = lambda text: text
    """Masks secrets in what backends say before it is shown or logged."""
    directory: Path = Path()
    """Where relative paths of the configuration start; Python modules beside it can be named."""


class Backend(Protocol):
    """One source of tools.

    One that has `asks` (see `Asks`) tells there of single calls whether a person must agree to them.
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

        Never raises; bounded to seconds.
        """
        ...

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """Do a management command (`warmup`, `reindex`) and return a JSON value.

        Raises:
            UnknownName: it has no such command; names those that it has.
        """
        ...
