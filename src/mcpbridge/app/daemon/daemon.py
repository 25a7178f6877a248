"""The daemon: one bridge for all clients of a configuration, until it is asked to end or nobody needs it."""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.admin.control_socket import Answers
from mcpbridge.app.daemon.client_variables import adopted, more_network, more_places
from mcpbridge.app.daemon.handshake import Hello
from mcpbridge.app.daemon.idle_exit import Idling
from mcpbridge.app.daemon.log_rotation import keep_small
from mcpbridge.app.daemon.process import Running, running, serve_over_http
from mcpbridge.app.daemon.service_manager import Supervision
from mcpbridge.app.daemon.snapshots import Inputs, Snapshots
from mcpbridge.app.daemon.socket_and_lock import Held
from mcpbridge.app.daemon.socket_server import SocketFront
from mcpbridge.base.directories import daemon_key
from mcpbridge.base.log import Level, get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.process.process import NOT_FOUND
from mcpbridge.config.load import Loaded
from mcpbridge.downstream.stdio import FINISH_GRACE
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.settings import RunMode

if TYPE_CHECKING:  # loaded where it is used
    from mcpbridge.catalog.snapshot import Snapshot
    from mcpbridge.config.schema import Settings
    from mcpbridge.downstream.http.server import ListenAddress


log = get_logger("mcpbridge.daemon")

END_TIME = FINISH_GRACE + 4
"""Seconds that clients may take at the end, before the servers are stopped."""

Signals = Callable[[Callable[[signal.Signals], None], Callable[[], None]], AbstractContextManager[None]]
"""Given what to call with a signal that ends, and for a reload: calls them for the time of the context."""


class Ending(Struct, frozen=True):
    """Why and how it ends."""

    reason: str
    again: bool = True
    """Clients may ask another daemon."""
    restarts: bool = False
    """The same process continues as a new daemon, with the same socket."""
    stays: bool = False
    """That one does not end for want of clients, either."""
    number: signal.Signals | None = None
    """The signal that asked for it."""


class DaemonContext(Struct, frozen=True):
    """What the daemon has of its process."""

    config: Path
    held: Held
    supervision: Supervision
    ends_when_idle: bool
    """It ends when nobody was there for `daemon.idle_exit` seconds."""
    log_file: Path | None
    at: "ListenAddress | None"
    """Where it serves HTTP as well."""
    http_error: str
    """Why it does not, though the configuration says so."""
    token_file: str
    """Where the token is that HTTP clients send; empty: another one, or none."""
    log_level: Level | None
    look_every: float = 5.0
    """Seconds between two looks whether clients still find it."""
    mode: RunMode = "own"
    """Whom it serves."""


async def serve_daemon(loaded: Loaded, redact: Redactor, around: DaemonContext, signals: Signals) -> Ending:
    """Be the daemon until the end, and say why that came. The socket is still held then: see `Held.let_go`."""
    return await _Daemon(loaded, redact, around).run(signals)


class _Daemon:
    def __init__(self, loaded: Loaded, redact: Redactor, around: DaemonContext) -> None:
        self._loaded, self._redact, self._around = loaded, redact, around
        self._instance = secrets.token_hex(8)
        self._is_ending = asyncio.Event()
        self._ending = Ending("")
        """Why, once it is; people may change their minds."""
        self._url = ""
        self._running: Running
        self._front: SocketFront
        self._idling: Idling
        self._snapshots: Snapshots
        self._inputs: tuple[Loaded, Inputs] | None = None
        self._listed: tuple[Snapshot, Settings, str] | None = None
        self._reload_asked = asyncio.Event()

    async def run(self, signals: Signals) -> Ending:
        around = self._around
        with signals(self._signalled, self._reload_asked.set):
            async with (
                running(
                    self._loaded,
                    self._redact,
                    facts=self._facts,
                    more_answers=self._answers(),
                    look_every=around.look_every,
                    is_interactive=True,
                    log_level=around.log_level,
                    mode=around.mode,
                ) as self._running,
                self._working(self._running.bridge),
            ):
                around.supervision.ready("serving")
                log.info("daemon started", config=str(around.config), socket=str(around.held.path))
                await self._is_ending.wait()
                log.info("daemon stopping", reason=self._ending.reason, clients=len(self._front.connections))
                self._tell_supervisor()
                await self._front.finish(again=self._ending.again)
        return self._ending

    @asynccontextmanager
    async def _working(self, bridge: Bridge) -> AsyncGenerator[None]:
        """Clients are served meanwhile, on the socket and over HTTP."""
        around = self._around
        self._front = SocketFront(
            bridge,
            around.held.listeners,
            max_frame=self._loaded.settings.limits.max_frame,
            listings=self._listings,
            adopt=self._adopt,
            changed=self._look,
        )
        self._idling = Idling(
            self._patience,
            has_clients=lambda: not self._front.is_empty or self._running.console.has_pages,
            goes_on=self._goes_on,
            end=self._nobody_came,
        )
        self._running.console.changed = self._look
        self._snapshots = Snapshots(bridge, daemon_key(around.config), self._config_inputs, self._listings)
        if self._running.reloading is not None:
            self._running.reloading.on_reload = self._snapshots.changed
        async with self._snapshots.running(), self._front.serving(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._reload_when_asked)
            tasks.start_soon(self._keep_place)
            if around.log_file is not None:
                tasks.start_soon(keep_small, around.log_file)
            if around.at is not None:
                tasks.start_soon(self._serve_http, bridge, around.at)
            self._idling.look()
            try:
                yield
            finally:
                self._idling.stop()
                tasks.cancel_scope.cancel()

    def _patience(self) -> float:
        if not self._around.ends_when_idle or self._around.at is not None:
            return 0  # nothing would start it for who comes over HTTP
        return self._running.bridge.settings.daemon.idle_exit

    def _look(self) -> None:
        self._idling.look()

    # -- the end

    def _end(self, ending: Ending) -> None:
        """End so, also if that has begun in order to go on: who wants it gone is not told of a restart instead."""
        before = self._ending
        if not self._is_ending.is_set():
            self._ending = ending
            self._is_ending.set()
        elif (before.restarts and not ending.restarts) or (before.again and not ending.again and not ending.restarts):
            self._ending = replace(ending, again=ending.again and before.again, number=ending.number or before.number)
            log.info("daemon not restarted", reason=ending.reason)
            self._tell_supervisor()
            self._front.say_at_end(again=self._ending.again)

    def _tell_supervisor(self) -> None:
        supervision = self._around.supervision
        (supervision.reloading if self._ending.restarts else supervision.stopping)()

    def _signalled(self, number: signal.Signals) -> None:
        self._end(Ending(number.name, number=number))

    def _nobody_came(self) -> None:
        if self._front.take_waiting():
            return  # it is a client; the next look is when it leaves
        self._front.stop_accepting()
        self._end(Ending("no client for long enough"))

    def _answers(self) -> Answers:
        def stop(_: Document) -> Document:
            self._end(Ending("mcpbridge down", again=False))
            return {"pid": os.getpid(), "stopping": True}

        def restart(_: Document) -> Document:
            self._end(Ending("mcpbridge restart", restarts=True, stays=self._idling.patience is None))
            return {"pid": os.getpid(), "restarting": self._ending.restarts, "instance": self._instance}

        def stay(_: Document) -> Document:
            self._idling.never_end()
            if self._ending.restarts:
                self._ending = replace(self._ending, stays=True)
            return {"pid": os.getpid(), "stays": self._ending.restarts or not self._is_ending.is_set()}

        def make_way(_: Document) -> Document:
            self._end(Ending("a service takes over"))
            return {"pid": os.getpid(), "stopping": True}

        return {"stop": stop, "yield": make_way, "restart": restart, "stay": stay}

    # -- meanwhile

    async def _keep_place(self) -> None:
        """Be found again when the socket's or the lock's file was removed; if another one is there, end when unused."""
        held, trouble = self._around.held, ""
        while True:
            await anyio.sleep(self._around.look_every)
            before = held.listener
            try:
                is_ours = held.renew(self._front.replace)
                reason = "" if is_ours else "another daemon is in its place"
            except OSError as error:
                is_ours, reason = True, str(error)
            if held.listener is not before:
                log.warning("the daemon's socket was removed; listening on a new one", socket=str(held.path))
            if reason and reason != trouble:
                log.warning("clients cannot find this daemon any more", reason=reason)
            trouble = reason
            if not is_ours and self._front.is_empty and not self._goes_on():
                self._end(Ending(reason))

    def _goes_on(self) -> bool:
        return any(not upstream.usage.is_idle for upstream in self._running.bridge.pool.everyone())

    async def _serve_http(self, bridge: Bridge, at: "ListenAddress") -> None:
        def ready(url: str) -> None:
            self._url = url
            log.info("listening", url=url)

        run = self._running
        await serve_over_http(bridge, at, ready, run.console, run.connections, run.fleet)

    async def _reload_when_asked(self) -> None:
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            if self._running.reloading is not None:
                self._around.supervision.reloading()
                try:
                    await self._running.reloading.reload(anew=True)
                except Exception as error:
                    # Whatever is wrong with an edit, the daemon that runs must not end by it.
                    log.error("the configuration cannot be reloaded", exc_info=error)
                self._around.supervision.ready("serving")

    async def _adopt(self, hello: Hello) -> None:
        """Fill in what this process lacks: variables that the configuration names, and where programs are."""
        path = more_places(os.environ.get("PATH", ""), hello.environ.get("PATH", ""))
        if path is not None:
            os.environ["PATH"] = path
            for upstream in self._running.bridge.pool.everyone():
                if upstream.status.reason.startswith(NOT_FOUND):
                    upstream.connection.poke()
        if network := more_network(os.environ, hello.environ):
            log.info("environment variables of a client are passed to servers", names=list(network), process=hello.pid)
            os.environ.update(network)  # servers get them at their next start
        reloading = self._running.reloading
        if reloading is not None and (more := adopted(reloading.missing, hello.environ)):
            log.info("environment variables of a client are used", names=list(more), process=hello.pid)
            await reloading.reload(more)

    def _listings(self) -> str:
        """Changes when what clients are listed does: also by the configuration, which decides who sees what."""
        bridge = self._running.bridge
        snapshot, settings = bridge.catalog.flush(), bridge.settings
        if self._listed is None or self._listed[0] is not snapshot or self._listed[1] is not settings:
            try:
                written = self._around.config.read_bytes()
            except OSError:
                written = b""
            digest = sha256(snapshot.digest.encode() + b"\0" + written).hexdigest()[:32]
            self._listed = snapshot, settings, digest
        return self._listed[2]

    def _config_inputs(self) -> Inputs | None:
        """What the configuration in effect was read from."""
        reloading = self._running.reloading
        if reloading is None:
            return None
        loaded = reloading.loaded or self._loaded
        if self._inputs is None or self._inputs[0] is not loaded:
            self._inputs = loaded, Inputs.of(loaded, reloading.environ, is_found=self._loaded.is_found)
        return self._inputs[1]

    def _facts(self) -> Document:
        around, now = self._around, time.monotonic()
        idle = self._idling.seconds
        return {
            "front": "daemon" + (f", {self._url}" if self._url else ""),
            "daemon": {
                "config": str(around.config),
                "instance": self._instance,
                "program": sys.executable,
                "socket": str(around.held.path),
                "log": "journal" if around.supervision.journal else str(around.log_file or ""),
                "is_supervised": around.supervision.is_supervised,
                "http": self._url,
                "http_error": around.http_error,
                "token_file": around.token_file,
                "idle_exit_s": self._idling.patience,
                "idle_s": None if idle is None else round(idle, 1),
                "snapshot": self._snapshots.facts(),
                "clients": [
                    {
                        "name": one.name,
                        "pid": one.hello.pid,
                        "cwd": one.hello.cwd,
                        "project": one.hello.project,
                        "server": one.hello.server,
                        "profile": one.hello.profile,
                        "running": one.channel.running,
                        "connected_s": round(now - one.since, 1),
                    }
                    for one in sorted(self._front.connections, key=lambda one: one.since)
                ],
            },
        }
