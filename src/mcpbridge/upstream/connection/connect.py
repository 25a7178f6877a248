"""One connection from its begin to its end: dial, agree on a revision, list, serve until it is lost.

All in the task that calls `run`, so that the channel is closed by the task that opened it. Whatever goes wrong ends
here, as the reason why the connection ended; `supervisor` decides what comes next.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio

from mcpbridge.base.errors import BridgeError, UpstreamAnswered, UpstreamError, UpstreamGone, UpstreamHttpError
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.protocol.error_codes import error_text
from mcpbridge.protocol.peer import Peer
from mcpbridge.protocol.transport import Channel, Transport
from mcpbridge.upstream.connection.connection import Connection
from mcpbridge.upstream.session.capabilities import DeclaredProfile
from mcpbridge.upstream.session.elicitation import Questions
from mcpbridge.upstream.session.keepalive import Keepalive
from mcpbridge.upstream.session.listings import Listings, NotificationRouter
from mcpbridge.upstream.session.negotiation import ProbeKilled
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.subscriptions import Wanted
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.upstream")


class _OtherTransport(Exception):
    """The server does not speak this transport: begin anew over the other one."""


class ConnectionAttempt:
    """Made for one connection, and used once."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        transport: Transport,
        connection: Connection,
        listings: Listings,
        notices: NotificationRouter,
        questions: Questions,
        wanted: Wanted,
        declared: DeclaredProfile,
        *,
        client_info: dict[str, str],
        era: str,
        agreed: Callable[[UpstreamSession], None],
        retire_unused: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`era`: how to find out the era of the server, see `UpstreamSession.open`.

        `agreed` gets the session before anything is listed, and while calls do not come yet. `retire_unused` runs while
        they come, and ends the connection if none do.
        """
        self._name, self._settings, self._transport = name, settings, transport
        self._connection, self._listings, self._router, self._questions = connection, listings, notices, questions
        self._wanted, self._declared, self._client_info = wanted, declared, client_info
        self._agreed, self._retire_unused = agreed, retire_unused
        self.era = era
        """How to find out the era; another for the next attempt, if the server did not bear this one."""
        self._peer = Peer(
            name,
            on_notification=notices.heard,
            on_closed=connection.closed,
            on_request=questions.asked,
            on_withdrawn=questions.withdrawn,
        )

    async def run(self) -> str | None:
        """Returns why it ended; None to begin another at once. Cancelling closes the channel."""
        connection, peer = self._connection, self._peer
        self._questions.attach(peer)
        connection.peer, connection.questions = peer, self._questions
        try:
            async with self._transport.connect(peer) as channel:
                peer.attach(channel)
                try:
                    # Catches its own errors: raised through the transport's task group they would come in groups.
                    reason = await self._converse(channel)
                    if reason is not None and not connection.is_renewing:
                        connection.failing(reason)
                    return reason
                finally:
                    connection.session = None
                    self._questions.end()
                    peer.end(connection.lost_reason or "it is being stopped")
        except UpstreamError as error:
            self._note_wait(error)
            return connection.explain(error.what)
        except BridgeError as error:  # a certificate, or the like
            return str(error)
        except Exception as error:  # noqa: BLE001 - the task boundary of one upstream: whatever happens here stays here
            return self._unexpected(error)

    async def _converse(self, channel: Channel) -> str | None:
        try:
            session = self._session_on(channel)
            await self._open(session, self.era)
            while (reason := await self._serve(session)) is None:
                self._connection.begin_anew()
                self._listings.begin()
                session = self._session_on(channel)
                try:
                    await self._open(session, "legacy")  # the other era has no sessions that could be forgotten
                except (BridgeError, TimeoutError) as error:
                    self._connection.is_renewing = True  # on another connection it may work
                    return str(error)
        except ProbeKilled:
            log.info("upstream rejects the probe for modern revisions; using the handshake", upstream=self._name)
            self.era = "legacy"
            return None
        except _OtherTransport:
            return None
        except UpstreamGone as error:
            reason = self._connection.lost_reason or error.what
        except UpstreamAnswered as error:
            reason = f"it refused to begin: {error_text(error.error)}"
        except UpstreamError as error:
            self._note_wait(error)
            reason = error.what
        except TimeoutError:
            reason = f"not ready within {self._settings.init_timeout:g} s"
        except BridgeError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - as above: one upstream's fault is no one else's
            reason = self._unexpected(error)
        return self._connection.explain(reason)

    def _note_wait(self, error: UpstreamError) -> None:
        if isinstance(error, UpstreamHttpError):
            self._connection.retry_after = error.retry_after or 0.0
            self._connection.note_status(error.status)

    def _session_on(self, channel: Channel) -> UpstreamSession:
        return UpstreamSession(
            self._name,
            self._peer,
            channel,
            is_plain=self._transport.kind in ("stdio", "websocket"),
            client_info=self._client_info,
            profile=self._declare,
        )

    def _declare(self) -> ClientCapabilities:
        self._questions.declared = self._declared.for_handshake
        self._connection.has_declared = True
        return self._questions.declared

    def _unexpected(self, error: Exception) -> str:
        log.exception("upstream failed unexpectedly", upstream=self._name)
        return f"{type(error).__name__} in the bridge; see the log"

    async def _serve(self, session: UpstreamSession) -> str | None:
        """Why the connection ended; None when only the session did, and another is to be begun on it."""
        connection = self._connection
        if session.modern:
            self._questions.declared = NO_CAPABILITIES  # that era has no requests of servers
        self._agreed(session)
        await self._listings.first(session)
        if not session.modern and session.profile is not self._declared.for_handshake:
            connection.is_renewing = True  # another profile was adopted after the handshake had begun
            return "reopened to match what its client can be asked"
        connection.can_begin_anew = self._transport.kind == "streamable-http"
        connection.opened(session)
        tools = len(self._listings.lists.get("tools", ()))
        log.info("upstream ready", upstream=self._name, revision=session.version, tools=tools)
        keepalive = Keepalive(
            self._name,
            self._settings,
            session,
            self._peer,
            self._wanted,
            relisting=self._listings.relisting,
            relist=partial(self._listings.again, session),
            lost=connection.closed,
            expired=partial(connection.forgotten, session),
            heard=self._router.heard,
            ttl_ms=self._listings.ttl_ms,
        )
        self._listings.kept_alive_by(keepalive)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keepalive.run)
            tasks.start_soon(self._retire_unused)
            await connection.session_over.wait()
            tasks.cancel_scope.cancel()
        return connection.lost_reason if connection.lost.is_set() else None

    async def _open(self, session: UpstreamSession, era: str) -> None:
        if not self._declared.assigned.is_set():
            await self._until_assigned()
        seconds = self._settings.init_timeout
        async with asyncio.timeout(seconds):
            try:
                await session.open("legacy" if self._transport.kind == "sse" else era, seconds)
            except UpstreamHttpError as error:
                from mcpbridge.upstream.transports.http_detect import HttpOrSse  # loaded where one is used

                if isinstance(self._transport, HttpOrSse) and self._transport.refused(error):
                    raise _OtherTransport from error
                raise

    async def _until_assigned(self) -> None:
        connection = self._connection
        waits = [asyncio.ensure_future(event.wait()) for event in (self._declared.assigned, connection.lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self._declared.assigned.is_set():
            raise UpstreamGone(self._name, connection.lost_reason)
