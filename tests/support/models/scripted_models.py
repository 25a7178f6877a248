"""A server that answers as the APIs of language models do, by a script, and refuses what they refuse.

It speaks OpenAI's chat completions and responses and Anthropic's messages, in one piece and as a stream. Which turn of
the script is next, it reads off the history that it is sent: so a run can be gone on with in another process, and
several runs may go on side by side.

    PYTHONPATH=tests python -m support.models.scripted_models 8099 script.json

serves a script on a port (0: any), says its address on standard output, and goes on until standard input ends. The
script is a list of turns: `[{"text": "I add.", "calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}]`.
The argument `"$last"` stands for the text of the latest result. Clients find the server by `OPENAI_BASE_URL`
(`http://127.0.0.1:8099/v1`) and `ANTHROPIC_BASE_URL` (`http://127.0.0.1:8099`).
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.models.scripted_models_answers import (
    Said,
    anthropic_answer,
    anthropic_events,
    chat_answer,
    chat_events,
    responses_answer,
    responses_events,
)
from support.models.scripted_models_checks import Refused, check_anthropic, check_chat, check_responses

__all__ = ["Heard", "ModelServer", "ScriptedTurn", "scripted_models"]


@dataclass
class Heard:
    """One request that reached the server."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def turn(self) -> int:
        """How often the model has spoken before."""
        if self.path.endswith("/responses"):
            return _spoken_in_items(self.body["input"])
        return sum(message.get("role") == "assistant" for message in self.body["messages"])

    @property
    def results(self) -> list[str]:
        """The texts of the results that came since the model spoke last, in their order."""
        if self.path.endswith("/responses"):
            items = [item for item in self.body["input"] if isinstance(item, dict)]
            return [
                _text(item["output"]) for item in _last(items, lambda item: item.get("type") == "function_call_output")
            ]
        messages = self.body["messages"]
        if self.path.endswith("/messages"):
            content = messages[-1]["content"]
            blocks = [] if isinstance(content, str) else content
            return [_text(block.get("content", "")) for block in blocks if block.get("type") == "tool_result"]
        return [_text(message["content"]) for message in _last(messages, lambda message: message.get("role") == "tool")]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model is offered."""
        return [(tool.get("function") or tool)["name"] for tool in self.body.get("tools", ())]


Arguments = Mapping[str, Any] | str | Callable[[Heard], Mapping[str, Any]]
"""What a tool is called with: an object, a function of the request, or a text that stands where the JSON should."""


@dataclass
class ScriptedTurn:
    """What the model says once."""

    text: str = ""
    calls: Sequence[tuple[str, Arguments]] = ()
    """Names, as the model was told them, and arguments."""
    status: int = 200
    """Another: the API fails with this status."""
    held: asyncio.Event | None = None
    """The answer begins once this is set."""


@dataclass
class ModelServer:
    """What runs."""

    address: str
    """`http://127.0.0.1:PORT`: Anthropic's base URL."""
    turns: Sequence[ScriptedTurn]
    heard: list[Heard] = field(default_factory=list)
    """All requests, in their order."""
    refused: list[str] = field(default_factory=list)
    """Why requests were refused."""
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def openai(self) -> str:
        """OpenAI's base URL."""
        return f"{self.address}/v1"

    async def until(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with self.news:
            await self.news.wait_for(lambda: len(self.heard) >= count)


@asynccontextmanager
async def scripted_models(turns: Sequence[ScriptedTurn], *, port: int = 0) -> AsyncIterator[ModelServer]:
    """Serve a script on loopback. After its end the model says "Over." and calls nothing."""
    handlers: set[asyncio.Task[Any]] = set()
    server = ModelServer("", turns)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await answer_one(server, reader, writer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 26)
    server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await listening.wait_closed()


async def answer_one(server: ModelServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:] if line}
    path = head[0].split(" ")[1].partition("?")[0]
    heard = Heard(path, headers, json.loads(await reader.readexactly(int(headers.get("content-length", 0)))))
    async with server.news:
        server.heard.append(heard)
        server.news.notify_all()
    try:
        refuse(heard)
        turn, number = server.turns[heard.turn] if heard.turn < len(server.turns) else ScriptedTurn("Over."), heard.turn
    except Refused as error:
        server.refused.append(str(error))
        await send(writer, 400, json.dumps(failure(heard, 400, str(error))).encode())
        return
    if turn.held is not None:
        await turn.held.wait()
    if turn.status != 200:
        await send(writer, turn.status, json.dumps(failure(heard, turn.status, "It fails.")).encode())
    elif heard.body.get("stream"):
        await send_events(writer, events_of(heard, said(turn, heard), number))
    else:
        await send(writer, 200, json.dumps(answer_of(heard, said(turn, heard), number)).encode())


def said(turn: ScriptedTurn, heard: Heard) -> Said:
    """What the model says in answer to this."""
    mark = "toolu" if heard.path.endswith("/messages") else "call"
    calls: list[tuple[str, str, str]] = []
    for number, (name, arguments) in enumerate(turn.calls):
        given = arguments(heard) if callable(arguments) else arguments
        raw = given if isinstance(given, str) else json.dumps(given)
        calls.append((f"{mark}_{heard.turn}_{number}", name, raw))
    return turn.text, calls


def refuse(heard: Heard) -> None:
    """Raise what the API would refuse the request for."""
    if heard.path.endswith("/chat/completions"):
        check_chat(heard.body)
    elif heard.path.endswith("/responses"):
        check_responses(heard.body)
    elif heard.path.endswith("/messages"):
        check_anthropic(heard.body)
    else:
        raise Refused(f"Unknown request URL: {heard.path}")


def answer_of(heard: Heard, said: Said, turn: int) -> dict[str, Any]:
    if heard.path.endswith("/chat/completions"):
        return chat_answer(said, turn)
    return responses_answer(said, turn) if heard.path.endswith("/responses") else anthropic_answer(said, turn)


def events_of(heard: Heard, said: Said, turn: int) -> Iterable[bytes]:
    if heard.path.endswith("/chat/completions"):
        with_usage = heard.body.get("stream_options", {}).get("include_usage", False)
        return chat_events(said, turn, with_usage=with_usage)
    return responses_events(said, turn) if heard.path.endswith("/responses") else anthropic_events(said, turn)


def failure(heard: Heard, status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status == 400 else "api_error"
    if heard.path.endswith("/messages"):
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


async def send(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def send_events(writer: asyncio.StreamWriter, events: Iterable[bytes]) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for data in events:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _spoken_in_items(items: str | Sequence[Mapping[str, Any]]) -> int:
    turns, was_own = 0, False
    for item in [] if isinstance(items, str) else items:
        is_own = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        turns += is_own and not was_own
        was_own = is_own
    return turns


def _last(items: Sequence[Mapping[str, Any]], is_one: Callable[[Mapping[str, Any]], bool]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for item in reversed(items):
        if not is_one(item):
            break
        found.insert(0, item)
    return found


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _turns_in(script: str) -> list[ScriptedTurn]:
    def arguments(given: Any) -> Arguments:
        if isinstance(given, str):
            return given
        return lambda heard: {key: heard.results[-1] if value == "$last" else value for key, value in given.items()}

    return [
        ScriptedTurn(
            turn.get("text", ""), [(call["name"], arguments(call["arguments"])) for call in turn.get("calls", ())]
        )
        for turn in json.loads(script)
    ]


async def _serve(port: int, script: str) -> None:
    async with scripted_models(_turns_in(script), port=port) as server:
        print(server.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for message in server.refused:
            print(f"refused: {message}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]).read_text("utf-8")))
