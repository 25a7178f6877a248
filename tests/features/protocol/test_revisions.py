"""Every revision of the protocol on both sides of the bridge, in every pairing."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from support.harness import Place, eventually, python_server
from support.rpc import MODERN, Client, Refused, StdioClient, envelope

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
FRONTS = ["stdio", "http"]
TRACE = f"00-{'a1' * 16}-{'b2' * 8}-01"

ALL_REVISIONS = {
    **{f"r{revision.replace('-', '')}": python_server("plain", revision) for revision in LEGACY},
    "modern": python_server("modern"),
}
"""A server for each revision."""


def opened(place: Place, front: str, servers: dict[str, Any]) -> Any:
    return place.http_bridge(servers) if front == "http" else place.bridge(servers)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("revision", LEGACY)
async def test_a_legacy_client_of_each_revision_reaches_servers_of_all(place: Place, front: str, revision: str) -> None:
    async with opened(place, front, ALL_REVISIONS) as client:
        result = await client.initialize(revision)
        assert result["protocolVersion"] == revision
        assert result["serverInfo"]["name"] == "mcpbridge"
        for name in ALL_REVISIONS:
            assert f"{name}__echo" in await client.tools_with(f"{name}__echo")
            reply = await client.call(f"{name}__echo", text="hello")
            assert reply.text == "hello"
            assert "resultType" not in reply.result, "what is modern stays in the modern era"


@pytest.mark.parametrize("front", FRONTS)
async def test_a_modern_client_reaches_servers_of_all_revisions(place: Place, front: str) -> None:
    async with opened(place, front, ALL_REVISIONS) as client:
        found = (await client.request("server/discover", {"_meta": envelope()}, within=60)).result
        assert MODERN in found["supportedVersions"]
        for name in ALL_REVISIONS:
            reply = await eventually(lambda name=name: called(client, name), lambda reply: "result" in reply.message)
            assert reply.text == "hello"
            assert reply.result["resultType"] == "complete"
            assert reply.result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcpbridge"
        listed = (await client.request("tools/list", {"_meta": envelope()})).result
        assert {"modern__echo", "r20241105__echo"} <= {tool["name"] for tool in listed["tools"]}
        assert isinstance(listed["ttlMs"], int)
        assert listed["cacheScope"] in ("public", "private")


async def called(client: Client, server: str) -> Any:
    return await client.call(f"{server}__echo", text="hello", meta=envelope(), within=60)


@pytest.mark.parametrize("front", FRONTS)
async def test_an_unknown_revision_is_answered_with_the_newest_known(place: Place, front: str) -> None:
    async with opened(place, front, {"plain": python_server("plain")}) as client:
        assert (await client.initialize("2019-01-01"))["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("front", FRONTS)
async def test_an_unknown_modern_revision_is_refused_with_those_that_are_known(place: Place, front: str) -> None:
    async with opened(place, front, {"plain": python_server("plain")}) as client:
        meta = envelope(**{"io.modelcontextprotocol/protocolVersion": "2031-01-01"})
        with pytest.raises(Refused) as refused:
            _ = (await client.request("tools/list", {"_meta": meta}, within=60)).result
        assert refused.value.code == -32022
        assert MODERN in refused.value.data["supported"]


async def test_what_belongs_to_one_hop_does_not_cross(place: Place) -> None:
    """MCP 2026-07-28, Base Protocol, `_meta`: envelope and progress token are made anew; trace and vendor keys stay."""
    meta = envelope(**{"progressToken": "mine", "traceparent": TRACE, "com.example/kept": {"n": 1}, "other": None})
    async with place.bridge({"modern": python_server("modern"), "plain": python_server("plain")}) as client:
        for name in ("modern", "plain"):
            await eventually(lambda name=name: called(client, name), lambda reply: "result" in reply.message)
            await client.call(f"{name}__echo", text="marked", meta=meta)
            journal = json.loads((await client.call(f"{name}__journal", meta=envelope())).text)
            [sent] = [m["params"] for m in journal if m.get("params", {}).get("arguments") == {"text": "marked"}]
            crossed = sent["_meta"]
            assert crossed["com.example/kept"] == {"n": 1}
            assert crossed["traceparent"].startswith(TRACE[:36])
            assert crossed["other"] is None
            assert crossed["progressToken"] != "mine"
            identity = crossed.get("io.modelcontextprotocol/clientInfo")
            assert identity is None if name == "plain" else identity["name"] == "mcpbridge"


async def test_a_modern_server_that_grows_is_heard_by_a_legacy_client(place: Place) -> None:
    async with place.bridge({"modern": python_server("modern")}) as client:
        await client.initialize()
        await client.tools_with("modern__grow")
        before = len(client.arrived)
        await eventually(lambda: client.call("modern__grow"), lambda reply: reply.text != "0")
        await client.notice("notifications/tools/list_changed", after=before)
        assert any("grown" in name for name in await client.tools())


@pytest.mark.parametrize("front", FRONTS)
async def test_a_legacy_server_that_grows_is_heard_by_a_modern_listener(place: Place, front: str) -> None:
    async with opened(place, front, {"grows": python_server("listings", "grows")}) as client:
        meta = {"meta": envelope()}
        await eventually(lambda: client.call("grows__grow", **meta), lambda reply: "result" in reply.message)
        listening = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
        stream = asyncio.create_task(client.request("subscriptions/listen", listening, within=30))
        acknowledged = await client.notice("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"]["toolsListChanged"] is True
        before = len(client.arrived)
        await client.call("grows__grow", **meta)
        changed = await client.notice("notifications/tools/list_changed", after=before)
        [id_] = {m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for m in (acknowledged, changed)}
        if isinstance(client, StdioClient):
            await client.tell("notifications/cancelled", requestId=id_)
        stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stream
        assert (await client.call("grows__grow", **meta)).text
