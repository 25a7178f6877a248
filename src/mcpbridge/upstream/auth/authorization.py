"""The token of one upstream: kept, renewed in time, and asked for when the server wants one.

A call never waits behind another call for its token; only when there is none, or the server refuses it, all calls wait
for the one attempt to get another, which continues when the call that began it gives up. In this order: what
another process stored meanwhile, the refresh token, the bridge's own credentials, a person with a browser. Where no
person can be asked the server *needs sign-in*, until `mcpbridge login` has stored a token.

A server that never refuses costs a comparison per request: nothing is loaded, read or asked before the first refusal.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import anyio

from mcpbridge.base.errors import BridgeError, ConfigError, SignInNeeded, UpstreamError, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.upstream.auth.browser import AskedSignIn
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.context import AuthContext, Page, Show
from mcpbridge.upstream.auth.oauth_tokens import Account
from mcpbridge.upstream.auth.settings import RENEW_AGAIN, SIGN_IN_SECONDS, STEP_UP_WINDOW, STEP_UPS

log = get_logger("mcpbridge.auth")

_LOOK = 2.0
"""Seconds between two looks for what `mcpbridge login` stored."""
_NOT_OPENED = "the page that a client was asked to open was not opened"


class Authorization:
    """The way into one upstream; an `Authorizer` (`protocol/http/bearer_auth`)."""

    def __init__(self, account: Account, around: AuthContext) -> None:
        self.name, self.account = account.name, account
        self.on_signed_in: Callable[[], None] = lambda: None
        """Called when there is a token again after there was none, or a person was waited for."""
        self._around = around
        self._asked_in_vain = ""
        """Why a person is not asked again by this process; empty: one may be."""
        self._flight: asyncio.Future[None] | None = None
        self._asked: AskedSignIn | None = None
        """No flight: nobody waits for it but those who were asked."""
        self._is_watching = False
        self._step_ups = deque[float](maxlen=STEP_UPS)

    # -- Authorizer

    @property
    def ready(self) -> str | None:
        """The token to use at once. See `Authorizer`."""
        if not self.account.is_loaded or (self.account.token and time.time() >= self.account.renew_at):
            return None
        return self.account.token

    async def token(self) -> str:
        """The token to use. See `Authorizer`."""
        if not self.account.is_loaded:
            await self.account.load()
        account = self.account
        if account.token and time.time() >= account.renew_at:
            renewal = self._begin(self._renew_early)
            if account.grant is None or time.time() >= account.grant.expires_at:
                await asyncio.shield(renewal)
        return account.token

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        """Get another token. See `Authorizer`."""
        asked = Challenge.parse(challenge)
        if self.account.token and self.account.token != used:
            return True
        if status == 403 and (asked.error != "insufficient_scope" or not self._may_ask_for_more(asked)):
            return False
        await self._once(lambda: self._obtain(used, asked, is_step_up=status == 403))
        return bool(self.account.token) and self.account.token != used

    def accepted(self) -> None:
        """The server took the token. See `Authorizer`."""
        self.account.is_proved = True

    @property
    def waits_for(self) -> str:
        """What a person has to do before calls can continue. See `Authorizer`."""
        return self.account.waits_for

    # -- a person who wants to, unasked

    async def sign_in(self, headers: Mapping[str, str], show: Show, *, is_sse: bool) -> None:
        """Sign in, by a page that `show` gets or with the configured credentials; then the server is tried again.

        `headers`: those that the server gets with every request. Cancelling gives it up.

        Raises:
            BridgeError: it failed; says at what.
        """
        challenge = await self.account.knock(headers, is_sse=is_sse) or Challenge()
        if self.account.settings.type == "client-credentials":
            await self.account.sign_in_alone(challenge)
        else:
            await self.account.sign_in(challenge, show)
        self._asked_in_vain = ""
        log.info("signed in", upstream=self.name)
        self.on_signed_in()

    async def sign_out(self) -> bool:
        """Forget the tokens. Whether the authorization server took them back. No page is opened unasked after it.

        Raises:
            UpstreamError: another process is signing in or out all the time.
        """
        self._asked_in_vain = "somebody signed out"
        return (await self.account.sign_out())[1]

    # -- flights

    async def _once(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` unless something is on its way already; wait for its end either way."""
        await asyncio.shield(self._begin(work))

    def _begin(self, work: Callable[[], Awaitable[None]]) -> asyncio.Future[None]:
        flight = self._flight
        if flight is None:
            flight = self._flight = asyncio.get_running_loop().create_future()
            self._around.spawn(self._fly(work, flight))
        return flight

    async def _fly(self, work: Callable[[], Awaitable[None]], flight: asyncio.Future[None]) -> None:
        failure: Exception | None = None
        try:
            await work()
        except BridgeError as error:
            failure = error
        except Exception as error:
            log.exception("authorization failed unexpectedly", upstream=self.name)
            failure = UpstreamUnavailable(
                self.name, f"{type(error).__name__} in the bridge while signing in; see the log"
            )
        finally:
            if self._flight is flight:
                self._flight = None
            if not flight.done():
                if failure is None:
                    flight.set_result(None)
                else:
                    flight.set_exception(failure)
                    flight.exception()  # seen: perhaps nobody waits any more

    async def _renew_early(self) -> None:
        """Before the token ends. A failure matters only once it has ended."""
        used = self.account.token
        try:
            async with self.account.locked():
                await self.account.load()
                if self.account.token == used:
                    await self.account.renew()
        except BridgeError as error:
            grant = self.account.grant
            if grant is None or time.time() >= grant.expires_at:
                raise
            log.info("token not renewed; trying again later", upstream=self.name, reason=str(error))
            self.account.renew_at = min(time.time() + RENEW_AGAIN, grant.expires_at)
        else:
            if self.account.token == used:
                self.account.renew_at = float("inf")  # the server's refusal decides

    async def _obtain(self, used: str, asked: Challenge, *, is_step_up: bool) -> None:
        if self.account.grant is not None or self.account.settings.type == "client-credentials":
            async with self.account.locked():
                await self.account.load()
                if self.account.token and self.account.token != used:
                    return  # another process was quicker
                # A token that was refused at its first use says that its source brings no better one.
                failed = "" if self.account.is_proved or is_step_up else self.account.came_by
                if not is_step_up and failed not in ("refresh", "sign-in") and await self.account.renew(asked):
                    return
                if self.account.settings.type == "client-credentials":
                    if failed != "sign-in":
                        await self.account.sign_in_alone(asked)
                    return
                if failed == "sign-in":
                    self._asked_in_vain = "it refuses the token that signing in brought"
        else:
            await self.account.load()
            if self.account.token and self.account.token != used:
                return
        await self._ask_person(used, asked, is_step_up=is_step_up)

    # -- a person

    def _may_ask_for_more(self, asked: Challenge) -> bool:
        """Whether asking for these rights can help: not when they were asked for already."""
        grant = self.account.grant
        return bool(set(asked.scope.split()) - set(grant.asked.split() if grant is not None else ()))

    async def _ask_person(self, used: str, asked: Challenge, *, is_step_up: bool) -> None:
        wants = self.account.settings.interactive
        show = self._around.show if wants or (wants is None and self._around.is_interactive) else None
        if show is None or self._asked_in_vain or (is_step_up and not self._may_step_up()):
            raise self._needs_sign_in(used, asked, self._asked_in_vain)
        try:
            await self._with_person(used, asked, show)
        except SignInNeeded as error:
            self._asked_in_vain = error.why
            raise self._needs_sign_in(used, asked, error.why) from error

    def _may_step_up(self) -> bool:
        now = time.monotonic()
        if len(self._step_ups) == STEP_UPS and now - self._step_ups[0] < STEP_UP_WINDOW:
            return False
        self._step_ups.append(now)
        return True

    async def _with_person(self, used: str, asked: Challenge, show: Show) -> None:
        """Sign in unless somebody else just did.

        Raises:
            SignInNeeded: a person was asked in vain, or it is no use asking one.
            UpstreamUnavailable: it did not come so far; the next attempt may.
        """
        was_shown = False

        async def show_and_note(page: Page) -> bool:
            nonlocal was_shown
            was_shown = True
            return await show(page)

        try:
            async with self.account.locked("sign-in", SIGN_IN_SECONDS):
                await self.account.load()
                if not self.account.token or self.account.token == used:
                    log.info("asking a person to sign in", upstream=self.name)
                    await self._sign_in_here_or_elsewhere(used, asked, show_and_note)
        except SignInNeeded:
            raise
        except UpstreamError as error:
            from mcpbridge.upstream.auth.http import SignInRefused

            if was_shown or isinstance(error, SignInRefused):
                raise SignInNeeded(self.name, error.what) from error
            raise
        self._asked_in_vain = ""
        log.info("signed in", upstream=self.name)
        self.on_signed_in()

    async def _sign_in_here_or_elsewhere(self, used: str, asked: Challenge, show: Show) -> None:
        """The page may never be found, and `mcpbridge login` used instead."""
        failure: BridgeError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._comes_from_elsewhere, used, tasks.cancel_scope)
            try:
                await self.account.sign_in(asked, show)
            except BridgeError as error:  # raised below: the group would wrap it in its own
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _comes_from_elsewhere(self, used: str, scope: anyio.CancelScope | None = None) -> None:
        """Return when another token than `used` is stored, and cancel `scope` then."""
        while not self.account.token or self.account.token == used:
            await asyncio.sleep(_LOOK)
            try:
                await self.account.load()
            except ConfigError as error:
                log.warning("stored sign-in cannot be read", upstream=self.name, reason=str(error))
                await asyncio.sleep(RENEW_AGAIN)
        if scope is not None and self.account.came_by == "store":  # else it is our own, which is being stored
            scope.cancel()

    async def _by_asking(self, used: str, asked: Challenge, ask_to_open: Callable[[str], Awaitable[bool]]) -> None:
        """As `SignInNeeded.by_asking`: the person behind a call is asked, who may not be the one at this machine."""
        sign_in = self._asked
        if sign_in is None:
            sign_in = self._asked = AskedSignIn()
            self._around.spawn(self._fly(partial(self._ask, sign_in, used, asked), sign_in.over))
        if not await sign_in.put_to(ask_to_open):
            raise self._needs_sign_in(used, asked, _NOT_OPENED)

    async def _ask(self, sign_in: AskedSignIn, used: str, asked: Challenge) -> None:
        async def show(page: Page) -> bool:
            sign_in.show(page.url)
            return True

        try:
            with sign_in.scope:
                await self._with_person(used, asked, show)
            if sign_in.scope.cancelled_caught:
                raise SignInNeeded(self.name, _NOT_OPENED)
        finally:
            self._asked = None

    def _needs_sign_in(self, used: str, asked: Challenge, why: str) -> SignInNeeded:
        """The error that says so. From now on it is looked whether `mcpbridge login` has stored another token."""
        if not self._is_watching:
            self._is_watching = True
            self._around.spawn(self._watch(used))
        needed = SignInNeeded(self.name, why, scope=asked.scope if asked.error == "insufficient_scope" else "")
        needed.by_asking = partial(self._by_asking, used, asked)
        return needed

    async def _watch(self, used: str) -> None:
        try:
            await self._comes_from_elsewhere(used)
        finally:
            self._is_watching = False
        self._asked_in_vain = ""
        log.info("signed in", upstream=self.name)
        self.on_signed_in()
