"""The same server over streamable HTTP: stateless, JSON answers, one path.

upstream_http.py PORT [TOOLS]
"""

import asyncio
import sys

import orjson
from upstream_stdio import answer, set_tools

try:
    from uvloop import run
except ImportError:
    from asyncio import run

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_EMPTY = b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests are answered in order."""

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while request := self._next():
            self._out.write(self._respond(*request))

    def _next(self) -> tuple[bytes, bytes] | None:
        """Take one whole request, head and body, out of the buffer; None while it is not all there."""
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        low = head.lower()
        if b"transfer-encoding: chunked" in low:
            body, at = b"", 0
            while True:
                line, found, after = rest[at:].partition(b"\r\n")
                size = int(line, 16) if found else 0
                if not found or len(after) < size + 2:
                    return None
                body += after[:size]
                at += len(line) + 2 + size + 2
                if not size:
                    break
        else:
            where = low.find(b"content-length:")
            at = int(low[where + 15 :].split(b"\r\n", 1)[0]) if where >= 0 else 0
            if len(rest) < at:
                return None
            body = rest[:at]
        self._buffer = rest[at:]
        return head, body

    def _respond(self, head: bytes, body: bytes) -> bytes:
        method, path, _ = head.split(b" ", 2)
        if path != b"/mcp":  # a client that looks for OAuth metadata must find none
            return _EMPTY % b"404 Not Found"
        if method != b"POST":
            return _EMPTY % b"405 Method Not Allowed"
        message = orjson.loads(body)
        if "id" not in message:
            return _EMPTY % b"202 Accepted"
        data = answer(message)
        return _ANSWER % (len(data), data)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    set_tools(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    run(main())
