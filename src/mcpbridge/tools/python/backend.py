"""What backends of the user's own Python code have in common: how the code is imported, runs, and ends.

It is imported in a thread when the backend starts, so that a slow or broken module costs its own tools only. A failed
import is tried again when somebody checks the backend, on demand or on the schedule: only people can mend it, so there
is no sense in trying by itself.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import UpstreamError, UpstreamUnavailable
from mcpbridge.base.masking.known_values import Redactors
from mcpbridge.core.model import Asks
from mcpbridge.tools.backend import BackendContext, Condition, Health
from mcpbridge.tools.python.import_object import NotImportable, beside, mendable
from mcpbridge.tools.python.invoke import Invoker
from mcpbridge.tools.python.signature import Unusable
from mcpbridge.tools.settings import BackendSettings

LOOK_SECONDS = 5.0
"""Seconds to wait for code that is brought in because somebody looks whether it works."""

_COMMANDS = 4
"""Management commands in threads at a time, those counted that nobody waits for any more."""

_HOW_TO_GO_ON = "Mend it; then `mcpbridge reload` tries {} again."

T = TypeVar("T")


class PythonBackend(ABC, Generic[T]):
    """A backend whose work is done by what `_bring_in` makes: `T`."""

    asks: Asks | None = None
    """Says why a person must agree to a call, where its arguments decide that."""

    def __init__(self, name: str, settings: BackendSettings, context: BackendContext | None, *, source: str) -> None:
        """`context`: None for code of the program itself. `source`: what the configuration calls the code."""
        self._name, self._source = name, source
        self._directory = context.directory if context is not None else None
        self._own_redact: Callable[[str], str] = context.redact if context is not None else _as_it_is
        self._redact = self._own_redact
        self._given: T | None = None
        """Of the program itself."""
        self._loaded: T | None = None
        self._changed: Callable[[], None] = _nothing
        self._starting: asyncio.Task[None] | None = None
        self._condition = Condition("starting")
        self._invoker = Invoker(name, 2 * settings.max_concurrent, self._redact)
        self._commands = Invoker(name, _COMMANDS, self._redact)
        """Of management commands: those that hang keep no call from running."""
        self._tasks = OwnedTasks()

    def keep_secrets(self, redact: Callable[[str], str]) -> None:
        """Mask these too in what it says; see `ManagedBackend`.

        Who makes a backend in a program knows no secrets of a bridge.
        """
        own = self._own_redact
        if own is redact:
            return

        self._redact = self._invoker.redact = self._commands.redact = Redactors(own, redact)

    @abstractmethod
    def _bring_in(self, directory: Path) -> T:
        """Import and make what does the work; in a thread.

        Raises:
            NotImportable, Unusable: that is not possible; says why.
        """
        ...

    @abstractmethod
    def _tools_of(self, loaded: T) -> Sequence[Mapping[str, Any]]:
        """What it offers."""
        ...

    async def _started(self, loaded: T) -> None:
        """It is ready; in a task."""

    async def _ending(self, loaded: T) -> None:
        """No call runs any more. Takes seconds at most."""

    @property
    def condition(self) -> Condition:
        """See `Backend`."""
        return self._condition

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """See `Backend`."""
        return self._tools_of(self._loaded) if self._loaded is not None else []

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`."""
        with beside(self._directory) if self._directory is not None else nullcontext():
            async with self._tasks.running():
                self._loaded, self._changed = self._given, changed
                self._condition = Condition("ready" if self._loaded is not None else "starting")
                self._starting = self._tasks.spawn(self._start())
                try:
                    yield
                finally:
                    self._condition, self._changed = Condition("failed", "it was stopped"), _nothing
                    with anyio.CancelScope(shield=True):  # bounded: both take seconds at most
                        await asyncio.gather(self._invoker.end(), self._commands.end())
                        if self._loaded is not None:
                            await self._ending(self._loaded)

    async def _start(self) -> None:
        loaded = self._loaded
        if loaded is None:
            try:
                loaded = cast("T", await self._invoker.value(self._brought_in))
            except UpstreamError:
                return  # it was stopped meanwhile
            except (NotImportable, Unusable) as error:
                self._failed(str(error))
                return
            except Exception as error:  # noqa: BLE001 - the user's code: whatever it is, it is not to stay `starting`
                self._invoker.log_failure("code of a tool cannot be used", error, tool=self._name)
                self._failed(self._invoker.describe_error(error))
                return
            self._loaded, self._condition = loaded, Condition("ready")
            self._changed()
        await self._started(loaded)

    def _failed(self, why: str) -> None:
        reason = self._redact(f"`{self._source}`: {why}")
        self._condition = Condition("failed", f"{reason}. {_HOW_TO_GO_ON.format(self._name)}", is_lasting=True)
        self._changed()

    def _brought_in(self) -> T:
        with mendable(self._source):
            return self._bring_in(self._directory or Path())

    async def _looked_at(self) -> Health | None:
        """What there is to say of its health before it is asked itself; what failed to come in is tried again."""
        if self._condition.state == "failed" and self._changed is not _nothing:
            if self._starting is None or self._starting.done():
                self._starting = self._tasks.spawn(self._start())
            if self._starting is not None:
                await asyncio.wait([self._starting], timeout=LOOK_SECONDS)
        if self._loaded is None or self._condition.state != "ready":
            return Health(ok=False, detail=self._why_not())
        return None

    def _there(self, upstream: str) -> T:
        """What does the work.

        Raises:
            UpstreamUnavailable: it is not there, or not yet.
        """
        if self._loaded is None or self._condition.state != "ready":
            raise UpstreamUnavailable(upstream, self._why_not())
        return self._loaded

    def _why_not(self) -> str:
        return self._condition.reason or "its code is still being imported"


def _nothing() -> None:
    """Nobody is told."""


def _as_it_is(text: str) -> str:
    return text
