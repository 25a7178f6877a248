"""The Python client of the HTTP API, against the real front (issue 8)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcpbridge.app.admin.http_api import make_api
from mcpbridge.app.admin.http_client import ApiClient, ApiProblem
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import MASK
from mcpbridge.downstream.settings import HttpSettings
from support.front_clients import http_server
from support.harness import Place, python_server
from support.registry_bridge import FILE, REMOTE, WEATHER, World, registering

ADMIN = "the-token-of-the-administrator"


@asynccontextmanager
async def client(folder: Path, text: str = FILE) -> AsyncIterator[tuple[World, ApiClient]]:
    async with registering(folder, text) as at:
        mounts = {"/api": lambda: make_api(at.bridge.approvals, bridge=at.bridge)}
        async with (
            http_server(at.bridge, HttpSettings(), mounts=mounts, admin_token=ADMIN) as front,
            ApiClient(f"{front.origin}/", token=ADMIN) as api,
        ):
            yield at, api


async def test_everything_that_the_api_can(tmp_path: Path) -> None:
    (tmp_path / "shelf_of_client.py").write_text(
        "class Shelf:\n"
        "    def execute(self, book: str) -> str:\n        return book\n"
        "    def execute_command(self, name, data):\n        return [name, data]\n"
    )
    async with client(tmp_path, FILE + '[tools.shelf]\nexecutor_class = "shelf_of_client.Shelf"\n') as (at, api):
        assert await api.add("servers", "more", REMOTE) == {"name": "more", "changed": {"added": ["more"]}}
        await api.add("tools", "weather", WEATHER, keep=False)
        await api.add("tools", "weather", {**WEATHER, "tags": ["rain"]}, replace=True)
        assert await at.bridge.settled(30)
        assert [tool["id"] for tool in await api.tools("tag:rain OR server:more")] == ["more/echo", "tools/weather"]
        assert [tool["id"] for tool in await api.tools(server="more", limit=1)] == ["more/echo"]
        assert (await api.tool("weather"))["settings"]["tags"] == ["rain"]
        assert (await api.tool("more/echo"))["tools"][0]["server"] == "more"
        assert (await api.server("more"))["settings"] == REMOTE
        assert [one["name"] for one in await api.servers()] == ["asleep", "clock", "far", "more"]
        await api.disable("tools", "more/echo")
        assert "more__echo" not in await at.listed()
        await api.enable("tools", "more/echo", keep=False)
        assert "more__echo" in await at.listed()
        (definition,) = await api.definitions("more")
        assert (definition["sent"]["name"], definition["given"]["name"]) == ("echo", "more__echo")
        assert (await api.check("more"))["ok"]
        assert (await api.check("tools/shelf"))["ok"]
        assert (await api.health())["ok"]
        assert await api.command("shelf", "reindex", {"all": True}) == ["reindex", {"all": True}]
        at.bridge.redact = Redactor(["hunter2hunter2"])
        assert await api.command("shelf", "find", {"hunter2hunter2": ["hunter2hunter2", 1]}) == [
            "find",
            {MASK: [MASK, 1]},
        ]
        await api.remove("tools", "weather")
        assert (await api.remove("servers", "more"))["changed"] == {"removed": ["more"]}
        await api.add("tools", "weather", WEATHER, keep="file")
        assert "[tools.weather]" in at.text
        await api.remove("tools", "weather", keep="file")
        assert "[tools.weather]" not in at.text


async def test_a_bridge_as_a_process_has_what_was_added_after_its_restart(place: Place) -> None:
    place.env["MCPBRIDGE_ADMIN_TOKEN"] = ADMIN
    async with place.http_bridge({"one": python_server("plain")}) as mcp:
        await mcp.initialize()
        async with ApiClient(mcp.url.removesuffix("/mcp"), token=ADMIN) as api, mcp.listening():
            await api.add("tools", "weather", WEATHER)
            await mcp.notice("notifications/tools/list_changed")
            assert "weather" in await mcp.tools()
            with pytest.raises(ApiProblem, match="cannot be set over HTTP"):
                await api.add("servers", "two", python_server("plain"))
    async with place.http_bridge({"one": python_server("plain")}) as mcp:
        await mcp.initialize()
        assert "weather" in await mcp.tools()


async def test_what_is_refused_says_why(tmp_path: Path) -> None:
    async with client(tmp_path) as (_, api):
        for attempt, status, code in (
            (api.add("tools", "x", {"command": ["id"]}), 403, "forbidden"),
            (api.add("servers", "clock", REMOTE), 403, "forbidden"),
            (api.remove("servers", "clock", keep="file"), 403, "forbidden"),
            (api.add("servers", "far", REMOTE), 409, "exists"),
            (api.add("servers", "a b", REMOTE), 400, "invalid"),
            (api.add("servers", "../tools", REMOTE, replace=True), 404, "unknown"),
            (api.remove("servers", "nobody"), 404, "unknown"),
            (api.check("nobody"), 404, "unknown"),
            (api.tool("no/body"), 404, "unknown"),
            (api.tools('"'), 400, "invalid"),
            (api.command("rates", "x"), 404, "unknown"),
        ):
            with pytest.raises(ApiProblem) as problem:
                await attempt
            assert (problem.value.status, problem.value.code) == (status, code), problem.value
            assert str(problem.value)
        with pytest.raises(ApiProblem, match="only who can change that file can take it out"):
            await api.remove("servers", "clock", keep="file")


async def test_who_may_not_and_where_nobody_is(tmp_path: Path) -> None:
    async with client(tmp_path) as (_, api), ApiClient(api.url, token="wrong") as stranger:
        with pytest.raises(ApiProblem) as problem:
            await stranger.servers()
        assert problem.value.status in (401, 403)
        assert ADMIN not in str(problem.value)
    async with ApiClient("http://127.0.0.1:9", token=ADMIN) as nobody:
        with pytest.raises(ApiProblem, match="does not answer") as problem:
            await nobody.servers()
        assert (problem.value.status, problem.value.code) == (0, "unreachable")
