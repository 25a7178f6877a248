"""The options of a run, what it needs of the bridge, and the context values that handlers keep over its calls."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ConfigError, ContextRefused, UnknownName
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import TOOLS
from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.engine.requests import check_names
from mcpbridge.library.agent.defaults import MAX_ROUNDS
from mcpbridge.library.calls.call import Asked, Requesting
from mcpbridge.library.calls.calls import CallingHooks
from mcpbridge.library.calls.run_events import Turn
from mcpbridge.library.llm_formats.messages import Format
from mcpbridge.library.llm_formats.tool_definitions import Offered, Strictness
from mcpbridge.pipeline.approvals.pending import Pending
from mcpbridge.storage.store import Store
from mcpbridge.tools.python.run_context.context import RunName
from mcpbridge.tools.python.run_context.store import RunContexts
from mcpbridge.tools.python.run_context.value_types import Misfit, Shape

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
"""Called before each round with the turn before, of round 0 at first. None: continue as it is."""


class RunOptions(Struct, frozen=True):
    """What a program says of a run; see `Bridge.run`."""

    format: Format
    asked: Asked
    tools: Tools | ToolsOf = None
    strict: Strictness = False
    max_rounds: int = MAX_ROUNDS
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


T = TypeVar("T")


@overload
async def get_context(
    contexts: RunContexts, run: str, tool: str = "", *, kind: type[T], user: str = "", tenant: str = ""
) -> T | None: ...
@overload
async def get_context(
    contexts: RunContexts, run: str, tool: str = "", *, kind: None = None, user: str = "", tenant: str = ""
) -> Any: ...
async def get_context(
    contexts: RunContexts, run: str, tool: str = "", *, kind: Any = None, user: str = "", tenant: str = ""
) -> Any:
    """What a tool keeps of a run, or (`tool` empty) what all tools share; None: nothing yet.

    `tool`: an id (`server/tool`), or the name of one of the program's own tools. `kind`: the type to make of it; left
    out, it is the JSON value, or of the type that `share` named. What handlers changed in place is seen when their
    call ends.

    Raises:
        ContextRefused: it is no value of that type.
    """
    data = await contexts.read(_name(run, user, tenant), _id(tool))
    if not data:
        return None
    try:
        if kind is not None:
            return Shape(kind).read(data)
        return msgspec.json.decode(data) if tool else contexts.shared.shape.read(data)
    except Misfit as error:
        raise ContextRefused(f"the context of {tool}" if tool else "the shared context", str(error)) from error


async def set_context(
    contexts: RunContexts,
    run: str,
    value: object,
    tool: str = "",
    *,
    user: str = "",
    tenant: str = "",
    unknown: Callable[[str], UnknownName | None] = lambda tool: None,
) -> None:
    """Set what a tool keeps of a run, or (`tool` empty) what all tools share; calls under way see it at once.

    Set before the first call of the run, it takes the place of what an initialiser would make. A tool's value is
    checked now if the tool was called before, else at its next call: what does not fit then is not used, which the log
    says. `unknown`: why there can be no tool of this id; None: there may be.

    Raises:
        UnknownName: there is no such tool.
        ContextRefused: it does not fit, or is too large.
    """
    name, id_ = _name(run, user, tenant), _id(tool)
    if id_ and (problem := unknown(id_)) is not None:
        raise problem
    await contexts.write(name, value, id_)


def _id(tool: str) -> str:
    return tool if not tool or "/" in tool else f"{TOOLS}/{tool}"


def _name(run: str, user: str, tenant: str) -> RunName:
    check_names(run=run)
    if not run:
        raise ConfigError(
            "contexts are kept of runs that have a name",
            key="run",
            hint='Give one: `run="…"`.',
        )
    return RunName(user, tenant, run)
