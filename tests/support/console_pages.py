"""The console of a bridge in the test process, without a browser: requests through its real guard."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from mcpbridge.app.console.app import make_console
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.sign_in import Role, SignIns, form_token
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.library.bridge import Bridge

COOKIE = "console"
ORIGIN = "http://127.0.0.1:8080"


class Visitor(httpx2.AsyncClient):
    """A browser that is signed in, as far as it sends the cookie, the origin and the token of forms."""

    def __init__(self, console: ConsoleContext, role: Role, by: str) -> None:
        self.console = console
        cookie = console.sign_ins.open(role, by)
        visit = console.sign_ins.visit(cookie)
        assert visit is not None
        self.visit = visit
        super().__init__(
            transport=httpx2.ASGITransport(make_console(console, COOKIE)),
            base_url=f"{ORIGIN}/console",
            cookies={COOKIE: cookie},
            headers={"origin": ORIGIN, "x-form-token": form_token(cookie)},
            timeout=60,
        )


@asynccontextmanager
async def visiting(
    bridge: Bridge,
    role: Role = "local",
    by: str = "ui",
    *,
    reload: Callable[..., Awaitable[dict[str, object]]] | None = None,
    facts: Callable[[], dict[str, Any]] = dict,
) -> AsyncIterator[Visitor]:
    """A visitor of the console of this bridge."""
    console = ConsoleContext(bridge, Redactor(), SignIns(lambda: 3600.0), facts=facts, reload=reload)
    try:
        async with Visitor(console, role, by) as visitor:
            yield visitor
    finally:
        console.end()
