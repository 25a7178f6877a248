"""Sign in to a server and out, from its page: where to go, what is waited for, and what came of it.

The authorization server leads the browser back to this machine. Whoever sits at another one pastes the address that
the browser ended at.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX, form_of
from mcpbridge.base.errors import BridgeError, ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.upstream.auth.authorization import Authorization
from mcpbridge.upstream.auth.context import Page
from mcpbridge.upstream.supervisor import Upstream

log = get_logger("mcpbridge.console")

_PATIENCE = 60.0
"""Seconds for which a person waits until the server has said where to sign in."""


class Outcome(Struct, frozen=True):
    """What became of the last sign-in or sign-out of a server."""

    tone: Literal["good", "bad", "info"]
    text: str


class _SignIn:
    """One that is under way."""

    def __init__(self) -> None:
        self.page: Page | None = None
        self.stepped = asyncio.Event()
        """Set when the page is known, or it is over."""
        self.task: asyncio.Task[None] | None = None


class SignInPages:
    """The sign-ins that are begun from the console."""

    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._running: dict[str, _SignIn] = {}
        self._outcomes: dict[str, Outcome] = {}
        console.at_end.append(self._end)

    def routes(self) -> Sequence[BaseRoute]:
        """`/console/servers/NAME/sign-in` and its kin."""
        return [
            Route("/servers/{name}/sign-in", self.page, methods=["GET"]),
            Route("/servers/{name}/sign-in", self.begin, methods=["POST"]),
            Route("/servers/{name}/sign-in/address", self.take, methods=["POST"]),
            Route("/servers/{name}/sign-in/give-up", self.give_up, methods=["POST"]),
            Route("/servers/{name}/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def values(self, name: str) -> dict[str, Any]:
        """What the page of a server shows of it."""
        authorization = self._console.bridge.authorization(name)
        if authorization is None:
            return {"can_sign_in": False, "signed_in": False, "signing_in": False, "sign_in_outcome": None}
        if not authorization.account.is_loaded:
            try:
                await authorization.account.load()
            except BridgeError as error:
                self._outcomes[name] = Outcome("bad", f"The stored sign-in cannot be read: {error}")
        running = self._running.get(name)
        return {
            "can_sign_in": True,
            "signed_in": bool(authorization.account.token),
            "signing_in": running is not None and running.page is not None,
            "sign_in_outcome": self._outcomes.get(name),
        }

    async def page(self, request: Request) -> Response:
        """Where to sign in; once that is over, what came of it."""
        name = request.path_params["name"]
        if self._console.bridge.authorization(name) is None:
            raise HTTPException(404, f"{name[:60]!r} is not a server to sign in to.")
        running = self._running.get(name)
        url = running.page.url if running is not None and running.page is not None else ""
        values: dict[str, Any] = {**await self.values(name), "name": name, "url": url, "host": urlsplit(url).netloc}
        return self._console.page(request, "sign_in_upstream.html", **values)

    async def begin(self, request: Request) -> Response:
        """Ask the server where to sign in, and show that.

        It is a link and no redirect: a browser follows no form to another origin here (`form-action`).
        """
        name = request.path_params["name"]
        upstream, authorization = self._find(name)
        running = self._running.get(name)
        if running is None:
            self._outcomes.pop(name, None)
            running = self._running[name] = _SignIn()
            running.task = asyncio.create_task(self._sign_in(running, upstream, authorization))
        try:
            async with asyncio.timeout(_PATIENCE):
                await running.stepped.wait()
        except TimeoutError:
            self._stop(name)
            self._outcomes[name] = Outcome("bad", f"The server said nothing of how to sign in for {_PATIENCE:g} s.")
        return RedirectResponse(f"{PREFIX}/servers/{name}/sign-in", 303)

    async def take(self, request: Request) -> Response:
        """Take the address that a browser on another machine ended at."""
        name = request.path_params["name"]
        running = self._running.get(name)
        if running is None or running.page is None or running.task is None:
            raise HTTPException(409, "No sign-in waits for an address any more. Begin again.")
        trouble = running.page.take(str((await form_of(request)).get("address", "")).strip())
        if trouble:
            raise HTTPException(422, f"{trouble[:1].upper()}{trouble[1:]}.")
        await asyncio.wait({running.task}, timeout=_PATIENCE)
        return RedirectResponse(f"{PREFIX}/servers/{name}/sign-in", 303)

    async def give_up(self, request: Request) -> Response:
        """Nobody waits for the person any more."""
        name = request.path_params["name"]
        if self._stop(name):
            self._outcomes[name] = Outcome("info", "The sign-in was given up.")
        return self._back(name)

    async def sign_out(self, request: Request) -> Response:
        """Forget the tokens; a session that was begun with them ends."""
        name = request.path_params["name"]
        upstream, authorization = self._find(name)
        try:
            is_revoked = await authorization.sign_out()
        except BridgeError as error:
            self._outcomes[name] = Outcome("bad", str(error))
        else:
            kept = "" if is_revoked else " Its token was not revoked: it stays good there until it ends by itself."
            self._outcomes[name] = Outcome("good", f"Signed out of {name}.{kept}")
        if upstream.session is not None:
            upstream.restart()
        return self._back(name)

    def _find(self, name: str) -> tuple[Upstream, Authorization]:
        upstream = self._console.bridge.pool.upstreams.get(name)
        authorization = self._console.bridge.authorization(name)
        if upstream is None or authorization is None:
            raise HTTPException(404, f"{name[:60]!r} is not a server to sign in to.")
        return upstream, authorization

    def _back(self, name: str) -> Response:
        self._changed()
        return RedirectResponse(f"{PREFIX}/servers/{name}", 303)

    def _changed(self) -> None:
        self._console.forget_status()
        self._console.live.announce("servers", "sign-ins")

    async def _sign_in(self, running: _SignIn, upstream: Upstream, authorization: Authorization) -> None:
        name, settings = upstream.name, upstream.settings

        async def show(page: Page) -> bool:
            if urlsplit(page.url).scheme not in ("http", "https"):
                raise ConfigError("the address of the sign-in page is no web address")
            running.page = page
            running.stepped.set()
            self._changed()
            return True

        try:
            await authorization.sign_in(settings.headers, show, is_sse=settings.kind == "sse")
            outcome = Outcome("good", f"Signed in to {name}.")
        except BridgeError as error:
            outcome = Outcome("bad", self._console.redact(str(error)))
        except Exception:
            log.exception("sign-in failed unexpectedly", upstream=name)
            outcome = Outcome("bad", "The sign-in failed in the bridge; its log says how.")
        if self._running.get(name) is running:
            del self._running[name]
            self._outcomes[name] = outcome
        running.stepped.set()
        self._changed()

    def _stop(self, name: str) -> bool:
        """End one that is under way. False: there is none."""
        running = self._running.pop(name, None)
        if running is None:
            return False
        if running.task is not None:
            running.task.cancel()
        running.stepped.set()
        return True

    def _end(self) -> None:
        for name in list(self._running):
            self._stop(name)
