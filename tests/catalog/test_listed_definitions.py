"""Definitions for clients of older revisions: nothing that they must not know, all else as it came."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import validate_server_result
from msgspec.structs import replace

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.listed_definitions import older_form
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.protocol.revisions import LEGACY, MODERN, REVISIONS
from support.catalog.definitions import dumps, prompt, resource, settings, template, tool
from support.catalog.snapshots import build_snapshot

ICONS = [{"src": "https://x/i.png"}]
RICH = {"title": "T", "icons": ICONS, "_meta": {"v/k": None}, "x-new": [1]}
TOOL = {
    **RICH,
    "outputSchema": {"type": "object"},
    "annotations": {"title": "A", "readOnlyHint": True},
    "execution": {"taskSupport": "optional"},
}
OFFER = Offer(
    "s",
    tools=(tool("t", **TOOL),),
    prompts=(prompt("p", **RICH, arguments=[{"name": "a", "title": "A", "required": True, "x-new": None}]),),
    resources=(resource("x:y", **RICH, annotations={"priority": 1}, size=3),),
    templates=(template("x:{y}", **RICH, annotations={"priority": 1}),),
)
GONE: dict[str, set[str]] = {
    "2024-11-05": {"icons", "execution", "title", "outputSchema", "annotations"},
    "2025-03-26": {"icons", "execution", "title", "outputSchema"},
    "2025-06-18": {"icons", "execution"},
    "2025-11-25": {"execution"},
    "2026-07-28": {"execution"},
}
"""What clients of each revision do not see of a tool that has everything."""


def listed(kind: Kind, revision: str, snapshot: Snapshot | None = None) -> list[dict[str, Any]]:
    snapshot = snapshot or build_snapshot([OFFER], {})
    page = json.loads(snapshot.page(kind, None, revision=revision))
    return page["resourceTemplates" if kind == "templates" else kind]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_tool_shows_what_the_revision_has(revision: str) -> None:
    [shown] = listed("tools", revision)
    sent = json.loads(OFFER.tools[0]) | {"name": "s__t"}
    assert shown == {member: value for member, value in sent.items() if member not in GONE[revision]}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("kind", ["resources", "templates"])
def test_annotations_of_resources_are_of_the_first_revision(kind: Kind, revision: str) -> None:
    [shown] = listed(kind, revision)
    [sent] = map(json.loads, OFFER.of(kind))
    assert shown == {member: value for member, value in sent.items() if member not in GONE[revision] - {"annotations"}}


@pytest.mark.parametrize("revision", REVISIONS)
def test_arguments_of_prompts_have_titles_where_there_are_any(revision: str) -> None:
    [shown] = listed("prompts", revision)
    [argument] = shown["arguments"]
    assert ("title" in argument) == ("title" in shown) == (revision >= "2025-06-18")
    assert argument["x-new"] is None


def test_tasks_of_2025_are_told_of_where_the_bridge_offers_them() -> None:
    """Of servers that run them: 2026-07-28 removed them, older revisions never had them."""
    snapshot = build_snapshot([replace(OFFER, runs_tasks=True)], {})
    shown = {revision: "execution" in listed("tools", revision, snapshot)[0] for revision in REVISIONS}
    assert shown == {revision: revision == "2025-11-25" for revision in REVISIONS}


def test_a_definition_without_news_keeps_its_bytes() -> None:
    raw = b'{ "name":"caf\\u00e9", "inputSchema":{"type":"object"},"n":1e5 }'
    assert older_form("tools", raw, "2024-11-05") is raw
    assert older_form("tools", b'{"name":"a","n":1e5,"title":"x","z":[ null ]}', "2024-11-05") == (
        b'{"name":"a","n":1e5,"z":[ null ]}'
    )


def test_pages_of_a_rare_revision_are_made_when_asked_for_and_once() -> None:
    snapshot = build_snapshot([OFFER], {})
    first = snapshot.page("tools", None, revision="2024-11-05")
    assert snapshot.page("tools", None, revision="2024-11-05") is first


def test_a_page_of_the_newest_legacy_revision_is_that_of_an_older_one_with_nothing_to_leave_out() -> None:
    plain = Offer("s", tools=(tool("t", description="d"),))
    snapshot = build_snapshot([plain], {})
    pages = {id(snapshot.page("tools", None, revision=revision)) for revision in LEGACY}
    assert len(pages) == 1, "one copy of it"


_VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.text(max_size=3), st.just([]), st.just({}))
_MEMBERS = st.dictionaries(
    st.sampled_from(
        ["title", "icons", "execution", "outputSchema", "annotations", "description", "_meta", "x", "arguments"]
    ),
    st.one_of(_VALUES, st.just(ICONS), st.just([{"name": "a", "title": "t"}]), st.just({"taskSupport": "optional"})),
)  # fmt: skip
_MAKE: dict[Kind, Any] = {"tools": tool, "prompts": prompt, "resources": resource, "templates": template}
_METHOD: dict[Kind, str] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}


@given(st.sampled_from(KINDS), _MEMBERS, st.sampled_from(REVISIONS))
def test_whatever_a_server_lists_is_valid_in_every_revision_and_otherwise_unchanged(
    kind: Kind, members: dict[str, Any], revision: str
) -> None:
    offered = _MAKE[kind]("x:y", **members)
    lists: dict[str, Any] = {kind: (offered,)}
    snapshot = build_snapshot([Offer("s", **lists)], {"s": settings()}, modern_tail=b'"_meta":{}')
    page = json.loads(snapshot.page(kind, None, revision=revision))
    validate_server_result(_METHOD[kind], revision, page)
    [shown] = listed(kind, revision, snapshot)
    newest = listed(kind, MODERN[-1] if revision in MODERN else LEGACY[-1], snapshot)[0]
    gone = GONE[revision] - (set() if kind == "tools" else {"annotations", "outputSchema", "execution"})
    assert not shown.keys() & (gone if kind != "tools" else GONE[revision])
    expected = {member: value for member, value in newest.items() if member not in gone}
    if revision < "2025-06-18" and isinstance(expected.get("arguments"), list) and kind == "prompts":
        for argument in expected["arguments"]:
            argument.pop("title", None)
    assert dumps(shown) == dumps(expected)
