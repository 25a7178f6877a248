"""The sign-ins of users that are under way: asked for by a call or begun on the page, finished in a browser.

A call that needs an account gives its client the address of a page of the bridge, not that of the provider: the page
makes sure that the person who opens it is the one who asked, and only then sends the browser on (MCP 2026-07-28,
Elicitation, Safe URL Handling; a link that is sent to somebody else must not bring that one's account into the vault
of the sender). A link is good for one user at one server, for as long as a sign-in may take.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, quote

from mcpbridge.base.errors import BridgeError, SignInNeeded
from mcpbridge.base.log import get_logger
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.context import Page
from mcpbridge.upstream.auth.oauth_tokens import Account
from mcpbridge.upstream.auth.redirect_server import Redirect
from mcpbridge.upstream.auth.settings import SIGN_IN_SECONDS

log = get_logger("mcpbridge.auth")

PREFIX = "/connections"
"""The path that the pages about accounts are below."""
_MOST = 2000
"""Sign-ins that may be open; the oldest go first."""
_NOBODY_CAME = f"nobody signed in within {SIGN_IN_SECONDS:g} s"

Knock = Callable[[], Awaitable[Challenge]]
"""Asks the server what it wants to let somebody in."""


class UserSignIn:
    """One user at one server, who is to connect an account."""

    def __init__(self, id_: str, server: str, principal: str, url: str) -> None:
        self.id, self.server, self.principal = id_, server, principal
        self.url = url
        """The page of the bridge to open; empty: it is not known where browsers reach the bridge."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Its end: there is an account, or the reason why not."""
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())  # seen, also if nobody waits
        self.redirect: Redirect | None = None
        self._provider: asyncio.Future[str] | None = None

    def finish(self, failure: Exception | None = None) -> None:
        """It is over; whoever waits continues."""
        if not self.over.done():
            if failure is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(failure)

    async def put_to(self, ask_to_open: Callable[[str], Awaitable[bool]]) -> bool:
        """Have one client open the page, and return when there is an account. False: it does not open it.

        Raises:
            BridgeError: the sign-in failed; says at what.
        """
        if not self.url:
            return False
        asking = asyncio.ensure_future(ask_to_open(self.url))
        try:
            await asyncio.wait([asking, self.over], return_when=asyncio.FIRST_COMPLETED)
            if not self.over.done() and not asking.result():
                return False
            await asyncio.shield(self.over)
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await asking
        return True

    async def provider_page(
        self, account: Account, knock: Knock, callback: str, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> str:
        """The page of the authorization server; the sign-in begins with the first who asks for it.

        `callback`: the address that the browser comes back to.

        Raises:
            BridgeError: it failed; says at what.
        """
        if self._provider is None:
            self._provider = asyncio.get_running_loop().create_future()
            self.redirect = Redirect(self.server, callback)
            spawn(self._run(account, knock, self.redirect, self._provider))
        await asyncio.wait([self._provider, self.over], return_when=asyncio.FIRST_COMPLETED)
        if not self._provider.done():
            await asyncio.shield(self.over)
        return self._provider.result()

    async def _run(self, account: Account, knock: Knock, redirect: Redirect, provider: asyncio.Future[str]) -> None:
        async def show(page: Page) -> bool:
            provider.set_result(page.url)
            return True

        try:
            await account.sign_in(await knock(), show, redirect)
        except BridgeError as error:
            log.info("account not connected", upstream=self.server, reason=str(error))
            self.finish(error)
        except Exception:
            log.exception("signing in failed unexpectedly", upstream=self.server)
            self.finish(SignInNeeded(self.server, "something failed in the bridge; see its log", page=self.url))
        else:
            log.info("account connected", upstream=self.server)
            self.finish()
        finally:
            provider.cancel()


class SignIns:
    """The sign-ins of all users of one bridge."""

    def __init__(self) -> None:
        self.origin: Callable[[], str] = lambda: ""
        """Where browsers reach the bridge, `https://HOST`; empty: not known, or nowhere."""
        self.bridge: Callable[[], str] = lambda: ""
        """What links name this bridge by, where there are several at this address; empty: it is the only one."""
        self._open: dict[str, UserSignIn] = {}
        self._of_user: dict[tuple[str, str], str] = {}

    def __repr__(self) -> str:
        return f"<SignIns {len(self._open)} open>"

    @property
    def callback(self) -> str:
        """The address that authorization servers send browsers back to."""
        return f"{self.origin()}{PREFIX}/callback"

    def begin(self, server: str, principal: str) -> UserSignIn:
        """The sign-in of this user at this server: the one that is open, or a new one."""
        known = self._open.get(self._of_user.get((server, principal), ""))
        if known is not None and not known.over.done():
            return known
        id_, origin = secrets.token_urlsafe(24), self.origin()
        url = f"{origin}{PREFIX}/{quote(server, safe='')}/start?ask={id_}" if origin else ""
        if url and (bridge := self.bridge()):
            url = f"{url}&bridge={bridge}"
        sign_in = UserSignIn(id_, server, principal, url)
        self._open[id_], self._of_user[server, principal] = sign_in, id_
        loop = asyncio.get_running_loop()
        timer = loop.call_later(SIGN_IN_SECONDS, sign_in.finish, SignInNeeded(server, _NOBODY_CAME, page=url))
        sign_in.over.add_done_callback(lambda _: timer.cancel())
        sign_in.over.add_done_callback(lambda _: self._forget(id_))
        while len(self._open) > _MOST:
            next(iter(self._open.values())).finish(SignInNeeded(server, "too many sign-ins are open", page=""))
            self._open.pop(next(iter(self._open)))
        return sign_in

    def find(self, server: str, ask: str) -> UserSignIn | None:
        """The open sign-in with the id of a link; None: there is none such, or no more."""
        found = self._open.get(ask)
        return found if found is not None and found.server == server else None

    def of_answer(self, query: str, principal: str) -> UserSignIn | None:
        """Which sign-in of this user a browser brings the answer of an authorization server to, by its `state`.

        None: none of this user's. An answer to a sign-in that somebody else began is nobody's: it would put the account
        of one person into the vault of another.
        """
        states = parse_qs(query, keep_blank_values=True).get("state", [])
        for sign_in in list(self._open.values()):
            redirect = sign_in.redirect
            is_theirs = sign_in.principal == principal and redirect is not None and len(states) == 1
            if is_theirs and redirect is not None and redirect.expects(states[0]):
                return sign_in
        return None

    def end_of_user(self, principal: str, server: str = "") -> None:
        """Nobody waits for this user any more."""
        for sign_in in list(self._open.values()):
            if sign_in.principal == principal and server in ("", sign_in.server):
                sign_in.finish(SignInNeeded(sign_in.server, "the account was disconnected", page=""))

    def _forget(self, id_: str) -> None:
        if (sign_in := self._open.pop(id_, None)) is not None:
            user = sign_in.server, sign_in.principal
            if self._of_user.get(user) == id_:
                del self._of_user[user]
