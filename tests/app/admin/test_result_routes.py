"""The HTTP API about large results: what is kept, and the tokens that results cost; for administrators only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpbridge.app.admin.http_api import make_api
from mcpbridge.results.kept_results import KeptResults, ResultSummary
from mcpbridge.results.token_ledger import TokenLedger
from mcpbridge.storage.memory_store import MemoryStore
from support.kept_results import result_of


def seen_as(app: ASGIApp, *, admin: bool) -> ASGIApp:
    """As the front hands requests over."""

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"is_admin": admin, "principal": "chief"}}, receive, send)

    return front


class World:
    """A store, and clients of the API over it."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.kept_results = KeptResults(store, lifetime=1000)
        self.ledger = TokenLedger(store, clock=lambda: 1_800_000_000.0)  # no midnight comes between

    async def keep(self, data: bytes, *, principal: str = "", **summary: Any) -> str:
        handle = await self.kept_results.handle_of(data, principal=principal)
        await self.kept_results.keep(
            data, ResultSummary(handle=handle, **{"tool": "files/read", **summary}), principal=principal
        )
        return handle

    @asynccontextmanager
    async def client(self, *, admin: bool = True) -> AsyncIterator[httpx2.AsyncClient]:
        desk: Any = None  # no path of it is asked for
        app = seen_as(make_api(desk, self.kept_results, self.ledger), admin=admin)
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://bridge", timeout=60
        ) as client:
            yield client


async def test_results_are_listed_read_and_forgotten() -> None:
    world, data = World(), result_of("a long text", _meta={"n": 1.10})
    handle = await world.keep(
        data, arguments='{"path":"/a"}', headline="text", chars=11, client="ear", at=1_800_000_000
    )
    other = await world.keep(result_of("another"), tool="web/fetch")
    async with world.client() as api:
        found = (await api.get("/api/results")).json()["results"]
        assert {one["handle"] for one in found} == {handle, other}
        [one] = (await api.get("/api/results", params={"search": "files /A"})).json()["results"]
        assert (one["handle"], one["at"], one["tool"]) == (handle, "2027-01-15T08:00:00Z", "files/read")
        response = await api.get(f"/api/results/{handle}")
        assert (response.content, response.headers["content-type"]) == (data, "application/json")
        assert (await api.delete(f"/api/results/{handle}")).json() == {"forgotten": [handle]}
        for method in ("GET", "DELETE"):
            response = await api.request(method, f"/api/results/{handle}")
            assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown")


async def test_whose_results_are_meant_is_said() -> None:
    world = World()
    handle = await world.keep(result_of("hers"), principal="ann")
    async with world.client() as api:
        assert (await api.get("/api/results")).json() == {"results": []}
        assert (await api.get(f"/api/results/{handle}")).status_code == 404
        hers = {"principal": "ann"}
        assert [one["handle"] for one in (await api.get("/api/results", params=hers)).json()["results"]] == [handle]
        assert (await api.get(f"/api/results/{handle}", params=hers)).status_code == 200
        assert (await api.delete(f"/api/results/{handle}", params=hers)).status_code == 200


async def test_tokens_are_told_as_commands_tell_them() -> None:
    world = World()
    line = world.ledger.line("files", "files/read", "ear")
    line.calls, line.rewritten, line.came, line.sent = 2, 1, 900, 100
    async with world.client() as api:
        told = (await api.get("/api/stats")).json()["tokens"]
        assert (told["days"], told["by"], told["estimated"]) == (7, ["tool"], True)
        [row] = told["rows"]
        assert (row["tool"], row["saved"], row["saved_share"]) == ("files/read", 800, 0.8889)
        [row] = (await api.get("/api/stats", params={"by": "server,client", "days": "1"})).json()["tokens"]["rows"]
        assert (row["server"], row["client"], row["calls"]) == ("files", "ear", 2)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/api/stats?days=0", "days"),
        ("/api/stats?days=²", "days"),
        ("/api/stats?days=99999999999999", "days"),
        ("/api/stats?by=weather", "by"),
        ("/api/results?limit=many", "limit"),
    ],
)
async def test_mistakes_are_told_by_name(path: str, named: str) -> None:
    async with World().client() as api:
        response = await api.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid")
        assert response.json()["error"]["message"].startswith(f"{named}: expected")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/stats"), ("GET", "/api/results"), ("GET", "/api/results/x"), ("DELETE", "/api/results/x")],
)
async def test_an_ordinary_token_may_not(method: str, path: str) -> None:
    """What others were told is in them."""
    async with World().client(admin=False) as api:
        response = await api.request(method, path)
        assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
        assert (await api.request("PATCH", path)).status_code == 405
