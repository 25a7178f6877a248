"""More instances of servers, beside the one of each that lists: opened when a call needs them, ended when idle.

`pool` decides which instance is right for a client; here is which there are, and when there may be one more.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import cast

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from mcpbridge.base.errors import Overloaded
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import ClientCapabilities, Elicitor
from mcpbridge.core.identity import without_rights
from mcpbridge.upstream.supervisor import Upstream

log = get_logger("mcpbridge.upstream")

Key = tuple[str, ClientCapabilities, object, str]
"""Server; what its client can be asked; whose it is (a client, a project), or which of those that all share; the
directory that it is started for, if that makes a difference."""


LOOK_SECONDS = 1.0
"""Seconds until another look whether there is room for one more user."""
_YIELDING = ("shared", "user")
"""Of these an idle instance ends when another one is needed."""


class Instance(Struct, eq=False):
    """One running instance of a server. Without a key it is the one that lists, or a spare that is not opened yet."""

    upstream: Upstream
    project: str = ""
    """URI of the project that it was started for."""
    key: Key | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Ends it when cancelled."""


Make = Callable[[Key | None, str, str], Instance]
"""Makes an instance of the server with this name for a project; without a key a spare one."""


class OnDemandInstances:
    """The further instances of all servers."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._open: dict[Key, Instance] = {}
        self._spares: dict[str, Instance] = {}
        self._queued: dict[str, int] = {}
        """Calls of further users that wait for room, by server."""
        self._tasks: TaskGroup | None = None

    def run_in(self, tasks: TaskGroup | None) -> None:
        """Who owns their tasks from now on; None: nobody, and no more are opened."""
        self._tasks = tasks

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self._open.values()))

    def count(self, name: str) -> int:
        """How many of a server there are; spare ones do not count."""
        return sum(key[0] == name for key in self._open)

    def get(self, key: Key) -> Upstream | None:
        """The one with this key, if it is open."""
        known = self._open.get(key)
        return known.upstream if known is not None else None

    def opened(self, base: Upstream, key: Key, project: str = "") -> Upstream:
        """The one with this key, opened if it is not there yet.

        Raises:
            Overloaded: there are as many as there may be.
        """
        if (known := self._open.get(key)) is not None:
            return known.upstream
        name, profile, *_ = key
        if self._tasks is None or not self._has_room(base):
            raise Overloaded(
                f"Server '{name}' has {base.settings.max_instances} sessions for other kinds of clients "
                "(`max_instances`); another one is not opened"
            )
        log.info("further instance started", upstream=name, declares=sorted(profile.capabilities(modern=True)))
        instance = self._spares.pop(name, None) if base.is_shared else None
        if instance is None:
            instance = self._start(self._make(key, name, project))
        else:
            instance.key = key
            instance.upstream.usage.touch()
            instance.upstream.declared.assign(profile)
        if base.is_shared and base.declared.history.has_asked:
            self._keep_spare(base)
        self._open[key] = instance
        instance.upstream.wanted.adopt_log_level(base.wanted)
        return instance.upstream

    def suited(
        self, base: Upstream, profile: ClientCapabilities, whose: object = 0, place: str = ""
    ) -> Upstream | None:
        """One that is open for clients that can be asked this; by default the first of those that all share."""
        for key, instance in self._open.items():
            if key[0] == base.name and key[2:] == (whose, place) and instance.upstream.declared.suits(profile):
                return instance.upstream
        return None

    def of_the_kind(self, base: Upstream, client: Elicitor) -> Upstream | None:
        """One for clients like this that nobody holds, opened if need be; None when there may be no more of them."""
        for key, instance in self._open.items():
            upstream = instance.upstream
            if (
                key[0] == base.name
                and upstream.declared.suits(client.capabilities)
                and not upstream.requests.is_held_from(client)
            ):
                return upstream
        kind = base.name, base.declared.history.declared(client.capabilities)
        if self.count(base.name) >= base.settings.max_instances:
            return None  # a turn on one of them comes sooner than another process has started
        return self.opened(base, next(key for n in count(1) if (key := (*kind, n, "")) not in self._open))

    async def room(self, base: Upstream, key: Key) -> None:
        """Return when one with this key is open, or may be opened: as many users wait as the queue of the server takes.

        Raises:
            Overloaded: there are too many in the queue, or it takes too long.
        """
        if key in self._open or self._has_room(base):
            return
        name, settings = base.name, base.settings
        if self._queued.get(name, 0) >= settings.max_queued:
            raise Overloaded(f"Server '{name}' is used by {settings.max_instances} users, and too many more wait")
        self._queued[name] = self._queued.get(name, 0) + 1
        try:
            with anyio.move_on_after(settings.queue_timeout):
                while key not in self._open and not self._has_room(base):
                    await self._one_is_idle(name)
                return
        finally:
            self._queued[name] -= 1
        raise Overloaded(
            f"Server '{name}' is used by {settings.max_instances} users (`max_instances`), and none of them was done "
            f"within {settings.queue_timeout:g} s (`queue_timeout`)"
        )

    async def _one_is_idle(self, name: str) -> None:
        """Return when one of a server has nothing to do, or has ended."""
        waits = [asyncio.ensure_future(one.upstream.usage.idle(0.0)) for one in self.of(name) if one.key is not None]
        try:
            await asyncio.wait(waits, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def end_of_user(self, principal: str, server: str = "") -> int:
        """End those of a user at once, with the calls on them. `server`: of this one alone. Returns how many."""
        ended = 0
        for key, instance in list(self._open.items()):
            whose = key[2]
            if (
                server in ("", key[0])
                and isinstance(whose, tuple)
                and without_rights(str(cast("tuple[object, ...]", whose)[0])) == principal
            ):
                del self._open[key]
                instance.scope.cancel()
                ended += 1
        return ended

    def release(self, home: object) -> None:
        """A client is gone: those that were its own end."""
        for key, instance in list(self._open.items()):
            if key[2] is home:
                del self._open[key]
                instance.scope.cancel()

    def take(self, name: str) -> list[Instance]:
        """All of a server that were opened; they are the caller's to end. Its spare one ends here."""
        return [instance for instance in self.replaceable(name) if self.take_one(instance)]

    def replaceable(self, name: str) -> list[Instance]:
        """All of a server that are open, which continue until they are taken one by one. Its spare one ends here."""
        if (spare := self._spares.pop(name, None)) is not None:
            spare.scope.cancel()
        return [instance for key, instance in self._open.items() if key[0] == name]

    def take_one(self, instance: Instance) -> bool:
        """Have this one end by the caller. False: it is not open any more."""
        if instance.key is None or self._open.get(instance.key) is not instance:
            return False
        del self._open[instance.key]
        return True

    def of(self, name: str) -> Iterator[Instance]:
        """All of a server, the spare one too."""
        for instance in (*self._open.values(), *self._spares.values()):
            if instance.upstream.name == name:
                yield instance

    def _has_room(self, base: Upstream) -> bool:
        """One more may be opened. Where clients or those of a user share, the one idle longest is closed for it."""
        if self.count(base.name) < base.settings.max_instances:
            return True
        idle = [
            (instance.upstream.usage.idle_since, number, key)
            for number, (key, instance) in enumerate(self._open.items())
            if key[0] == base.name and base.settings.share in _YIELDING and not instance.upstream.usage.is_needed
        ]
        if not idle:
            return False
        _, _, key = min(idle)
        self._open.pop(key).scope.cancel()
        return True

    def _keep_spare(self, base: Upstream) -> None:
        """A program that is used by different kinds of clients: start one ahead for the next kind.

        A model waits for its first call meanwhile, and programs take seconds to start.
        """
        settings = base.settings
        if settings.is_started and self.count(base.name) + 1 < settings.max_instances:
            self._spares[base.name] = self._start(self._make(None, base.name, ""))

    def _start(self, instance: Instance) -> Instance:
        assert self._tasks is not None
        self._tasks.start_soon(self._own, instance, name=f"upstream {instance.upstream.name}, another")
        return instance

    async def _own(self, instance: Instance) -> None:
        """Own an instance until it has been idle for long enough, or is released."""
        upstream = instance.upstream
        with instance.scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(upstream.run)
                await upstream.usage.idle(upstream.settings.instance_idle)
                self._forget(instance)  # first: a call that comes now gets a new one
                tasks.cancel_scope.cancel()
        self._forget(instance)

    def _forget(self, instance: Instance) -> None:
        name, key = instance.upstream.name, instance.key
        if key is not None and self._open.get(key) is instance:
            del self._open[key]
        elif self._spares.get(name) is instance:
            del self._spares[name]
