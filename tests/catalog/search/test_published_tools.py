"""The texts of tools, read from their definitions whenever an index is made (issue 21)."""

import gc
import json
from typing import Any

import pytest

from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.index_cache import digest_of
from mcpbridge.catalog.search.published_tools import PublishedTools, labels_of, text_of
from mcpbridge.catalog.search.ranker import ServerText, ToolText
from mcpbridge.catalog.snapshot import ToolRef

SCHEMA = {"type": "object", "properties": {"city": {"description": "Where the rain falls"}}}


def published(name: str, definition: bytes) -> ToolRef:
    return ToolRef("sky", name, f"sky__{name}", f"sky/{name}", definition, definition, definition, {})


def tool(name: str, **members: Any) -> ToolRef:
    return published(name, json.dumps({"name": f"sky__{name}", "inputSchema": SCHEMA, **members}).encode())


FORECAST = tool("forecast", title="Weather", description="Rain and sun of the coming days")
ALERTS = tool("alerts", description="Storms that are near")


def tools_of(*refs: ToolRef, tags: tuple[str, ...] = ()) -> PublishedTools:
    return PublishedTools("sky", [(ref, tags) for ref in refs])


def test_texts_are_those_of_the_definitions() -> None:
    tools = tools_of(FORECAST, ALERTS, tags=("weather",))
    first = ToolText(
        "sky/forecast", "sky", "forecast", "Weather", "Rain and sun of the coming days", SCHEMA, ("weather",)
    )
    assert tools[0] == first == text_of(FORECAST, ("weather",))
    assert list(tools)[1:] == tools[1:] == [text_of(ALERTS, ("weather",))]
    assert labels_of(tools) == labels_of(list(tools))


@pytest.mark.parametrize(
    "definition",
    [b"{}", b"not JSON", b"[]", b'{"title": 1, "description": [], "inputSchema": "no object"}', b"[" * 100_000],
    ids=["empty", "not JSON", "a list", "wrong types", "too deep"],
)
def test_a_definition_that_cannot_be_read_has_no_texts(definition: bytes) -> None:
    assert text_of(published("odd", definition), ()) == ToolText("sky/odd", "sky", "odd")


def test_the_digest_is_another_when_anything_is() -> None:
    server = ServerText("sky")
    digests = [
        digest_of(about, tools)
        for about, tools in [
            (server, tools_of(FORECAST, ALERTS)),
            (server, tools_of(ALERTS, FORECAST)),
            (server, tools_of(FORECAST)),
            (server, tools_of(FORECAST, tool("alerts", description="Storms that are far"))),
            (server, tools_of(FORECAST, ALERTS, tags=("weather",))),
            (ServerText("sky", "Weather"), tools_of(FORECAST, ALERTS)),
        ]
    ]
    assert len(set(digests)) == len(digests)
    assert digest_of(server, tools_of(FORECAST, ALERTS)) == digests[0]


def test_the_index_is_the_same_and_keeps_no_texts() -> None:
    """Decoded definitions would be megabytes that nobody needs once the index is made."""
    tools = tools_of(FORECAST, ALERTS, tags=("weather",))
    rankers = CatalogRankers()
    ranker = rankers.of([(ServerText("sky"), tools)])
    for query in ("storm", "rain tomorrow", "tag:weather", "sky alerts", "where the rain falls"):
        assert ranker.rank(query, 5) == CatalogRankers().of([(ServerText("sky"), list(tools))]).rank(query, 5)
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, ToolText) and one.server == "sky"]
