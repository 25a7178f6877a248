"""One life of a connection: dial, agree on a revision, list, serve until it is lost.

All in the task that calls `live`, so that the channel is closed by the task that opened it. Whatever goes wrong ends
here, as the reason why the life ended; `supervisor` decides what comes next.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio

from mcpbridge.base.errors import BridgeError, UpstreamError, UpstreamGone, UpstreamHttpError
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.protocol.peer import Peer
from mcpbridge.protocol.transport import Channel, Transport
from mcpbridge.upstream.connection.connection import Link
from mcpbridge.upstream.session.elicitation import Questions
from mcpbridge.upstream.session.keepalive import Tending
from mcpbridge.upstream.session.listings import Listings, Notices
from mcpbridge.upstream.session.negotiation import ProbeKilled
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.subscriptions import Wanted
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.http_detect import HttpOrSse

log = get_logger("mcpbridge.upstream")


class _OtherTransport(Exception):
    """The server does not speak this transport: begin anew over the other one."""


class Life:
    """Made for one connection, and used once."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        transport: Transport,
        link: Link,
        listings: Listings,
        notices: Notices,
        questions: Questions,
        wanted: Wanted,
        *,
        client_info: dict[str, str],
        era: str,
        assigned: asyncio.Event,
        to_declare: Callable[[], ClientCapabilities],
        agreed: Callable[[UpstreamSession], None],
        retire_unused: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`assigned`: set once the session may be opened. `to_declare`: what it declares, asked when it does so.

        `agreed` gets the session before anything is listed, and while calls do not come yet. `retire_unused` runs while
        they come, and ends the life if none do.
        """
        self._name, self._settings, self._transport = name, settings, transport
        self._link, self._listings, self._notices, self._questions = link, listings, notices, questions
        self._wanted, self._client_info, self._assigned = wanted, client_info, assigned
        self._to_declare, self._agreed, self._retire_unused = to_declare, agreed, retire_unused
        self.era = era
        """How to find out the era; another for the next life, if the server did not bear this one."""
        self._peer = Peer(
            name,
            on_notification=notices.heard,
            on_closed=link.closed,
            on_request=questions.asked,
            on_withdrawn=questions.withdrawn,
        )

    async def live(self) -> str | None:
        """Returns why it ended; None to begin another at once."""
        link, peer = self._link, self._peer
        self._questions.attach(peer)
        link.peer, link.questions = peer, self._questions
        try:
            async with self._transport.connect(peer) as channel:
                peer.attach(channel)
                try:
                    # Catches its own errors: raised through the transport's task group they would come in groups.
                    return await self._converse(channel)
                finally:
                    link.session = None
                    self._questions.end()
                    peer.end(link.lost_reason or "it is being stopped")
        except UpstreamError as error:
            return link.explain(error.what)
        except BridgeError as error:  # a certificate, or the like
            return str(error)
        except Exception as error:  # noqa: BLE001 - the task boundary of one upstream: whatever happens here stays here
            return self._unexpected(error)

    async def _converse(self, channel: Channel) -> str | None:
        session = UpstreamSession(
            self._name,
            self._peer,
            channel,
            is_plain=self._transport.kind in ("stdio", "websocket"),
            client_info=self._client_info,
            profile=self._declare,
        )
        try:
            reason = await self._open_and_serve(session)
        except ProbeKilled:
            log.info("upstream does not bear the probe for its era; using the handshake", upstream=self._name)
            self.era = "legacy"
            return None
        except _OtherTransport:
            return None
        except UpstreamGone as error:
            reason = self._link.lost_reason or error.what
        except UpstreamError as error:
            reason = error.what
        except TimeoutError:
            reason = f"not ready within {self._settings.init_timeout:g} s"
        except BridgeError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - as above: one upstream's fault is no one else's
            reason = self._unexpected(error)
        return self._link.explain(reason)

    def _declare(self) -> ClientCapabilities:
        self._questions.declared = self._to_declare()
        self._link.has_declared = True
        return self._questions.declared

    def _unexpected(self, error: Exception) -> str:
        log.exception("upstream failed in an unexpected way", upstream=self._name)
        return f"{type(error).__name__} in the bridge; see the log"

    async def _open_and_serve(self, session: UpstreamSession) -> str:
        link = self._link
        await self._open(session)
        if session.modern:
            self._questions.declared = NO_CAPABILITIES  # that era has no requests of servers
        self._agreed(session)
        await self._listings.first(session)
        if not session.modern and session.profile is not self._to_declare():
            link.is_renewing = True  # another profile was adopted after the handshake had begun
            return "opened anew for what its client can be asked"
        link.opened(session)
        tools = len(self._listings.lists.get("tools", ()))
        log.info("upstream ready", upstream=self._name, revision=session.version, tools=tools)
        tending = Tending(
            self._name,
            self._settings,
            session,
            self._peer,
            self._wanted,
            relist=partial(self._listings.again, session),
            lost=link.closed,
            expired=partial(link.renew, session),
            heard=self._notices.heard,
            ttl_ms=self._listings.ttl_ms,
        )
        self._listings.tended_by(tending)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tending.run)
            tasks.start_soon(self._retire_unused)
            await link.lost.wait()
            tasks.cancel_scope.cancel()
        return link.lost_reason

    async def _open(self, session: UpstreamSession) -> None:
        if not self._assigned.is_set():
            await self._until_assigned()
        seconds = self._settings.init_timeout
        async with asyncio.timeout(seconds):
            try:
                await session.open("legacy" if self._transport.kind == "sse" else self.era, seconds)
            except UpstreamHttpError as error:
                if isinstance(self._transport, HttpOrSse) and self._transport.refused(error):
                    raise _OtherTransport from error
                raise

    async def _until_assigned(self) -> None:
        link = self._link
        waits = [asyncio.ensure_future(event.wait()) for event in (self._assigned, link.lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self._assigned.is_set():
            raise UpstreamGone(self._name, link.lost_reason)
