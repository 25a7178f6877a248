"""News of tasks on the listen streams of clients: none is lost while the stream to the server is opened anew."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import UpstreamGone
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.request_state import Sealer
from mcpbridge.downstream.notifications import task_status as task_news
from mcpbridge.downstream.notifications.listeners import Listen
from mcpbridge.downstream.notifications.task_status import TaskStatusStreams
from mcpbridge.downstream.tasks.tasks import TaskIds, Tasks
from mcpbridge.protocol.body import Body
from mcpbridge.upstream.pool import Pool

TASKS = "io.modelcontextprotocol/tasks"


class Server:
    """An upstream whose stream ends when a test says so, and the task that it runs."""

    name = "up"

    def __init__(self) -> None:
        self.status = "working"
        self.heard: Callable[[str, Raw], None] | None = None
        self.opened: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        self.looks = 0

    async def listen_to_tasks(self, ids: Sequence[str], heard: Callable[[str, Raw], None]) -> None:
        self.heard = heard
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened.put_nowait(end)
        await end

    def acknowledge(self) -> None:
        assert self.heard
        self.heard("notifications/subscriptions/acknowledged", Raw(b'{"notifications":{"taskIds":["t1"]}}'))

    async def look(self, client: Client, server: str, id_: str, shown: str) -> Body:
        """In place of `Tasks.look`."""
        self.looks += 1
        return Body(json.dumps({"taskId": shown, "status": self.status}).encode())


async def test_what_happened_before_a_stream_was_open_again_is_told_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at earlier, what happens between the look and the stream would be heard by nobody."""
    monkeypatch.setattr(task_news, "FIRST_RETRY", 0.01)
    server, ids, client = (
        Server(),
        TaskIds(Sealer()),
        Client(modern=True, declared_capabilities={"extensions": {TASKS: {}}}),
    )
    shown = ids.seal(client, "up", "t1", None)
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    listen = Listen(b"1", lambda message: told.put_nowait(json.loads(message)), frozenset(), frozenset())
    listen.tasks = frozenset({shown})
    pool = cast("Pool", type("Pool", (), {"upstreams": {"up": server}}))
    with anyio.fail_after(10):
        opening = asyncio.ensure_future(_hold(TaskStatusStreams(pool, ids, cast("Tasks", server)), listen, client))
        first = await server.opened.get()
        server.acknowledge()
        first.set_exception(UpstreamGone("up", "lost"))
        second = await server.opened.get()
        assert not server.looks
        server.status = "completed"  # and nobody is told
        server.acknowledge()
        message = await told.get()
        assert (message["params"]["taskId"], message["params"]["status"]) == (shown, "completed")
        assert server.looks == 1
        second.set_exception(UpstreamGone("up", "lost"))
        await server.opened.get()
        opening.cancel()
        await asyncio.wait([opening])


async def _hold(news: TaskStatusStreams, listen: Listen, client: Client) -> None:
    async with news.heard_on(listen, client):
        await asyncio.sleep(60)
