"""What each audience sees of a catalog, and when it is told that this changed (issue 4)."""

import json
from typing import Any

import pytest

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog import refresh as audiences
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.pipeline.permissions.policy import ANYBODY
from support.catalog.definitions import prompt, settings, tools
from support.catalog.policies import policy_of

pytestmark = pytest.mark.anyio


def catalog_of(*offers: Offer, rules: list[dict[str, Any]], page_size: int = 0) -> Catalog:
    servers = {offer.server: settings() for offer in offers}
    catalog = Catalog(servers, SnapshotBuilder(page_size=page_size), policy=policy_of(*rules))
    for offer in offers:
        catalog.update(offer)
    catalog.flush()
    return catalog


def listed(view: Snapshot, cursor: str | None = None) -> list[str]:
    return [tool["name"] for tool in json.loads(view.page("tools", cursor, revision="2025-11-25"))["tools"]]


NO_WRITING = [{"tools": "write", "permission": "deny"}]
NOT_FOR_FIRST = [{"clients": "first", "servers": "a", "permission": "deny"}]
"""`first` is about the rule with the number 0."""
FIRST = frozenset({0})


async def test_where_nothing_can_be_denied_everybody_gets_the_whole_itself() -> None:
    catalog = catalog_of(tools("a", "x"), rules=[{"permission": "require_approval"}])
    assert catalog.view("", ANYBODY) is catalog.snapshot
    assert catalog.view("a", ANYBODY) is catalog.view("a")


async def test_denied_tools_are_not_listed_and_names_mean_what_they_meant() -> None:
    catalog = catalog_of(tools("a", "read", "write"), tools("b", "write"), rules=NO_WRITING)
    view = catalog.view("", ANYBODY)
    assert listed(view) == ["a__read"]
    assert list(view.tools) == ["a__read"]
    assert list(catalog.snapshot.tools) == ["a__read", "a__write", "b__write"]
    assert view.tool("a__write") is catalog.snapshot.tools["a__write"]
    assert view.tool("b/write").server == "b"
    assert view.digest != catalog.snapshot.digest
    assert listed(catalog.view("a", ANYBODY)) == ["read"]
    assert catalog.view("a", ANYBODY).tool("write").name == "write"


async def test_what_is_hidden_is_not_suggested() -> None:
    catalog = catalog_of(tools("a", "write", "writ"), tools("b", "write"), tools("c", "write"), rules=[
        {"tools": "b/write", "permission": "deny"}
    ])  # fmt: skip
    view = catalog.view("", ANYBODY)
    with pytest.raises(UnknownName) as wrong:
        view.tool("b__writ")
    assert wrong.value.candidates
    assert "b__write" not in wrong.value.candidates
    with pytest.raises(UnknownName) as bare:
        view.tool("wrote")
    assert "a__write" in bare.value.candidates
    assert "b__write" not in bare.value.candidates
    with pytest.raises(UnknownName) as ambiguous:
        view.tool("write")
    assert ambiguous.value.candidates == ["a__write", "c__write"]
    with pytest.raises(UnknownName) as whole:
        catalog.snapshot.tool("write")
    assert whole.value.candidates == ["a__write", "b__write", "c__write"]


async def test_pages_have_their_size_without_what_is_hidden() -> None:
    catalog = catalog_of(tools("a", "p", "write", "q", "r", "s"), rules=NO_WRITING, page_size=2)
    view = catalog.view("", ANYBODY)
    first = json.loads(view.page("tools", None, revision="2025-11-25"))
    assert [tool["name"] for tool in first["tools"]] == ["a__p", "a__q"]
    second = json.loads(view.page("tools", first["nextCursor"], revision="2025-11-25"))
    assert [tool["name"] for tool in second["tools"]] == ["a__r", "a__s"]
    assert "nextCursor" not in second
    whole = json.loads(catalog.snapshot.page("tools", None, revision="2025-11-25"))
    assert listed(view, whole["nextCursor"]) == ["a__r", "a__s"], "a cursor means the same place in every view"


async def test_audiences_see_each_their_own() -> None:
    catalog = catalog_of(tools("a", "x"), tools("b", "x"), rules=NOT_FOR_FIRST)
    assert listed(catalog.view("", FIRST)) == ["b__x"]
    assert listed(catalog.view("", ANYBODY)) == ["a__x", "b__x"]
    assert listed(catalog.view("a", FIRST)) == []
    assert catalog.view("", ANYBODY) is catalog.snapshot, "nothing is hidden from it, so nothing is copied"
    assert catalog.view("", FIRST) is catalog.view("", FIRST)


async def test_audiences_that_see_the_same_share_it() -> None:
    rules = [{"clients": name, "servers": "a", "permission": "deny"} for name in ("one", "two")]
    catalog = catalog_of(tools("a", "x"), tools("b", "x"), rules=rules)
    assert catalog.view("", frozenset({0})) is catalog.view("", frozenset({1}))


async def test_only_so_many_audiences_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiences, "MOST", 2)
    rules = [{"clients": f"c{n}", "tools": f"t{n}", "permission": "deny"} for n in range(4)]
    catalog = catalog_of(tools("a", "t0", "t1", "t2", "t3"), rules=rules)
    for number in [*range(4), 0]:
        assert f"a__t{number}" not in listed(catalog.view("", frozenset({number})))
    assert len(catalog._audiences._seen) == 2  # pyright: ignore[reportPrivateUsage]


async def test_an_audience_is_told_only_of_what_it_sees() -> None:
    catalog = catalog_of(tools("a", "x"), tools("b", "x"), rules=NOT_FOR_FIRST)
    told: list[frozenset[str]] = []
    catalog.on_change(lambda snapshot, kinds: told.append(kinds))
    catalog.view("", FIRST)
    catalog.view("a", FIRST)
    catalog.view("", ANYBODY)
    catalog.update(tools("a", "x", "y"))
    catalog.flush()
    assert told == [{"tools"}]
    assert catalog.changed("", FIRST) == frozenset()
    assert catalog.changed("a", FIRST) == frozenset()
    assert catalog.changed("", ANYBODY) == {"tools"}
    assert catalog.changed("", frozenset({7})) == {"tools"}, "nobody looked for it: it is told to be on the safe side"
    catalog.update(Offer("a", prompts=(prompt("p"),)))
    catalog.flush()
    assert catalog.changed("", FIRST) == {"prompts"}
    assert catalog.changed("", ANYBODY) == {"tools", "prompts"}
    catalog.update(tools("b", "x", "y"))
    catalog.flush()
    assert catalog.changed("", FIRST) == {"tools"}
    assert listed(catalog.view("", FIRST)) == ["b__x", "b__y"]
    catalog.update(Offer("b", tools=tools("b", "x", "y").tools, runs_tasks=True))
    catalog.flush()
    assert catalog.changed("", FIRST) == frozenset()
