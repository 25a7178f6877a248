"""Who did what is on record, and shown to those whom it concerns: call log, audit log and usage (issue 23)."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from websockets.asyncio.client import connect

from mcpbridge.storage.call_log.reader import Filter, read_calls, read_running
from support.harness import eventually, python_server
from support.team import MODERN, Team, team, token_of
from support.token_issuer import Issuer, issuing

pytestmark = pytest.mark.anyio

SERVERS = {"gated": python_server("gated")}
ROLES: list[dict[str, Any]] = [
    {"name": "staff", "groups": "staff", "servers": "gated"},
    {"name": "leads", "groups": "leads", "servers": "gated", "usage": "team"},
    {"name": "auditors", "principals": "bob", "servers": "gated", "usage": "all"},
    {"name": "machines", "principals": "alice", "servers": "gated"},
]
INFO = {"name": "a-program", "version": "7.1"}
FAR = "203.0.113.7"


@asynccontextmanager
async def office(folder: Path, **sections: Any) -> AsyncIterator[tuple[Team, Issuer]]:
    """A bridge where people sign in, which is behind a proxy on this machine."""
    with anyio.fail_after(120):
        async with (
            issuing() as issuer,
            team(
                SERVERS,
                auth=issuer.settings(),
                roles=ROLES,
                store={"path": str(folder / "store.db")},
                http={"trusted_proxies": ["127.0.0.1"]},
                **sections,
            ) as people,
        ):
            assert await people.bridge.settled(60)
            yield people, issuer


def modern(method: str, **params: Any) -> dict[str, Any]:
    """A request of revision 2026-07-28."""
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": MODERN, f"{prefix}/clientInfo": INFO, f"{prefix}/clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": 9, "method": method, "params": {**params, "_meta": meta}}


CALL = {"name": "gated__echo", "arguments": {"text": "hello"}}
BEGIN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO},
}
BOTH = "application/json, text/event-stream"


async def over_http(origin: str, headers: Mapping[str, str]) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60, headers={"accept": BOTH, **headers}) as http:
        begun = await http.post(f"{origin}/mcp", json=BEGIN)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        called = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": CALL}
        assert "hello" in (await http.post(f"{origin}/mcp", json=called, headers=session)).text


async def over_http_without_session(origin: str, headers: Mapping[str, str]) -> None:
    more = {"accept": BOTH, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": CALL["name"]}
    async with httpx2.AsyncClient(trust_env=False, timeout=60, headers={**headers, **more}) as http:
        assert "hello" in (await http.post(f"{origin}/mcp", json=modern("tools/call", **CALL))).text


async def over_sse(origin: str, headers: Mapping[str, str]) -> None:
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=60, headers=dict(headers)) as http,
        http.stream("GET", f"{origin}/sse", headers={"accept": "text/event-stream"}) as stream,
    ):
        lines = stream.aiter_lines()
        endpoint = ""
        while not endpoint:
            line = await anext(lines)
            endpoint = line[6:] if line.startswith("data: ") else ""
        await http.post(f"{origin}{endpoint}", json=BEGIN)
        await http.post(f"{origin}{endpoint}", json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": CALL})
        while "hello" not in await anext(lines):
            pass


async def over_websocket(origin: str, headers: Mapping[str, str]) -> None:
    async with connect(origin.replace("http", "ws", 1) + "/ws", additional_headers=dict(headers)) as socket:
        for message in (BEGIN, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": CALL}):
            await socket.send(json.dumps(message))
        answer = ""
        while "hello" not in answer:
            answer = str(await socket.recv())
            assert '"error"' not in answer


async def over_websocket_without_session(origin: str, headers: Mapping[str, str]) -> None:
    async with connect(origin.replace("http", "ws", 1) + "/ws", additional_headers=dict(headers)) as socket:
        await socket.send(json.dumps(modern("tools/call", **CALL)))
        assert "hello" in str(await socket.recv())


FRONTS = [over_http, over_http_without_session, over_sse, over_websocket, over_websocket_without_session]


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.__name__)
async def test_every_front_says_who_called_from_where_and_by_which_role(front: Any, tmp_path: Path) -> None:
    """Issue 23: who, through which client and address, in the call log and in the audit log."""
    audit = {"enabled": True, "path": str(tmp_path / "audit"), "anchor": str(tmp_path / "anchor")}
    async with office(tmp_path, audit=audit) as (people, issuer):
        token = issuer.token(groups=["staff"], email="ann@example.com", email_verified=True)
        await front(people.origin, {"authorization": f"Bearer {token}", "x-forwarded-for": f"198.51.100.1, {FAR}"})

        async def recorded() -> list[dict[str, Any]]:
            people.bridge.audit.write_soon()
            return read_calls(people.bridge.audit.path, Filter(), limit=9) if people.bridge.audit.path.exists() else []

        [call] = await eventually(recorded, bool)
        folder = tmp_path / "audit"

        async def audited() -> list[dict[str, Any]]:
            lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
            return [one for one in map(json.loads, lines) if one["kind"] == "call"]

        [line] = await eventually(audited, bool)
    expected = {
        "principal": f"{issuer.url}#ann",
        "user": "ann@example.com",
        "client": "a-program",
        "client_version": "7.1",
        "oauth_client": "a-client",
        "address": FAR,
        "server": "gated",
        "tool": "gated/echo",
        "role": "staff",
        "outcome": "ok",
    }
    assert {name: call[name] for name in expected} == expected
    assert {name: line[name] for name in expected} == expected
    assert call["rule"] == line["rule"] == "`permission` of `calls`"
    assert token not in json.dumps([call, line])


WHO = ("principal", "user", "client", "client_version", "oauth_client", "address", "role", "rule")


@pytest.mark.parametrize("log", [{"enabled": True}, {}], ids=["in the journal", "in the history"])
async def test_a_call_during_which_the_bridge_is_killed_says_the_same_of_who_made_it(
    log: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the files is what a kill leaves behind: nobody has a lock on them."""
    gate, left = tmp_path / "gate", tmp_path / "left"
    os.mkfifo(gate)
    async with office(tmp_path, call_log=log) as (people, issuer):
        token = issuer.token(groups=["staff"], email="ann@example.com", email_verified=True)
        path = people.bridge.audit.path

        async def call(name: str, **arguments: str) -> None:
            more = {"accept": BOTH, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": name}
            headers = {"authorization": f"Bearer {token}", "x-forwarded-for": FAR, **more}
            async with httpx2.AsyncClient(trust_env=False, timeout=60, headers=headers) as http:
                message = modern("tools/call", name=name, arguments=arguments)
                assert (await http.post(f"{people.origin}/mcp", json=message)).status_code == 200

        async def ended() -> list[dict[str, Any]]:
            people.bridge.audit.write_soon()
            return read_calls(path, Filter(), limit=9) if path.exists() else []

        await call("gated__echo", text="hello")
        [whole] = await eventually(ended, bool)
        if log:
            monkeypatch.setattr("mcpbridge.storage.call_log.log._GATHER", 3600)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call("gated__pass_gate", gate=str(gate)))
            with await anyio.to_thread.run_sync(gate.open, "wb"):  # returns when the server waits for it

                async def interrupted() -> list[dict[str, Any]]:
                    shutil.rmtree(left, ignore_errors=True)
                    left.mkdir()
                    for file in path.parent.glob(f"{path.name}*"):
                        if not file.name.endswith(".running"):
                            shutil.copy(file, left)
                    return read_running(left / path.name, Filter(), limit=9)

                [found] = await eventually(interrupted, bool)
                is_of_journal = b"gated/pass_gate" in b"".join(file.read_bytes() for file in left.glob("*.sent"))
    assert is_of_journal == bool(log)
    assert (found["tool"], found["outcome"]) == ("gated/pass_gate", "interrupted")
    assert {name: found.get(name) for name in WHO} == {name: whole[name] for name in WHO}


async def test_each_person_sees_their_own_usage_and_what_a_role_opens(tmp_path: Path) -> None:
    """Issue 23: what belongs to a person is shown to its owner or to an administrator."""
    async with office(tmp_path) as (people, issuer):
        tokens = {
            "alice": token_of("alice"),
            "bob": token_of("bob"),
            "ann": issuer.token(groups=["staff"], email="ann@example.com"),
            "lea": issuer.token(sub="lea", groups=["leads"]),
            "lou": issuer.token(sub="lou", groups=["leads"]),
        }
        for token in tokens.values():
            await over_http(people.origin, {"authorization": f"Bearer {token}"})
        url = f"{people.origin}/api/usage"
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:

            async def seen(name: str, **asked: str) -> dict[str, int]:
                answer = await http.get(url, params=asked, headers={"authorization": f"Bearer {tokens[name]}"})
                assert answer.status_code == 200, answer.text
                return {row["user"]: row["calls"] for row in answer.json()["rows"]}

            everybody = {"alice": 1, "bob": 1} | {f"{issuer.url}#{one}": 1 for one in ("ann", "lea", "lou")}
            assert await eventually(lambda: seen("bob"), lambda found: len(found) == 5) == everybody
            assert await seen("alice") == {"alice": 1}
            assert await seen("ann") == {f"{issuer.url}#ann": 1}
            assert await seen("ann", user="*") == {f"{issuer.url}#ann": 1}
            assert await seen("ann", user="bob") == {}
            assert await seen("lea") == {f"{issuer.url}#lea": 1, f"{issuer.url}#lou": 1}
            assert await seen("bob", user="ann@example.com") == {f"{issuer.url}#ann": 1}
            assert (await http.get(url)).status_code == 401
            wrong = await http.get(url, params={"by": "people"}, headers={"authorization": f"Bearer {tokens['bob']}"})
            assert wrong.status_code == 400
            assert "expected some of user, server" in wrong.json()["error"]["message"]


async def test_reports_of_usage_take_no_threads_of_other_work(tmp_path: Path) -> None:
    """Anybody may ask for one, and as often as they like: each reads much of the call log."""
    async with office(tmp_path) as (people, _):
        headers = {"authorization": f"Bearer {token_of('alice')}"}
        assert (await people["alice"].http.get(f"{people.origin}/api/usage", headers=headers)).status_code == 200
        threads = anyio.to_thread.current_default_thread_limiter()
        usual, threads.total_tokens = threads.total_tokens, threads.borrowed_tokens + 1
        try:
            async with threads:
                answer = await people["alice"].http.get(f"{people.origin}/api/usage", headers=headers)
        finally:
            threads.total_tokens = usual
        assert answer.status_code == 200


async def test_a_call_log_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with office(tmp_path) as (people, _):
        path = people.bridge.audit.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"this was a database once. " * 100)
        headers = {"authorization": f"Bearer {token_of('alice')}"}
        answer = await people["alice"].http.get(f"{people.origin}/api/usage", headers=headers)
        assert answer.status_code == 503
        error = answer.json()["error"]
        assert error["code"] == "failed"
        assert error["message"].startswith("what is asked for cannot be read now: ")
        assert str(tmp_path) not in error["message"], "she need not know where it is"


async def test_where_people_share_a_bridge_every_call_is_recorded(tmp_path: Path) -> None:
    """However fast calls come: a history for one person has as many as cost little."""
    async with office(tmp_path) as (people, _):
        alice = people["alice"]
        for _ in range(20):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(alice.call, "gated__echo")
        answer = await eventually(
            lambda: alice.http.get(
                f"{people.origin}/api/usage", headers={"authorization": f"Bearer {token_of('alice')}"}
            ),
            lambda found: bool(found.json()["rows"]) and found.json()["rows"][0]["calls"] >= 200,
        )
        assert answer.json()["total"]["calls"] == 200
