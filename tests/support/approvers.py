"""Ways for a person to answer whether a call may be made: one for each approver, on a bridge in this process."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio
import httpx2

from mcpbridge.app.admin.control_client import ask, sockets
from mcpbridge.app.admin.control_commands import approval_answers
from mcpbridge.app.admin.control_socket import publish
from mcpbridge.app.admin.http_api import make_api
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.protocol.jsonrpc import decode_frame
from support.console_pages import visiting
from support.front_clients import http_server
from support.in_process_bridge import BridgeToScripts, Ear, envelope, frame_of
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

__all__ = ["ADMIN", "WAYS", "Way", "approving", "is_refused"]

Message = dict[str, Any]

ADMIN = "the-token-of-the-administrator"
_ANSWERS: dict[str, Message] = {
    "once": {"decision": "approve", "for": "once"},
    "session": {"decision": "approve", "for": "session"},
    "no": {"decision": "deny"},
}


class Way:
    """A client that calls, and a person who is asked in one of the ways. The base answers through the desk itself."""

    ask = "pending"
    capabilities: ClassVar[Message] = {}

    def __init__(self, bridge: BridgeToScripts, transport: ScriptedTransport) -> None:
        self.bridge, self.transport = bridge, transport
        self.ear = Ear(bridge.server)
        self.last_id = 0
        self.answered = 0

    async def opens(self, stack: AsyncExitStack, folder: Path) -> None:
        """Get acquainted."""
        params = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities}
        await self.ear.ask("initialize", {**params, "clientInfo": {"name": "ear", "version": "1"}})
        self.ear.tell("notifications/initialized")

    def begins(self, tool: str = "up__echo", **arguments: Any) -> "asyncio.Task[Message]":
        """Make a call; its result, or an error as `{"error": …}`."""
        self.last_id += 1
        return asyncio.ensure_future(self._call(b"%d" % self.last_id, {"name": tool, "arguments": arguments}))

    async def _call(self, id_: bytes, params: Message) -> Message:
        answer = await self.ear.ask("tools/call", params, id_)
        return answer.get("result", answer)

    async def is_asked(self, times: int = 1) -> list[str]:
        """The ids of what waits, once there is so much of it."""
        with anyio.fail_after(30):
            while len(found := [pending.request.id for pending in await self.bridge.approvals.pending()]) < times:
                await asyncio.sleep(0.005)
        return found

    async def says(self, word: str) -> None:
        """Answer the question that is there, or comes: `once`, `session` or `no`."""
        [id_, *_] = await self.is_asked()
        await self.decide(id_, word)

    async def decide(self, id_: str, word: str) -> None:
        await self.bridge.approvals.decide(id_, None if word == "no" else word, "somebody")  # type: ignore[arg-type]

    async def says_nothing(self) -> None:
        """The question is there, and gets no answer."""
        await self.is_asked()

    async def withdraws(self, call: "asyncio.Task[Message]") -> None:
        """The client cancels the call that is asked for."""
        self.ear.tell("notifications/cancelled", {"requestId": self.last_id})
        await call

    @property
    def arrived(self) -> int:
        """Calls that the server got."""
        return len(self.transport.asked("tools/call"))


class ByCommand(Way):
    """What `mcpbridge approve` does: through the control socket."""

    async def opens(self, stack: AsyncExitStack, folder: Path) -> None:
        await super().opens(stack, folder)
        directory = folder / "run"
        await stack.enter_async_context(publish(approval_answers(self.bridge.approvals), directory))
        [self.path] = sockets(directory)

    async def is_asked(self, times: int = 1) -> list[str]:
        with anyio.fail_after(30):
            while len(found := await self._waiting()) < times:
                await asyncio.sleep(0.005)
        return found

    async def _waiting(self) -> list[str]:
        document = await asyncio.to_thread(ask, self.path, {"do": "approvals"})
        assert document is not None
        waiting: Any = document["approvals"]
        return [one["id"] for one in waiting]

    async def decide(self, id_: str, word: str) -> None:
        document = await asyncio.to_thread(ask, self.path, {"do": "decide", "id": id_, **_ANSWERS[word]})
        assert document is not None
        assert "error" not in document, document


class ByHttp(Way):
    """The HTTP API."""

    async def opens(self, stack: AsyncExitStack, folder: Path) -> None:
        await super().opens(stack, folder)
        mounts = {"/api": lambda: make_api(self.bridge.approvals)}
        served = await stack.enter_async_context(
            http_server(self.bridge, HttpSettings(), mounts=mounts, admin_token=ADMIN)
        )
        http = httpx2.AsyncClient(
            base_url=served.origin, headers={"authorization": f"Bearer {ADMIN}"}, trust_env=False, timeout=60
        )
        self.http = await stack.enter_async_context(http)

    async def is_asked(self, times: int = 1) -> list[str]:
        with anyio.fail_after(30):
            while True:
                response = await self.http.get("/api/approvals")
                assert response.status_code == 200, response.text
                if len(found := [one["id"] for one in response.json()["approvals"]]) >= times:
                    return found
                await asyncio.sleep(0.005)

    async def decide(self, id_: str, word: str) -> None:
        response = await self.http.post(f"/api/approvals/{id_}", json=_ANSWERS[word])
        assert response.status_code == 200, response.text


class ByConsole(Way):
    """The buttons of the console's page."""

    async def opens(self, stack: AsyncExitStack, folder: Path) -> None:
        await super().opens(stack, folder)
        self.visitor = await stack.enter_async_context(visiting(self.bridge))

    async def is_asked(self, times: int = 1) -> list[str]:
        with anyio.fail_after(30):
            while True:
                page = await self.visitor.get("/approvals")
                if len(found := re.findall(r'data-approval="([^"]+)"', page.text)) >= times:
                    return found
                await asyncio.sleep(0.005)

    async def decide(self, id_: str, word: str) -> None:
        answer = {"answer": "deny" if word == "no" else word}
        response = await self.visitor.post(f"/approvals/{id_}", data=answer)
        assert response.status_code == 303, response.text


class ByHandler(Way):
    """A function of the program."""

    ask = ""

    def __init__(self, bridge: BridgeToScripts, transport: ScriptedTransport) -> None:
        super().__init__(bridge, transport)
        self.waiting: list[tuple[ApprovalRequest, asyncio.Future[Any]]] = []
        bridge.handle = self.handle  # type: ignore[attr-defined]

    async def handle(self, request: ApprovalRequest) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((request, answer))
        return await answer

    async def is_asked(self, times: int = 1) -> list[str]:
        with anyio.fail_after(30):
            while len(found := [request.id for request, answer in self.waiting if not answer.done()]) < times:
                await asyncio.sleep(0.005)
        return found

    async def decide(self, id_: str, word: str) -> None:
        [answer] = [answer for request, answer in self.waiting if request.id == id_]
        answer.set_result({"once": True, "session": "session", "no": False}[word])


class ByLegacyClient(Way):
    """A form, as a request to the client."""

    ask = "client"
    capabilities: ClassVar[Message] = {"elicitation": {}}
    method = "elicitation/create"

    def _questions(self) -> list[Message]:
        gone = [m["params"]["requestId"] for m in self.ear.meanwhile if m["method"] == "notifications/cancelled"]
        asked = [message for message in self.ear.meanwhile if message["method"] == self.method]
        return [message for message in asked[self.answered :] if message["id"] not in gone]

    async def is_asked(self, times: int = 1) -> list[str]:
        with anyio.fail_after(30):
            while len(found := self._questions()) < times:
                await asyncio.sleep(0.005)
        return [str(message["id"]) for message in found]

    async def says(self, word: str) -> None:
        await self.is_asked()
        question = self._questions()[0]
        self.answered = [m for m in self.ear.meanwhile if m["method"] == self.method].index(question) + 1
        self.gives(question, said(word))

    def gives(self, question: Message, result: Message) -> None:
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        self.bridge.server.answered(self.ear.client, decode_frame(json.dumps(answer).encode()))


class ByModernClient(Way):
    """A form, as the answer to the call, which comes back with what was said."""

    ask = "client"

    def __init__(self, bridge: BridgeToScripts, transport: ScriptedTransport) -> None:
        super().__init__(bridge, transport)
        self.meta = envelope(**{"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
        self.questions: asyncio.Queue[tuple[Message, asyncio.Future[str]]] = asyncio.Queue()

    async def opens(self, stack: AsyncExitStack, folder: Path) -> None:
        """There is no handshake."""

    async def _call(self, id_: bytes, params: Message) -> Message:
        while True:
            frame = frame_of("tools/call", {**params, "_meta": self.meta}, id_)
            answer = await self.bridge.server.answer(
                modern_client(frame), frame, self.ear.hear, cancel_as=self.ear.client
            )
            message = json.loads(answer.data or b"{}")
            result = message.get("result", message)
            if result.get("resultType") != "input_required":
                return result
            [(key, question)] = result["inputRequests"].items()
            word: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            if "inputResponses" in params or "requestState" not in params:
                self.questions.put_nowait((question, word))
                spoken = await word
            else:
                spoken = ""  # it came back with nothing, and is told the same again
            params = {**params, "requestState": result["requestState"]}
            params.pop("inputResponses", None)
            if spoken:
                params["inputResponses"] = {key: said(spoken)}
            self.last_id += 1
            id_ = b"%d" % self.last_id

    async def is_asked(self, times: int = 1) -> list[str]:
        with anyio.fail_after(30):
            while self.questions.qsize() < times:
                await asyncio.sleep(0.005)
        return [""] * times

    async def says(self, word: str) -> None:
        _, answer = await self.questions.get()
        answer.set_result(word)

    async def says_nothing(self) -> None:
        await self.says("")

    async def withdraws(self, call: "asyncio.Task[Message]") -> None:
        """Nothing runs that could be cancelled; it does not come back, and its channel ends."""
        await self.is_asked()
        call.cancel()
        await asyncio.wait([call])
        self.ear.leave()


def said(word: str) -> Message:
    """The answer to the form."""
    if word in ("decline", "cancel"):
        return {"action": word}
    return {"action": "accept", "content": {"decision": word}}


WAYS: dict[str, Callable[[BridgeToScripts, ScriptedTransport], Way]] = {
    "client, legacy": ByLegacyClient,
    "client, modern": ByModernClient,
    "command": ByCommand,
    "http": ByHttp,
    "console": ByConsole,
    "handler": ByHandler,
}


class _Handled(BridgeToScripts):
    """A bridge whose handler is set later."""

    def __init__(self, settings: Settings, transports: dict[str, ScriptedTransport], *, has_handler: bool) -> None:
        super().__init__(settings, transports)
        self.handle: Any = None
        if has_handler:
            self._approver = lambda request: self.handle(request)  # noqa: PLW0108 - it is there later


@asynccontextmanager
async def approving(
    kind: Callable[[BridgeToScripts, ScriptedTransport], Way], folder: Path, **approval: Any
) -> AsyncIterator[Way]:
    """A bridge whose server `up` has the tool `echo`, of which every call needs somebody to agree."""
    wanted = getattr(kind, "ask", "")
    approval = {"ask": [wanted] if wanted else [], **approval}
    settings = Settings.model_validate(
        {
            "servers": {"up": {"command": "scripted", "permission": "require_approval"}},
            "store": {"kind": "memory"},
            "approval": approval,
        }
    )
    transport = ScriptedTransport(LEGACY_SERVER)
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(120))
        bridge = _Handled(settings, {"up": transport}, has_handler=kind is ByHandler)
        await stack.enter_async_context(bridge)
        assert await bridge.settled(30)
        way = kind(bridge, transport)
        await way.opens(stack, folder)
        yield way


def is_refused(result: Message, *words: str) -> bool:
    """Whether this is the result of a call that nobody agreed to, and says these words."""
    text = result["content"][0]["text"]
    assert result["isError"], result
    return result["_meta"]["mcpbridge/error"] == "ApprovalRefused" and all(word in text for word in words)
