"""The token of one upstream: kept, renewed in time, and asked for when the server wants one.

A call never waits behind another call for its token; only when there is none, or the server refuses it, all calls wait
for the one attempt to get another (a *flight*), which goes on when the call that began it gives up. In this order: what
another process stored meanwhile, the refresh token, the bridge's own credentials, a person with a browser. Where no
person can be asked the server *needs sign-in*, until `mcpbridge login` has stored a token.

A server that never refuses costs a comparison per request: nothing is loaded, read or asked before the first refusal.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from mcpbridge.errors import BridgeError, ConfigError, SignInNeeded, UpstreamUnavailable
from mcpbridge.upstream.auth_challenge import Challenge, join_scopes
from mcpbridge.upstream.auth_grant import Grant, SecretStore, grant_key
from mcpbridge.upstream.auth_settings import AuthSettings

if TYPE_CHECKING:  # httpx2 comes with it, which a bridge without remote servers does not pay for
    from mcpbridge.upstream.auth_flow import SignIn
    from mcpbridge.upstream.auth_http import OAuthHttp
    from mcpbridge.wire.network import Network

__all__ = ["SIGN_IN_SECONDS", "Authorization", "Page", "Show", "Surroundings"]

log = structlog.get_logger("mcpbridge.auth")

SIGN_IN_SECONDS = 300.0
"""For a person to sign in."""
_EARLY = 60.0
"""Seconds before its end that a token is renewed; at most half of its life."""
_LOCK_SECONDS = 60.0
"""To wait for another process that renews the same token."""
_AGAIN = 30.0
"""Seconds until a renewal that failed for a passing reason is tried again."""
_LOOK = 2.0
"""Seconds between two looks for what `mcpbridge login` stored."""
_STEP_UPS, _STEP_UP_WINDOW = 3, 600.0
"""Times in so many seconds that a person is asked for more rights."""


@dataclass(frozen=True, slots=True)
class Page:
    """An authorization page that a person has to visit."""

    server: str
    url: str
    take: Callable[[str], str]
    """Takes the address that the browser ended at, where it cannot reach us; says what is wrong with it, or nothing."""


Show = Callable[[Page], Awaitable[bool]]
"""Brings a page before a person. False when it could not."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an authorization needs of its bridge."""

    store: SecretStore
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Starts a task that lives as long as the bridge at most."""
    show: Show | None = None
    """How this bridge opens pages by itself; None: it cannot."""
    is_interactive: bool = False
    """It does so for servers whose `auth.interactive` says nothing."""
    learn: Callable[[Iterable[str]], None] = lambda secrets: None
    """Gets every secret, to mask it."""


class Authorization:
    """The way into one upstream; an `Authorizer` (`wire/bearer.py`)."""

    def __init__(self, name: str, url: str, settings: AuthSettings, around: Surroundings, network: "Network") -> None:
        self.name, self.url, self.settings = name, url, settings
        self.on_signed_in: Callable[[], None] = lambda: None
        """Called when there is a token again after there was none, or a person was waited for."""
        self.waits_for = ""
        """What people have to do before calls can go on; empty: nothing."""
        self._around = around
        self._network = network
        self._key = grant_key(name, url)
        self._grant: Grant | None = None
        self._token = ""
        self._renew_at = float("inf")
        self._is_loaded = False
        self._is_proved = True
        """The server took the token at least once."""
        self._came_by = "store"
        self._asked_in_vain = ""
        """Why a person is not asked again by this process; empty: one may be."""
        self._flight: asyncio.Future[None] | None = None
        self._is_watching = False
        self._step_ups = deque[float](maxlen=_STEP_UPS)

    # -- Authorizer

    @property
    def ready(self) -> str | None:
        """The token to use at once. See `Authorizer`."""
        if not self._is_loaded or (self._token and time.time() >= self._renew_at):
            return None
        return self._token

    async def token(self) -> str:
        """The token to use. See `Authorizer`."""
        if not self._is_loaded:
            await self._load()
        if self._token and time.time() >= self._renew_at:
            await self._once(self._renew_early)
        return self._token

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        """Get another token. See `Authorizer`."""
        asked = Challenge.parse(challenge)
        if self._token and self._token != used:
            return True
        if status == 403 and (asked.error != "insufficient_scope" or not self._may_ask_for_more(asked)):
            return False
        await self._once(lambda: self._obtain(used, asked, is_step_up=status == 403))
        return bool(self._token) and self._token != used

    def accepted(self) -> None:
        """The server took the token. See `Authorizer`."""
        self._is_proved = True

    # -- for commands, and for whoever can ask a person

    async def sign_in(self, challenge: Challenge, show: Show) -> Grant:
        """Sign in with a person, who is shown a page by `show`; keeps what it brings.

        Raises:
            SignInRefused, UpstreamUnavailable: it failed; says at what.
            SignInNeeded: nobody came.
        """
        from mcpbridge.upstream.auth_flow import sign_in_with_person
        from mcpbridge.upstream.auth_http import open_oauth_http
        from mcpbridge.upstream.auth_redirect import listen

        settings = self.settings
        async with (
            listen(self.name, settings.redirect_uri, self._last_port()) as redirect,
            open_oauth_http(self.name, self.url, settings.issuer, self._network) as http,
        ):

            async def visit(page: str) -> None:
                redirect.expect(page)
                self.waits_for = "it waits for the sign-in in the browser"
                if not await show(Page(self.name, page, redirect.take)):
                    raise SignInNeeded(self.name, "no browser could be opened")

            try:
                async with asyncio.timeout(SIGN_IN_SECONDS):
                    grant = await sign_in_with_person(
                        self._about(http, challenge), redirect.uri, visit, redirect.answer
                    )
            except TimeoutError:
                raise SignInNeeded(self.name, f"nobody signed in within {SIGN_IN_SECONDS:g} s") from None
            finally:
                self.waits_for = ""
        async with self._locked():
            await self._keep(grant, came_by="sign-in")
        return grant

    async def sign_in_alone(self, challenge: Challenge) -> Grant:
        """Sign in with the configured credentials; keeps what it brings.

        Raises:
            SignInRefused, UpstreamUnavailable: it failed; says at what.
        """
        from mcpbridge.upstream.auth_flow import sign_in_alone
        from mcpbridge.upstream.auth_http import open_oauth_http

        async with open_oauth_http(self.name, self.url, self.settings.issuer, self._network) as http:
            grant = await sign_in_alone(self._about(http, challenge))
        await self._keep(grant, came_by="sign-in")
        return grant

    async def knock(self, headers: Mapping[str, str], *, is_sse: bool) -> Challenge | None:
        """What the server says to who comes without a token, with these headers; None when it lets anybody begin.

        Raises:
            UpstreamError: it cannot be reached.
        """
        from mcpbridge.upstream.auth_knock import knock

        return await knock(self.name, self.url, headers=headers, network=self._network, is_sse=is_sse)

    async def sign_out(self) -> tuple[bool, bool]:
        """Forget the tokens. Whether there were any, and whether the authorization server took them back (RFC 7009)."""
        async with self._locked():
            await self._load()
            grant, self._grant, self._token = self._grant, None, ""
            was_there = await self._around.store.drop(self._key)
        if grant is None:
            return was_there, False
        from mcpbridge.upstream.auth_flow import revoke
        from mcpbridge.upstream.auth_http import open_oauth_http

        async with open_oauth_http(self.name, self.url, self.settings.issuer or grant.issuer, self._network) as http:
            return was_there, await revoke(self._about(http, Challenge(), before=grant))

    # -- flights

    async def _once(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` unless something is on its way already; wait for its end either way."""
        flight = self._flight
        if flight is None:
            flight = self._flight = asyncio.get_running_loop().create_future()
            self._around.spawn(self._fly(work, flight))
        await asyncio.shield(flight)

    async def _fly(self, work: Callable[[], Awaitable[None]], flight: asyncio.Future[None]) -> None:
        failure: Exception | None = None
        try:
            await work()
        except BridgeError as error:
            failure = error
        except Exception as error:
            log.exception("authorization failed in an unexpected way", upstream=self.name)
            failure = UpstreamUnavailable(
                self.name, f"{type(error).__name__} in the bridge while signing in; see the log"
            )
        finally:
            self._flight = None
            if not flight.done():
                if failure is None:
                    flight.set_result(None)
                else:
                    flight.set_exception(failure)
                    flight.exception()  # seen: perhaps nobody waits any more

    async def _renew_early(self) -> None:
        """Before the token ends. A failure matters only once it has ended."""
        used = self._token
        try:
            async with self._locked():
                await self._load()
                if self._token == used:
                    await self._renew()
        except BridgeError as error:
            grant = self._grant
            if grant is None or time.time() >= grant.expires_at:
                raise
            log.info("token not renewed yet", upstream=self.name, reason=str(error))
            self._renew_at = min(time.time() + _AGAIN, grant.expires_at)
        else:
            if self._token == used:
                self._renew_at = float("inf")  # the server's refusal decides

    async def _obtain(self, used: str, asked: Challenge, *, is_step_up: bool) -> None:
        if self._grant is not None or self.settings.type == "client-credentials":
            async with self._locked():
                await self._load()
                if self._token and self._token != used:
                    return  # another process was quicker
                is_new = not self._is_proved and not is_step_up
                if not is_step_up and not (is_new and self._came_by == "refresh") and await self._renew(asked):
                    return
                if self.settings.type == "client-credentials":
                    if not is_new:
                        await self.sign_in_alone(asked)
                    return
                if is_new and self._came_by == "sign-in":
                    self._asked_in_vain = "it refuses the token that signing in brought"
        else:
            await self._load()
            if self._token and self._token != used:
                return
        await self._ask_person(used, asked, is_step_up=is_step_up)

    async def _renew(self, asked: Challenge | None = None) -> bool:
        """Use the refresh token, or the credentials that renew without one. Under the lock."""
        grant = self._grant
        if self.settings.type == "client-credentials" and asked is None:
            await self.sign_in_alone(Challenge())
            return True
        if grant is None or not grant.refresh_token:
            return False
        from mcpbridge.upstream.auth_flow import refresh
        from mcpbridge.upstream.auth_http import open_oauth_http

        async with open_oauth_http(self.name, self.url, self.settings.issuer or grant.issuer, self._network) as http:
            found = await refresh(self._about(http, asked or Challenge()))
        if found is None:
            log.info("refresh token refused", upstream=self.name)
            return False
        log.debug("token renewed", upstream=self.name)
        await self._keep(found, came_by="refresh")
        return True

    # -- a person

    def _may_ask_for_more(self, asked: Challenge) -> bool:
        """Whether asking for these rights can help: not when they were asked for already, and not for ever."""
        had = set(self._grant.asked.split()) if self._grant is not None else set[str]()
        return bool(set(asked.scope.split()) - had)

    async def _ask_person(self, used: str, asked: Challenge, *, is_step_up: bool) -> None:
        wants = self.settings.interactive
        show = self._around.show if wants or (wants is None and self._around.is_interactive) else None
        if show is None or self._asked_in_vain:
            self._needs_sign_in(used)
            raise SignInNeeded(self.name, self._asked_in_vain)
        if is_step_up:
            now = time.monotonic()
            if len(self._step_ups) == _STEP_UPS and now - self._step_ups[0] < _STEP_UP_WINDOW:
                raise SignInNeeded(self.name, "it asks for more rights again and again")
            self._step_ups.append(now)
        was_shown = False

        async def shown(page: Page) -> bool:
            nonlocal was_shown
            was_shown = await show(page)
            return was_shown

        try:
            async with self._locked("sign-in", SIGN_IN_SECONDS):
                await self._load()
                if self._token and self._token != used:
                    return
                log.info("signing in with the browser", upstream=self.name)
                await self.sign_in(asked, shown)
        except BridgeError as error:
            from mcpbridge.upstream.auth_http import SignInRefused

            if was_shown or isinstance(error, SignInRefused | SignInNeeded):
                self._asked_in_vain = getattr(error, "why", "") or getattr(error, "what", str(error))
                self._needs_sign_in(used)
                raise SignInNeeded(self.name, self._asked_in_vain) from error
            raise
        log.info("signed in", upstream=self.name)
        self.on_signed_in()

    def _needs_sign_in(self, used: str) -> None:
        """Look from time to time whether `mcpbridge login` has stored another token than `used`."""
        if not self._is_watching:
            self._is_watching = True
            self._around.spawn(self._watch(used))

    async def _watch(self, used: str) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK)
                try:
                    await self._load()
                except ConfigError as error:
                    log.warning("stored sign-in cannot be read", upstream=self.name, reason=str(error))
                    await asyncio.sleep(_AGAIN)
                if self._token and self._token != used:
                    break
        finally:
            self._is_watching = False
        self._asked_in_vain = ""
        log.info("signed in", upstream=self.name)
        self.on_signed_in()

    # -- keeping

    async def _load(self) -> None:
        """Take over what is stored, if it is something else than what we have."""
        found = Grant.decode(await self._around.store.load(self._key))
        self._is_loaded = True
        if found is not None:
            if found != self._grant:
                self._adopt(found, came_by="store")
        elif self._grant is not None and self._came_by == "store":
            self._grant, self._token = None, ""  # `mcpbridge logout`

    async def _keep(self, grant: Grant, *, came_by: str) -> None:
        self._adopt(grant, came_by=came_by)
        try:
            await self._around.store.save(self._key, grant.encode())
        except ConfigError as error:
            log.warning("sign-in is not stored and ends with this process", upstream=self.name, reason=str(error))

    def _adopt(self, grant: Grant, *, came_by: str) -> None:
        if grant.access_token != self._token:
            self._is_proved, self._came_by = False, came_by
        self._grant, self._token, self._is_loaded = grant, grant.access_token, True
        secret = str(grant.client.get("client_secret") or "")
        self._around.learn([grant.access_token, grant.refresh_token, secret])
        renews = grant.refresh_token or self.settings.type == "client-credentials"
        if grant.expires_at and renews:
            self._renew_at = grant.expires_at - min(_EARLY, max(0.0, grant.expires_at - time.time()) / 2)
        else:
            self._renew_at = float("inf")

    @asynccontextmanager
    async def _locked(self, what: str = "renew", seconds: float = _LOCK_SECONDS) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._around.store.lock(f"{self._key}\n{what}", seconds))
            except TimeoutError:
                raise UpstreamUnavailable(self.name, "another bridge has been signing in for too long") from None
            except (ConfigError, OSError) as error:
                # Without a place to store anything there is nothing to share with other processes either.
                log.warning("no lock for sign-ins", upstream=self.name, reason=str(error))
            yield

    def _about(self, http: "OAuthHttp", challenge: Challenge, *, before: Grant | None = None) -> "SignIn":
        from mcpbridge.upstream.auth_flow import SignIn

        had = self._grant.asked if self._grant is not None and challenge.error == "insufficient_scope" else ""
        scope = join_scopes(had, " ".join(self.settings.scopes), challenge.scope)
        return SignIn(
            name=self.name,
            url=self.url,
            settings=self.settings,
            http=http,
            challenge=challenge,
            scope=scope,
            before=before or self._grant,
        )

    def _last_port(self) -> int:
        """The port that the registered client came back to last time; 0: any."""
        registered = self._grant.client.get("redirect_uris") if self._grant is not None else None
        try:
            return urlsplit(str((registered or [""])[0])).port or 0
        except ValueError:
            return 0
