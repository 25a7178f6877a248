"""One exchange with a remote agent: a message goes, and what comes of it is followed to its end.

An agent that can tell of its work by itself is listened to; of any other, or where that breaks off, the task is asked
for again and again. A task that we began and nobody waits for any more is cancelled.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import anyio
from msgspec import Raw

from mcpbridge.backends.a2a_calling import AgentAnsweredError, AgentCaller
from mcpbridge.backends.a2a_card import Interface
from mcpbridge.backends.a2a_messages import Record, params_of_task
from mcpbridge.errors import UpstreamError, UpstreamGarbled, UpstreamGone, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.wire.frame import encode

__all__ = ["Exchange"]

log = get_logger("mcpbridge.backends")

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.2, 5.0, 1.5
"""Seconds between two looks at a task, and by how much they grow."""
MOST_MISSED = 4
"""Looks in a row that may fail on the way."""
CANCEL_SECONDS = 3.0
"""Seconds that telling the agent to stop may take."""
_NO_STREAMS = frozenset({-32004, -32601})
"""Errors of agents that cannot tell of their work, whatever their card says: nothing was begun."""
_SHOWN = 500
"""Characters of what an agent tells that progress shows."""


class Exchange:
    """One call on its way."""

    def __init__(self, caller: AgentCaller, interface: Interface, call: Call, redact: Callable[[str], str]) -> None:
        """`redact` masks secrets in what progress shows."""
        self._caller, self._interface, self._call, self._redact = caller, interface, call, redact
        self.record = Record()
        """What the agent has told so far."""
        self._steps = 0
        self._named = asyncio.Event()
        """The agent has named the task that it began, or there is none."""

    async def send(self, params: Mapping[str, Any], *, streams: bool) -> Record:
        """What came of a message.

        Raises:
            AgentAnsweredError: the agent answers with an error.
            UpstreamError: there is no answer.
        """
        # A task of its own: when the call is cancelled before the agent has named the task that it began, this still
        # hears the name.
        work = asyncio.create_task(self._work(params, streams=streams))
        work.add_done_callback(lambda _: self._named.set())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            work.cancel()
            with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                await asyncio.wait([work])
            if work.done() and not work.cancelled():
                work.exception()  # what became of it after the call was cancelled concerns nobody
        return self._whole()

    async def _work(self, params: Mapping[str, Any], *, streams: bool) -> None:
        if not (streams and await self._listen(params)):
            self._take(await self._caller.request(self._call.upstream, self._interface, "send", params))
        await self._to_the_end()

    async def look(self, task_id: str) -> Record:
        """What became of a task that was begun earlier; if it goes on, this waits, and lets it go on when cancelled.

        Raises: as `send`.
        """
        self.record.task_id = task_id
        self._take(await self._ask())
        await self._to_the_end()
        return self._whole()

    def _whole(self) -> Record:
        if not self.record.state:
            raise UpstreamGarbled(self._call.upstream, "its answer is neither a message nor a task")
        return self.record

    async def _listen(self, params: Mapping[str, Any]) -> bool:
        """Follow what the agent tells; False: it cannot, and nothing was begun."""
        has_told = False
        try:
            events = self._caller.events(self._call.upstream, self._interface, params)
            async with aclosing(events):
                async for event in events:
                    has_told |= event is not None
                    self._take(event, tells_always=True)
                    if self.record.state and not self.record.goes_on:
                        break
        except AgentAnsweredError as error:
            if error.code in _NO_STREAMS and not self.record.state:
                return False
            raise
        except UpstreamError as error:
            if not self.record.goes_on:
                raise
            log.info(
                "an agent's stream broke off; its task is asked for", upstream=self._call.upstream, reason=error.what
            )
        if not has_told:
            raise UpstreamGone(self._call.upstream, "it ended its answer without telling anything")
        return True

    async def _to_the_end(self) -> None:
        wait, missed = FIRST_WAIT, 0
        while self.record.goes_on:
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * GROWTH)
            try:
                self._take(await self._ask(), tells_always=True)
                missed = 0
            except (UpstreamGone, UpstreamUnavailable, UpstreamHttpError) as error:
                missed += 1
                lasts = isinstance(error, UpstreamHttpError) and error.status < 500 and error.status != 429
                if lasts or missed == MOST_MISSED:
                    raise

    async def _ask(self) -> object:
        params = params_of_task(self._interface, self.record.task_id)
        return await self._caller.request(self._call.upstream, self._interface, "get", params)

    def _take(self, value: object, *, tells_always: bool = False) -> None:
        """`tells_always`: that it is still there is progress as well, with which the time of the call begins anew."""
        news = self.record.take(value)
        if self.record.task_id:
            self._named.set()
        if (news or tells_always) and self._call.wants_progress and self.record.goes_on:
            self._steps += 1
            told = {"progress": self._steps, "message": self._redact(news or self.record.state)[:_SHOWN]}
            self._call.update("notifications/progress", Raw(encode(told)))

    async def _stop(self) -> None:
        """Tell the agent that nobody waits any more, if it began a task."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True) as waiting:
            await self._named.wait()
            if not self.record.goes_on:
                return
            params = params_of_task(self._interface, self.record.task_id)
            try:
                await self._caller.request(self._call.upstream, self._interface, "cancel", params)
            except (AgentAnsweredError, UpstreamError) as error:
                log.info("an agent's task may go on", upstream=self._call.upstream, reason=type(error).__name__)
        if waiting.cancelled_caught:
            log.info("an agent's task may go on", upstream=self._call.upstream, reason="it did not answer")
