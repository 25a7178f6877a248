"""Browsers that are signed in to pages as somebody: a cookie, and who it stands for.

Only digests of cookies are kept. A session ends by itself, at the latest with the token that it was opened with; when
the browser signs out; and when the sign-ins of its user are ended (`mcpbridge users revoke`). What somebody may do is
asked anew each time, of the roles that there are then.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from mcpbridge.core.identity import Identity
from mcpbridge.downstream.http.exchange import Refused

if TYPE_CHECKING:  # where people sign in it is loaded already
    from mcpbridge.downstream.auth.bearer_tokens import Authenticator
    from mcpbridge.downstream.auth.resource_server import Caller

COOKIE = "mcpbridge-session"
"""Over https with the prefix `__Host-`: no other host of the domain can set it."""
_MOST, _MOST_OF_USER = 10_000, 100
"""Sessions that are kept, and those of one user: the oldest go first, and nobody signs others out."""


class PageSession(Struct, frozen=True, eq=False):
    """One browser that is signed in."""

    digest: str
    """SHA-256 of the cookie, hexadecimal."""
    principal: str
    identity: Identity | None
    """None: the local user, or one of `http.tokens`."""
    until: float
    """Seconds since 1970."""
    form_token: str
    """What its forms send along, which a page of another origin cannot know."""
    is_at_provider: bool = False
    """The person signed in at the identity provider; else a token was shown, which programs have as well."""

    @property
    def name(self) -> str:
        """The person, for people."""
        named = self.identity.name if self.identity is not None else ""
        return named or self.principal or "the local user"


class PageSessions:
    """All sessions of one front."""

    def __init__(
        self, lifetime: Callable[[], float], *, is_secure: bool, clock: Callable[[], float] = time.time
    ) -> None:
        """`lifetime`: seconds that a session lasts at most. `is_secure`: browsers come over https."""
        self._lifetime, self._clock, self._is_secure = lifetime, clock, is_secure
        self._sessions: dict[str, PageSession] = {}
        self.cookie = f"__Host-{COOKIE}" if is_secure else COOKIE
        """Its name."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._sessions)} signed in>"

    def open(self, answer: Response, caller: "Caller", *, is_at_provider: bool) -> None:
        """Sign the browser in that gets this answer. `is_at_provider`: the person signed in there just now."""
        cookie = secrets.token_urlsafe(32)
        seconds = self._lifetime()
        if caller.identity is not None and caller.identity.expires_at is not None:
            seconds = min(seconds, caller.identity.expires_at - self._clock())
        form_token = hmac.new(cookie.encode(), b"mcpbridge page form", "sha256").hexdigest()
        until, who = self._clock() + seconds, (caller.principal, caller.identity)
        session = PageSession(_digest(cookie), *who, until, form_token, is_at_provider)
        self._sessions[session.digest] = session
        of_user = [one.digest for one in self._sessions.values() if one.principal == caller.principal]
        for digest in of_user[:-_MOST_OF_USER]:
            del self._sessions[digest]
        while len(self._sessions) > _MOST:
            del self._sessions[next(iter(self._sessions))]
        self._set_cookie(answer, cookie, max(0, int(seconds)))

    def find(self, request: Request) -> PageSession | None:
        """Who sends a request; None: nobody who is signed in."""
        cookie = request.cookies.get(self.cookie, "")
        session = self._sessions.get(_digest(cookie)) if cookie else None
        if session is not None and session.until <= self._clock():
            del self._sessions[session.digest]
            return None
        return session

    def close(self, session: PageSession) -> None:
        """Sign a browser out."""
        self._sessions.pop(session.digest, None)

    def sign_out(self, answer: Response, session: PageSession) -> None:
        """Sign the browser out that gets this answer, which takes its cookie back."""
        self.close(session)
        self._set_cookie(answer, "", 0)

    def end_all(self, principal: str) -> int:
        """End all sessions of one user; returns how many there were."""
        ended = [digest for digest, one in self._sessions.items() if one.principal == principal]
        for digest in ended:
            del self._sessions[digest]
        return len(ended)

    def latest_identity(self, principal: str) -> Identity | None:
        """What the identity provider said of a user at the latest sign-in that still holds; None: there is none."""
        now = self._clock()
        found = [one for one in self._sessions.values() if one.principal == principal and one.until > now]
        return found[-1].identity if found else None

    def _set_cookie(self, answer: Response, cookie: str, seconds: int) -> None:
        answer.set_cookie(self.cookie, cookie, seconds, path="/", secure=self._is_secure, httponly=True, samesite="lax")


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


async def holder_of(token: str, auth: "Authenticator", path: str) -> "Caller | None":
    """Whose token this is, for the endpoint at this path; None: nobody's, or it cannot be checked now."""
    authorization, server = b"Bearer " + token.strip().encode(), auth.resource_server
    if not token.strip():
        return None
    from mcpbridge.downstream.auth.resource_server import Caller

    try:
        if server is None:
            return Caller(auth.principal(authorization))
        return server.caller(path, b"", authorization) or await server.check(path, authorization)
    except Refused:
        return None
