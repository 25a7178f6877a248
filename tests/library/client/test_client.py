"""`Client`: what it has beside the official one, against bridges in this process and over HTTP, and against others."""

import asyncio
import hashlib
import http.server
import json
import socket
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp
import mcp_types as types
import pytest
from mcp import StdioServerParameters

from mcpbridge.base.errors import CallFailed, ConfigError, NoBridge, NotConnected
from mcpbridge.core.context import CallContext
from mcpbridge.core.tool_calls_and_results import ToolCall
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client.client import Client
from support.front_clients import http_server
from support.harness import python_server
from support.upstreams.scripted_http import closed_port

TOKEN = "correct horse battery staple"
KINDS = pytest.mark.parametrize("kind", ["in-process", "http"])


def where(context: CallContext) -> str:
    """What the call says of itself."""
    return json.dumps([context.run, context.tenant, dict(context.metadata), context.user])


def resize_image(width: int) -> str:
    """Make a picture smaller or larger."""
    return str(width)


def numbers() -> str:
    """A long result."""
    return json.dumps([{"number": number, "words": "so many " * 20} for number in range(200)])


def fail() -> str:
    """Never works."""
    raise ValueError("as it must")


@asynccontextmanager
async def bridge_of(tmp_path: Path, **sections: Any) -> AsyncIterator[Bridge]:
    tokens = [{"name": "ada", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]
    config = {
        "servers": {},
        "store": {"path": str(tmp_path / "s.db")},
        "http": {"tokens": tokens},
        **sections,
    }
    tools = [where, resize_image, numbers, fail]
    with anyio.fail_after(60):
        async with Bridge.open(config, tools=tools, remember=False) as bridge:
            assert await bridge.settled(30)
            yield bridge


@asynccontextmanager
async def connected(bridge: Bridge, kind: str, **options: Any) -> AsyncIterator[Client]:
    if kind == "in-process":
        async with bridge.client(user="ada", **options) as client:
            yield client
    else:
        async with (
            http_server(bridge, bridge.settings.http) as served,
            Client(served.origin, token=TOKEN, **options) as client,
        ):
            yield client


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@KINDS
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_calls_say_what_they_belong_to(tmp_path: Path, kind: str, mode: str) -> None:
    async with bridge_of(tmp_path) as bridge, connected(bridge, kind, mode=mode) as client:
        said = {"run": "r1", "tenant": "acme", "metadata": {"a": [1, None]}}
        told = json.loads(text_of(await client.call_tool("where", **said)))
        assert told == ["r1", "acme", {"a": [1, None]}, "ada"]


@KINDS
async def test_tools_are_found_described_and_listed_by_what_they_do(tmp_path: Path, kind: str) -> None:
    async with bridge_of(tmp_path) as bridge, connected(bridge, kind) as client:
        every = {tool.name for tool in (await client.list_tools()).tools}
        assert {"where", "resize_image", "fail"} <= every
        assert "resize_image" in await client.find_tools("make a picture smaller", limit=1)
        assert "width" in await client.describe_tools("resize_image")
        with pytest.raises(CallFailed, match="resize_imag"):
            await client.describe_tools("resize_imag")
        found = await client.list_tools(query="make a picture smaller", limit=1)
        assert len(found.tools) == 1
        assert {tool.name for tool in (await client.list_tools()).tools} == every, "the shorter list was kept nowhere"


@KINDS
async def test_a_kept_result_is_recalled_and_one_comes_whole(tmp_path: Path, kind: str) -> None:
    async with bridge_of(tmp_path) as bridge, connected(bridge, kind) as client:
        whole = await client.call_tool("numbers", whole=True)
        assert len(json.loads(text_of(whole))) == 200
        short = await client.call_tool("numbers")
        assert len(text_of(short)) < 4000
        handle = (short.meta or {})["mcpbridge/result"]["handle"]
        assert "199" in text_of(await client.recall(handle, where="number == 199", select="number"))
        assert handle in text_of(await client.recall())
        assert (await client.recall("0" * 26)).is_error


@KINDS
async def test_calls_of_one_turn_come_back_in_order_whatever_becomes_of_one(tmp_path: Path, kind: str) -> None:
    wanted: list[Any] = [
        ToolCall("resize_image", {"width": 1}),
        {"name": "fail"},
        {"name": "nobody", "arguments": {}},
        {"name": "resize_image", "arguments": {"width": 2}},
    ]
    async with bridge_of(tmp_path) as bridge, connected(bridge, kind) as client:
        results = await client.call_tools(wanted, run="r1")
        assert [result.is_error for result in results] == [False, True, True, False]
        assert [text_of(results[0]), text_of(results[3])] == ["1", "2"]
        assert "as it must" in text_of(results[1])
        assert "nobody" in text_of(results[2])


@KINDS
async def test_what_is_not_listed_is_there_all_the_same(tmp_path: Path, kind: str) -> None:
    """`expose.mode = "search"`: clients are listed a few tools."""
    sections = {"expose": {"mode": "search"}}
    async with bridge_of(tmp_path, **sections) as bridge, connected(bridge, kind) as client:
        assert "where" not in {tool.name for tool in (await client.list_tools()).tools}
        assert not (await client.call_tool("where")).is_error
        assert "resize_image" in await client.find_tools("resize_image", detail="names")


# -- addresses and tokens


async def test_an_address_without_a_path_means_the_endpoint_of_all(tmp_path: Path) -> None:
    assert Client("http://127.0.0.1:8808").server == "http://127.0.0.1:8808/mcp"
    assert Client("https://x.example/").server == "https://x.example/mcp"
    assert Client("http://h:1/servers/github/mcp").server == "http://h:1/servers/github/mcp"
    for wrong in ("127.0.0.1:8808", "ftp://x", "http://"):
        with pytest.raises(ConfigError, match="no address of a bridge"):
            Client(wrong)


def test_a_token_goes_with_a_url() -> None:
    with pytest.raises(ConfigError, match="URL"):
        Client(StdioServerParameters(command="x"), token=TOKEN)


# -- other servers


async def test_a_server_that_is_no_bridge_is_called_so() -> None:
    plain = python_server("plain")
    async with asyncio.timeout(60), Client(StdioServerParameters(**plain), mode="legacy") as client:
        assert text_of(await client.call_tool("echo", {"text": "hi"}, run="r1")) == "hi"
        for wanted in (client.find_tools("x"), client.describe_tools("x"), client.recall("x")):
            with pytest.raises(NoBridge, match="server has no `mcpbridge/"):
                await wanted


async def test_a_server_that_tells_of_unknown_tools_in_results_is_no_bridge_either() -> None:
    from mcp.server.mcpserver import MCPServer

    async with asyncio.timeout(60), Client(MCPServer("sdk")) as client:
        with pytest.raises(NoBridge, match="sdk has no `mcpbridge/recall`"):
            await client.recall("x")


async def test_a_bridge_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    async with bridge_of(tmp_path, results={"strategy": "off"}) as bridge, bridge.client() as client:
        with pytest.raises(NoBridge, match="has that off"):
            await client.recall("x")


def test_it_is_an_official_client() -> None:
    assert issubclass(Client, mcp.Client)


# -- what does not come together


class Page(http.server.BaseHTTPRequestHandler):
    """A web server that is none of MCP: the path says its status."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(int(self.path.rpartition("/")[2]))
        self.send_header("content-type", "text/plain")
        self.send_header("location", "http://elsewhere.example/")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
        pass


@contextmanager
def pages() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


async def refused(client: Client) -> NotConnected:
    with anyio.fail_after(60), pytest.raises(NotConnected) as caught:
        await client.__aenter__()
    return caught.value


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_wrong_token_is_refused_in_one_error_and_shown_nowhere(tmp_path: Path, mode: str) -> None:
    async with bridge_of(tmp_path) as bridge, http_server(bridge, bridge.settings.http) as served:
        for token, why in (("", "wants a token"), ("not this one", "refuses this token")):
            client = Client(served.origin, token=token, mode=mode)
            error = await refused(client)
            assert (error.status, error.url) == (401, f"{served.origin}/mcp")
            assert str(error).startswith(f"{served.origin}/mcp: it {why}. ")
            shown = repr(client) + "".join(traceback.format_exception(error))
            assert "not this one" not in shown
            assert "ExceptionGroup" not in shown
        lost = await refused(Client(f"{served.origin}/nowhere", token=TOKEN, mode=mode))
        assert "no MCP server" in str(lost)
        assert "`/mcp`" in str(lost)


async def test_nobody_who_answers_is_one_error() -> None:
    with closed_port() as port:
        error = await refused(Client(f"http://user:password@127.0.0.1:{port}/mcp?key=secret"))
        url = f"http://127.0.0.1:{port}"
    assert error.url == f"{url}/mcp"
    assert error.status is None
    assert "nobody answers" in str(error)
    assert "mcpbridge serve" in str(error)


async def test_one_who_never_answers_is_one_error() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        error = await refused(Client(url, mode="legacy", read_timeout_seconds=0.05))
        assert "no answer in time" in str(error)


async def test_what_is_no_server_of_mcp_is_one_error() -> None:
    with pages() as origin:
        for status, why in (
            (200, "no MCP server"),
            (404, "no MCP server"),
            (403, "not in"),
            (503, "fails"),
            (302, "elsewhere"),
        ):
            error = await refused(Client(f"{origin}/{status}"))
            assert why in str(error)
            assert error.status == status


async def test_a_connection_that_breaks_is_one_error_and_errors_of_the_block_stay_as_they_are() -> None:
    """`mode`: a revision by name is taken without asking, so that the first call finds out."""
    with anyio.fail_after(60), closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(NotConnected, match="nobody answers"):
            async with Client(url, mode="2026-07-28") as client:
                await client.call_tool("add")
        with pytest.raises(ValueError, match="of the program"):
            async with Client(url, mode="2026-07-28"):
                raise ValueError("of the program")


async def test_an_error_of_the_block_stays_as_it_is_in_process_too(tmp_path: Path) -> None:
    async with bridge_of(tmp_path) as bridge:
        with pytest.raises(ValueError, match="of the program"):
            async with bridge.client():
                raise ValueError("of the program")


def test_what_can_be_no_address_or_token_is_told_at_once() -> None:
    for wrong in ("http://h:99999", "http://h:x", "http://[::1", "http://u:secret@h:0/?t=secret"):
        with pytest.raises(ConfigError, match="no address of a bridge") as caught:
            Client(wrong)
        assert "secret" not in str(caught.value)
    for token in ("a\nb", "ü"):
        with pytest.raises(ConfigError, match="printable"):
            Client("http://h", token=token)


# -- results


@KINDS
async def test_what_no_list_has_is_called_without_a_warning(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bridges have more than they list. The SDK would ask for the list after each such call, and warn."""
    async with bridge_of(tmp_path) as bridge, connected(bridge, kind) as client:
        assert text_of(await client.call_tool("tools/resize_image", {"width": 1})) == "1"
        await client.call_tool("resize_image", {"width": 1})
        await client.find_tools("pictures")
        await client.describe_tools("resize_image")
        await client.recall()
    assert not [record for record in caplog.records if record.name.startswith("mcp")]


async def test_results_of_listed_tools_are_checked_as_ever() -> None:
    from mcp.server.lowlevel import Server

    asked: list[str] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def listed(*_: Any) -> types.ListToolsResult:
        asked.append("list")
        tool = types.Tool(name="counts", input_schema={"type": "object"}, output_schema=schema)
        return types.ListToolsResult(tools=[tool])

    async def called(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"n": "none"})

    server = Server("plain", on_list_tools=listed, on_call_tool=called)
    async with asyncio.timeout(60), Client(server) as client:
        for _ in range(3):
            assert not (await client.call_tool("apart")).is_error
        assert asked == ["list"], "once for a name"
        with pytest.raises(RuntimeError, match="Invalid structured content"):
            await client.call_tool("counts")
