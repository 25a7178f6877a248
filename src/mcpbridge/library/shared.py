"""What handlers keep over the calls of a run (`Context`), as the program sees it: to look at, and to give them.

For whom it is kept must be said as it is for calls: the run, the user, the tenant.
"""

from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from mcpbridge.backends.context_shapes import Misfit, Shape
from mcpbridge.backends.context_slots import RunName
from mcpbridge.backends.run_contexts import RunContexts
from mcpbridge.errors import ConfigError, ContextRefused, UnknownName
from mcpbridge.library.naming import check_names
from mcpbridge.model import TOOLS

__all__ = ["get_context", "set_context"]

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

    Set before the first call of the run, it stands in the place of what an initialiser would make. A tool's value is
    checked now if the tool was called before, else at its next call: what does not fit then is not used, which the log
    tells. `unknown`: why there can be no tool of this id; None: there may be.

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
