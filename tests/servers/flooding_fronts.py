"""`flooding.py` over HTTP+SSE (`sse`), streamable HTTP (`http`) or WebSocket (`ws`); prints its URL on the first line.

Each client that connects has a flooding process of its own; what that says unasked goes into the stream of the client.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

FLOODING = Path(__file__).with_name("flooding.py")


async def flooding() -> Process:
    """A new one."""
    return await asyncio.create_subprocess_exec(sys.executable, str(FLOODING), stdin=PIPE, stdout=PIPE)


def tell(process: Process, message: bytes) -> None:
    """Give it a message."""
    assert process.stdin is not None
    process.stdin.write(message + b"\n")


async def speak(connection: ServerConnection) -> None:
    """Serve a client over WebSocket."""
    process = await flooding()
    assert process.stdout is not None

    async def send(lines: asyncio.StreamReader) -> None:
        with suppress(ConnectionClosed):
            while line := await lines.readline():
                await connection.send(line.decode())

    sending = asyncio.create_task(send(process.stdout))
    with suppress(ConnectionClosed):
        async for message in connection:
            tell(process, message.encode() if isinstance(message, str) else message)
    process.kill()
    await sending


class Http:
    """One client over HTTP: its process, the stream that it listens to, and the answers that are waited for."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.process: Process | None = None
        self.stream: asyncio.StreamWriter | None = None
        self.asked: dict[str, asyncio.Future[bytes]] = {}

    async def read(self) -> None:
        """Send each line to whom it concerns; slowly, if the client is slow."""
        assert self.process is not None
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            id_ = None if b'"id"' not in line else json.dumps(json.loads(line).get("id"))
            if id_ in self.asked:
                self.asked.pop(id_).set_result(line.strip())
            elif self.stream is not None:
                self.stream.write(b"data: " + line.strip() + b"\n\n")
                await self.stream.drain()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                sizes = [line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length")]
                await self.answer(head.split(" ")[0], await reader.readexactly(int(sizes[0]) if sizes else 0), writer)

    async def answer(self, method: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        """One request."""
        if self.process is None:
            self.process = await flooding()
            self.reading = asyncio.create_task(self.read())
        if method == "GET":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            if self.kind == "sse":
                writer.write(b"event: endpoint\ndata: /post\n\n")
            self.stream = writer
            return
        message: Any = json.loads(body) if body else {}
        answered = None
        if self.kind == "http" and "id" in message and "method" in message:
            answered = self.asked[json.dumps(message["id"])] = asyncio.get_running_loop().create_future()
        if body:
            tell(self.process, body)
        data = await answered if answered is not None else b""
        status = b"200 OK\r\nContent-Type: application/json" if data else b"202 Accepted"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data))


async def main(kind: str) -> None:
    """Serve until killed."""
    if kind == "ws":
        async with serve(speak, "127.0.0.1", 0, subprotocols=[Subprotocol("mcp")], compression=None) as serving:
            print(f"ws://127.0.0.1:{serving.sockets[0].getsockname()[1]}/", flush=True)
            await serving.serve_forever()
    listening = await asyncio.start_server(Http(kind).serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/{'mcp' if kind == 'http' else 'sse'}", flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1]))
