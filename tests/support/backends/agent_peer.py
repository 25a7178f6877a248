"""A real agent for the tests, by the official SDK of A2A, and a scripted one for what that never does."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from a2a.helpers import proto_helpers as make
from a2a.server.agent_execution import AgentExecutor
from a2a.server.agent_execution.context import RequestContext
from a2a.server.events.event_queue_v2 import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from support.upstreams.oauth_server import served

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8


@dataclass
class Agent:
    """What the agent has seen, and can be told."""

    url: str = ""
    hanging: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)
    methods: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    skills: list[str] = field(default_factory=list[str])

    def forget(self) -> None:
        """As it was before anybody came."""
        fresh = Agent(self.url)
        for name in ("hanging", "cancelled", "release", "methods", "headers", "skills"):
            setattr(self, name, getattr(fresh, name))


class Work(AgentExecutor):
    """What the agent does: the first word of a message says what."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = context.get_user_input()
        message = context.message
        assert message is not None
        if "skillId" in message.metadata:
            self.agent.skills.append(message.metadata["skillId"])
        if said.startswith("hello"):
            reply = f"you said: {said}"
            data = [dict(part.data.struct_value.items()) for part in message.parts if part.HasField("data")]
            if data:
                reply += f", with {json.dumps(data[0])}"
            context_id = context.context_id
            await event_queue.enqueue_event(make.new_text_message(reply, context_id=context_id, role=a2a.ROLE_AGENT))
            return
        task = context.current_task
        if task is None:
            task = make.new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        told = TaskUpdater(event_queue, task.id, task.context_id)
        if task.status.state in (a2a.TASK_STATE_INPUT_REQUIRED, a2a.TASK_STATE_AUTH_REQUIRED):
            await told.add_artifact([make.new_text_part(f"you answered: {said}")], name="answer")
            await told.complete()
            return
        await getattr(self, f"_{said.split()[0]}")(told)

    async def _work(self, told: TaskUpdater) -> None:
        await told.start_work(self._words(told, "thinking"))
        await told.add_artifact([make.new_text_part("the first half")], artifact_id="a", name="essay")
        await told.add_artifact([make.new_text_part(", the second")], artifact_id="a", name="essay", append=True)
        await told.add_artifact([make.new_data_part({"total": 3})], name="numbers")
        await told.complete(self._words(told, "done"))

    async def _files(self, told: TaskUpdater) -> None:
        parts = [
            make.new_raw_part(PNG, "image/png", "dot.png"),
            make.new_raw_part(b"a,b", "text/csv", "a table.csv"),
            make.new_url_part("https://example.com/x.pdf", "application/pdf", "x.pdf"),
            make.new_data_part([1, 2]),
            make.new_data_part({"a": None}),
        ]
        await told.add_artifact(parts)
        await told.complete()

    async def _long(self, told: TaskUpdater) -> None:
        await told.start_work()
        self.agent.hanging.set()
        await self.agent.release.wait()
        await told.complete(self._words(told, "at last"))

    async def _hang(self, told: TaskUpdater) -> None:
        await told.start_work()
        self.agent.hanging.set()
        await anyio.sleep_forever()

    async def _ask(self, told: TaskUpdater) -> None:
        await told.requires_input(self._words(told, "which colour?"))

    async def _login(self, told: TaskUpdater) -> None:
        await told.requires_auth(self._words(told, "sign in at the bank"))

    async def _fail(self, told: TaskUpdater) -> None:
        await told.failed(self._words(told, "the oven is broken"))

    async def _reject(self, told: TaskUpdater) -> None:
        await told.reject(self._words(told, "I do not do that"))

    async def _quiet(self, told: TaskUpdater) -> None:
        await told.complete()

    def _words(self, told: TaskUpdater, text: str) -> Any:
        return told.new_agent_message([make.new_text_part(text)])

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        self.agent.cancelled.set()


def _card(url: str, versions: list[str], streaming: bool) -> a2a.AgentCard:
    return a2a.AgentCard(
        name="Cook",
        description="Cooks.",
        version="1",
        supported_interfaces=[
            a2a.AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version=version)
            for version in versions
        ],
        capabilities=a2a.AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            a2a.AgentSkill(
                id="bake/bread", name="Bake", description="Bakes bread.", tags=["x"], examples=["hello bread"]
            ),
            a2a.AgentSkill(id="boil", name="Boil", description="Boils eggs.", tags=["x"]),
        ],
    )


@asynccontextmanager
async def agent_peer(
    *, version: str = "1.0", streaming: bool = True, token: str = "", path: str = ""
) -> AsyncGenerator[Agent]:
    """A running agent of this version of A2A. `token`: what it wants to be shown; `path`: below which it lives."""
    agent = Agent()

    def app(origin: str) -> ASGIApp:
        agent.url = f"{origin}{path}"
        card = _card(agent.url, [version], streaming)
        handler = DefaultRequestHandler(Work(agent), InMemoryTaskStore(), card)
        routes = create_jsonrpc_routes(handler, f"{path}/rpc", enable_v0_3_compat=version != "1.0")
        routes += create_agent_card_routes(card, card_url=f"{path}/.well-known/agent-card.json")
        return _noting(Starlette(routes=routes), agent, token)

    async with served(app) as _:
        yield agent
        agent.release.set()


def _noting(app: ASGIApp, agent: Agent, token: str) -> ASGIApp:
    """Notes what comes, and lets in only who shows the token."""

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        agent.headers.append(headers)
        if token and headers.get("authorization") != f"Bearer {token}":
            await Response("who are you?", 401)(scope, receive, send)
            return
        if scope["method"] == "POST":
            message = await receive()
            agent.methods.append(json.loads(message["body"])["method"])
            pending = [message]

            async def again() -> Any:
                return pending.pop() if pending else await receive()

            await app(scope, again, send)
            return
        await app(scope, receive, send)

    return noted


Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def scripted_agent(
    card: dict[str, Any] | Callable[[str], Any],
    answer: Answer | None = None,
    *,
    at: str = "/.well-known/agent-card.json",
    routes: Sequence[Route] = (),
) -> AsyncGenerator[Agent]:
    """An agent whose card, and whose answer to a method with params, are given.

    An answer is a result, an `Exception` with a JSON-RPC error, a `Response`, or a list: a stream of results that then
    breaks off or ends. Functions in it are waited for.
    """
    agent = Agent()

    async def rpc(request: Request) -> Response:
        message = await request.json()
        agent.methods.append(message["method"])
        agent.headers.append(dict(request.headers))
        assert answer is not None
        told = await answer(message["method"], message["params"])
        if isinstance(told, Response):
            return told
        if isinstance(told, list):
            return StreamingResponse(_events(message["id"], told), media_type="text/event-stream")
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **_outcome(told)})

    async def shown(request: Request) -> Response:
        agent.headers.append(dict(request.headers))
        told = card(agent.url) if callable(card) else card
        return told if isinstance(told, Response) else JSONResponse(told)

    def app(origin: str) -> ASGIApp:
        agent.url = origin
        return Starlette(routes=[Route(at, shown), Route("/rpc", rpc, methods=["POST"]), *routes])

    async with _served(app):
        yield agent


class _Server:
    """A server in which one application takes the place of another."""

    def __init__(self) -> None:
        self.origin = ""
        self.app: ASGIApp = Response()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


_idle: list[_Server] = []
_keeping: list[AsyncExitStack] = []


@asynccontextmanager
async def kept_servers() -> AsyncGenerator[None]:
    """Servers of scripted agents go on meanwhile, for the agents that come later."""
    async with AsyncExitStack() as stack:
        _keeping.append(stack)
        try:
            yield
        finally:
            _keeping.clear()
            _idle.clear()


@asynccontextmanager
async def _served(make: Callable[[str], ASGIApp]) -> AsyncGenerator[None]:
    if not _keeping:
        async with served(make):
            yield
        return
    if not _idle:
        server = _Server()

        def app(origin: str) -> ASGIApp:
            server.origin = origin
            return server

        await _keeping[-1].enter_async_context(served(app))
        _idle.append(server)
    server = _idle.pop()
    server.app = make(server.origin)
    try:
        yield
    finally:
        _idle.append(server)


def _outcome(told: Any) -> dict[str, Any]:
    return {"error": told.args[0]} if isinstance(told, Exception) else {"result": told}


async def _events(id_: Any, results: list[Any]) -> AsyncGenerator[bytes]:
    for one in results:
        if one == "break":
            raise asyncio.CancelledError
        if callable(one):
            await one()
        elif isinstance(one, bytes):
            yield one
        else:
            yield b"data: " + json.dumps({"jsonrpc": "2.0", "id": id_, **_outcome(one)}).encode() + b"\n\n"
