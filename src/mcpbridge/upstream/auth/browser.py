"""Show a sign-in page to a person: in the browser of this machine, or by asking the client of a call to open it.

Never through a shell, and nothing but http and https (CVE-2025-6514).
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from msgspec import Raw

from mcpbridge.base.errors import SignInNeeded
from mcpbridge.core.elicitation import ELICIT, Question, QuestionRefused, Unreachable
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode

_SECONDS = 20.0
"""A browser may be slow to start; one that has not come by then is not waited for."""


def has_browser(environ: Mapping[str, str]) -> bool:
    """Whether there is a browser with a screen. One in a terminal would take the terminal that the bridge runs in."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


async def open_page(url: str) -> bool:
    """Show the page. False when there is no browser to show it in."""
    if urlsplit(url).scheme not in ("http", "https") or not has_browser(os.environ):
        return False
    import webbrowser  # few servers need that

    with anyio.move_on_after(_SECONDS):
        # On a thread: some browsers are waited for until they are closed.
        return await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
    return False


class AskedSignIn:
    """One sign-in that clients are asked for: each that comes meanwhile is shown the same page.

    It is given up when all of them have left or declined, but not once one has opened the page: the person there may
    take longer than the call.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = loop.create_future()
        """Its end, for those who wait."""
        self.scope = anyio.CancelScope()
        """Around the work."""
        self._page: asyncio.Future[str] = loop.create_future()
        self._clients = 0
        self._is_opened = False

    def show(self, url: str) -> None:
        """The page, now that it is known."""
        if not self._page.done():
            self._page.set_result(url)

    async def put_to(self, ask_to_open: Callable[[str], Awaitable[bool]]) -> bool:
        """Have one client open the page, and return when there is a token. False: it does not open it.

        Raises:
            UpstreamError: the sign-in failed; says at what.
        """
        self._clients += 1
        try:
            await asyncio.wait([self._page, self.over], return_when=asyncio.FIRST_COMPLETED)
            if not self.over.done() and not await self._is_opened_by(ask_to_open):
                return False
            await asyncio.shield(self.over)
        finally:
            self._clients -= 1
            if not self._clients and not self._is_opened:
                self.scope.cancel()
        return True

    async def _is_opened_by(self, ask_to_open: Callable[[str], Awaitable[bool]]) -> bool:
        """What the client says; true as well when another was quicker, so that nothing is left to ask."""
        asking = asyncio.ensure_future(ask_to_open(self._page.result()))
        try:
            await asyncio.wait([asking, self.over], return_when=asyncio.FIRST_COMPLETED)
            if self.over.done():
                return True
            is_opened = asking.result()
            self._is_opened |= is_opened
            return is_opened
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await asking


async def ask_to_sign_in(call: Call, needed: SignInNeeded) -> None:
    """Return when there is a token, so that the call may be sent again.

    Where the account is everybody's, the browser must be able to come back to the machine of the bridge, as with
    `mcpbridge login`. Whoever signs in does so for all clients of the bridge, so it is asked only where they are one
    person: one of several that have tokens of their own must not have the calls of the others run in its account. An
    account of the user's own is connected on a page of the bridge, which makes sure that it is this user who opens it.

    Raises:
        SignInNeeded: the client cannot open pages, or nobody signed in.
    """
    client = call.client
    if needed.by_asking is None or not client.capabilities.url or (client.principal and not needed.is_own):
        raise needed
    asked: list[Question] = []

    async def ask_to_open(url: str) -> bool:
        params = {
            "mode": "url",
            "message": f"Sign in to {needed.upstream}, which the call needs.",
            "url": url,
            "elicitationId": secrets.token_urlsafe(16),
        }
        question = Question(call.upstream, ELICIT, Raw(encode(params)), is_own=True)
        try:
            answer = Body(await client.ask(question))
        except Unreachable:
            return False
        except QuestionRefused:
            needed.was_asked = True
            return False
        needed.was_asked = True
        asked.append(question)
        return bytes(answer.get("action") or b"") == b'"accept"'

    try:
        await needed.by_asking(ask_to_open)
    finally:
        for question in asked:
            client.finished(question)
