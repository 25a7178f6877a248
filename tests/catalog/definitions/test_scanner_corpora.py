"""How much of the corpora the scanner finds, by class (issue 22: bounds on both sides, figures printed)."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcpbridge import Bridge
from mcpbridge.app.doctor.suspicious_texts import suspicious_texts
from mcpbridge.catalog.definitions.scanner.scan import scan
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from support.catalog.definitions import settings
from support.scanner_corpora import OTHERS, RealTools, Tally, cases

ROOT = Path(__file__).parents[3]
POISONED = list(cases("poisoned"))
BENIGN = list(cases("benign"))
HELD_OUT = [pytest.param(False, id="seen"), pytest.param(True, id="held out")]


def test_the_corpora_are_as_large_as_was_asked_for() -> None:
    assert len(POISONED) >= 150
    assert len(BENIGN) >= 150
    for corpus in (POISONED, BENIGN):
        texts = [json.dumps(case.entry) for case in corpus]
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("is_held_out", HELD_OUT)
def test_most_poisoned_texts_are_found(is_held_out: bool) -> None:
    tally = Tally.count((case for case in POISONED if case.is_held_out is is_held_out), is_poison=True)
    print(f"poisoned, {'held out' if is_held_out else 'seen'}:\n{tally}")
    assert tally.share >= 0.85, "\n".join(map(str, tally.unlike))


def test_every_hidden_character_is_found() -> None:
    for case in POISONED:
        if case.group == "hidden":
            found = {one.rule for one in scan(json.dumps(case.definition).encode(), OTHERS)}
            assert "hidden-text" in found, case


@pytest.mark.parametrize(
    ("trust", "warned", "held"), [("high", False, False), ("normal", True, False), ("low", True, True)]
)
async def test_what_becomes_of_them_is_a_matter_of_trust(trust: str, warned: bool, held: bool) -> None:
    """All poisoned tools at one server: those with a finding are warned of, or held, or neither."""
    tools = [case for case in POISONED if "inputSchema" in case.definition and "name" not in case.entry]
    definitions = [case.definition | {"name": f"tool_{number}"} for number, case in enumerate(tools)]
    offer = Offer("bad", tools=tuple(json.dumps(one).encode() for one in definitions))
    other = Offer(
        "good", tools=tuple(json.dumps({"name": name, "inputSchema": {}}).encode() for name in sorted(OTHERS))
    )
    servers = {"bad": settings(text_trust=trust), "good": settings()}
    snapshot = SnapshotBuilder().build([offer, other], servers)
    found = [one for one in suspicious_texts(snapshot, servers, {}, "bad") if one.kind == "tool"]
    verdicts = Counter(one.verdict for one in {(one.name, one.verdict): one for one in found}.values())
    listed = sum(ref.server == "bad" for ref in snapshot.tools.values())
    print(f"{trust}: {dict(verdicts)}, {listed} of {len(tools)} listed")
    most = 0.85 * len(tools)
    assert (verdicts["warn"] + verdicts["hold"] >= most) is warned
    assert (verdicts["hold"] >= most) is held
    assert (listed <= len(tools) - most) is held


@pytest.mark.parametrize("is_held_out", HELD_OUT)
def test_few_benign_texts_are_flagged(is_held_out: bool) -> None:
    """They are look-alikes: a real catalog has far fewer such texts."""
    tally = Tally.count((case for case in BENIGN if case.is_held_out is is_held_out), is_poison=False)
    print(f"benign, {'held out' if is_held_out else 'seen'}:\n{tally}")
    assert tally.share <= 0.05, "\n".join(map(str, tally.unlike))


SERVERS: dict[str, list[str]] = {
    "git": [".venv-servers/bin/mcp-server-git"],
    "time": [".venv-servers/bin/mcp-server-time"],
    "everything": ["examples/node_modules/.bin/mcp-server-everything"],
    "filesystem": ["examples/node_modules/.bin/mcp-server-filesystem", "."],
    "memory": ["examples/node_modules/.bin/mcp-server-memory"],
}
"""The real servers that `make example` installs."""


async def test_no_tool_of_the_installed_servers_is_held(tmp_path: Path) -> None:
    """Real catalogs that every run of the tests has; `MCPBRIDGE_ROUTING_DATA` has larger ones."""
    servers = {
        name: {"command": str(ROOT / words[0]), "args": words[1:], "cwd": str(tmp_path), "text_trust": "low"}
        for name, words in SERVERS.items()
        if (ROOT / words[0]).exists()
    }
    assert {"git", "time"} <= servers.keys(), "run `make example` first: it installs the servers"
    tools: dict[str, list[Any]] = {}
    for name, server in servers.items():
        parameters = StdioServerParameters(command=server["command"], args=server["args"], cwd=server["cwd"])
        async with Client(parameters) as client:
            listed = await client.list_tools()
        tools[name] = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
    async with Bridge.open({"servers": servers, "store": {"kind": "memory"}}) as bridge:
        shown = {tool.name for tool in await bridge.list_tools()}
    own = RealTools.of_servers("installed servers", tools)
    print(own)
    assert own.count >= 14
    assert not own.flagged, "\n".join(own.flagged)
    assert sum(any(name.startswith(f"{server}__") for server in servers) for name in shown) == own.count


@pytest.mark.skipif("MCPBRIDGE_ROUTING_DATA" not in os.environ, reason="needs the sets of real tools")
def test_few_real_tools_are_held() -> None:
    sets = list(RealTools.of_folder(Path(os.environ["MCPBRIDGE_ROUTING_DATA"])))
    assert sets
    for one in sets:
        print(one)
    count, flagged = sum(one.count for one in sets), sum(len(one.flagged) for one in sets)
    assert flagged <= 0.01 * count, "\n".join(line for one in sets for line in one.flagged)
