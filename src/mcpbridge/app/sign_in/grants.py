"""What the bridge has granted: sign-ins under way, codes, and the tokens of people who signed in.

Codes and tokens are random texts of which only SHA-256 digests are kept. All tokens of one sign-in belong to one
**grant**; when that is gone, none of them works any more. A code works once, a refresh token is replaced with each use:
who uses one a second time is not the only one who has it, so the whole grant ends (RFC 9700, 4.14.2). Clients that send
the same refresh token twice at once, or did not get the answer, have `GRACE` seconds in which that is forgiven: they
get the same next refresh token. So a thief who is that quick has no line of tokens of its own: of the two who have the
next one, whoever uses it later than the other one and `GRACE` ends the grant for both.

Grants are kept under the principal of the person, so that all of one person can be listed and ended. Whoever is put out
while a shared store is away is out at this bridge at once, and at the others as soon as that can be written down.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.app.sign_in.errors import too_many
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import principal_of
from mcpbridge.downstream.auth.put_out import PutOut
from mcpbridge.storage.store import Store

log = get_logger("mcpbridge.auth")

ACCESS, REFRESH, CODE = "mcpb_at_", "mcpb_rt_", "mcpb_ac_"
"""What tokens begin with, so that scanners of repositories find them."""
REQUEST_SECONDS, CODE_SECONDS = 600.0, 60.0
GRACE = 30.0
"""Seconds."""
_REQUEST, _CODE, _USED_CODE, _GRANT, _ACCESS, _REFRESH = (
    *("oauth-request", "oauth-code", "oauth-used-code", "oauth-grant", "oauth-access", "oauth-refresh"),
)
_ENDED, _PUT_OUT, _EXPECTED = "oauth-ended", "oauth-put-out", "oauth-expected"
_MARKED = 3600.0
"""Seconds for which it is known that something was ended: longer than anything is under way."""
_ROOM = 32 << 20
"""Bytes of the sign-ins under way, which strangers can begin; they are refused before it is full."""
_MOST_BYTES, _MOST_OF_NETWORK = 16 << 20, 100
"""Bytes of those that this process began, and how many of one network; further ones are refused. None makes room."""


class Request(Struct, frozen=True):
    """A sign-in under way."""

    client_id: str
    redirect_uri: str
    is_redirect_explicit: bool
    state: str | None
    challenge: str
    """Of PKCE, always S256."""
    scopes: tuple[str, ...]
    resource: str
    browser: str
    """SHA-256 of the cookie of the browser that began it."""
    nonce: str = ""
    """That the provider's ID token must have; empty: the person has not agreed yet."""
    verifier: str = ""
    """Of PKCE towards the provider."""


class Person(Struct, frozen=True):
    """Somebody whom the provider vouched for."""

    issuer: str
    subject: str
    name: str
    claims: Mapping[str, Any]

    @property
    def principal(self) -> str:
        """See `core/identity.py`."""
        return principal_of(self.issuer, self.subject)


class Code(Struct, frozen=True):
    """What a client gets for a sign-in, and exchanges once."""

    request: Request
    person: Person
    grant: str
    """The id that the grant will have."""
    at: float
    """When it was made, in seconds since 1970."""


class Grant(Struct, frozen=True):
    """What one person allowed one client."""

    id: str
    client_id: str
    client_name: str
    person: Person
    scopes: tuple[str, ...]
    resource: str
    began: float
    """When its person signed in: seconds since 1970, as all times here."""


class _Access(Struct, frozen=True):
    grant: str
    principal: str
    scopes: tuple[str, ...]
    until: float


class _Refresh(Struct, frozen=True):
    grant: str
    principal: str
    client_id: str
    used_at: float = 0.0
    """0: it was not used yet."""


class AccessGrant(Struct, frozen=True):
    """What an access token stands for."""

    grant: Grant
    scopes: tuple[str, ...]
    until: float


class Tokens(Struct, frozen=True):
    """New tokens of a grant."""

    access: str
    refresh: str
    """Empty: there is none."""
    seconds: float
    """That the access token works."""
    scopes: tuple[str, ...]


_Kept = TypeVar("_Kept")


class Replayed(Exception):
    """A code or a refresh token came a second time: its grant has been ended."""

    def __init__(self, grant: str, principal: str) -> None:
        super().__init__("used before")
        self.grant, self.principal = grant, principal


class Grants:
    """All grants of one bridge."""

    def __init__(
        self,
        store: Store,
        *,
        token_seconds: float,
        session_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`session_seconds`: how long a refresh token lives; each use begins that anew.

        `store`: its methods fail while others cannot learn what is written (`LazyStore.shared`). What a bridge kept of
        a grant for itself would outlive the end of it at another bridge.
        """
        self._store, self._now = store, now
        self.out = PutOut(self._write_out, now)
        """Who was put out here, and is not written down."""
        self._token_seconds, self._session_seconds = token_seconds, session_seconds
        self._under_way = OrderedDict[str, tuple[float, int, str]]()
        """Sign-ins that this process began, the oldest first: when each is too old, its bytes, and for whom."""
        store.bound(_REQUEST, _ROOM)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._store!r}>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """What the shared store did not take is written later, until the end."""
        async with self.out.running():
            yield

    # -- sign-ins under way

    async def begin(self, request: Request, network: str | None = None) -> str:
        """Keep a sign-in under way; returns its handle.

        `network`: where a stranger begins it; None: one that is under way continues.

        Raises:
            OAuthRefused: 429, too many are under way.
        """
        now = self._now()
        while self._under_way and next(iter(self._under_way.values()))[0] <= now:
            self._under_way.popitem(last=False)
        body = msgspec.json.encode(request)
        if network is not None:
            begun = self._under_way.values()
            if sum(one[2] == network for one in begun) >= _MOST_OF_NETWORK:
                raise too_many("too many sign-ins that nobody completed were begun from your network")
            if sum(one[1] for one in begun) + len(body) > _MOST_BYTES:
                raise too_many("too many sign-ins are under way")
        handle = await self._store.put(_REQUEST, body, principal="", expires_in=REQUEST_SECONDS)
        self._under_way[handle] = now + REQUEST_SECONDS, len(body), network or ""
        return handle

    async def request(self, handle: str) -> Request | None:
        """The sign-in with this handle, which stays."""
        return await self._find(_REQUEST, handle, Request) if _is_handle(handle) else None

    async def take_request(self, handle: str) -> Request | None:
        """The sign-in with this handle, once."""
        self._under_way.pop(handle, None)
        body = await self._store.take(_REQUEST, handle, principal="") if _is_handle(handle) else None
        return None if body is None else msgspec.json.decode(body, type=Request)

    # -- codes

    async def make_code(self, request: Request, person: Person) -> str:
        """The code that its client exchanges."""
        code, grant = CODE + secrets.token_urlsafe(32), new_grant_id()
        await self._store.put(_EXPECTED, b"1", principal=person.principal, expires_in=CODE_SECONDS, handle=grant)
        await self._put(_CODE, Code(request, person, grant, self._now()), seconds=CODE_SECONDS, handle=digest_of(code))
        return code

    async def code(self, code: str) -> Code | None:
        """What a code stands for; it stays.

        Raises:
            Replayed: it was exchanged before. Whoever sends it again may have stolen it, so its tokens work no more.
        """
        handle = digest_of(code)
        found = await self._find(_CODE, handle, Code)
        if found is None and (used := await self._find(_USED_CODE, handle, tuple[str, str])) is not None:
            grant, principal = used
            await self.end(grant, principal)
            raise Replayed(grant, principal)
        return found

    async def exchange(self, code: str, client_name: str, scopes: tuple[str, ...]) -> Tokens | None:
        """The tokens for a code, once; None: somebody else was faster."""
        handle = digest_of(code)
        body = await self._store.take(_CODE, handle, principal="")
        if body is None:
            return None
        found = msgspec.json.decode(body, type=Code)
        used = found.grant, found.person.principal
        await self._store.put(
            _USED_CODE, msgspec.json.encode(used), principal="", expires_in=self._token_seconds, handle=handle
        )
        request = found.request
        grant = Grant(found.grant, request.client_id, client_name, found.person, scopes, request.resource, found.at)
        await self._keep(grant)
        if found.at <= await self._put_out_at(
            found.person.principal
        ):  # now: who puts them out meanwhile may not see it
            await self.end(grant.id, found.person.principal)
            return None
        await self._store.drop(_EXPECTED, grant.id, principal=grant.person.principal)
        return await self._new_tokens(grant, scopes, REFRESH + secrets.token_urlsafe(32))

    # -- tokens

    async def grant_without_renewal(self, grant: Grant) -> Tokens:
        """An access token alone, for what an enterprise vouched for: it is asked again when that ends."""
        await self._keep(grant, self._token_seconds)
        return await self._new_tokens(grant, grant.scopes)

    async def access(self, token: str) -> AccessGrant | None:
        """What an access token stands for; None: nothing, any more."""
        access = await self._find(_ACCESS, digest_of(token), _Access)
        if access is None:
            return None
        grant = await self.grant(access.grant, access.principal)
        if grant is None or access.until <= self._now():
            return None
        return AccessGrant(grant, access.scopes, access.until)

    async def refreshed(self, token: str, client_id: str) -> Grant | None:
        """The grant whose refresh token this is, for this client; None: there is none.

        Raises:
            Replayed: it was used before, more than `GRACE` seconds ago; the grant has been ended.
        """
        found = await self._find(_REFRESH, digest_of(token), _Refresh)
        if found is None or found.client_id != client_id:
            return None
        if found.used_at and self._now() > found.used_at + GRACE:
            await self.end(found.grant, found.principal)
            raise Replayed(found.grant, found.principal)
        return await self.grant(found.grant, found.principal)

    async def renew(self, token: str, grant: Grant, scopes: tuple[str, ...]) -> Tokens | None:
        """New tokens for a refresh token that `refreshed` has found. `grant`: perhaps with newer claims.

        None: the grant has ended meanwhile. It stays ended.
        """
        principal = grant.person.principal
        if await self.grant(grant.id, principal) is None:
            return None
        await self._keep(grant)
        if await self._store.get(_ENDED, grant.id, principal=principal) is not None:
            await self._store.drop(_GRANT, grant.id, principal=principal)
            return None
        tokens = await self._new_tokens(grant, scopes, _next_refresh_token(token, grant))
        # Last: whoever learns that this failed sends the same token again, perhaps later than `GRACE`.
        handle = digest_of(token)
        found = await self._find(_REFRESH, handle, _Refresh)
        if found is not None and found.used_at:
            log.warning("a refresh token came again; the next one is the same", client=grant.client_id)
        elif found is not None:
            used = replace(found, used_at=self._now())
            await self._put(_REFRESH, used, seconds=self._session_seconds, handle=handle)
        return tokens

    # -- ending

    async def grant(self, id_: str, principal: str) -> Grant | None:
        """A grant that has not ended."""
        found = await self._find(_GRANT, id_, Grant, principal)
        is_out = found is not None and found.began <= (self.out.since(principal) or 0.0)
        return None if is_out else found

    async def grants_of(self, principal: str) -> list[Grant]:
        """All that this person allowed; the oldest first."""
        entries = await self._store.entries(_GRANT, principal=principal)
        found = [await self.grant(entry.handle, principal) for entry in entries]
        return [one for one in found if one is not None]

    async def is_signed_in(self, principal: str) -> bool:
        """Whether this person has a grant, or a code that can become one."""
        return bool(await self.grants_of(principal) or await self._store.entries(_EXPECTED, principal=principal))

    async def people(self) -> dict[str, int]:
        """Everybody who is signed in: grants by principal."""
        people: dict[str, int] = {}
        for entry in await self._store.entries(_GRANT, principal=None):
            people[entry.principal] = people.get(entry.principal, 0) + 1
        return people

    async def end(self, id_: str, principal: str) -> bool:
        """End a grant: its tokens work no more. False: it had ended."""
        await self._store.put(_ENDED, b"1", principal=principal, expires_in=_MARKED, handle=id_)
        return await self._store.drop(_GRANT, id_, principal=principal)

    async def put_out(self, principal: str) -> int:
        """End all grants of this person, and what is under way to become one; returns how many there were.

        While the shared store is away nobody knows how many: it is 0, and they end for the others when it is back.

        Raises:
            StoreFailed: it cannot be written down, and this does not run, so that nobody would do it later.
        """
        return await self.out.add(principal) or 0

    async def _write_out(self, principal: str, at: float) -> int:
        """Do in the store what `put_out` says, for what began by then."""
        ended = 0
        if await self._written_out(principal) < at:
            await self._store.put(
                _PUT_OUT, msgspec.json.encode(at), principal=principal, expires_in=_MARKED, handle="person"
            )
        for entry in await self._store.entries(_GRANT, principal=principal):
            found = await self._find(_GRANT, entry.handle, Grant, principal)
            if found is None or found.began > at:
                continue  # somebody who signed in anew
            await self.end(entry.handle, principal)
            ended += 1
        for entry in await self._store.entries(_EXPECTED, principal=principal):
            await self._store.drop(_EXPECTED, entry.handle, principal=principal)
        return ended

    async def _written_out(self, principal: str) -> float:
        return await self._find(_PUT_OUT, "person", float, principal) or 0.0

    async def _put_out_at(self, principal: str) -> float:
        """When all of this person was ended last; 0: not lately."""
        return max(self.out.since(principal) or 0.0, await self._written_out(principal))

    async def end_by_token(self, token: str, client_id: str) -> tuple[str, str] | None:
        """End the grant of a token of this client (RFC 7009). Returns its id and principal; None: there was none."""
        handle = digest_of(token)
        found = await self._find(_REFRESH, handle, _Refresh) or await self._find(_ACCESS, handle, _Access)
        grant = await self.grant(found.grant, found.principal) if found is not None else None
        if found is None or grant is None or grant.client_id != client_id:
            return None
        await self.end(found.grant, found.principal)
        return found.grant, found.principal

    async def is_new(self, kind: str, id_: str, seconds: float) -> bool:
        """Whether an id comes for the first time, in so many seconds: the `jti` of an assertion counts once."""
        mine = secrets.token_hex(16).encode()
        handle = hashlib.sha256(id_.encode()).hexdigest()
        kept = await self._store.put_if_absent(f"oauth-{kind}", mine, principal="", expires_in=seconds, handle=handle)
        return kept == mine

    # -- keeping

    async def _find(self, kind: str, handle: str, type_: type[_Kept], principal: str = "") -> _Kept | None:
        """What is kept under this handle; None: nothing, any more."""
        body = await self._store.get(kind, handle, principal=principal)
        return None if body is None else msgspec.json.decode(body, type=type_)

    async def _keep(self, grant: Grant, seconds: float | None = None) -> None:
        await self._store.put(
            _GRANT,
            msgspec.json.encode(grant),
            principal=grant.person.principal,
            expires_in=seconds or self._session_seconds,
            handle=grant.id,
        )

    async def _new_tokens(self, grant: Grant, scopes: tuple[str, ...], refresh: str = "") -> Tokens:
        """`refresh`: the refresh token that goes with it; empty: none does."""
        access, principal = ACCESS + secrets.token_urlsafe(32), grant.person.principal
        until = self._now() + self._token_seconds
        kept = _Access(grant.id, principal, scopes, until)
        await self._put(_ACCESS, kept, seconds=self._token_seconds, handle=digest_of(access))
        if refresh:  # one that is there may have been used by now, and stays what it is
            new = msgspec.json.encode(_Refresh(grant.id, principal, grant.client_id))
            handle, seconds = digest_of(refresh), self._session_seconds
            await self._store.put_if_absent(_REFRESH, new, principal="", expires_in=seconds, handle=handle)
        return Tokens(access, refresh, self._token_seconds, scopes)

    async def _put(self, kind: str, value: Struct, *, seconds: float, handle: str = "") -> str:
        return await self._store.put(kind, msgspec.json.encode(value), principal="", expires_in=seconds, handle=handle)


def _next_refresh_token(token: str, grant: Grant) -> str:
    """What replaces a refresh token: always the same. Who has the token alone cannot tell, as only we know the id."""
    mac = hmac.new(grant.id.encode(), b"mcpbridge next refresh token " + token.encode(), "sha256").digest()
    return REFRESH + base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def digest_of(secret: str) -> str:
    """Under which a code or a token is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_grant_id() -> str:
    """An id that nobody can guess."""
    return secrets.token_hex(16)


def _is_handle(text: str) -> bool:
    return 0 < len(text) <= 100 and text.isascii() and text.isalnum()
