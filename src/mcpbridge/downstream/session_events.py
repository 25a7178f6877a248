"""Reports the sessions of clients: that one began, how many tools it was listed, why it ended.

Sessions are known by their ids. A legacy session begins with `initialize`; a modern one with the first request of a
channel or, over HTTP, of a client that was silent for long. None of this is on the way of calls.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from mcpbridge.core.context import Session
from mcpbridge.downstream.client import Client
from mcpbridge.storage.call_log.format import SESSION_BEGAN, SESSION_ENDED, SESSION_LISTED

Note = Callable[[str, Mapping[str, object]], object]
"""Gets the kind of an event, and its facts."""

_MOST = 10_000
"""Sessions that are known at a time; what becomes of the oldest is not reported any more."""
_LONGEST = 100
"""Characters of a version that a client names."""


def ignore(kind: str, facts: Mapping[str, object]) -> None:
    """Nobody wants to know."""


class SessionEvents:
    """Reports each session once."""

    def __init__(self, note: Note = ignore) -> None:
        self._note = note
        self.is_heard = note is not ignore
        """Somebody wants to know."""
        self._known: OrderedDict[str, int] = OrderedDict()
        """How many tools each was listed last; -1: none yet."""

    def began(self, client: Client, session: Session, *, revision: str = "") -> None:
        """A client has introduced itself. `revision`: if not the one of `client`."""
        if session.id in self._known:
            return
        if len(self._known) >= _MOST:
            self._known.popitem(last=False)
        self._known[session.id] = -1
        version = client.info.get("version", "")
        facts = {
            **_who(session, client.name),
            "server": client.view,
            "version": version[:_LONGEST] if isinstance(version, str) else "",
            "revision": revision or client.version,
            "front": client.front,
            "address": client.address,
            "user": client.identity.name if client.identity is not None else "",
            "oauth_client": client.identity.client_id if client.identity is not None else "",
            "profile": client.profile_name,
            "directory": client.started_in,
        }
        self._note(SESSION_BEGAN, {name: fact for name, fact in facts.items() if fact})

    def listed(self, client: Client, tools: int) -> bool:
        """A client was listed so many tools. Returns whether that is news."""
        session = client.session
        known = self._known.get(session.id)
        if known is None or known == tools:
            return False
        self._known[session.id] = tools
        self._note(SESSION_LISTED, {**_who(session, client.name), "tools": tools})
        return True

    def ended(self, session: Session | None, name: str, why: str) -> None:
        """A session is over; None: it never began."""
        if session is not None and self._known.pop(session.id, None) is not None:
            self._note(SESSION_ENDED, {**_who(session, name), "detail": why})


def _who(session: Session, name: str) -> dict[str, object]:
    return {"session": session.id, "client": name, "principal": session.principal}
