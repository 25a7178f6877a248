"""Clients that cost next to nothing, so that what is measured is the server.

They block, they keep a fixed number of requests in flight (a closed loop), and inside the loop they look at no more of
an answer than they must: its id when several are in flight, and a marker that a right answer holds.
"""

import gc
import os
import select
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import orjson

__all__ = ["Batch", "CallFailed", "Client", "HttpClient", "Piped", "StdioClient"]

_PATIENCE = 30.0
"""Seconds without a byte until a server counts as stuck."""

_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class CallFailed(Exception):
    """A server answered wrongly, or not at all."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a closed loop saw."""

    latencies: list[int]
    """Nanoseconds of each call, sorted."""
    seconds: float
    """From the first request to the last answer."""
    own: float
    """Seconds of CPU that the client itself took meanwhile."""

    @property
    def calls(self) -> int:
        return len(self.latencies)

    def microseconds(self, share: float) -> float:
        """The latency that `share` of the calls did not exceed."""
        return self.latencies[min(int(self.calls * share), self.calls - 1)] / 1000


class Client(Protocol):
    """One MCP client."""

    def request(self, method: str, params: Any) -> Any:
        """The result. Raises CallFailed."""
        ...

    def notify(self, method: str) -> None: ...

    def load(self, method: str, params: Any, *, marker: bytes, in_flight: int, seconds: float) -> Batch:
        """Keep `in_flight` calls under way for `seconds`, then wait for the last. Raises CallFailed."""
        ...

    def close(self) -> None: ...


def handshake(client: Client) -> None:
    client.request("initialize", _HELLO)
    client.notify("notifications/initialized")


class _Envelope(msgspec.Struct):
    id: int | str | None = None
    method: str = ""


_envelope = msgspec.json.Decoder(_Envelope)


def _notification(method: str) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "method": method})


class _Requests:
    """Encodes the same request again and again under new ids."""

    def __init__(self) -> None:
        self.count = 0

    def one(self, method: str, params: Any) -> bytes:
        return self.template(method, params) % self.next()

    def next(self) -> int:
        self.count += 1
        return self.count

    @staticmethod
    def template(method: str, params: Any) -> bytes:
        body = orjson.dumps({"method": method, "params": params})[1:].replace(b"%", b"%%")
        return b'{"jsonrpc":"2.0","id":%d,' + body


def _result(message: Any, method: str) -> Any:
    if "error" in message:
        raise CallFailed(f"{method}: {orjson.dumps(message['error']).decode()[:300]}")
    result = message["result"]
    if isinstance(result, dict) and result.get("isError"):
        raise CallFailed(f"{method}: {orjson.dumps(result.get('content')).decode()[:300]}")
    return result


@contextmanager
def _undisturbed() -> Generator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Piped(Protocol):
    """A process with pipes, or what has the like."""

    @property
    def stdin(self) -> "_End | None": ...

    @property
    def stdout(self) -> "_End | None": ...


class _End(Protocol):
    def fileno(self) -> int: ...

    def close(self) -> None: ...


class StdioClient:
    """Speaks to a process that it was handed, with pipes; closing shuts the process's input."""

    def __init__(self, process: Piped) -> None:
        assert process.stdin
        assert process.stdout
        self._process = process
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._parts: list[bytes] = []
        self._requests = _Requests()

    def request(self, method: str, params: Any) -> Any:
        self._write(self._requests.one(method, params) + b"\n")
        while True:
            for line in self._lines():
                message = _parsed(line)
                if message.get("id") == self._requests.count and "method" not in message:
                    return _result(message, method)
                self._oblige(line)

    def notify(self, method: str) -> None:
        self._write(_notification(method) + b"\n")

    def load(self, method: str, params: Any, *, marker: bytes, in_flight: int, seconds: float) -> Batch:
        template = self._requests.template(method, params) + b"\n"
        clock, next_id = time.perf_counter_ns, self._requests.next
        started: dict[int | str | None, int] = {}
        latencies: list[int] = []
        with _undisturbed():
            own = time.process_time()
            begin = now = clock()
            end = begin + int(seconds * 1e9)
            for _ in range(in_flight):
                new = next_id()
                started[new] = clock()
                self._write(template % new)
            while started:
                lines = self._lines()
                now = clock()
                for line in lines:
                    if marker not in line:
                        self._oblige(line)
                        continue
                    # One call in flight needs no look at the id: reading 1 MB for it would cost more than the call.
                    done = next(iter(started)) if in_flight == 1 else _envelope.decode(line).id
                    latencies.append(now - started.pop(done))
                    if now < end:
                        new = next_id()
                        started[new] = now
                        # One write each: sixteen callers do not club together, and a server must not gain from it.
                        self._write(template % new)
            own = time.process_time() - own
        latencies.sort()
        return Batch(latencies, (now - begin) / 1e9, own)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def _lines(self) -> list[bytes]:
        """Wait for bytes; the whole lines there are now, perhaps none."""
        if not self._poll.poll(_PATIENCE * 1000):
            raise CallFailed(f"no answer within {_PATIENCE:g} s")
        chunk = os.read(self._out, 1 << 20)
        if not chunk:
            raise CallFailed("the process ended its output")
        first, *more = chunk.split(b"\n")
        self._parts.append(first)
        if not more:
            return []
        lines = [b"".join(self._parts), *more[:-1]]
        self._parts = [more[-1]]
        return [line for line in lines if line]

    def _oblige(self, line: bytes) -> None:
        """A message that answers none of our calls: a request of the server gets an empty result."""
        message = _parsed(line)
        if "method" not in message:
            raise CallFailed(f"not the answer that was expected: {line[:300]!r}")
        if "id" in message:
            self._write(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}) + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._in, data) :]
        except BrokenPipeError as error:
            raise CallFailed("the process closed its input") from error


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CallFailed(f"not JSON: {line[:300]!r}") from error


class _Connection:
    """One keep-alive HTTP connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=_PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = b""
        self._buffer = bytearray()

    def receive(self) -> bytes | None:
        """Read once; the whole body when it is there. `head` is the head of the last response."""
        # A server that writes head and body apart and leaves Nagle's algorithm on waits for our acknowledgement, which
        # the kernel delays by 40 ms for a client that only waits. Clients in use do not meet this: the SDK's saw 2 ms
        # where this loop saw 44. The option lasts for one read.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        try:
            chunk = self.socket.recv(1 << 18)
        except TimeoutError as error:
            raise CallFailed(f"no answer within {_PATIENCE:g} s") from error
        if not chunk:
            raise CallFailed("the server closed the connection")
        self._buffer += chunk
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return None
        head = bytes(self._buffer[:end]).lower()
        where = head.find(b"content-length:")
        if where >= 0:
            whole = end + int(head[where + 15 : head.index(b"\r\n", where)])
            if len(self._buffer) < whole:
                return None
            body = bytes(self._buffer[end:whole])
        elif b"transfer-encoding: chunked" in head:
            if not self._buffer.endswith(b"0\r\n\r\n"):
                return None
            body = _unchunked(bytes(self._buffer[end:]))
        else:
            body = b""
        self.head = bytes(self._buffer[:end])
        self._buffer.clear()
        status = int(head.split(b" ", 2)[1])
        if status >= 400:
            raise CallFailed(f"HTTP {status}: {body[:300]!r}")
        return body


def _unchunked(data: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, _, data = data.partition(b"\r\n")
        if not (length := int(size.split(b";")[0], 16)):
            return b"".join(parts)
        parts.append(data[:length])
        data = data[length + 2 :]


class HttpClient:
    """One legacy session over streamable HTTP.

    A closed loop has one keep-alive connection for each call in flight, opened before the clock starts and closed at
    its end: servers hang up on connections that are idle while others take their turn.
    """

    def __init__(self, url: str) -> None:
        host, _, path = url.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        self._address = (name, int(port))
        self._start = (
            f"POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
            "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n"
        ).encode()
        self._requests = _Requests()

    def request(self, method: str, params: Any) -> Any:
        body = self._post(self._requests.one(method, params))
        return _result(self._message(body), method)

    def notify(self, method: str) -> None:
        self._post(_notification(method))

    def load(self, method: str, params: Any, *, marker: bytes, in_flight: int, seconds: float) -> Batch:
        template = self._requests.template(method, params)
        clock, next_id = time.perf_counter_ns, self._requests.next
        latencies: list[int] = []
        poll = select.poll()
        started: dict[int, int] = {}
        with ExitStack() as stack:
            by_socket: dict[int, _Connection] = {}
            for _ in range(in_flight):
                connection = _Connection(self._address)
                stack.callback(connection.socket.close)
                by_socket[connection.socket.fileno()] = connection
                poll.register(connection.socket, select.POLLIN)
            stack.enter_context(_undisturbed())
            own = time.process_time()
            begin = now = clock()
            end = begin + int(seconds * 1e9)
            for number, connection in by_socket.items():
                started[number] = clock()
                connection.socket.sendall(self._framed(template % next_id()))
            while started:
                ready = poll.poll(_PATIENCE * 1000)
                if not ready:
                    raise CallFailed(f"no answer within {_PATIENCE:g} s")
                for number, _ in ready:
                    connection = by_socket[number]
                    body = connection.receive()
                    if body is None:
                        continue
                    now = clock()
                    if marker not in body:
                        raise CallFailed(f"not the answer that was expected: {body[:300]!r}")
                    latencies.append(now - started.pop(number))
                    if now < end:
                        started[number] = now
                        connection.socket.sendall(self._framed(template % next_id()))
            own = time.process_time() - own
        latencies.sort()
        return Batch(latencies, (now - begin) / 1e9, own)

    def close(self) -> None:
        return

    def _framed(self, body: bytes) -> bytes:
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._start, len(body), body)

    def _post(self, body: bytes) -> bytes:
        connection = _Connection(self._address)
        with connection.socket:
            connection.socket.sendall(self._framed(body))
            while (answer := connection.receive()) is None:
                pass
        for line in connection.head.split(b"\r\n"):
            if line.lower().startswith(b"mcp-session-id:") and line not in self._start:
                self._start += line + b"\r\n"
        return answer

    def _message(self, body: bytes) -> dict[str, Any]:
        """The response in a body that is JSON, or an event stream that holds it."""
        if body.startswith(b"{"):
            return _parsed(body)
        for line in body.splitlines():
            if line.startswith(b"data:") and line[5:].strip():
                message = _parsed(line[5:])
                if "method" not in message:
                    return message
        raise CallFailed(f"no response in {body[:300]!r}")
