"""How tools are listed whose large results are rewritten (issue 5)."""

import json
from typing import Any

import pytest

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.tool_names import wire_names
from mcpbridge.catalog.upstream_filter import Offer
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
def test_recall_is_the_bridges_own_whatever_a_server_calls_its_tools(one: bool) -> None:
    """One server's own endpoint, and the list of all."""
    snapshot = built(tool("recall"), tool("mcpbridge__recall"), tool("mcpbridge/recall"), tool("Recall"), one=one)
    assert snapshot.tools["recall"].server == BRIDGE
    for name in ("recall", "mcpbridge__recall", "mcpbridge/recall", "mcpbridge.recall"):
        assert snapshot.tool(name).id == f"{BRIDGE}/recall"
    assert {wire: ref.name for wire, ref in snapshot.tools.items() if ref.server == "s"} == {
        "s__recall": "recall",
        "s__mcpbridge__recall": "mcpbridge__recall",
        "s__mcpbridge_recall": "mcpbridge/recall",
        "s__Recall": "Recall",
    }
    assert snapshot.tool("s/recall").name == snapshot.tool("s.recall").name == "recall"


@pytest.mark.parametrize("one", [True, False])
def test_a_reserved_name_means_no_servers_tool_even_where_the_bridge_has_none(one: bool) -> None:
    snapshot = built(tool("run_code"), tool("recall_all"), one=one)
    with pytest.raises(UnknownName):
        snapshot.tool("run_code")
    assert snapshot.tool("s__run_code").name == "run_code"
    assert snapshot.tool("recall_all").name == "recall_all"


@pytest.mark.parametrize("prefix", ["always", "on-collision", "never"])
def test_names_of_servers_do_not_change_for_the_bridge(prefix: Any) -> None:
    owners = [("s", "recall"), ("t", "mcpbridge__recall"), ("u", "other")]
    without, named = wire_names(owners, prefix=prefix), wire_names([*owners, (BRIDGE, "recall")], prefix=prefix)
    assert named == {**without, (BRIDGE, "recall"): "recall"}
    assert len(set(named.values())) == 4
