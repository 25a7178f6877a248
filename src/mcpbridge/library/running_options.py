"""What a program says of a run, and what a run needs of the bridge."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from mcpbridge.approvals.desk import Pending
from mcpbridge.events import EventBus
from mcpbridge.library.calling import CallingHooks
from mcpbridge.library.formats.front import Format, Offered, Strictness
from mcpbridge.library.one_call import Asked, Requesting
from mcpbridge.library.run_outcome import Turn
from mcpbridge.storage.store import Store
from mcpbridge.toolcalls import CallResult

__all__ = ["Prepare", "Prepared", "RunOptions", "Running", "StopWhen", "Tools", "ToolsOf"]

Tools: TypeAlias = str | Sequence[Any] | None
"""Which tools the model is offered: those that fit a query; these, by name, id or glob on ids; None: all."""

ToolsOf: TypeAlias = Callable[[Turn], "Tools | Awaitable[Tools]"]
"""Says anew for each round which tools the model is offered; gets the turn before, of round 0 at first."""

StopWhen: TypeAlias = Callable[[Turn], "bool | Awaitable[bool]"]
"""Whether the run ends with this turn, whose calls are answered."""


class Prepared(Struct, frozen=True):
    """What the next round is to be other than the one before."""

    messages: Sequence[Mapping[str, Any]] | None = None
    """The history from here on, in place of what it is; None: as it is."""
    tools: Tools = None
    """What the model is offered in this round; None: as the run says."""


Prepare: TypeAlias = Callable[[Turn], "Prepared | Awaitable[Prepared | None] | None"]
"""Called before each round with the turn before, of round 0 at first. None: go on as it is."""


class RunOptions(Struct, frozen=True):
    """What a program says of a run; see `Bridge.run`."""

    format: Format
    asked: Asked
    tools: Tools | ToolsOf = None
    strict: Strictness = False
    max_rounds: int = 10
    pauses: bool = True
    """A call that somebody must agree to pauses the run; else it waits, and the run with it."""
    stop_when: StopWhen | None = None
    prepare: Prepare | None = None
    hooks: CallingHooks = CallingHooks()


class Running(Requesting, Protocol):
    """The bridge, as far as runs need it."""

    @property
    def events(self) -> EventBus:
        """What happens in it."""
        ...

    @property
    def store(self) -> Store:
        """What outlives the process."""
        ...

    @property
    def calls_at_once(self) -> int:
        """Calls of one turn that may run or wait at a time."""
        ...

    async def tools_for(
        self,
        api: Format,
        *,
        tools: Tools = None,
        strict: Strictness = False,
        user: str = "",
        tenant: str = "",
        run: str = "",
    ) -> Offered:
        """Tools in the format of a model's API."""
        ...

    async def pending_approvals(self) -> Sequence[Pending]:
        """The calls that wait for somebody to agree."""
        ...

    async def answered(
        self,
        run: str,
        call_id: str,
        *,
        id: str = "",  # noqa: A002 - what it is
        user: str = "",
        tenant: str = "",
    ) -> CallResult[Any] | None:
        """What came of a paused call that was resumed; None: it was not, or is not known. `id`: of the paused call."""
        ...
