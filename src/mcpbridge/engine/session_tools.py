"""Tools for one client, session or run only: resolvers written by programs, and the tools of single runs.

A resolver is a function that gives tools of any kind for a session. Tools of a run are in no catalog, since they may
hold what only its user may know: no other run can call them, and no client.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mcpbridge.core.context import Session
from mcpbridge.downstream.requests.session_tools import Resolve, ResolverContext, SessionTools

if TYPE_CHECKING:
    from mcpbridge.tools.backend import Backend


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


class RunTools:
    """What the runs of one bridge have besides. It lasts as long as their sessions."""

    def __init__(
        self, extra: SessionTools, session_of: Callable[[str, str, str], Session], backend_of: BackendOf
    ) -> None:
        """`session_of` gives the session of a run, by user, run and tenant."""
        self._extra, self._session_of, self._backend_of = extra, session_of, backend_of
        self._lent: WeakKeyDictionary[Session, dict[str, Any]] = WeakKeyDictionary()
        self._resolvers: WeakKeyDictionary[Session, Resolve] = WeakKeyDictionary()

    def lend(self, user: str, run: str, tenant: str, name: str, tool: Any) -> None:
        """The run has this tool from here on, in the place of one of the same name."""
        session = self._session_of(user, run, tenant)
        lent = self._lent.setdefault(session, {})
        if lent.get(name) is not tool:
            lent[name] = tool
            self._give(session)

    def resolve(self, user: str, run: str, tenant: str, resolver: Resolver) -> None:
        """The run has a resolver of its own, in place of the bridge's."""
        session = self._session_of(user, run, tenant)
        self._resolvers[session] = resolving(resolver, self._backend_of)
        self._give(session)

    def _give(self, session: Session) -> None:
        resolve = self._resolvers.get(session, self._extra.resolve)
        lent = tuple(self._lent.get(session, {}).values())
        self._extra.give(session, together(resolve, lent, self._backend_of))
