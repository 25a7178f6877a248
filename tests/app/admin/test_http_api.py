"""The HTTP API for who administers the bridge: who may, what is answered to mistakes, and where it stands."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from mcpbridge.app.admin.http_api import make_api
from mcpbridge.downstream.settings import HttpSettings
from support.approvers import ADMIN, ByLegacyClient, Way, approving
from support.front_clients import http_server

USER = "the-token-of-an-ordinary-user"
CHIEF = "the-token-of-a-chief-user"


def token(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), **more}


TOKENS = [token("user", USER), token("chief", CHIEF, admin=True)]


@asynccontextmanager
async def served(way: Way, *, admin: str | None = ADMIN, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """The front with the API, and a client without a token."""
    mounts = {"/api": lambda: make_api(way.bridge.approvals)}
    async with (
        http_server(way.bridge, HttpSettings(**settings), mounts=mounts, admin_token=admin) as at,
        httpx2.AsyncClient(base_url=at.origin, trust_env=False, timeout=60) as http,
    ):
        yield http


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_a_call_is_listed_and_answered(tmp_path: Any) -> None:
    async with approving(Way, tmp_path) as way, served(way, tokens=TOKENS) as http:
        call = way.begins(path="/etc/passwd", force=True)
        [id_] = await way.is_asked()
        response = await http.get("/api/approvals", headers=bearer(CHIEF))
        assert response.headers["content-type"] == "application/json"
        [listed] = response.json()["approvals"]
        assert listed | {"arguments": "", "since": 0, "until": 0, "arguments_bytes": 0, "arguments_sha256": ""} == {
            "id": id_,
            "server": "up",
            "tool": "up/echo",
            "arguments": "",
            "arguments_line": '{"path":"/etc/passwd","force":true}',
            "arguments_bytes": 0,
            "arguments_sha256": "",
            "reason": "the policy asks for it",
            "rule": "`permission` of its server",
            "last_approved": None,
            "changes": None,
            "asked": 1,
            "approve_by": None,
            "requester": "",
            "principal": "",
            "client": "ear",
            "since": 0,
            "until": 0,
            "waiting": True,
            "here": True,
        }
        answer = {"decision": "approve", "for": "once"}
        response = await http.post(f"/api/approvals/{id_}", json=answer, headers=bearer(CHIEF))
        assert response.json()["by"] == "api:chief"
        assert "isError" not in await call
        response = await http.post(f"/api/approvals/{id_}", json=answer, headers=bearer(ADMIN))
        assert (response.status_code, response.json()["error"]["code"]) == (409, "decided")
        assert "already approved by api:chief" in response.json()["error"]["message"]


@pytest.mark.parametrize("headers", [bearer(USER), bearer("wrong"), {}, {"authorization": f"Basic {CHIEF}"}])
async def test_an_ordinary_token_may_not(headers: dict[str, str], tmp_path: Any) -> None:
    """A model that holds one could approve its own call."""
    async with approving(Way, tmp_path) as way, served(way, tokens=TOKENS) as http:
        call = way.begins()
        [id_] = await way.is_asked()
        answer = {"decision": "approve"}
        for response in (
            await http.get("/api/approvals", headers=headers),
            await http.post(f"/api/approvals/{id_}", json=answer, headers=headers),
            await http.get(f"/api/approvals?token={CHIEF}", headers=headers),
        ):
            known = headers == bearer(USER)
            assert response.status_code == (403 if known else 401)
            if known:
                assert response.json()["error"]["code"] == "forbidden"
                assert "admin = true" in response.json()["error"]["message"]
        await way.decide(id_, "no")
        await call


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), {"authorization": "Bearer"}])
async def test_without_tokens_nobody_may(headers: dict[str, str], tmp_path: Any) -> None:
    """An open front lets everyone call tools, which is no reason to let them approve calls."""
    async with approving(Way, tmp_path) as way:
        async with served(way, admin=None) as http:
            response = await http.get("/api/approvals", headers=headers)
            assert response.status_code == 403
            assert "MCPBRIDGE_ADMIN_TOKEN" in response.json()["error"]["message"]
        async with served(way) as http:
            assert (await http.get("/api/approvals", headers=headers)).status_code == 403
            assert (await http.get("/api/approvals", headers=bearer(ADMIN))).status_code == 200
            assert (await http.get("/readyz")).status_code == 200  # it locks nobody out


async def test_the_token_of_the_administrator_opens_the_rest_too(tmp_path: Any) -> None:
    async with approving(Way, tmp_path) as way, served(way, tokens=TOKENS) as http:
        assert (await http.get("/readyz")).status_code == 401
        assert (await http.get("/readyz", headers=bearer(ADMIN))).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"decision":"maybe"}', 400),
        (b'{"decision":["approve"]}', 400),
        (b'{"decision":"approve","for":"ever"}', 400),
        (b'{"decision":"approve","for":null}', 400),
        (b"x" * 70_000, 413),
        (b"[" * 60_000, 400),
    ],
)
async def test_what_is_no_answer_changes_nothing(body: bytes, status: int, tmp_path: Any) -> None:
    async with approving(Way, tmp_path) as way, served(way) as http:
        call = way.begins()
        [id_] = await way.is_asked()
        response = await http.post(f"/api/approvals/{id_}", content=body, headers=bearer(ADMIN))
        assert response.status_code == status
        assert response.json()["error"]["message"]
        assert await way.is_asked() == [id_]
        await way.decide(id_, "no")
        await call


async def test_what_is_not_there_is_told(tmp_path: Any) -> None:
    async with approving(Way, tmp_path) as way, served(way) as http:
        unknown = await http.post("/api/approvals/abc", json={"decision": "deny"}, headers=bearer(ADMIN))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown")
        for path in ("/api", "/api/", "/api/nothing"):
            assert (await http.get(path, headers=bearer(ADMIN))).status_code == 404
        assert (await http.delete("/api/approvals", headers=bearer(ADMIN))).status_code == 405
        assert (await http.get("/apis", headers=bearer(ADMIN))).json()["error"]["message"].startswith("Nothing is here")


async def test_the_rules_for_web_pages_hold_here_too(tmp_path: Any) -> None:
    async with approving(Way, tmp_path) as way, served(way) as http:
        page = {"origin": "https://evil.example", **bearer(ADMIN)}
        assert (await http.get("/api/approvals", headers=page)).status_code == 403
        host = {"host": "evil.example", **bearer(ADMIN)}
        assert (await http.get("/api/approvals", headers=host)).status_code == 421
        neighbour = {"origin": "http://localhost:3000", **bearer(ADMIN)}
        assert (await http.get("/api/approvals", headers=neighbour)).status_code == 403
        own = {"origin": str(http.base_url).rstrip("/"), **bearer(ADMIN)}
        response = await http.get("/api/approvals", headers=own)
        assert response.headers["access-control-allow-origin"] == own["origin"]


async def test_mcp_may_be_served_below_the_same_path(tmp_path: Any) -> None:
    async with approving(ByLegacyClient, tmp_path) as way, served(way, path="/api/approvals") as http:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"accept": "application/json, text/event-stream"}
        response = await http.post("/api/approvals", json=ping, headers=accept)
        assert response.json()["jsonrpc"] == "2.0"
