"""What clients are told of the bridge's own tools: few tokens, whatever the catalog."""

import json
from typing import Any

import pytest

from mcpbridge.catalog.listing.catalog_summary import catalog_map
from mcpbridge.results.token_count import counter
from mcpbridge.tools.builtin.meta.definitions import CALL_TOOL, DESCRIBE_TOOLS, FIND_TOOLS, with_map
from mcpbridge.tools.builtin.recall.definition import ARGUMENTS, definition

RECALL = definition(transforms=True)
THINGS = [
    "repository",
    "invoice",
    "customer-record",
    "WeatherForecast",
    "sprintRetrospective",
    "kubernetes_namespace",
    "数量",
]


def tokens_of(definition: dict[str, Any]) -> int:
    return counter("o200k")(json.dumps(definition, separators=(",", ":"), ensure_ascii=False))


def catalog(servers: int, tools: int) -> list[tuple[str, str]]:
    return [
        (f"{THINGS[n % 7]}-server-{n * 7919 % 1000}", f"{verb}_{THINGS[k % 7]}_{THINGS[(k + n) % 7]}")
        for n in range(servers)
        for k in range(tools)
        for verb in ("get", "create", "reconcile")
    ]


@pytest.mark.parametrize("servers", [1, 2, 5, 12, 13, 40, 300])
@pytest.mark.parametrize("tools", [1, 7, 30])
def test_all_definitions_stay_within_600_tokens(servers: int, tools: int) -> None:
    """Promise of the bridge (issue 6), annotations and titles included."""
    map_ = catalog_map(catalog(servers, tools))
    assert map_
    own = [with_map(FIND_TOOLS, map_), DESCRIBE_TOOLS, CALL_TOOL, RECALL]
    assert sum(tokens_of(one) for one in own) <= 600


def test_what_they_are_and_what_they_take() -> None:
    for one in (FIND_TOOLS, DESCRIBE_TOOLS):
        assert one["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert "annotations" not in CALL_TOOL
    assert list(FIND_TOOLS["inputSchema"]["properties"]) == ["query", "limit", "detail"]
    assert list(DESCRIBE_TOOLS["inputSchema"]["properties"]) == ["names"]
    assert list(CALL_TOOL["inputSchema"]["properties"]) == ["name", "arguments"]
    assert "signature" in CALL_TOOL["description"]
    assert with_map(FIND_TOOLS, "")["description"] == FIND_TOOLS["description"]
    assert with_map(FIND_TOOLS, "A map.")["description"] == f"{FIND_TOOLS['description']} A map."


def test_recall_keeps_all_its_arguments_in_220_tokens() -> None:
    assert len(ARGUMENTS) == 17
    assert list(RECALL["inputSchema"]["properties"]) == list(ARGUMENTS)
    assert tokens_of({key: RECALL[key] for key in ("name", "description", "inputSchema")}) <= 220
    assert "_transform" not in definition(transforms=False)["inputSchema"]["properties"]
