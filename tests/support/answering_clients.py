"""Clients that can be asked something, of either era, on a real front of a bridge in this process.

Behind the bridge are real processes: `servers/asking.py`, which ask back what a test tells them to.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.front_clients import OpenFront, open_front
from support.harness import eventually, python_server
from support.rpc import HttpClient, Message, Reply, envelope

__all__ = ["ACCEPT", "ALL", "FORM", "PAGE", "ROOTS", "SAMPLE", "Person", "World", "ask", "list_of", "of_ask", "world"]

ALL: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
"""Everything that a client can declare to be asked."""

FORM: Message = {
    "method": "elicitation/create",
    "params": {
        "message": "Who are you?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
PAGE: Message = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Sign in", "url": "https://example.com/in?a=1&b=2", "elicitationId": "e-1"},
}
SAMPLE: Message = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9},
}
ROOTS: Message = {"method": "roots/list"}
ACCEPT: Message = {"action": "accept", "content": {"name": "Ada"}}

Answers = Callable[[Message], Message | None]
"""What to answer to a question: a result, an error as `{"error": ...}`, or None for no answer."""


def ask(*questions: Message, then: list[Message] | None = None) -> list[Message]:
    """The steps of `play` that put these questions at once and wait for the answers. Their ids are "1", "2" …

    They are the next of one row for all, since a server must not use one twice; `of_ask` tells them.
    """
    ids = [str(next(_ids)) for _ in questions]
    sends = [{"send": {"id": id_, **question}} for id_, question in zip(ids, questions, strict=True)]
    return [*sends, {"await": ids}, *(then or [])]


_ids = itertools.count(1)


def of_ask(steps: list[Message]) -> list[str]:
    """The ids of the questions in these steps."""
    return [step["send"]["id"] for step in steps if "id" in step.get("send", {})]


def in_rounds(*questions: Message) -> list[Message]:
    """The rounds of `rounds` that put these questions at once."""
    requests = {f"k{number}": question for number, question in enumerate(questions, 1)}
    return [{"inputRequests": requests}]


@dataclass
class Person:
    """A client, and who sits behind it."""

    front: OpenFront
    modern: bool = False
    capabilities: Message = field(default_factory=lambda: ALL)
    asked: list[Message] = field(default_factory=list[Message])
    """The questions that it was shown, each with its method and params."""

    @property
    def client(self) -> Any:
        return self.front.client

    async def opens(self, version: str = "2025-11-25") -> "Person":
        """Get acquainted, as far as the era has that."""
        if not self.modern:
            await self.client.initialize(version, **self.capabilities)
        return self

    def begins(self, tool: str, *, meta: Message | None = None, **arguments: Any) -> asyncio.Task[Reply]:
        """Call a tool; questions are left to the test."""
        return self.front.start("tools/call", self.params(tool, arguments, meta))

    def params(self, tool: str, arguments: Message, meta: Message | None = None) -> Message:
        own = envelope(**{"io.modelcontextprotocol/clientCapabilities": self.capabilities}) if self.modern else {}
        return {"name": tool, "arguments": arguments, "_meta": {**own, **(meta or {})}}

    async def calls(self, tool: str, answers: Answers, *, meta: Message | None = None, **arguments: Any) -> Reply:
        """Call a tool and answer every question on the way."""
        return await self.requests("tools/call", self.params(tool, arguments, meta), answers)

    async def requests(self, method: str, params: Message, answers: Answers) -> Reply:
        """Make a request and answer every question on the way."""
        if not self.modern:
            return await self._answering(self.front.start(method, params), answers)
        while True:
            reply = await self.client.request(method, params)
            if "error" in reply.message or reply.result["resultType"] != "input_required":
                return reply
            given = {}
            for key, question in reply.result.get("inputRequests", {}).items():
                self.asked.append(question)
                if (answer := answers(question)) is not None:
                    given[key] = answer
            params = {**params, "requestState": reply.result["requestState"]}
            params.pop("inputResponses", None)
            if given:
                params["inputResponses"] = given

    async def _answering(self, call: asyncio.Task[Reply], answers: Answers) -> Reply:
        seen = len(self.client.arrived)
        async with asyncio.timeout(60):
            while True:
                for message in self.client.arrived[seen:]:
                    seen += 1
                    if "id" in message:
                        self.asked.append({key: message[key] for key in ("method", "params") if key in message})
                        if (answer := answers(message)) is not None:
                            await self.answers(message, answer)
                arrival = asyncio.ensure_future(self.client.arrival(seen))
                await asyncio.wait([call, arrival], return_when=asyncio.FIRST_COMPLETED)
                arrival.cancel()
                if call.done():
                    return call.result()

    async def answers(self, question: Message, answer: Message) -> None:
        """Answer one question of a legacy server."""
        outcome = answer if "error" in answer else {"result": answer}
        await self.front.answer({"jsonrpc": "2.0", "id": question["id"], **outcome})

    async def questioned(self, method: str, after: int = 0) -> Message:
        """The question with this method, now or later."""
        while True:
            message = await self.client.notice(method, after=after)
            if "id" in message:
                return message
            after = self.client.arrived.index(message, after) + 1

    async def asks_on(self, server: str, modern: bool, *questions: Message, answers: Answers) -> list[Any]:
        """Have a server put these questions at once; returns the answers that it got, in their order."""
        if modern:
            reply = await self.calls(f"{server}__rounds", answers, rounds=in_rounds(*questions))
            got = json.loads(reply.text)["answers"]
            return [got[f"k{number}"] for number in range(1, len(questions) + 1)]
        reply = await self.calls(f"{server}__play", answers, steps=ask(*questions))
        return list_of(reply)


def list_of(reply: Reply) -> list[Any]:
    """The answers that a server got during `play`, in the order of the questions."""
    got: Message = json.loads(reply.text)
    return [got[id_] for id_ in sorted(got, key=lambda id_: int(id_.strip('"')))]


class World:
    """A bridge in this process, and its front."""

    def __init__(self, bridge: Bridge, kind: str, folder: Path, stack: AsyncExitStack) -> None:
        self.bridge, self.kind = bridge, kind
        self._folder, self._stack = folder, stack
        self._url = ""

    async def person(self, *, modern: bool = False, version: str = "2025-11-25", **capabilities: Any) -> Person:
        """One more client. A front on standard streams has one only."""
        if self._url:
            front = await self._one_more()
        else:
            allowed = self.bridge.settings.http.projects
            opened = open_front(self.kind, self.bridge, self._folder, projects=allowed)
            front = await self._stack.enter_async_context(opened)
            self._url = getattr(front.client, "url", "")
        return await Person(front, modern, capabilities or ALL).opens(version)

    def journal(self, server: str) -> list[tuple[Any, Message]]:
        """All that the instances of a server were sent so far, each with the instance that got it."""
        path = self._folder / f"{server}.journal"
        return [(where, message) for where, message in map(json.loads, path.read_text().splitlines())]

    def sent(self, server: str, method: str = "") -> list[Message]:
        """The messages with this method that a server was sent so far; without one, the answers."""
        return [message for _, message in self.journal(server) if message.get("method", "") == method]

    async def gets(self, server: str, method: str = "", times: int = 1) -> Message:
        """The message with this method that the server is sent, now or later; without one, an answer."""

        async def look() -> list[Message]:
            return self.sent(server, method)

        return (await eventually(look, lambda found: len(found) >= times))[times - 1]

    async def _one_more(self) -> OpenFront:
        client = HttpClient(self._url, None)
        await self._stack.enter_async_context(client)

        async def answer(message: Message) -> None:
            response = await client.http.post(self._url, json=message, headers=client.headers(message))
            assert response.status_code == 202, response.text

        async def leave() -> None:
            for task in front.started:
                task.cancel()
            await asyncio.wait(front.started)

        async def spoil(data: bytes) -> Message:
            raise NotImplementedError

        front = OpenFront("http", client, leave, spoil, answer)
        return front


@asynccontextmanager
async def world(
    kind: str, folder: Path, servers: Message, *, program: str = "asking", **sections: Any
) -> AsyncIterator[World]:
    """A bridge in front of these servers: words for `servers/asking.py`, or a tuple of those and settings.

    `program` is another of the servers there that takes such words. Results pass whole, if `sections` do not say more.

    One over HTTP is started by this, and reached by its URL.
    """
    async with AsyncExitStack() as stack:
        configured: Message = {}
        for name, server in servers.items():
            words, more = server if isinstance(server, tuple) else (server, {})
            words = [*words, f"journal={folder / name}.journal"]
            if "http" in words:
                configured[name] = {"url": await stack.enter_async_context(_started(program, words)), **more}
            else:
                configured[name] = python_server(program, *words, **more)
        sections = {"results": {"strategy": "off"}, **sections}
        settings = Settings.model_validate({"servers": configured, **sections})
        async with asyncio.timeout(900):  # all tests of a file may share it
            bridge = await stack.enter_async_context(Bridge(settings))
            assert await bridge.settled(60)
            yield World(bridge, kind, folder, stack)


@asynccontextmanager
async def _started(program: str, words: list[str]) -> AsyncIterator[str]:
    command = python_server(program, *words)
    process = await asyncio.create_subprocess_exec(
        command["command"], *command["args"], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()
