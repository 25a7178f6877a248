"""The catalogs of single servers: the same definitions, by the server's own names."""

import json

import pytest

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from support.catalog.definitions import prompt, resource, resources, settings, template, tool, tools

pytestmark = pytest.mark.anyio

FILES = Offer(
    "files",
    tools=(tool("fs.read/all"), tool("write")),
    prompts=(prompt("ask me"),),
    resources=(resource("note://a"), resource("mcpb+x+note://b")),
    templates=(template("note://{name}"),),
)
OTHER = Offer("other", tools=(tool("write"),), prompts=(prompt("ask me"),), resources=(resource("note://a"),))


def listed(page: bytes, kind: str, key: str = "name") -> list[str]:
    return [entry[key] for entry in json.loads(page)[kind]]


def catalog_of(*offers: Offer, **configured: object) -> Catalog:
    how = {name: settings(**members) for name, members in configured.items() if isinstance(members, dict)}
    catalog = Catalog({offer.server: settings() for offer in offers} | how)
    for offer in offers:
        catalog.update(offer)
    catalog.flush()
    return catalog


async def test_a_view_shows_one_server_as_it_calls_itself() -> None:
    catalog = catalog_of(FILES, OTHER)
    view = catalog.view("files")
    assert listed(view.page("tools", None, revision="2025-11-25"), "tools") == ["fs.read/all", "write"]
    assert listed(view.page("prompts", None, revision="2025-11-25"), "prompts") == ["ask me"]
    uris = listed(view.page("resources", None, revision="2025-11-25"), "resources", "uri")
    assert sorted(uris) == ["mcpb+x+note://b", "note://a"]
    assert view.tool("write").server == "files"
    assert view.resource("note://a") == ("files", "note://a")
    assert view.resource("note://unlisted") == ("files", "note://unlisted")
    assert view.published_uri("files", "note://a") == "note://a"


async def test_the_merged_catalog_is_the_view_without_a_name() -> None:
    catalog = catalog_of(FILES, OTHER)
    assert catalog.view("") is catalog.snapshot
    assert catalog.flush() is catalog.snapshot
    assert catalog.flush("files") is catalog.view("files")


async def test_filters_and_renames_apply_to_a_view() -> None:
    catalog = catalog_of(FILES, files={"tools": {"exclude": ["write"]}, "tool": {"fs.read/all": {"rename": "read"}}})
    view = catalog.view("files")
    assert listed(view.page("tools", None, revision="2025-11-25"), "tools") == ["read"]
    assert view.tool("read").name == "fs.read/all"
    with pytest.raises(UnknownName):
        view.tool("write")


async def test_a_view_of_a_server_that_offers_nothing_is_empty() -> None:
    catalog = catalog_of(FILES)
    assert listed(catalog.view("silent").page("tools", None, revision="2026-07-28"), "tools") == []


async def test_a_view_is_made_once_and_again_only_when_its_own_server_changes() -> None:
    catalog = catalog_of(FILES, OTHER)
    first = catalog.view("files")
    catalog.update(tools("other", "x"))
    catalog.flush()
    assert catalog.view("files") is first
    catalog.update(tools("files", "x"))
    assert catalog.view("files") is first, "changes under way are in no view"
    assert catalog.flush("files") is not first


async def test_only_the_views_that_show_something_else_are_told_of() -> None:
    told: list[tuple[str, frozenset[Kind]]] = []
    catalog = catalog_of(FILES, OTHER)
    catalog.on_view_change(lambda server, kinds: told.append((server, kinds)))
    catalog.update(tools("other", "x"))
    catalog.flush()
    assert told == [], "nobody has looked at it"
    catalog.view("files")
    catalog.view("other")
    catalog.update(tools("other", "x", "y"))
    catalog.flush()
    assert told == [("other", {"tools"})]


async def test_a_web_page_that_the_merged_catalog_gives_to_another_server_is_listed_in_the_view() -> None:
    """And changes of it are told, though the merged list does not change."""
    told: list[tuple[str, frozenset[Kind]]] = []
    catalog = catalog_of(resources("a", "https://h/x"), resources("b"))
    catalog.on_view_change(lambda server, kinds: told.append((server, kinds)))
    catalog.view("b")
    before = catalog.snapshot.digest
    catalog.update(resources("b", "https://h/x"))
    view = catalog.flush("b")
    assert catalog.snapshot.digest == before
    assert listed(view.page("resources", None, revision="2025-11-25"), "resources", "uri") == ["https://h/x"]
    assert told == [("b", {"resources"})]


async def test_views_are_cut_into_pages_like_the_whole() -> None:
    catalog = Catalog({}, SnapshotBuilder(page_size=1))
    catalog.update(tools("a", "x", "y"))
    catalog.flush()
    page = json.loads(catalog.view("a").page("tools", None, revision="2025-11-25"))
    assert [entry["name"] for entry in page["tools"]] == ["x"]
    rest = catalog.view("a").page("tools", page["nextCursor"], revision="2025-11-25")
    assert listed(rest, "tools") == ["y"]
