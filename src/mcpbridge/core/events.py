"""The event bus of a bridge: hooks, local tools and the bridge publish, programs subscribe.

Publishing never waits. A subscription holds a fixed number of events; the oldest are dropped if they are not read in
time.
"""

import asyncio
import threading
import time
import weakref
from collections import deque
from typing import Self

from msgspec import Struct


class Event(Struct, frozen=True):
    """Something that happened, as those hear who subscribed."""

    name: str
    """The bridge's own: `call.finished`, with a `CallRecord`; `paused`, `paused.resumed` and `paused.cancelled`, with a
    `PausedCall`; `context.updated`, with the tool and the value. The rest is what hooks and local tools publish."""
    data: object
    at: float
    """Seconds since 1970."""
    run: str = ""
    session: str = ""
    tool: str = ""
    """Id of the tool during whose call it was published; empty outside of calls."""
    principal: str = ""
    """Whose call that was: runs are named by clients, and two may name theirs the same."""
    tenant: str = ""
    """For whom that was, as far as the call says."""


class Subscription:
    """Events as they come, `async for event in subscription`. What is not taken in time goes, oldest first."""

    def __init__(self, limit: int) -> None:
        self._events = deque[Event]()
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._news = asyncio.Event()
        self._is_over = False
        self.lost = 0
        """Events that went because they were not taken in time."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hear nothing more; what came before can still be taken."""
        self._is_over = True
        self._news.set()

    def take(self, event: Event) -> None:
        """Give it an event, from any thread."""
        if threading.get_ident() == self._thread:
            self._take(event)
        else:
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        if self._is_over:
            return
        if len(self._events) >= self._limit:
            self._events.popleft()
            self.lost += 1
        self._events.append(event)
        self._news.set()

    @property
    def is_over(self) -> bool:
        """It was closed, or the bridge has stopped."""
        return self._is_over


class EventBus:
    """Who publishes knows nobody who listens, and waits for nobody."""

    def __init__(self) -> None:
        self.subscribers: dict[int, weakref.ref[Subscription]] = {}
        """Who listens; empty: nobody does, so there is no need to make up an event."""

    @property
    def is_heard(self) -> bool:
        """Somebody listens; else there is no need to make up an event."""
        return bool(self.subscribers)

    def subscribe(self, *, limit: int = 1000) -> Subscription:
        """Hear all events from now on, of which `limit` may wait. It ends with `close`, or when nobody holds it."""
        if limit < 1:
            raise ValueError("limit must be at least 1")
        subscription = Subscription(limit)
        key = id(subscription)
        self.subscribers[key] = weakref.ref(subscription, lambda _: self.subscribers.pop(key, None))
        return subscription

    def __call__(self, *, limit: int = 1000) -> Subscription:
        """The same as `subscribe`: `async for event in bridge.events()`."""
        return self.subscribe(limit=limit)

    def publish(
        self,
        name: str,
        data: object = None,
        *,
        run: str = "",
        session: str = "",
        tool: str = "",
        principal: str = "",
        tenant: str = "",
    ) -> None:
        """Notify everybody who listens, from any thread. Nobody is waited for."""
        if not self.subscribers:
            return
        event = Event(name, data, time.time(), run, session, tool, principal, tenant)
        for key, reference in list(self.subscribers.items()):
            subscription = reference()
            if subscription is None or subscription.is_over:
                self.subscribers.pop(key, None)
            else:
                subscription.take(event)

    def end(self) -> None:
        """The bridge stops: every subscription ends after what it holds."""
        for reference in list(self.subscribers.values()):
            if (subscription := reference()) is not None:
                subscription.close()
        self.subscribers.clear()
