"""The console of a running bridge, made when somebody first asks for it: nothing of it is loaded before.

`mcpbridge ui` asks over the control socket (`console`). Where the bridge serves HTTP on this machine the console is
there; elsewhere a port is opened for it (`listener.py`).
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.fleet.desk import FleetDesk
from mcpbridge.base.directories import daemon_key, runtime_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.library.bridge import Bridge

if TYPE_CHECKING:  # loaded with the first page
    from mcpbridge.app.console.context import ConsoleContext
    from mcpbridge.app.console.listener import ConsolePort
    from mcpbridge.app.page_sign_in.sessions import PageSessions
    from mcpbridge.downstream.http.routes import App
    from mcpbridge.downstream.http.server import ListenAddress


class ConsoleDesk:
    """Who asks for the console of this bridge comes here."""

    def __init__(
        self,
        bridge: Bridge,
        redact: Redactor,
        *,
        facts: Callable[[], Mapping[str, object]],
        reload: Callable[..., Awaitable[dict[str, object]]] | None,
        fleet: FleetDesk | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`facts`, `reload`, `fleet`: see `ConsoleContext`. `changed`: pages came, or all are gone."""
        self._bridge, self._redact, self._facts, self._reload = bridge, redact, facts, reload
        self.changed, self._fleet = changed, fleet
        self.sessions: PageSessions | None = None
        """Who signed in at the identity provider; None: nobody can. Set by who serves the pages."""
        self._at: ListenAddress | None = None
        source = bridge.settings.source
        self._key = daemon_key(Path(source)) if source else sha256(str(os.getpid()).encode()).hexdigest()[:16]
        self._file = runtime_directory(os.environ) / f"console-{self._key}.json"
        self._stack = AsyncExitStack()

    @property
    def cookie(self) -> str:
        """The name of its cookie. Cookies ignore ports, so each bridge of a machine has another one."""
        return f"mcpbridge-console-{self._key}"

    @property
    def has_pages(self) -> bool:
        """Some browser shows a page of it."""
        port: ConsolePort | None = self.__dict__.get("_port")
        return port is not None and port.has_pages

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """For the life of the bridge. Pages that the process before had open are served again."""
        async with self._stack:
            if self._bridge.settings.console.enabled and self._file.exists():
                await self._start()
            yield
            context: ConsoleContext | None = self.__dict__.get("_context")
            if context is not None:
                context.end()

    async def link(self, _: Document) -> Document:
        """Answer `console`: a one-time link for a browser on this machine."""
        if not self._bridge.settings.console.enabled:
            return self._failed("disabled", "the console is switched off: `console.enabled = false`")
        try:
            if self._at is not None and self._at.reach == "loopback":
                from mcpbridge.app.console.guard import PREFIX

                code = self._context.sign_ins.make_code()
                return {"pid": os.getpid(), "url": f"{self._at.origin}{PREFIX}/enter?code={code}"}
            await self._start()
            return {"pid": os.getpid(), "url": await self._port.link()}
        except ConfigError as error:
            return self._failed("failed", str(error))

    def app_at(self, at: "ListenAddress") -> "App":
        """The application for an HTTP front that is served at this address."""
        from mcpbridge.app.console.app import make_console

        self._context.token_role = at.auth.console_role
        return make_console(self._context, self.cookie, self.sessions)

    def serve_at(self, at: "ListenAddress") -> None:
        """The bridge serves HTTP there, so links lead there."""
        self._at = at
        self._bridge.user_accounts.visits.append(self._sign_out)

    def _sign_out(self, user: str) -> None:
        if "_context" in self.__dict__:  # else nobody ever signed in
            self._context.sign_ins.end_of_user(user)

    @cached_property
    def _context(self) -> "ConsoleContext":
        from mcpbridge.app.console.context import ConsoleContext
        from mcpbridge.app.console.sign_in import SignIns

        sign_ins = SignIns(lambda: self._bridge.settings.console.sign_in_lifetime)
        return ConsoleContext(
            self._bridge, self._redact, sign_ins, facts=self._facts, reload=self._reload, fleet=self._fleet
        )

    @cached_property
    def _port(self) -> "ConsolePort":
        from mcpbridge.app.console.listener import ConsolePort

        return ConsolePort(self._context, self.cookie, self._file, changed=self.changed)

    async def _start(self) -> None:
        if "_port" not in self.__dict__:
            await self._stack.enter_async_context(self._port.running())

    def _failed(self, code: str, error: str) -> Document:
        return {"pid": os.getpid(), "code": code, "error": error}
