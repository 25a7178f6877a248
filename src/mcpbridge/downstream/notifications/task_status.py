"""`notifications/tasks` on the listen streams of modern clients (extension `io.modelcontextprotocol/tasks`).

A listen stream that names tasks has its own streams to the servers of these tasks, which end with it.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.errors import BadRequest, BridgeError
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.notifications.listeners import Listen
from mcpbridge.downstream.tasks.tasks import TaskIds, Tasks, require_tasks
from mcpbridge.protocol.body import Body
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream

log = get_logger("mcpbridge.tasks")

ACK_SECONDS = 3.0
"""Seconds that a server has to say which tasks it will report; what comes later is not promised to the client."""
FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
"""Seconds before a stream that ended is opened again: doubled each time, between these."""


class _Filter(msgspec.Struct):
    task_ids: list[str] = msgspec.field(default_factory=list[str], name="taskIds")


class _Acknowledged(msgspec.Struct):
    notifications: _Filter


_decode_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


class TaskStatusStreams:
    """Opens what a listen stream needs to hear of tasks."""

    def __init__(self, pool: Pool, ids: TaskIds, tasks: Tasks) -> None:
        self._pool, self._ids, self._tasks = pool, ids, tasks

    @asynccontextmanager
    async def heard_on(self, listen: Listen, client: Client) -> AsyncGenerator[list[str]]:
        """Gives the tasks of the stream that are reported, as the client names them; their news come from then on.

        Raises:
            BadRequest: the client did not declare the extension.
        """
        if not listen.tasks:
            yield []
            return
        require_tasks(client)
        streams = [
            _Stream(upstream, public_ids, listen, client, self._tasks)
            for upstream, public_ids in self._servers(client, listen.tasks)
        ]
        running = [asyncio.ensure_future(stream.run()) for stream in streams]
        try:
            if streams:
                await asyncio.wait([stream.first for stream in streams], timeout=ACK_SECONDS)
            yield sorted(name for stream in streams for name in stream.honoured)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _servers(self, client: Client, public_ids: frozenset[str]) -> list[tuple[Upstream, dict[str, str]]]:
        """The servers of these tasks, each with its own ids and what the client calls them; unknown ones left out."""
        found: dict[str, dict[str, str]] = {}
        for name in sorted(public_ids):
            try:
                server, id_ = self._ids.open(client, name)
            except BadRequest:
                continue
            found.setdefault(server, {})[id_] = name
        upstreams = self._pool.upstreams
        return [(upstreams[server], names) for server, names in found.items() if server in upstreams]


class _Stream:
    """The stream to one server."""

    def __init__(
        self, upstream: Upstream, public_ids: Mapping[str, str], listen: Listen, client: Client, tasks: Tasks
    ) -> None:
        self._upstream, self._public_ids, self._listen, self._client, self._tasks = (
            upstream,
            public_ids,
            listen,
            client,
            tasks,
        )
        self.honoured: list[str] = []
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has said what it will tell of, or that it will not."""
        self._opened_again = asyncio.Event()

    async def run(self) -> None:
        """Keep it open."""
        wait = FIRST_RETRY
        while True:
            self._opened_again.clear()
            async with TaskGroup() as tasks:
                looking = tasks.create_task(self._catch_up())
                try:
                    await self._upstream.listen_to_tasks(list(self._public_ids), self._heard)
                except BridgeError as error:
                    log.info("task status unavailable", upstream=self._upstream.name, error=str(error))
                looking.cancel()
            if not self.first.done():
                self.first.set_result(None)
                return  # it tells of no tasks at all
            if self._opened_again.is_set():
                wait = FIRST_RETRY
            await asyncio.sleep(wait)
            wait = min(LONGEST_RETRY, wait * 2)

    def _heard(self, method: str, params: Raw) -> None:
        if method == "notifications/subscriptions/acknowledged":
            if not self.first.done():
                self.honoured = [self._public_ids[id_] for id_ in _acknowledged(params) if id_ in self._public_ids]
                self.first.set_result(None)
            else:
                self._opened_again.set()
        elif method == "notifications/tasks":
            self._tell(Body(params))

    def _tell(self, task: Body) -> None:
        try:
            public_id = self._public_ids.get(task.text("taskId"))
            if public_id is not None:
                self._send(self._tasks.for_client(self._client, self._upstream.name, public_id, task))
        except (BridgeError, msgspec.DecodeError, KeyError) as error:
            log.info("task status not forwarded", upstream=self._upstream.name, error=str(error))

    def _send(self, task: Body) -> None:
        task.drop("resultType")
        # What comes with the acknowledgement must not overtake it.
        asyncio.get_running_loop().call_soon(self._listen.send, "notifications/tasks", task.fields)

    async def _catch_up(self) -> None:
        """What happened while nobody listened is told as the state that it led to.

        Once it is listened to again: what happens from then on is heard.
        """
        await self._opened_again.wait()
        for id_, public_id in self._public_ids.items():
            try:
                self._send(await self._tasks.look(self._client, self._upstream.name, id_, public_id))
            except BridgeError as error:
                log.info("task not found", upstream=self._upstream.name, error=str(error))


def _acknowledged(params: Raw) -> list[str]:
    try:
        return _decode_acknowledged(params).notifications.task_ids
    except msgspec.DecodeError:
        return []
