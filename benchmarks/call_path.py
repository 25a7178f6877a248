"""Which functions one tools/call passes on its way: `python -m benchmarks.call_path [WAY]`, or the way `tools/list`.

The way is the whole one: the client's frame comes in on standard input or a socket, the upstream's frame goes out to a
process, its answer comes in, the answer to the client goes out. The bridge is a real one in this process, and warm; its
settings are the default ones and what `WAYS` adds. It prints every entry into a function of the bridge, in order, with
its file. A coroutine counts once, however often it goes on. Functions of libraries do not count. The figures depend on
the code alone, not on the machine: a test holds the counts (`tests/benchmarks/test_call_path.py`), by the record that
`--record FILE` writes. Of tools/list it is the first one of a client, for which the list is made.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import mcpbridge
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.http.server import bind_port, serve_http
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.settings import RunMode

__all__ = ["WAYS", "C", "Entry", "Way", "main", "trace_call", "trace_list"]

_PACKAGE = str(Path(mcpbridge.__file__).parent)

_WARM = 20
"""Calls before the one that is counted: plans are compiled, counters and caches filled."""

_COUNTED = 5
"""Calls that are looked at: the one with the fewest entries counts, in which nothing fell that happens every second."""

_ANSWERS = """
import json, sys
IS_MODERN = "modern" in sys.argv
TOOL = {"name": "echo", "description": "Return the text.", "inputSchema": {
    "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
def answer_to(asked):
    method, params = asked.get("method"), asked.get("params", {})
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if IS_MODERN and method == "server/discover":
        answer["result"] = {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                            "capabilities": {"tools": {}}}
    elif IS_MODERN and method == "tools/list":
        answer["result"] = {"resultType": "complete", "tools": [TOOL]}
    elif IS_MODERN and method == "tools/call":
        text = {"type": "text", "text": params["arguments"]["text"]}
        answer["result"] = {"resultType": "complete", "content": [text], "_meta": {
            "io.modelcontextprotocol/serverInfo": {"name": "stub", "version": "1"}}}
    elif method == "initialize":
        answer["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "stub", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    return answer
"""
_UPSTREAM = f"""{_ANSWERS}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        print(json.dumps(answer_to(asked)), flush=True)
"""
_HTTP_UPSTREAM = (
    _ANSWERS
    + r"""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def say(self, status, body=b""):
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)
    def do_GET(self):
        self.say(405)
    def do_DELETE(self):
        self.say(200)
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = answer_to(asked) if "id" in asked else None
        self.say(200 if answer else 202, json.dumps(answer).encode() if answer else b"")
    def log_message(self, *args):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
)


class Way(NamedTuple):
    """One way of a call."""

    front: str = "stdio"
    """`stdio` or `http`."""
    upstream: str = "stdio"
    """The same of the server; that is a process in any case."""
    is_modern: bool = False
    """The client is of revision 2026-07-28: no session, and each request says who sends it."""
    is_to_modern: bool = False
    """The same of the server."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` of the call."""
    capabilities: Mapping[str, Any] = {}
    """Those of the client."""
    sections: Mapping[str, Any] = {}
    """Sections of the configuration."""
    server: Mapping[str, Any] = {}
    """Keys of the server."""
    mode: RunMode = "embedded"
    """How the bridge runs."""


WAYS = {
    "plain": Way(),
    "without pins and scanner": Way(sections={"pin": "off"}, server={"text_trust": "high"}),
    "plain over HTTP": Way("http"),
    "plain to HTTP": Way(upstream="http"),
    "plain from HTTP to HTTP": Way("http", "http"),
    "with _meta": Way(meta={"vendor/trace": "x"}),
    "with _meta over HTTP": Way("http", meta={"vendor/trace": "x"}),
    "with a progress token": Way(meta={"progressToken": 7}),
    "from a client that can be asked, to HTTP": Way(upstream="http", capabilities={"elicitation": {}}),
    "from a client that can be asked, HTTP to HTTP": Way("http", "http", capabilities={"elicitation": {}}),
    "modern client": Way(is_modern=True),
    "modern client over HTTP": Way("http", is_modern=True),
    "modern server": Way(is_to_modern=True),
    "modern server over HTTP": Way(upstream="http", is_to_modern=True),
    "modern client and server": Way(is_modern=True, is_to_modern=True),
    "modern client and server, HTTP to HTTP": Way("http", "http", is_modern=True, is_to_modern=True),
    "results as they come": Way(sections={"results": {"strategy": "off"}}),
    "call log": Way(sections={"call_log": {"enabled": True}}),
    "history": Way(sections={"store": {"kind": "sqlite"}}, mode="own"),
    "no history": Way(sections={"store": {"kind": "sqlite"}, "call_log": {"enabled": False}}, mode="own"),
    "rule on arguments": Way(
        sections={
            "permissions": [
                {"tools": ["up/*"], "when": "args.text.startsWith('secret')", "permission": "require_approval"}
            ]
        }
    ),
    "rate limit": Way(sections={"calls": {"rate_limit": "1000000/s"}}),
    "call budget": Way(sections={"calls": {"max_calls": 1_000_000_000}}),
    "concurrency limit": Way(sections={"calls": {"max_per_client": 64}}),
    "deadline": Way(server={"tool": {"echo": {"call_timeout": 20}}}),
    "retry": Way(server={"trusted": True, "tool": {"echo": {"read_only": True, "retry": 3}}}),
    "secrets redacted": Way(server={"redact": ["secrets"]}),
    "cache": Way(server={"trusted": True, "tool": {"echo": {"read_only": True, "cache": 600}}}),
}
"""What is counted: the plain call on both fronts, and with each stage that can be on without a person."""


C = "C: "
"""What names of functions of C begin with."""


class Entry(NamedTuple):
    """One entry into a function of the bridge."""

    path: str
    """The file, below the package."""
    function: str
    """The function's qualified name."""


async def trace_call(way: Way, *, with_c: bool = False) -> list[Entry]:
    """The entries of one call, in order. `with_c`: also those into functions of C, named by what called them."""
    client = _client if way.front == "stdio" else _http_client
    with TemporaryDirectory() as directory, _upstream(way.upstream, is_modern=way.is_to_modern) as reached:
        server = {**reached, **way.server}
        sections: dict[str, Any] = {"store": {"kind": "memory"}, **way.sections, "servers": {"up": server}}
        sections["call_log"] = {"path": f"{directory}/calls.db", **sections.get("call_log", {})}
        if sections["store"]["kind"] == "sqlite":
            sections["store"] = {**sections["store"], "path": f"{directory}/store.db"}
        settings = Settings.model_validate(sections)
        async with (
            asyncio.timeout(60),
            Bridge(settings, mode=way.mode) as bridge,
            client(bridge, way.capabilities, is_modern=way.is_modern) as ask,
        ):
            return await _call(bridge, ask, way.meta, with_c=with_c)


@contextmanager
def _upstream(kind: str, *, is_modern: bool = False) -> Generator[dict[str, Any]]:
    """How the server is reached. One over HTTP runs meanwhile."""
    era = ["modern"] if is_modern else []
    if kind == "stdio":
        yield {"command": sys.executable, "args": ["-c", _UPSTREAM, *era]}
        return
    command = [sys.executable, "-c", _HTTP_UPSTREAM, *era]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield {"url": f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp", "transport": "streamable-http"}
        finally:
            process.kill()


async def trace_list() -> list[Entry]:
    """The entries of the first tools/list of a client, in order."""
    server = {"command": sys.executable, "args": ["-c", _UPSTREAM]}
    settings = Settings.model_validate({"store": {"kind": "memory"}, "servers": {"up": server}})
    async with asyncio.timeout(60), Bridge(settings) as bridge, _client(bridge, {}) as ask:
        await _started(bridge)
        entries, answer = await _traced(ask, "tools/list", {})
    if not answer["result"]["tools"]:
        raise RuntimeError(f"nothing is listed: {answer}")
    return entries


async def _started(bridge: Bridge) -> None:
    if not await bridge.settled(30):
        raise RuntimeError("the upstream did not start")


async def _call(bridge: Bridge, ask: "_Ask", meta: Mapping[str, Any] | None, *, with_c: bool) -> list[Entry]:
    await _started(bridge)
    more = {} if meta is None else {"_meta": dict(meta)}
    for _ in range(_WARM):
        await ask("tools/call", {"name": "up__echo", "arguments": {"text": "warm"}, **more})
    found = [await _traced_call(ask, f"hello {number}", more, with_c=with_c) for number in range(_COUNTED)]
    return min(found, key=len)


async def _traced_call(ask: "_Ask", word: str, more: Mapping[str, Any], *, with_c: bool) -> list[Entry]:
    params = {"name": "up__echo", "arguments": {"text": word}, **more}
    entries, answer = await _traced(ask, "tools/call", params, with_c=with_c)
    if answer["result"]["content"][0]["text"] != word:
        raise RuntimeError(f"the call failed: {answer}")
    return entries


async def _traced(
    ask: "_Ask", method: str, params: dict[str, Any], *, with_c: bool = False
) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of one request, and its answer."""
    entries: list[Entry] = []
    resumed = set[FrameType]()

    def profile(frame: FrameType, event: str, function: Any) -> None:
        code = frame.f_code
        if with_c and event == "c_call" and code.co_filename.startswith(_PACKAGE):
            entries.append(Entry(code.co_filename[len(_PACKAGE) + 1 :], f"{C}{function.__qualname__}"))
        if event != "call" or not code.co_filename.startswith(_PACKAGE) or frame in resumed:
            return
        if code.co_flags & _SUSPENDS:
            resumed.add(frame)  # it goes on later; that is no further entry
        entries.append(Entry(code.co_filename[len(_PACKAGE) + 1 :], _name(code)))

    sys.setprofile(profile)
    try:
        answer = await ask(method, params)
    finally:
        sys.setprofile(None)
    return entries, answer


_SUSPENDS = 0x20 | 0x80 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR."""


def _name(code: CodeType) -> str:
    return code.co_qualname if sys.version_info >= (3, 11) else code.co_name


LEGACY, MODERN = "2025-11-25", "2026-07-28"
_ABOUT = {"name": "call_path", "version": "1"}


def _in_envelope(params: dict[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a modern request."""
    envelope = {"protocolVersion": MODERN, "clientCapabilities": dict(capabilities), "clientInfo": _ABOUT}
    said = {f"io.modelcontextprotocol/{key}": value for key, value in envelope.items()}
    return {**params, "_meta": {**params.get("_meta", {}), **said}}


_Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def _client(bridge: Bridge, capabilities: Mapping[str, Any], *, is_modern: bool = False) -> AsyncGenerator[_Ask]:
    """A client on pipes that has initialized. It calls nothing of the bridge."""
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    serving = asyncio.create_task(serve_stdio(bridge.server, in_fd=into_read, out_fd=out_write))
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(output), os.fdopen(out_read, "rb"))
    number = 0

    def send(message: dict[str, Any]) -> None:
        os.write(into_write, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal number
        number += 1
        send({"id": number, "method": method, "params": _in_envelope(params, capabilities) if is_modern else params})
        while True:
            answer: dict[str, Any] = json.loads(await output.readline())
            if answer.get("id") == number:
                return answer

    try:
        if not is_modern:
            await ask(
                "initialize", {"protocolVersion": LEGACY, "capabilities": dict(capabilities), "clientInfo": _ABOUT}
            )
            send({"method": "notifications/initialized"})
        yield ask
    finally:
        os.close(into_write)
        await serving
        reading.close()
        os.close(into_read)
        os.close(out_write)


@asynccontextmanager
async def _http_client(
    bridge: Bridge, capabilities: Mapping[str, Any], *, is_modern: bool = False
) -> AsyncGenerator[_Ask]:
    """The same on a connection that is kept. Each request leaves in one write."""
    settings = bridge.settings.http
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with bind_port(settings, host="127.0.0.1", port=0, no_auth=True) as at:
        front = asyncio.create_task(serve_http(bridge, settings, at, on_ready=ready.set_result))
        address = urlsplit(await ready)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        session, number = "", 0

        async def post(message: dict[str, Any]) -> bytes:
            nonlocal session
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            routing = f"mcp-protocol-version: {MODERN if is_modern else LEGACY}\r\n"
            if is_modern:
                routing += f"mcp-method: {message['method']}\r\nmcp-name: {message['params']['name']}\r\n"
            head = (
                f"POST {address.path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
                f"accept: application/json, text/event-stream\r\n{routing}"
                f"content-length: {len(body)}\r\n{session}\r\n"
            )
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in answer.decode().split("\r\n")[1:-2])
            if "mcp-session-id" in headers:
                session = f"mcp-session-id: {headers['mcp-session-id']}\r\n"
            return await reader.readexactly(int(headers.get("content-length", "0")))

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            nonlocal number
            number += 1
            params = _in_envelope(params, capabilities) if is_modern else params
            return json.loads(await post({"id": number, "method": method, "params": params}))

        try:
            if not is_modern:
                await ask(
                    "initialize", {"protocolVersion": LEGACY, "capabilities": dict(capabilities), "clientInfo": _ABOUT}
                )
                await post({"method": "notifications/initialized"})
            yield ask
        finally:
            writer.close()
            front.cancel()
            await asyncio.wait([front])


def main() -> None:
    """Print the way of a call, or record those of all."""
    if sys.argv[1:2] == ["--record"]:
        found = {name: sorted(map(": ".join, asyncio.run(trace_call(way)))) for name, way in WAYS.items()}
        Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n")
        return
    way = sys.argv[1] if sys.argv[1:] else "plain"
    entries = asyncio.run(trace_list() if way == "tools/list" else trace_call(WAYS[way]))
    for number, entry in enumerate(entries, 1):
        print(f"{number:3}  {entry.path:45} {entry.function}")
    print(f"{len(entries)} entries in {len({entry.path for entry in entries})} files")


if __name__ == "__main__":
    main()
