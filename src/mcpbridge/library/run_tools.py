"""Tools that single runs have: no other run gets at them, and no client.

A function may know what only its user may know, so what is given to one run is not put into the catalog.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mcpbridge.downstream.extra_tools import ExtraTools, Resolve
from mcpbridge.library.resolving import BackendOf, Resolver, resolving, together
from mcpbridge.model import Session

__all__ = ["RunTools"]


class RunTools:
    """What the runs of one bridge have besides. It lasts as long as their sessions."""

    def __init__(
        self, extra: ExtraTools, session_of: Callable[[str, str, str], Session], backend_of: BackendOf
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
