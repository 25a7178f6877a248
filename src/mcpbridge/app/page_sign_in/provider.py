"""People sign in to pages of the bridge at the identity provider: authorization code, PKCE, `state`, `nonce`, `iss`.

The provider knows the bridge as one client with one address to come back to, the one at which people come back who sign
in for a program (`app/sign_in`); the `state` says which it is. Whoever comes back must be in the browser that began, so
nobody is signed in as somebody else by a link (login CSRF). What began is kept here for ten minutes, and works once.
"""

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from mcpbridge.app.sign_in.errors import OAuthRefused, ProviderRefused, too_many
from mcpbridge.app.sign_in.grants import REQUEST_SECONDS, digest_of
from mcpbridge.app.sign_in.identity_provider import IdentityProvider
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.resource_server import Caller

log = get_logger("mcpbridge.auth")

_PREFIX = "page_"
"""What the `state` of these sign-ins begins with."""
_MOST, _MOST_OF_NETWORK = 10_000, 100
"""Sign-ins under way, which strangers can begin, and those of one network; further ones are refused."""
_TARGET = re.compile(r"/(approvals|connections|console)(/[A-Za-z0-9_~.=?&%-]+)*/?(\?[A-Za-z0-9_~.=&%-]*)?")
HOME = "/approvals"
"""Where somebody goes who says nothing else."""
_GONE = "this sign-in is not known here, is too old, or was begun in another browser; begin again"


class _Begun(Struct, frozen=True):
    browser: str
    """SHA-256 of the cookie of the browser that began it."""
    nonce: str
    verifier: str
    target: str
    until: float
    network: str


class ProviderSignIns:
    """The sign-ins to pages that are under way."""

    def __init__(
        self, provider: IdentityProvider, lifetime: Callable[[], float], clock: Callable[[], float] = time.time
    ) -> None:
        """`lifetime`: seconds after which the provider has to vouch for a person anew."""
        self._provider, self._lifetime, self._clock = provider, lifetime, clock
        self._begun: dict[str, _Begun] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._provider.issuer} {len(self._begun)} under way>"

    async def begin(self, target: str, browser: str, network: str = "") -> str:
        """The page of the provider where a person signs in to see `target`. `browser`: its cookie.

        `network`: where it is (`network_of`).

        Raises:
            OAuthRefused: too many were begun.
            ProviderDown: the provider cannot be asked.
        """
        now, owner = self._clock(), digest_of(browser)
        self._begun = {key: one for key, one in self._begun.items() if one.until > now}
        of_network = sum(one.network == network for one in self._begun.values())
        if of_network >= _MOST_OF_NETWORK or len(self._begun) >= _MOST:
            raise too_many("too many sign-ins that nobody completed were begun")
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        state = _PREFIX + secrets.token_urlsafe(32)
        page = await self._provider.page(state, nonce, verifier, is_renewed=False)
        until = now + REQUEST_SECONDS
        self._begun[digest_of(state)] = _Begun(owner, nonce, verifier, own_path(target), until, network)
        return page

    def is_for_pages(self, parameters: Mapping[str, Sequence[str]]) -> bool:
        """Whether an answer of the provider is about a sign-in to pages."""
        return any(state.startswith(_PREFIX) for state in parameters.get("state", ()))

    async def finish(self, parameters: Mapping[str, Sequence[str]], browser: str) -> tuple[Caller, str]:
        """Who came back from the provider, and where they want to go. `browser`: the cookie.

        Raises:
            OAuthRefused: this sign-in is not known, too old, another browser's, or was not completed.
        """
        if any(len(values) > 1 for values in parameters.values()):
            raise OAuthRefused("invalid_request", "a parameter comes twice")
        given = {name: values[0] for name, values in parameters.items() if values}
        key = digest_of(given.get("state", ""))
        begun = self._begun.get(key)
        if (
            begun is None
            or begun.until <= self._clock()
            or not browser
            or not secrets.compare_digest(begun.browser, digest_of(browser))
        ):
            raise OAuthRefused("invalid_request", _GONE)
        del self._begun[key]
        try:
            if "error" in given or not given.get("code"):
                raise ProviderRefused("the sign-in at the provider was not completed")
            signed_in = await self._provider.finish(given["code"], begun.nonce, begun.verifier, given.get("iss"))
        except ProviderRefused as refused:
            raise OAuthRefused("access_denied", refused.reason, 403) from None
        except ProviderDown as down:
            log.warning("the identity provider cannot be asked", reason=down.reason)
            raise OAuthRefused("temporarily_unavailable", "the identity provider cannot be asked now", 503) from None
        person, until = signed_in.person, self._clock() + self._lifetime()
        identity = Identity(
            person.principal, person.issuer, person.subject, person.claims, name=person.name, expires_at=until
        )
        log.info("signed in to pages", who=person.name)
        return Caller(person.principal, identity, until), begun.target


def own_path(target: str) -> str:
    """A path of the bridge's pages, where a sign-in ends; the first one of them instead of anything else."""
    return target if _TARGET.fullmatch(target) and ".." not in target else HOME
