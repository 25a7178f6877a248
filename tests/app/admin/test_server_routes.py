"""Servers and tools over the HTTP API, through the real front: create, read, update, delete, query; and what never is.

CVE-2026-42271 and its family: an endpoint that takes what to run from its body runs it. Every way to say that is tried.
"""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcpbridge.app.admin.http_api import make_api
from mcpbridge.app.admin.prometheus import make_metrics
from mcpbridge.downstream.settings import HttpSettings
from support.front_clients import http_server
from support.registry_bridge import FILE, REMOTE, WEATHER, World, registering

USER, CHIEF = "the-token-of-an-ordinary-user", "the-token-of-a-chief-user"
TOKENS: list[dict[str, Any]] = [
    {"name": "user", "sha256": hashlib.sha256(USER.encode()).hexdigest()},
    {"name": "chief", "sha256": hashlib.sha256(CHIEF.encode()).hexdigest(), "admin": True},
]
SECRET = "a-value-that-nobody-sees-again"


@asynccontextmanager
async def served(folder: Path, text: str = FILE, **more: Any) -> AsyncIterator[tuple[World, httpx2.AsyncClient]]:
    """The front with the API, and a client with the token of an administrator."""
    async with registering(folder, text, **more) as at:
        bridge = at.bridge
        mounts: dict[str, Any] = {
            "/api": lambda: make_api(bridge.approvals, bridge=bridge),
            "/metrics": lambda: make_metrics(bridge, readers=frozenset()),
        }
        headers = {"authorization": f"Bearer {CHIEF}"}
        async with (
            http_server(bridge, HttpSettings(tokens=TOKENS), mounts=mounts) as front,  # pyright: ignore[reportArgumentType]
            httpx2.AsyncClient(base_url=front.origin, trust_env=False, headers=headers, timeout=60) as http,
        ):
            yield at, http


async def test_tools_are_created_read_queried_changed_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as (at, http):
        made = await http.post("/api/tools", json={"name": "weather", **WEATHER})
        assert (made.status_code, made.json()) == (201, {"name": "weather", "changed": {"sections": ["tools"]}})
        again = await http.post("/api/tools", json={"name": "weather", **WEATHER})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "exists")
        found = (await http.get("/api/tools", params={"query": "tag:sky OR tag:money"})).json()
        assert [tool["id"] for tool in found["tools"]] == ["tools/rates", "tools/weather"]
        assert found["tools"][1] | {"schema": 0, "annotations": 0, "description": 0} == {
            "id": "tools/weather",
            "name": "weather",
            "server": "tools",
            "type": "tool",
            "sub_type": "http",
            "runtime_type": "remote",
            "protocol_type": "http",
            "description": 0,
            "tags": ["sky"],
            "schema": 0,
            "examples": [],
            "annotations": 0,
        }
        assert (await http.get("/api/tools", params={"server": "far", "limit": "1"})).json()["total"] == 1
        put = await http.put("/api/tools/weather", json={**WEATHER, "tags": ["rain"]})
        assert put.status_code == 200
        shown = (await http.get("/api/tools/weather")).json()
        assert shown["settings"]["tags"] == ["rain"]
        assert shown["registry"]["by"] == "api:chief"
        assert shown["backend"]["state"] == "ready"
        assert (await http.get("/api/tools/tools/weather")).json()["tools"][0]["name"] == "weather"
        assert (await http.patch("/api/tools/weather", json={"enabled": False})).json()["enabled"] is False
        assert "weather" not in await at.listed()
        await http.patch("/api/tools/weather", json={"enabled": True})
        await http.patch("/api/tools/far/echo", json={"enabled": False})
        assert {"far__echo"}.isdisjoint(await at.listed())
        assert (await http.delete("/api/tools/weather")).json()["changed"] == {"sections": ["tools"]}
        gone = await http.get("/api/tools/weather")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown")


async def test_servers_are_created_read_changed_and_deleted_and_outlive_the_bridge(tmp_path: Path) -> None:
    async with served(tmp_path) as (at, http):
        made = await http.post("/api/servers", json={"name": "more", **REMOTE, "headers": {"X-Key": SECRET}})
        assert made.json() == {"name": "more", "changed": {"added": ["more"]}}
        assert await at.bridge.settled(30)
        shown = (await http.get("/api/servers/more")).json()
        assert (shown["state"], shown["settings"]["headers"]) == ("ready", {"X-Key": "…"})
        assert [one["name"] for one in (await http.get("/api/servers")).json()["servers"]] == [
            "asleep",
            "clock",
            "far",
            "more",
        ]
        await http.patch("/api/servers/clock", json={"enabled": False}, params={"keep": "false"})
        await http.patch("/api/servers/far", json={"enabled": False, "tool": "echo"})
        assert (await http.delete("/api/servers/nothing")).status_code == 404
    async with served(tmp_path) as (at, http):
        assert await at.listed() == ["clock__echo", "recall", "more__echo", "rates", "today"]
        assert at.bridge.settings.servers["more"].headers == {"X-Key": SECRET}
        assert (await http.delete("/api/servers/more")).json()["changed"] == {"removed": ["more"]}
    async with served(tmp_path) as (at, http):
        assert "more__echo" not in await at.listed()


async def test_what_is_added_is_written_to_the_file_where_that_is_asked_for(tmp_path: Path) -> None:
    text = FILE + '\n[http]\napi_variables = ["SKY_KEY"]\n'
    async with served(tmp_path, text) as (at, http):
        before = at.text
        table = {**WEATHER, "headers": {"X-Key": "${SKY_KEY}"}}
        assert (await http.put("/api/tools/weather", json=table, params={"keep": "file"})).status_code == 200
        assert 'X-Key = "${SKY_KEY}"' in at.text
        assert "# runs here" in at.text
        shown = (await http.get("/api/tools/weather")).json()
        assert shown["registry"] is None, "it is the file's"
        refused = [
            await http.delete("/api/tools/today", params={"keep": "file"}),
            await http.delete("/api/servers/clock", params={"keep": "file"}),
            await http.put("/api/servers/clock", json=REMOTE, params={"keep": "file"}),
        ]
        assert [one.status_code for one in refused] == [403, 403, 403]
        off = await http.patch("/api/tools/weather", json={"enabled": False}, params={"keep": "file"})
        assert (off.status_code, "mcpbridge enable" in off.text) == (400, True)
        assert (await http.get("/api/tools", params={"keep": "elsewhere"})).status_code == 200
        assert (await http.delete("/api/tools/weather", params={"keep": "elsewhere"})).status_code == 400
        await http.delete("/api/tools/weather", params={"keep": "file"})
        assert at.text == before


async def test_a_value_of_a_header_never_comes_back(tmp_path: Path) -> None:
    """In no answer, not in the status, not in a log."""
    async with served(tmp_path, broken=frozenset({"more"})) as (at, http):
        said: list[str] = []
        at_home = {"url": f"http://127.0.0.1:9/mcp?key={SECRET}", "headers": {"X-Plain": SECRET}}
        tables: list[tuple[str, dict[str, Any]]] = [
            ("/api/servers/more", at_home),
            ("/api/servers/more", {**at_home, "auth": {"client_id": "a", "client_secret": SECRET}}),
            ("/api/servers/more", {**at_home, "headers": {"X Wrong": SECRET}}),
            ("/api/servers/more", {**at_home, "headers": {"X": f"{SECRET}\r\n"}}),
            ("/api/tools/t", {**WEATHER, "headers": {"Authorization": f"Bearer {SECRET}"}, "params": {"k": SECRET}}),
            ("/api/tools/t", {**WEATHER, "auth": {"type": "basic", "username": "me", "password": SECRET}}),
            ("/api/tools/t", {**WEATHER, "auth": {"type": "nonsense", "token": SECRET}}),
            ("/api/tools/t", {**WEATHER, "method": "POST", "body": {"key": SECRET}, "examples": [{"city": "Ulm"}]}),
            ("/api/tools/t", {"endpoint": f"https://{SECRET}@x.example/"}),
            ("/api/tools/t", {"endpoint": f"https://x.example/?key={SECRET}"}),
            ("/api/tools/t", {"grpc": "127.0.0.1:9", "metadata": {"k": SECRET, "k-bin": SECRET}}),
        ]
        for number, (path, table) in enumerate(tables):
            said.append((await http.put(path, json=table)).text)
            shown = (path, "/api/tools", "/api/servers", "/api/health", "/metrics")
            said += [(await http.get(one)).text for one in shown]
            if number in (4, len(tables) - 1):  # each takes its time
                said.append((await http.post(f"/api/health/{path.rpartition('/')[2]}")).text)
        assert [text for text in said if SECRET in text] == []
        assert SECRET not in at.said()


HOSTILE: list[tuple[str, str, Any, int]] = [
    ("POST", "/api/servers", {"name": "evil", "command": "touch", "args": ["TRACE"]}, 403),
    ("POST", "/api/servers", {"name": "evil", **REMOTE, "command": "touch", "args": ["TRACE"]}, 403),
    ("POST", "/api/servers", {"name": "evil", "transport": "stdio", "url": "touch TRACE"}, 403),
    ("POST", "/api/servers", {"name": "evil", **REMOTE, "transport": "stdio"}, 403),
    ("POST", "/api/servers", {"name": "evil", **REMOTE, "env": {"LD_PRELOAD": "x"}}, 403),
    ("POST", "/api/servers", {"name": "evil", **REMOTE, "headers": {"X": "${file:/etc/passwd}"}}, 403),
    ("POST", "/api/servers", {"name": "evil", **REMOTE, "headers": {"X": "${PATH}"}}, 403),
    (
        "POST",
        "/api/servers",
        {"name": "evil", **REMOTE, "auth": {"type": "client-credentials", "private_key": "x"}},
        403,
    ),
    ("POST", "/api/servers", {"name": "evil", "servers": {"x": {"command": "touch TRACE"}}}, 403),
    ("POST", "/api/servers", {"name": {"a": 1}, **REMOTE}, 400),
    ("POST", "/api/servers", {"name": "x = 1]\n[servers.evil]\ncommand = 'touch TRACE'\n[", **REMOTE}, 400),
    ("POST", "/api/servers", REMOTE, 400),
    ("POST", "/api/servers", {"name": "rates", **REMOTE}, 409),
    ("POST", "/api/servers", {"name": "mcpbridge", **REMOTE}, 400),
    ("POST", "/api/servers", {"name": "tools", **REMOTE}, 400),
    ("POST", "/api/tools", {"name": "builtin", **WEATHER}, 400),
    ("POST", "/api/tools", {"name": "../x", **WEATHER}, 400),
    ("POST", "/api/tools", {"name": "evil", "command": ["touch", "TRACE"]}, 403),
    ("POST", "/api/tools", {"name": "evil", **WEATHER, "command": ["touch", "TRACE"]}, 403),
    ("POST", "/api/tools", {"name": "evil", "function": "os:system"}, 403),
    ("POST", "/api/tools", {"name": "evil", "executor_class": "os.system", "constructor_args": {"a": "TRACE"}}, 403),
    ("POST", "/api/tools", {"name": "evil", "agent": "os:system"}, 403),
    ("POST", "/api/tools", {"name": "evil", "openapi": "/etc/passwd"}, 403),
    ("POST", "/api/tools", {"name": "evil", "openapi": "file:///etc/passwd"}, 403),
    ("POST", "/api/tools", {"name": "evil", "grpc": "x:1", "descriptor": "/etc/passwd"}, 403),
    ("POST", "/api/tools", {"name": "evil", "grpc": "unix:/run/docker.sock"}, 403),
    ("POST", "/api/tools", {"name": "evil", **WEATHER, "spec": ["/etc/passwd"]}, 403),
    ("POST", "/api/tools", {"name": "evil", **WEATHER, "packs": ["os"]}, 403),
    ("POST", "/api/tools", {"name": "evil", **WEATHER, "sandbox": "off"}, 403),
    ("POST", "/api/tools", {"name": "evil", **WEATHER, "tls": {"cert": "/etc/passwd"}}, 403),
    ("PUT", "/api/servers/clock", REMOTE, 403),
    ("PUT", "/api/tools/today", WEATHER, 403),
    ("PUT", "/api/servers/today", REMOTE, 409),
    ("PUT", "/api/tools/..%2f..%2fx", WEATHER, 400),
    ("PUT", "/api/servers/clock?keep=file", {"command": "touch", "args": ["TRACE"]}, 403),
    ("PUT", "/api/servers/evil?keep=file", {"command": "touch", "args": ["TRACE"]}, 403),
    ("PUT", "/api/tools/evil?keep=file", {**WEATHER, 'x"]\n[servers.evil]\ncommand = "touch TRACE': 1}, 403),
    ("PUT", "/api/tools/evil?keep=file", {**WEATHER, "command": None}, 403),
    ("PATCH", "/api/servers/asleep", {"enabled": True}, 403),
    ("PATCH", "/api/servers/clock", {"enabled": True, "command": "touch TRACE"}, 400),
    ("PATCH", "/api/servers/clock", {"enabled": 1}, 400),
    ("PATCH", "/api/servers/clock", {"enabled": True, "tool": ["x"]}, 400),
    ("PATCH", "/api/tools/builtin/code-execute", {"enabled": True}, 404),
    ("PATCH", "/api/servers/nobody", {"enabled": True}, 404),
    ("POST", "/api/tools/rates/commands/warmup", {}, 404),
    ("POST", "/api/tools/nobody/commands/warmup", {}, 404),
    ("POST", "/api/health/nobody", {}, 404),
    ("GET", "/api/tools?limit=-1", None, 400),
    ("GET", "/api/tools?query=(((", None, 400),
    ("PUT", "/api/servers", {}, 405),
    ("POST", "/api/servers", b"", 400),
    ("POST", "/api/servers", b"[]", 400),
    ("POST", "/api/servers", b"name=evil&command=touch", 400),
    ("POST", "/api/servers", b'{"name": "evil", "url": "https://\\ud800.example"}', 400),
    ("POST", "/api/tools", b'{"name":"evil","endpoint":"https://x","examples":' + b"[" * 900 + b"]" * 900 + b"}", 400),
    ("POST", "/api/tools", b'{"name":"evil","endpoint":"https://x","description":"' + b"x" * 1_000_000 + b'"}', 413),
]


async def test_nothing_that_is_said_over_http_runs_or_reads_anything_here(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with served(tmp_path) as (at, http):
        settings, text = at.bridge.settings, at.text
        for method, path, said, status in HOSTILE:
            body = said if isinstance(said, bytes) else json.dumps(said).replace("TRACE", str(trace)).encode()
            answer = await http.request(method, path, content=None if said is None else body)
            assert answer.status_code == status, (method, path, said, answer.text)
            assert answer.json()["error"]["message"]
            assert "root:" not in answer.text
            assert at.bridge.settings is settings, (method, path, said)
        assert at.text == text
        assert at.bridge.registry.entries == {}
        await http.delete("/api/servers/clock")
        assert (await http.put("/api/servers/clock", json=REMOTE)).status_code == 403, "not even when it is out"
    assert not trace.exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"authorization": "Bearer wrong"}, 401), ({"authorization": f"Bearer {USER}"}, 403)],
)
async def test_who_does_not_administer_changes_and_sees_nothing(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with served(tmp_path) as (at, http):
        http.headers.pop("authorization")
        before = at.bridge.settings
        for method, path in (
            ("GET", "/api/tools"),
            ("POST", "/api/tools"),
            ("GET", "/api/tools/rates"),
            ("PUT", "/api/tools/weather"),
            ("PATCH", "/api/tools/rates"),
            ("DELETE", "/api/tools/rates"),
            ("POST", "/api/tools/rates/commands/warmup"),
            ("GET", "/api/servers"),
            ("POST", "/api/servers"),
            ("GET", "/api/servers/clock"),
            ("PUT", "/api/servers/more"),
            ("PATCH", "/api/servers/clock"),
            ("DELETE", "/api/servers/clock"),
            ("GET", "/api/health"),
            ("POST", "/api/health/clock"),
        ):
            answer = await http.request(method, path, json={"name": "weather", **WEATHER}, headers=headers)
            assert answer.status_code == status, (method, path)
            assert "clockwork" not in answer.text
        assert at.bridge.settings is before


async def test_health_is_looked_at_and_counted(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, http):
        assert (await http.get("/api/health")).json() == {"ok": True, "checks": []}
        looked = (await http.post("/api/health/clock")).json()
        assert (looked["name"], looked["kind"], looked["ok"]) == ("clock", "server", True)
        assert not (await http.post("/api/health/rates")).json()["ok"]
        assert (await http.post("/api/health/tools/rates")).json()["kind"] == "tool"
        health = (await http.get("/api/health")).json()
        assert (health["ok"], [one["name"] for one in health["checks"]]) == (False, ["clock", "rates"])
        counts = (await http.get("/metrics")).text
        assert 'mcpbridge_health{name="clock",kind="server"} 1' in counts
        assert 'mcpbridge_health{name="rates",kind="backend"} 0' in counts
        await http.delete("/api/tools/rates", params={"keep": "false"})
        assert [one["name"] for one in (await http.get("/api/health")).json()["checks"]] == ["clock"]
