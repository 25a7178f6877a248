"""The OAuth clients that people sign in with: known beforehand, registered by themselves, or named by a URL.

Of what a client says of itself only its redirect addresses decide anything. Its name is shown as its own claim.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from mcpbridge.app.sign_in.errors import OAuthRefused, too_many
from mcpbridge.app.sign_in.rates import Rates
from mcpbridge.app.sign_in.redirect_uris import is_registered, problem_of
from mcpbridge.base.errors import BridgeError
from mcpbridge.base.hidden_text import without_hidden
from mcpbridge.base.units import Rate
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.auth.signed_tokens import strict_json
from mcpbridge.sandbox.fetch.fetch import Fetcher, FetchLimits
from mcpbridge.storage.store import Store

_KIND = "oauth-client"
_LIFETIME = 180 * 86400.0
"""Seconds without a sign-in after which a registration is forgotten."""
_ROOM = 64 << 20
"""Bytes of all registrations that somebody signed in with."""
_UNUSED = "oauth-client-unused"
"""Registrations that nobody signed in with so far: anybody can make them, so they have a room of their own."""
_UNUSED_LIFETIME = 86400.0
_MOST_UNUSED, _MOST_UNUSED_OF_NETWORK, _UNUSED_BYTES = 3000, 50, 8 << 20
"""How many there may be, of all and of one network, and their bytes. Further ones are refused; none makes room."""
_REGISTRATIONS = Rate(times=20, seconds=60)
"""Of one network."""
_MOST_REDIRECTS, _LONGEST_NAME, LONGEST_DOCUMENT = 20, 100, 16 * 1024
_METHODS = ("none", "client_secret_basic", "client_secret_post")
_GRANTS = ("authorization_code", "refresh_token")
_FETCH = FetchLimits(seconds=10, most=LONGEST_DOCUMENT, redirects=0)
_DOCUMENT_SECONDS, _FAILED_SECONDS, _MOST_DOCUMENTS = 3600.0, 60.0, 1000
"""How long a document counts, and how long a failure to fetch it; how many of each are remembered."""
_FETCHES = Rate(times=20, seconds=60)
"""Of documents that are not known: for one network, and of one host. Strangers name whom the bridge asks here."""
_MOST_FETCHES, _MOST_WAITING = 8, 64
"""Fetches at a time, and those that may wait for their turn."""


class OAuthClient(Struct, frozen=True):
    """One client."""

    id: str
    name: str
    """As it calls itself, without hidden characters; never empty."""
    redirect_uris: tuple[str, ...]
    secret: str = ""
    """SHA-256 of its secret, hexadecimal; empty: it has none."""
    method: str = "none"
    """How it sends the secret at the token endpoint."""
    grants: tuple[str, ...] = _GRANTS
    is_known: bool = False
    """The configuration names it; the names of all others are their own claims."""
    may_assert: bool = False
    """It may exchange identity assertions of an enterprise."""

    def redirect_uri(self, given: str | None) -> str:
        """The address to send people to.

        Raises:
            OAuthRefused: it is none of the client's. The person must not be sent there.
        """
        if given is None:
            if len(self.redirect_uris) == 1:
                return self.redirect_uris[0]
            raise OAuthRefused("invalid_request", "redirect_uri is missing: this client has several")
        if not any(is_registered(given, known) for known in self.redirect_uris) or problem_of(given):
            raise OAuthRefused("invalid_request", "redirect_uri is none of those that the client has named")
        return given

    def check_secret(self, given: str | None) -> None:
        """Refuse a client that cannot show its secret.

        Raises:
            OAuthRefused: `invalid_client`.
        """
        digest = hashlib.sha256((given or "").encode()).hexdigest()
        if not self.secret:
            if given:
                raise OAuthRefused("invalid_client", "this client has no secret", 401)
            return
        if not hmac.compare_digest(digest, self.secret):
            raise OAuthRefused("invalid_client", "the secret of this client is missing or wrong", 401)


class _Registration(msgspec.Struct, omit_defaults=True):
    """What a registration asks for (RFC 7591, 2); members that nobody here reads are ignored."""

    redirect_uris: list[str] = []
    client_name: str = ""
    method: str = msgspec.field(default="client_secret_basic", name="token_endpoint_auth_method")
    grant_types: tuple[str, ...] = ("authorization_code",)
    response_types: tuple[str, ...] = ("code",)
    scope: str = ""


class Clients:
    """All clients of one bridge."""

    def __init__(
        self,
        settings: SignInSettings,
        store: Store,
        *,
        clock: Callable[[], float] = time.monotonic,
        fetcher: Callable[[], Fetcher] = lambda: Fetcher(limits=_FETCH),
    ) -> None:
        """`fetcher` makes what fetches the documents of clients, which strangers name."""
        self._settings, self._store, self._clock, self._make_fetcher = settings, store, clock, fetcher
        self._registrations = Rates(_REGISTRATIONS)
        self._fetches_for, self._fetches_of = Rates(_FETCHES), Rates(_FETCHES)
        self._registering = asyncio.Lock()
        self._documents = OrderedDict[str, tuple[float, OAuthClient]]()
        self._used = OrderedDict[str, None]()
        """Documents of clients that somebody signed in with: the others make room first."""
        self._failed = OrderedDict[str, float]()
        """When a document may be asked for again that was not to be had."""
        self._fetching: dict[str, asyncio.Task[OAuthClient | None]] = {}
        self._slots = asyncio.Semaphore(_MOST_FETCHES)
        store.bound(_KIND, _ROOM)
        store.bound(_UNUSED, 2 * _UNUSED_BYTES)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._settings.clients)} known, {len(self._documents)} documents>"

    async def find(self, id_: str, network: str = "") -> OAuthClient | None:
        """The client with this id. `network`: where it is asked for (`network_of`).

        Raises:
            OAuthRefused: 429, its document would have to be fetched, and too many are.
        """
        known = self._settings.clients.get(id_)
        if known is not None:
            return OAuthClient(
                id_,
                known.name or id_,
                tuple(known.redirect_uris),
                known.sha256 or "",
                "client_secret_basic" if known.sha256 else "none",
                is_known=True,
                may_assert=known.assertions,
            )
        if id_.startswith("https://"):
            return await self._document(id_, network) if self._settings.documents else None
        if not self._settings.registration or not id_ or len(id_) > 100:
            return None
        body = await self._store.get(_KIND, id_, principal="", renew=_LIFETIME)
        if body is None:
            body = await self._store.get(_UNUSED, id_, principal="")
        return None if body is None else msgspec.json.decode(body, type=OAuthClient)

    async def signed_in_with(self, client: OAuthClient) -> None:
        """Somebody signed in with this client: what strangers register from now on takes its place from it no more."""
        if client.id in self._documents:
            self._used[client.id] = None
            self._used.move_to_end(client.id)
            if len(self._used) > _MOST_DOCUMENTS // 2:
                self._used.popitem(last=False)
            return
        body = await self._store.get(_UNUSED, client.id, principal="")
        if body is not None:
            await self._store.put(_KIND, body, principal="", expires_in=_LIFETIME, handle=client.id)
            await self._store.drop(_UNUSED, client.id, principal="")

    async def register(self, data: bytes, network: str = "") -> dict[str, Any]:
        """Register a client that asks for it. Returns the answer, the secret included (RFC 7591, 3.2.1).

        `network`: where it asks (`network_of`).

        Raises:
            OAuthRefused: it asks for what is not to be had, or too many ask.
        """
        if not self._settings.registration:
            raise OAuthRefused("access_denied", "clients cannot register here; ask who runs this bridge", 403)
        wanted = _read_registration(data)
        if wait := self._registrations.take(network, self._clock()):
            raise too_many("too many clients register from your network", wait)
        secret = "" if wanted.method == "none" else secrets.token_urlsafe(32)
        client = OAuthClient(
            f"c-{secrets.token_urlsafe(16)}",
            _clean_name(wanted.client_name) or "a client without a name",
            tuple(wanted.redirect_uris),
            hashlib.sha256(secret.encode()).hexdigest() if secret else "",
            wanted.method,
        )
        await self._keep_unused(client, network)
        answer: dict[str, Any] = {
            "client_id": client.id,
            "client_id_issued_at": int(time.time()),
            "redirect_uris": list(client.redirect_uris),
            "token_endpoint_auth_method": client.method,
            "grant_types": list(_GRANTS),
            "response_types": ["code"],
        }
        if wanted.client_name:
            answer["client_name"] = client.name
        if wanted.scope:
            answer["scope"] = wanted.scope
        if secret:
            answer |= {"client_secret": secret, "client_secret_expires_at": 0}
        return answer

    async def close(self) -> None:
        """Fetch nothing any more."""
        for task in list(self._fetching.values()):
            task.cancel()
        await asyncio.gather(*self._fetching.values(), return_exceptions=True)

    async def _keep_unused(self, client: OAuthClient, network: str) -> None:
        body = msgspec.json.encode(client)
        label = hashlib.sha256(network.encode()).digest()[:8]
        async with self._registering:  # each sees those before it
            unused = await self._store.entries(_UNUSED, principal="")
            if sum(one.label == label for one in unused) >= _MOST_UNUSED_OF_NETWORK:
                raise too_many("clients that nobody signed in with have registered from your network", 3600)
            if len(unused) >= _MOST_UNUSED or sum(one.size for one in unused) + len(body) > _UNUSED_BYTES:
                raise too_many("there are too many clients that nobody signed in with", 3600)
            await self._store.put(
                _UNUSED, body, principal="", expires_in=_UNUSED_LIFETIME, handle=client.id, label=label
            )

    async def _document(self, url: str, network: str) -> OAuthClient | None:
        """The client that the document at this URL is about; one fetch for all who ask at once."""
        now, known = self._clock(), self._documents.get(url)
        if known is not None and known[0] > now:
            self._documents.move_to_end(url)
            return known[1]
        if not is_document_url(url) or self._failed.get(url, now) > now:
            return None
        task = self._fetching.get(url)
        if task is None:
            wait = self._fetches_for.take(network, now) or self._fetches_of.take(urlsplit(url).netloc.lower(), now)
            if wait or len(self._fetching) >= _MOST_FETCHES + _MOST_WAITING:
                raise too_many("too many documents of clients are asked for", wait or 10)
            task = self._fetching[url] = asyncio.get_running_loop().create_task(self._fetch(url))
        return await asyncio.shield(task)

    async def _fetch(self, url: str) -> OAuthClient | None:
        client: OAuthClient | None = None
        try:
            async with self._slots:
                fetched = await self._make_fetcher().fetch(url, headers={"accept": "application/json"})
            if fetched.status == 200:
                client = client_of_document(url, fetched.body)
        except (BridgeError, ValueError):
            client = None
        finally:
            del self._fetching[url]
        if client is None:
            _put(self._failed, url, self._clock() + _FAILED_SECONDS)
            if len(self._failed) > _MOST_DOCUMENTS:
                self._failed.popitem(last=False)
            return None
        _put(self._documents, url, (self._clock() + _DOCUMENT_SECONDS, client))
        if len(self._documents) > _MOST_DOCUMENTS:
            del self._documents[next(one for one in self._documents if one not in self._used)]
        return client


_Value = TypeVar("_Value")


def _put(values: OrderedDict[str, _Value], name: str, value: _Value) -> None:
    """As the latest."""
    values[name] = value
    values.move_to_end(name)


def is_document_url(url: str) -> bool:
    """Whether a client may be named so: https, with a path, and nothing that could be spelled in two ways."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    is_plain = not (problem_of(url) or parts.query or parts.fragment or parts.username)
    segments = parts.path.split("/")
    return (
        is_plain
        and parts.scheme == "https"
        and parts.path not in ("", "/")
        and port != 0
        and not {".", ".."} & set(segments)
    )


def client_of_document(url: str, data: bytes) -> OAuthClient:
    """The client that a metadata document is about.

    Raises:
        ValueError: the document is not this URL's, or says what is not to be had.
    """
    found = strict_json(data)
    document = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    if document.get("client_id") != url:
        raise ValueError("the document is about another client")
    method = document.get("token_endpoint_auth_method", "none")
    if method != "none" or "client_secret" in document:
        raise ValueError("such a client has no secret")
    redirects = document.get("redirect_uris")
    uris = cast("list[object]", redirects) if isinstance(redirects, list) else []
    if not uris or len(uris) > _MOST_REDIRECTS:
        raise ValueError("no redirect addresses")
    for uri in uris:
        if not isinstance(uri, str) or problem_of(uri):
            raise ValueError("a redirect address cannot be used")
    name = document.get("client_name")
    title = _clean_name(name) if isinstance(name, str) else ""
    return OAuthClient(url, title or url, tuple(cast("list[str]", uris)))


def _read_registration(data: bytes) -> _Registration:
    if len(data) > LONGEST_DOCUMENT:
        raise OAuthRefused("invalid_client_metadata", "the registration is too long")
    try:
        found = strict_json(data)
        is_object = isinstance(found, dict)
        members: Mapping[str, object] = cast("dict[str, object]", found) if is_object else {}
        present: dict[str, object] = {
            name: value for name, value in members.items() if value is not None and value != ""
        }
        wanted = msgspec.convert(present, _Registration)
    except (ValueError, msgspec.ValidationError) as error:
        raise OAuthRefused("invalid_client_metadata", f"the registration cannot be read: {error}"[:200]) from None
    if not wanted.redirect_uris or len(wanted.redirect_uris) > _MOST_REDIRECTS:
        raise OAuthRefused("invalid_redirect_uri", f"expected 1 to {_MOST_REDIRECTS} redirect_uris")
    for uri in wanted.redirect_uris:
        if problem := problem_of(uri):
            raise OAuthRefused("invalid_redirect_uri", f"a redirect address cannot be used: {problem}")
    if wanted.method not in _METHODS:
        raise OAuthRefused("invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(_METHODS)}")
    if (
        "authorization_code" not in wanted.grant_types
    ):  # more than we have is asked for by clients in use: RFC 7591, 3.2.1
        raise OAuthRefused("invalid_client_metadata", "grant_types must have `authorization_code`")
    if "code" not in wanted.response_types:
        raise OAuthRefused("invalid_client_metadata", "response_types must have `code`")
    return wanted


def _clean_name(text: str) -> str:
    return " ".join(without_hidden(text).split())[:_LONGEST_NAME]
