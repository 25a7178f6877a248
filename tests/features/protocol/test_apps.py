"""MCP Apps (2026-01-26) through the bridge, with servers made by the official SDK."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from support.harness import Place, eventually
from support.programs.preloaded_python import Server
from support.rpc import Client, Reply, envelope

UI = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"


class AppServer(Protocol):
    def __call__(self, name: str, **settings: Any) -> dict[str, Any]: ...


@pytest.fixture(scope="module")
def app_server() -> Iterator[AppServer]:
    """The configuration of a server, which is forked by a process that has imported the SDK."""
    script = str(Path(__file__).parents[2] / "servers" / "apps.py")
    with tempfile.TemporaryDirectory(prefix="mcpb-", dir="/tmp") as folder:  # a socket's path must be short
        sdk = Server(Path(folder), "mcp.server.apps", "mcp.server.mcpserver", "mcp.server.stdio")
        program, *words = sdk.command()
        yield lambda name, **settings: {"command": program, "args": [*words, script, name], **settings}
        sdk.end()


def opened(place: Place, app_server: AppServer, front: str, *names: str, **settings: Any) -> Any:
    servers = {name: app_server(name, **settings) for name in names}
    return place.http_bridge(servers) if front == "http" else place.bridge(servers)


async def listed(client: Client, meta: dict[str, Any] | None = None, *, tools: int) -> dict[str, Any]:
    """The tools by name, once all are there; the SDK takes its time to start."""
    params = {} if meta is None else {"_meta": meta}

    async def ask() -> list[dict[str, Any]]:
        return (await client.request("tools/list", params, within=60)).result["tools"]

    found = await eventually(ask, lambda found: len(found) == tools, within=60)
    return {tool["name"]: tool for tool in found}


def structured(reply: Reply) -> Any:
    return reply.result["structuredContent"]


@pytest.mark.parametrize(("front", "era"), [("stdio", "legacy"), ("http", "modern")])
async def test_an_app_of_one_server_keeps_its_address_and_everything_about_it(
    place: Place, app_server: AppServer, front: str, era: str
) -> None:
    async with opened(place, app_server, front, "one", era=era) as client:
        await client.initialize()
        tools = await listed(client, tools=2)
        assert tools["one__show"]["_meta"]["ui"] == {"resourceUri": "ui://chart/view.html"}
        assert tools["one__data_one"]["_meta"]["ui"]["visibility"] == ["app"]
        [page] = (await client.request("resources/read", {"uri": "ui://chart/view.html"})).result["contents"]
        assert page["uri"] == "ui://chart/view.html"
        assert page["mimeType"] == MIME
        assert page["text"].startswith("<!doctype html><script>const app = 'ui://chart/view.html'")
        assert page["_meta"]["ui"]["csp"] == {"connectDomains": ["https://api.example.com"]}
        assert page["_meta"]["ui"]["domain"] == "chart.example.com"
        shown = structured(await client.call("one__show"))
        assert shown == {"server": "one", "shows": True}, "servers are told of apps, whoever the client is"


async def test_a_modern_client_is_told_of_apps_and_its_own_declaration_crosses(
    place: Place, app_server: AppServer
) -> None:
    declared = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {UI: {"mimeTypes": ["text/x"]}}}}
    async with opened(place, app_server, "stdio", "one") as client:
        meta = envelope(**declared)
        await listed(client, meta, tools=2)
        found = (await client.request("server/discover", {"_meta": envelope()})).result
        assert UI in found["capabilities"]["extensions"]
        assert structured(await client.call("one__show", meta=meta))["shows"] is True


async def test_apps_of_two_servers_with_one_address_are_told_apart_and_stay_apps(
    place: Place, app_server: AppServer
) -> None:
    """The scheme stays: hosts know apps by it. Nothing inside the page is touched."""
    async with opened(place, app_server, "stdio", "one", "two") as client:
        result = await client.initialize()
        tools = await listed(client, tools=4)
        assert "instructions" in result
        for name in ("one", "two"):
            uri = tools[f"{name}__show"]["_meta"]["ui"]["resourceUri"]
            assert uri == f"ui://{name}/chart/view.html"
            [page] = (await client.request("resources/read", {"uri": uri})).result["contents"]
            assert page["uri"] == uri
            assert "'ui://chart/view.html'" in page["text"]
            assert structured(await client.call(f"{name}__show"))["server"] == name
        bare = await client.request("resources/read", {"uri": "ui://chart/view.html"})
        assert bare.message["error"]["code"] == -32002, "it could be either's"


async def test_an_app_calls_the_tools_of_its_server_by_their_own_names(place: Place, app_server: AppServer) -> None:
    """ext-apps issues 745 and 753: pages know nothing of prefixes. Exact where one server alone has the name."""
    async with opened(place, app_server, "stdio", "one", "two") as client:
        await client.initialize()
        await listed(client, tools=4)
        assert (await client.call("data_two")).text == "data of two"
        refused = (await client.call("show")).message["error"]
        assert refused["code"] == -32602
        assert "one__show" in refused["message"]
