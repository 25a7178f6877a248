"""A port of this machine for the console, for as long as somebody looks: the daemon itself listens on a Unix socket.

`mcpbridge ui` has it opened. It is a random port of 127.0.0.1, closed again when no page was open for a while. A page
that is open counts as a client, so the daemon does not end under it. Port and sign-ins are written down beside the
daemon's socket, so that a daemon that starts anew takes the same port and the open pages continue by themselves.

The rules about `Host`, `Origin` and `Sec-Fetch-Site` come first there, as on every front (`host_and_origin.py`).
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from mcpbridge.app.console.app import make_console
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX
from mcpbridge.app.console.sign_in import Visit
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.http.body_deadline import BODY_SECONDS
from mcpbridge.downstream.http.exchange import ClientLeft, Exchange, Refused, refusal
from mcpbridge.downstream.http.host_and_origin import HostCheck
from mcpbridge.downstream.http.routes import App, serve
from mcpbridge.downstream.http.server import bind_port, serve_front
from mcpbridge.downstream.settings import HttpSettings

log = get_logger("mcpbridge.console")

ADDRESS = "127.0.0.1"
CLOSE_AFTER = 120.0
"""Seconds without an open page after which the port is closed."""
RESUME_WITHIN = 24 * 3600.0
"""Seconds for which the port of a daemon that has ended is taken again."""
_LOOK_EVERY = 5.0
_NO_SOCKET = Refused(400, "No WebSocket is served here")


class _Kept(msgspec.Struct, frozen=True):
    """What a daemon leaves for the next one, in a file that only this user can read."""

    port: int
    at: float
    visits: list[Visit]


class ConsolePort:
    """Serves the console on a port of its own while somebody needs it."""

    def __init__(
        self, console: ConsoleContext, cookie: str, file: Path, *, changed: Callable[[], None] = lambda: None
    ) -> None:
        """`file`: where port and sign-ins are kept for the next start. `changed`: pages came, or all are gone."""
        self._console, self._cookie, self._file, self._changed = console, cookie, file, changed
        self._serving: asyncio.Task[None] | None = None
        self._port = 0
        self._idle_since = 0.0
        self._was_open = False

    def __repr__(self) -> str:
        where = f"port {self._port}" if self.is_open else "closed"
        return f"<ConsolePort {where}, {self._console.live.listeners} pages>"

    @property
    def is_open(self) -> bool:
        """The port is served."""
        return self._serving is not None and not self._serving.done()

    @property
    def has_pages(self) -> bool:
        """Some browser shows a page of it."""
        return self.is_open and self._console.live.listeners > 0

    async def link(self) -> str:
        """A one-time link for a browser on this machine; opens the port if it is closed.

        Raises:
            ConfigError: no port can be had.
        """
        if not self.is_open:
            await self._open(self._kept_port())
        self._idle_since = time.monotonic()
        self._keep()
        return f"http://{ADDRESS}:{self._port}{PREFIX}/enter?code={self._console.sign_ins.make_code()}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """For the life of the bridge. Pages that the daemon before had open are served again."""
        if self._read_kept() is not None:
            with suppress(ConfigError, OSError):
                await self._open(self._kept_port())
        try:
            yield
        finally:
            if self.is_open and self._console.live.listeners:
                self._keep()
            elif not self.is_open or not self._console.sign_ins.visits():
                self._file.unlink(missing_ok=True)
            await self._close()

    async def _open(self, wanted: int) -> None:
        """Take the port that was wanted, or any."""
        for port in dict.fromkeys((wanted, 0)):
            ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._serve(port, ready))
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not task.done():
                self._serving, self._port, self._idle_since = task, ready.result(), time.monotonic()
                log.info("console opened", port=self._port)
                return
            ready.cancel()
            if port == 0:
                task.result()
            elif (error := task.exception()) is not None:
                log.debug("the console's former port is taken", port=port, reason=str(error))

    async def _serve(self, port: int, ready: asyncio.Future[int]) -> None:
        settings = HttpSettings()
        with bind_port(settings, host=ADDRESS, port=port, no_auth=True) as at:
            assert at.port is not None

            def is_ready() -> None:
                if not ready.done():
                    ready.set_result(at.port or 0)

            app = _PageFront(make_console(self._console, self._cookie), address=ADDRESS, port=at.port)
            watching = asyncio.create_task(self._close_when_idle())
            try:
                await serve_front(app, at.listener, is_ready)
            finally:
                watching.cancel()

    async def _close_when_idle(self) -> None:
        serving = asyncio.current_task()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            is_looked_at = self._console.live.listeners > 0
            if is_looked_at:
                self._idle_since = time.monotonic()
            if is_looked_at != self._was_open:
                self._was_open = is_looked_at
                self._keep()
                self._changed()
            if time.monotonic() - self._idle_since > CLOSE_AFTER:
                log.info("console closed", reason="no page is open")
                self._file.unlink(missing_ok=True)
                if self._serving is not None and self._serving is not serving:
                    self._serving.cancel()
                return

    async def _close(self) -> None:
        self._console.live.end()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
            self._serving = None

    # -- what the next daemon goes on with

    def _keep(self) -> None:
        # Whoever came by a token shows it anew: it may be none any more in the configuration that is read then.
        visits = [visit for visit in self._console.sign_ins.visits() if visit.is_local]
        kept = _Kept(self._port, time.time(), visits)
        with suppress(OSError):
            new = self._file.with_name(f"{self._file.name}.new")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(kept))
            new.replace(self._file)

    def _read_kept(self) -> _Kept | None:
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None
        return kept if kept.visits and time.time() - kept.at < RESUME_WITHIN else None

    def _kept_port(self) -> int:
        kept = self._read_kept()
        if kept is None:
            return 0
        self._console.sign_ins.restore(kept.visits)
        return kept.port


class _PageFront:
    """The front of a port of loopback that has pages only."""

    def __init__(self, app: App, *, address: str, port: int) -> None:
        """`address` and `port`: where it listens."""
        self._app = app
        self._check = HostCheck(reach="loopback", allowed_hosts=(), allowed_origins=(), address=address, port=port)

    async def handle(self, exchange: Exchange) -> None:
        """Serve one request."""
        try:
            self._check.check(exchange.headers, len(exchange.headers), exchange.raw_headers)
            await serve(self._app, exchange, BODY_SECONDS)
        except Refused as refused:
            await exchange.refuse(refused)
        except ClientLeft:
            pass

    def upgrade(
        self, path: str, query: bytes, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport
    ) -> None:
        """There are no WebSockets here."""
        transport.write(refusal(_NO_SOCKET))
        transport.close()

    async def stop(self, seconds: float) -> None:
        """Pages take moments; the stream of events ends with whoever made it."""
