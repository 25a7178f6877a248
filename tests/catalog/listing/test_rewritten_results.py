"""How tools are listed whose large results are rewritten (issue 5)."""

import json
from typing import Any

import pytest

from mcpbridge.catalog.offers import Offer
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.tool_names import own_names, wire_names
from mcpbridge.core.model import BRIDGE
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.upstream.settings import ServerSettings

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}}
RECALL = {"name": "recall", "inputSchema": {"type": "object"}}


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {"a": {}}}, **members}


def built(
    *tools: dict[str, Any],
    default: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    large: frozenset[str] = frozenset(),
    one: bool = False,
) -> Snapshot:
    builder = SnapshotBuilder(results=ResultSettings.model_validate(default or {}))
    builder = builder.for_one_server() if one else builder
    builder.large = large
    offers = [
        Offer("s", tuple(json.dumps(one).encode() for one in tools)),
        Offer(BRIDGE, (json.dumps(RECALL).encode(),)),
    ]
    return builder.build(offers, {"s": ServerSettings.model_validate({"command": "x", **(server or {})})})


def shown(snapshot: Snapshot, name: str) -> dict[str, Any]:
    return json.loads(snapshot.tools[name].published)


def test_an_output_schema_is_left_out_where_results_may_miss_it() -> None:
    snapshot = built(tool("t", outputSchema=OUTPUT))
    assert "outputSchema" not in shown(snapshot, "s__t")
    assert "outputSchema" not in json.loads(snapshot.tools["s__t"].published_modern)
    assert b"outputSchema" in snapshot.tools["s__t"].definition


@pytest.mark.parametrize(
    ("default", "server"),
    [
        ({"strategy": "off"}, {}),
        ({}, {"results": {"strategy": "off"}}),
        ({}, {"tool": {"t": {"results": {"strategy": "off"}}}}),
    ],
)
def test_it_stays_where_results_pass_as_they_come(default: dict[str, Any], server: dict[str, Any]) -> None:
    snapshot = built(tool("t", outputSchema=OUTPUT), default=default, server=server)
    assert shown(snapshot, "s__t")["outputSchema"] == OUTPUT
    assert "recall" not in snapshot.tools


def test_it_stays_where_an_app_shows_the_results() -> None:
    snapshot = built(tool("t", outputSchema=OUTPUT, _meta={"ui": {"resourceUri": "ui://a"}}))
    assert shown(snapshot, "s__t")["outputSchema"] == OUTPUT


def test_scripts_are_declared_of_tools_with_large_results() -> None:
    snapshot = built(tool("t"), tool("u"), large=frozenset({"s/t"}))
    assert list(shown(snapshot, "s__t")["inputSchema"]["properties"]) == ["a", "_transform"]
    assert list(shown(snapshot, "s__u")["inputSchema"]["properties"]) == ["a"]


def test_a_tool_with_such_a_parameter_keeps_its_own() -> None:
    own = {"type": "object", "properties": {"_transform": {"type": "integer"}}}
    assert shown(built(tool("t", inputSchema=own), large=frozenset({"s/t"})), "s__t")["inputSchema"] == own


def test_scripts_that_are_not_taken_are_not_declared() -> None:
    snapshot = built(tool("t"), default={"code_transform": False}, large=frozenset({"s/t"}))
    assert "_transform" not in shown(snapshot, "s__t")["inputSchema"]["properties"]


@pytest.mark.parametrize("one", [True, False])
def test_recall_gives_way_to_a_server_that_has_a_tool_of_that_name(one: bool) -> None:
    assert "recall" in built(tool("t"), one=one).tools
    snapshot = built(tool("recall"), one=one)
    assert snapshot.tools["mcpbridge__recall"].server == BRIDGE
    assert snapshot.tool("mcpbridge/recall").server == BRIDGE
    assert snapshot.tools["recall" if one else "s__recall"].server == "s"


@pytest.mark.parametrize("prefix", ["always", "on-collision", "never"])
def test_names_of_servers_do_not_change_for_the_bridge(prefix: Any) -> None:
    owners = [("s", "recall"), ("t", "mcpbridge__recall"), ("u", "other")]
    without, named = wire_names(owners, prefix=prefix), wire_names([*owners, (BRIDGE, "recall")], prefix=prefix)
    assert named.items() >= without.items()
    assert len(set(named.values())) == 4


def test_the_names_of_one_server_are_its_own() -> None:
    names = own_names([("s", "recall"), ("s", "mcpbridge__recall"), (BRIDGE, "recall")])
    assert names["s", "recall"] == "recall"
    assert names["s", "mcpbridge__recall"] == "mcpbridge__recall"
    assert len(set(names.values())) == 3
