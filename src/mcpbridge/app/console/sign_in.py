"""Who is signed in to the console: one-time links, and the cookie that takes their place.

`mcpbridge ui` asks the bridge for a link over the control socket, which only this user can open. The link holds a code
that works once and for a minute; the browser gets a cookie for it and is sent on to an address without the code. Only
digests of codes and cookies are kept, so a copy of the memory, or of the file that survives a restart, signs nobody in.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Literal, TypeVar

from msgspec import Struct

Role = Literal["local", "admin", "read"]
"""`local`: signed in by `mcpbridge ui` on this machine, may do everything; `admin`: by an admin token, may not add what
runs on this machine; `read`: looks, and changes nothing."""

CODE_SECONDS = 60.0
"""Seconds for which a one-time link works."""
_MOST = 10_000
"""Visits, and codes, that are kept."""
_MOST_OF_USER = 100
"""Those of one user: the oldest of this user go first, so nobody signs others out."""


class Visit(Struct, frozen=True):
    """One browser that signed in."""

    digest: str
    """SHA-256 of the cookie, hexadecimal."""
    role: Role
    by: str
    """Who it is, for the log and for approvals: `ui` for the person at this machine, else the token's name."""
    until: float
    """Seconds since 1970."""

    @property
    def may_change(self) -> bool:
        """It may do more than look."""
        return self.role != "read"

    @property
    def is_local(self) -> bool:
        """The person sits at this machine, so may say what is run on it."""
        return self.role == "local"


class _Code(Struct, frozen=True):
    """What a one-time link is good for."""

    role: Role
    by: str
    until: float


T = TypeVar("T", Visit, _Code)


class SignIns:
    """The codes and visits of one console."""

    def __init__(self, lifetime: Callable[[], float], clock: Callable[[], float] = time.time) -> None:
        """`lifetime`: seconds that a visit lasts, asked at each sign-in."""
        self._lifetime, self._clock = lifetime, clock
        self._codes: dict[str, _Code] = {}
        self._visits: dict[str, Visit] = {}

    def __repr__(self) -> str:
        return f"<SignIns {len(self._visits)} signed in, {len(self._codes)} links>"

    def make_code(self, role: Role = "local", by: str = "ui") -> str:
        """The code of a one-time link."""
        code = secrets.token_urlsafe(32)
        _put(self._codes, _digest(code), _Code(role, by, self._clock() + CODE_SECONDS))
        return code

    def whose(self, code: str) -> str | None:
        """Who would be signed in by a code, which still works after; None: it is unknown, used, or too old."""
        known = self._codes.get(_digest(code))
        return known.by if known is not None and known.until > self._clock() else None

    def redeem(self, code: str) -> str | None:
        """The cookie for a code, which works no more from then on; None: it is unknown, used, or too old."""
        known = self._codes.pop(_digest(code), None)
        return self.open(known.role, known.by) if known is not None and known.until > self._clock() else None

    def open(self, role: Role, by: str) -> str:
        """Sign in; returns the value of the cookie."""
        cookie = secrets.token_urlsafe(32)
        digest = _digest(cookie)
        _put(self._visits, digest, Visit(digest, role, by, self._clock() + self._lifetime()))
        return cookie

    def visit(self, cookie: str) -> Visit | None:
        """Whose cookie this is; None: nobody's, or not any more."""
        visit = self._visits.get(_digest(cookie)) if cookie else None
        if visit is not None and visit.until <= self._clock():
            del self._visits[visit.digest]
            return None
        return visit

    def close(self, visit: Visit) -> None:
        """Sign out."""
        self._visits.pop(visit.digest, None)

    def end_of_user(self, by: str) -> None:
        """Sign somebody out of every browser; one-time links of theirs work no more."""
        for kept in (self._visits, self._codes):
            for digest in [digest for digest, one in kept.items() if one.by == by]:
                del kept[digest]

    def visits(self) -> list[Visit]:
        """Who is signed in, the oldest first."""
        now = self._clock()
        return [visit for visit in self._visits.values() if visit.until > now]

    def restore(self, visits: Iterable[Visit]) -> None:
        """Let these be signed in: a bridge that started anew continues with the pages of the one before."""
        for visit in visits:
            _put(self._visits, visit.digest, visit)


def form_token(cookie: str) -> str:
    """What a form of this visit must send along, which a page of another origin cannot know."""
    return hmac.new(cookie.encode(), b"mcpbridge console form", "sha256").hexdigest()


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _put(values: dict[str, T], key: str, value: T) -> None:
    values[key] = value
    of_user = [digest for digest, one in values.items() if one.by == value.by]
    for digest in of_user[:-_MOST_OF_USER]:
        del values[digest]
    while len(values) > _MOST:
        del values[next(iter(values))]
