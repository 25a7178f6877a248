"""The account of the bridge at one server: what the last sign-in brought, kept, renewed and given back.

One caller at a time changes it in this process (`authorization`), and under a lock that all processes of the user
see, so that a refresh token which works once is used once.
"""

import asyncio
import importlib
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import anyio.to_thread

from mcpbridge.base.errors import ConfigError, SignInNeeded, StoreFailed, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.upstream.auth.challenge import Challenge, join_scopes
from mcpbridge.upstream.auth.context import AuthContext, Page, Show
from mcpbridge.upstream.auth.grant import Grant, grant_key
from mcpbridge.upstream.auth.settings import LOCK_SECONDS, RENEW_EARLY, SIGN_IN_SECONDS, AuthSettings

if TYPE_CHECKING:  # httpx2 and the SDK come with them, which a bridge without remote servers does not pay for
    from mcpbridge.protocol.http.tls_and_proxy import Network
    from mcpbridge.upstream.auth.http import OAuthHttp
    from mcpbridge.upstream.auth.oauth_steps import SignIn
    from mcpbridge.upstream.auth.redirect_server import Redirect


log = get_logger("mcpbridge.auth")


Source = Literal["store", "refresh", "sign-in"]
"""Where a token came from."""


class Account:
    """The bridge's account at one server."""

    def __init__(self, name: str, url: str, settings: AuthSettings, around: AuthContext, network: "Network") -> None:
        self.name, self.url, self.settings = name, url, settings
        self.grant: Grant | None = None
        self.token = ""
        """The access token; empty when there is none."""
        self.renew_at = float("inf")
        """Unix time after which the token should be renewed before it is used."""
        self.is_loaded = False
        self.is_proved = True
        """The server took the token at least once."""
        self.came_by: Source = "store"
        self.waits_for = ""
        """What a person has to do before calls can go on; empty: nothing."""
        self._is_stored = False
        self._at_store = asyncio.Lock()
        """Held while what is stored is read or changed, so that nothing is taken over that was read before a change."""
        self._around = around
        self._network = network
        self._key = grant_key(name, url)

    async def sign_in(self, challenge: Challenge, show: Show, redirect: "Redirect | None" = None) -> Grant:
        """Sign in with a person, who is shown a page by `show`; keeps what it brings.

        `redirect`: takes what the browser brings back; None: a port of this machine that is opened for it.

        Raises:
            SignInRefused, UpstreamUnavailable: it failed; says at what.
            SignInNeeded: nobody came.
        """
        await _load_sdk()
        from mcpbridge.upstream.auth.http import open_oauth_http
        from mcpbridge.upstream.auth.oauth_flow import sign_in_with_person
        from mcpbridge.upstream.auth.redirect_server import listen

        if not self.is_loaded:
            await self.load()
        settings = self.settings
        async with (
            nullcontext(redirect) if redirect else listen(self.name, settings.redirect_uri, self._last_port()) as back,
            open_oauth_http(self.name, self.url, settings.issuer, self._network) as http,
        ):

            async def visit(page: str) -> None:
                back.expect(page)
                self.waits_for = "it waits for the sign-in in the browser"
                if not await show(Page(self.name, page, back.take)):
                    raise SignInNeeded(self.name, "no browser could be opened")

            try:
                async with asyncio.timeout(SIGN_IN_SECONDS):
                    grant = await sign_in_with_person(self._about(http, challenge), back.uri, visit, back.answer)
            except TimeoutError:
                raise SignInNeeded(self.name, f"nobody signed in within {SIGN_IN_SECONDS:g} s") from None
            finally:
                self.waits_for = ""
        async with self.locked():
            await self._keep(grant, came_by="sign-in")
        return grant

    async def sign_in_alone(self, challenge: Challenge) -> Grant:
        """Sign in with the configured credentials; keeps what it brings.

        Raises:
            SignInRefused, UpstreamUnavailable: it failed; says at what.
        """
        await _load_sdk()
        from mcpbridge.upstream.auth.http import open_oauth_http
        from mcpbridge.upstream.auth.oauth_flow import sign_in_alone

        if not self.is_loaded:
            await self.load()
        async with open_oauth_http(self.name, self.url, self.settings.issuer, self._network) as http:
            grant = await sign_in_alone(self._about(http, challenge))
        await self._keep(grant, came_by="sign-in")
        return grant

    async def renew(self, asked: Challenge | None = None) -> bool:
        """Use the refresh token, or the credentials that renew without one. Under the lock."""
        grant = self.grant
        if self.settings.type == "client-credentials" and asked is None:
            await self.sign_in_alone(Challenge())
            return True
        if grant is None or not grant.refresh_token:
            return False
        await _load_sdk()
        from mcpbridge.upstream.auth.http import open_oauth_http
        from mcpbridge.upstream.auth.oauth_flow import refresh

        async with open_oauth_http(self.name, self.url, self.settings.issuer, self._network) as http:
            grant = await refresh(self._about(http, asked or Challenge()))
        if grant is None:
            log.info("refresh token refused", upstream=self.name)
            return False
        log.debug("token renewed", upstream=self.name)
        await self._keep(grant, came_by="refresh")
        return True

    async def knock(self, headers: Mapping[str, str], *, is_sse: bool) -> Challenge | None:
        """What the server says to who comes without a token, with these headers; None when it lets anybody begin.

        Raises:
            UpstreamError: it cannot be reached.
        """
        from mcpbridge.upstream.auth.probe import knock

        return await knock(self.name, self.url, headers=headers, network=self._network, is_sse=is_sse)

    async def sign_out(self) -> tuple[bool, bool]:
        """Forget the tokens. Whether there were any, and whether the authorization server took them back (RFC 7009)."""
        async with self.locked():
            await self.load()
            grant = self.grant
            was_there = await self._drop()
        if grant is None:
            return was_there, False
        await _load_sdk()
        from mcpbridge.upstream.auth.http import open_oauth_http
        from mcpbridge.upstream.auth.oauth_flow import revoke

        async with open_oauth_http(self.name, self.url, self.settings.issuer, self._network) as http:
            return was_there, await revoke(self._about(http, Challenge(), before=grant))

    async def forget(self) -> None:
        """Forget tokens that are refused, here and where they are kept."""
        async with self.locked():
            await self._drop()

    async def load(self) -> None:
        """Take over what is stored, if it is something else than what we have."""
        async with self._at_store:
            stored = Grant.decode(await self._around.store.load(self._key))
            self.is_loaded = True
            if stored is not None:
                self._is_stored = True
                if stored != self.grant:
                    self._adopt(stored, came_by="store")
            elif self._is_stored:
                self.grant, self.token, self._is_stored = None, "", False  # `mcpbridge logout`

    async def _keep(self, grant: Grant, *, came_by: Source) -> None:
        async with self._at_store:
            self._adopt(grant, came_by=came_by)
            try:
                await self._around.store.save(self._key, grant.encode())
                self._is_stored = True
            except ConfigError as error:
                log.warning("sign-in is not stored and ends with this process", upstream=self.name, reason=str(error))

    async def _drop(self) -> bool:
        """Forget the tokens, here and where they are kept. Whether there were any."""
        async with self._at_store:
            self.grant, self.token, self._is_stored = None, "", False
            return await self._around.store.drop(self._key)

    def _adopt(self, grant: Grant, *, came_by: Source) -> None:
        if grant.access_token != self.token:
            self.is_proved, self.came_by = False, came_by
        self.grant, self.token, self.is_loaded = grant, grant.access_token, True
        secret = str(grant.client.get("client_secret") or "")
        self._around.learn(self.name, [grant.access_token, grant.refresh_token, secret])
        renews = grant.refresh_token or self.settings.type == "client-credentials"
        if grant.expires_at and renews:
            self.renew_at = grant.expires_at - min(RENEW_EARLY, max(0.0, grant.expires_at - time.time()) / 2)
        else:
            self.renew_at = float("inf")

    @asynccontextmanager
    async def locked(self, what: str = "renew", seconds: float = LOCK_SECONDS) -> AsyncGenerator[None]:
        """Alone among all processes of the user, as far as `what` goes.

        Raises:
            UpstreamUnavailable: another process is at it all the time; or has begun with it meanwhile.
        """
        failure: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(self._around.store.lock(f"{self._key}\n{what}", seconds))
                except TimeoutError:
                    raise UpstreamUnavailable(self.name, "another bridge has been signing in for too long") from None
                except (ConfigError, OSError) as error:
                    # Without a place to store anything there is nothing to share with other processes either.
                    log.warning("cannot lock the stored sign-ins", upstream=self.name, reason=str(error))
                try:
                    yield
                except BaseException as error:
                    failure = error
                    raise
        except StoreFailed as error:  # two bridges that use one refresh token lose the account
            if error is failure:
                raise
            raise UpstreamUnavailable(
                self.name, f"its sign-in is shared with other bridges, and cannot be locked: {error}"
            ) from error

    def _about(self, http: "OAuthHttp", challenge: Challenge, *, before: Grant | None = None) -> "SignIn":
        from mcpbridge.upstream.auth.oauth_steps import SignIn

        had = self.grant.asked if self.grant is not None and challenge.error == "insufficient_scope" else ""
        scope = join_scopes(had, " ".join(self.settings.scopes), challenge.scope)
        return SignIn(
            name=self.name,
            url=self.url,
            settings=self.settings,
            http=http,
            challenge=challenge,
            scope=scope,
            before=before or self.grant,
        )

    def _last_port(self) -> int:
        """The port that the registered client came back to last time; 0: any."""
        registered = self.grant.client.get("redirect_uris") if self.grant is not None else None
        try:
            return urlsplit(str((registered or [""])[0])).port or 0
        except ValueError:
            return 0


async def _load_sdk() -> None:
    """On a thread: it takes a second, in which calls to other servers go on."""
    await anyio.to_thread.run_sync(importlib.import_module, "mcpbridge.upstream.auth.oauth_flow")
