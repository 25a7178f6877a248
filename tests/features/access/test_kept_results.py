"""Reading a kept result as a resource is a request like every other: it counts, it is recorded, and roles apply.

Issue 23: everything is on record, each reaches what is theirs; quotas by user.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.storage.audit.reader import Wanted, every
from mcpbridge.storage.call_log.reader import Filter, read_calls
from support.harness import eventually
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.people import ear_of, introduce, office, person
from support.upstreams.scripted_upstream import ScriptedTransport

pytestmark = pytest.mark.anyio

ANN = person("ann", groups=["eng"], name="Ann")
ROLES: list[dict[str, Any]] = [
    {"name": "engineering", "groups": "eng", "servers": ["hr"]},
    {"name": "sales", "groups": "sales", "servers": ["mail"]},
]
NO_ROOM = "Your quota of the role 'engineering' is used up"


def server(name: str) -> ScriptedTransport:
    """A server whose every result is large."""
    transport = office(name, "get_rows")
    rows = json.dumps([{"id": number, "note": f"{name} number {number}"} for number in range(2000)])
    transport.script = {**transport.script, "tools/call": {"content": [{"type": "text", "text": rows}]}}
    return transport


@asynccontextmanager
async def place(folder: Path, quota: str = "", **sections: Any) -> AsyncIterator[BridgeToScripts]:
    first = {**ROLES[0], "quota": quota} if quota else ROLES[0]
    async with bridged(
        {name: server(name) for name in ("hr", "mail")},
        roles=[first, ROLES[1]],
        results={"strategy": "preview"},
        expose={"mode": "all"},
        store={"path": str(folder / "store.db")},
        **sections,
    ) as bridge:
        yield bridge


async def kept(ear: Ear, name: str = "hr") -> str:
    """The URI of the result of a call."""
    answer = await ear.ask("tools/call", {"name": f"{name}__get_rows", "arguments": {}})
    found = re.search(r"\b[a-z2-7]{26}\b", json.dumps(answer["result"]))
    assert found, answer
    return f"mcpbridge://results/{found[0]}"


async def reads(ear: Ear, uri: str) -> dict[str, Any]:
    return await ear.ask("resources/read", {"uri": uri})


async def test_reading_one_is_in_the_call_log_and_so_is_a_try(tmp_path: Path) -> None:
    async with place(tmp_path, call_log={"enabled": True}) as bridge:
        ann = await ear_of(bridge.server, ANN)
        uri = await kept(ann)
        assert "hr number 1999" in json.dumps(await reads(ann, f"{uri}/text"))
        bob = await ear_of(bridge.server, person("bob", groups=["eng"]))
        assert "error" in await reads(bob, uri)

        async def rows() -> list[dict[str, Any]]:
            bridge.audit.write_soon()
            found = read_calls(bridge.audit.path, Filter(), limit=9) if bridge.audit.path.exists() else []
            return [row for row in found if row["method"] == "resources/read" and row["outcome"] != "interrupted"]

        done, refused = await eventually(rows, lambda found: len(found) == 2)
        assert (done["server"], done["tool"], done["outcome"]) == ("mcpbridge", f"{uri}/text", "ok")
        assert (done["principal"], done["user"]) == (ANN.principal, ANN.name)
        assert done["result"]["size"] > 10_000
        assert (refused["tool"], refused["outcome"], refused["error"]) == (uri, "refused", "UnknownName")
        assert refused["principal"] != ANN.principal


async def test_reading_one_has_a_line_in_the_audit_log(tmp_path: Path) -> None:
    audit = {"enabled": True, "path": str(tmp_path / "log"), "anchor": str(tmp_path / "anchor")}
    async with place(tmp_path, audit=audit) as bridge:
        ann = await ear_of(bridge.server, ANN)
        uri = await kept(ann)
        assert "result" in await reads(ann, uri)
        introduce(ann.client, person("ann", groups=["sales"]))
        assert "error" in await reads(ann, uri)
    lines = [line for line in every(tmp_path / "log", Wanted(kind="call")) if line["method"] == "resources/read"]
    assert [(line["server"], line["tool"], line["outcome"]) for line in lines] == [
        ("mcpbridge", uri, "ok"),
        ("mcpbridge", uri, "refused"),
    ]
    assert {line["principal"] for line in lines} == {ANN.principal}


async def test_reading_one_counts_for_quotas_as_recalling_it_does(tmp_path: Path) -> None:
    async with place(tmp_path, quota="2 calls per day") as bridge:
        ann = await ear_of(bridge.server, ANN)
        uri = await kept(ann)
        assert "result" in await reads(ann, uri)
        assert NO_ROOM in json.dumps((await reads(ann, uri))["error"])
        recalled = await ann.ask("tools/call", {"name": "recall", "arguments": {"handle": uri}})
        assert recalled["result"]["_meta"]["mcpbridge/error"] == "QuotaSpent"


async def test_tokens_of_what_was_read_count(tmp_path: Path) -> None:
    async with place(tmp_path, quota="9000 tokens per day") as bridge:
        ann = await ear_of(bridge.server, ANN)
        uri = await kept(ann)
        assert "result" in await reads(ann, uri)
        assert NO_ROOM in json.dumps((await reads(ann, uri))["error"])


async def test_what_is_read_keeps_its_labels(tmp_path: Path) -> None:
    """A session that reads what another one has kept has read private data, too."""
    servers = {"hr": {"labels": ["private", "untrusted"]}, "mail": {"labels": ["sends"]}}
    async with place(tmp_path, servers=servers, trust={"trifecta": "deny"}) as bridge:
        both = person("ann", groups=["eng", "sales"])
        uri = await kept(await ear_of(bridge.server, both))
        ear = await ear_of(bridge.server, both)
        assert "result" in await reads(ear, f"{uri}/content/0")
        refused = await ear.ask("tools/call", {"name": "mail__get_rows", "arguments": {}})
        assert "mail/get_rows is denied" in json.dumps(refused["result"])


async def test_a_modern_client_reads_one_as_complete_and_private(tmp_path: Path) -> None:
    async with place(tmp_path) as bridge:
        ann = await ear_of(bridge.server, None)
        uri = await kept(ann)
        answer = (await ann.ask_modern("resources/read", {"uri": f"{uri}/content/0"}))["result"]
        assert (answer["resultType"], answer["cacheScope"]) == ("complete", "private")
        assert "hr number 1999" in answer["contents"][0]["text"]
