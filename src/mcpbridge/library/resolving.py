"""Resolvers as programs write them: functions that give tools of any kind for a client, a session or a run."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from mcpbridge.downstream.extra_tools import Resolve, ResolverContext

if TYPE_CHECKING:
    from mcpbridge.backends.backend import Backend

__all__ = ["BackendOf", "Resolver", "resolving", "together"]

Resolver = Callable[[ResolverContext], "Sequence[Any] | Awaitable[Sequence[Any]]"]
"""Gives the further tools of one client, session or run: functions, what `tool` and its like make, or backends."""


BackendOf = Callable[[Any], "Backend"]
"""The backend of what a program gives as a tool."""


def resolving(resolver: Resolver, backend_of: BackendOf) -> Resolve:
    """The same as the bridge asks it."""

    async def resolve(context: ResolverContext) -> "Sequence[Backend]":
        found = resolver(context)
        tools = await found if inspect.isawaitable(found) else found
        return [backend_of(tool) for tool in tools]

    return resolve


def together(resolve: Resolve | None, tools: Sequence[Any], backend_of: BackendOf) -> Resolve:
    """A resolver that gives these tools besides what another one gives."""

    async def resolve_both(context: ResolverContext) -> "Sequence[Backend]":
        found = await resolve(context) if resolve is not None else ()
        return [*found, *map(backend_of, tools)]

    return resolve_both
