import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mcpbridge.base.errors import BadRequest, UnknownName
from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.model import OWN
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.revisions import REVISIONS
from mcpbridge.upstream.settings import ServerSettings
from support.catalog.definitions import prompt, resource, resources, settings, template, tool, tools
from support.catalog.snapshots import build_snapshot

NO_SETTINGS: Mapping[str, ServerSettings] = {}


LEGACY, MODERN = "2025-11-25", "2026-07-28"


def listed(snapshot: Snapshot, kind: Kind, *, revision: str = LEGACY) -> list[dict[str, Any]]:
    member = "resourceTemplates" if kind == "templates" else kind
    return json.loads(snapshot.page(kind, None, revision=revision))[member]


def everything(snapshot: Snapshot) -> list[bytes]:
    return [snapshot.page(kind, None, revision=revision) for kind in KINDS for revision in REVISIONS]


def test_the_tools_of_all_servers_are_one_list_in_canonical_order() -> None:
    snapshot = build_snapshot([tools("git", "status", "commit"), tools("fs", "read")], NO_SETTINGS)
    assert [entry["name"] for entry in listed(snapshot, "tools")] == ["fs__read", "git__commit", "git__status"]
    assert list(snapshot.tools) == ["fs__read", "git__commit", "git__status"]


def test_a_tool_is_found_by_every_name_and_knows_all_of_them() -> None:
    snapshot = build_snapshot([tools("git", "status")], NO_SETTINGS)
    found = {snapshot.tool(name).id for name in ("git__status", "git/status", "git.status", "status")}
    assert found == {"git/status"}
    ref = snapshot.tool("status")
    assert (ref.server, ref.name, ref.wire) == ("git", "status", "git__status")
    assert ref.definition == tool("status")
    assert ref.published == ref.published_modern == tool("git__status")


def test_a_renamed_tool_has_its_new_name_only() -> None:
    configured = {"git": settings(tool={"status": {"rename": "state", "description": "What changed."}})}
    snapshot = build_snapshot([tools("git", "status")], configured)
    ref = snapshot.tool("git/state")
    assert (ref.name, ref.wire, ref.id) == ("status", "git__state", "git/state")
    assert listed(snapshot, "tools")[0]["description"] == "What changed."
    for name in ("git__status", "git/status", "git.status", "status"):
        with pytest.raises(UnknownName):
            snapshot.tool(name)


@pytest.mark.parametrize(
    "hiding",
    [{"tools": {"exclude": ["push"]}}, {"tools": {"include": ["status"]}}, {"tool": {"push": {"disabled": True}}}],
)
def test_a_hidden_tool_is_called_by_no_name(hiding: dict[str, Any]) -> None:
    snapshot = build_snapshot([tools("git", "status", "push")], {"git": settings(**hiding)})
    assert list(snapshot.tools) == ["git__status"]
    for name in ("git__push", "git/push", "git.push", "push"):
        with pytest.raises(UnknownName):
            snapshot.tool(name)
    assert b"push" not in b"".join(everything(snapshot))
    assert snapshot.dropped == ()


def test_a_hidden_tool_does_not_make_anothers_bare_name_ambiguous() -> None:
    snapshot = build_snapshot([tools("a", "x"), tools("b", "x")], {"b": settings(tools={"exclude": ["*"]})})
    assert snapshot.tool("x").server == "a"


def test_prompts_are_named_and_found_like_tools() -> None:
    offers = [Offer("a", prompts=(prompt("review"),)), Offer("b", prompts=(prompt("plan"), b"{}"))]
    snapshot = build_snapshot(offers, NO_SETTINGS)
    assert [entry["name"] for entry in listed(snapshot, "prompts")] == ["a__review", "b__plan"]
    assert snapshot.prompt("plan") is snapshot.prompts["b__plan"]
    assert [drop.kind for drop in snapshot.dropped] == ["prompts"]
    with pytest.raises(UnknownName, match="Unknown prompt"):
        snapshot.prompt("nothing")


def test_tools_and_prompts_do_not_share_their_names() -> None:
    snapshot = build_snapshot([Offer("a", tools=(tool("x"),), prompts=(prompt("x"),))], NO_SETTINGS)
    assert list(snapshot.tools) == list(snapshot.prompts) == ["a__x"]


def test_a_resource_keeps_its_uri_unless_another_server_has_it() -> None:
    snapshot = build_snapshot([resources("a", "file:///x", "file:///y"), resources("b", "file:///x")], NO_SETTINGS)
    assert [entry["uri"] for entry in listed(snapshot, "resources")] == [
        "mcpb+a+file:///x",
        "file:///y",
        "mcpb+b+file:///x",
    ]
    assert snapshot.resource("mcpb+b+file:///x") == ("b", "file:///x")
    assert snapshot.resource("file:///y") == ("a", "file:///y")
    assert snapshot.published_uri("a", "file:///x") == "mcpb+a+file:///x"
    assert snapshot.resources["file:///y"].definition == resource("file:///y")


def test_templates_are_listed_and_lead_to_their_server() -> None:
    snapshot = build_snapshot(
        [resources("a", templates=("db://{t}",)), resources("b", templates=("db://{t}", "x:{y}"))], NO_SETTINGS
    )
    assert [entry["uriTemplate"] for entry in listed(snapshot, "templates")] == [
        "mcpb+a+db://{t}",
        "mcpb+b+db://{t}",
        "x:{y}",
    ]
    assert snapshot.resource("x:1") == ("b", "x:1")
    assert snapshot.template("mcpb+a+db://{t}") == ("a", "db://{t}")
    assert snapshot.templates["x:{y}"].definition == template("x:{y}")


def test_a_web_address_is_listed_once_and_for_the_first_server() -> None:
    snapshot = build_snapshot([resources("b", "https://x/"), resources("a", "https://x/")], NO_SETTINGS)
    assert list(snapshot.resources) == ["https://x/"]
    assert snapshot.resource("https://x/") == ("a", "https://x/")
    (drop,) = snapshot.dropped
    assert (drop.server, drop.name) == ("b", "https://x/")


def test_a_web_template_is_listed_once_too() -> None:
    snapshot = build_snapshot([resources(name, templates=("https://x/{y}",)) for name in "ba"], NO_SETTINGS)
    assert list(snapshot.templates) == ["https://x/{y}"]
    assert snapshot.template("https://x/{y}") == ("a", "https://x/{y}")
    assert snapshot.resource("https://x/1") == ("a", "https://x/1")
    assert [drop.kind for drop in snapshot.dropped] == ["templates"]


def test_links_of_results_keep_their_meaning_over_snapshots() -> None:
    builder = SnapshotBuilder()
    offers = [tools("a", "x"), tools("b", "y")]
    first = builder.build(offers, NO_SETTINGS)
    assert first.uris.may_hold_uris("a", Body(b'{"uri":"shot://1"}'))
    assert first.published_uri("a", "shot://1") == "shot://1"
    assert builder.build([*offers, tools("c", "z")], NO_SETTINGS).resource("shot://1") == ("a", "shot://1")


def test_apps_of_two_servers_with_one_uri_are_told_apart_in_their_tools() -> None:
    app = tool("show", _meta={"ui": {"resourceUri": "ui://app"}})
    snapshot = build_snapshot([Offer("a", tools=(app,)), Offer("b", tools=(app,))], NO_SETTINGS)
    assert [entry["_meta"]["ui"]["resourceUri"] for entry in listed(snapshot, "tools")] == ["ui://a/app", "ui://b/app"]
    assert snapshot.resource("ui://b/app") == ("b", "ui://app")
    assert listed(snapshot, "resources") == []


def test_modern_pages_carry_what_modern_results_need() -> None:
    snapshot = build_snapshot([tools("a", "x")], NO_SETTINGS, ttl_ms=250, modern_tail=b'"_meta":{"k":1}')
    page = json.loads(snapshot.page("tools", None, revision=MODERN))
    assert {name: page[name] for name in page if name != "tools"} == {
        "resultType": "complete",
        "ttlMs": 250,
        "cacheScope": "private",
        "_meta": {"k": 1},
    }
    assert json.loads(snapshot.page("tools", None, revision=LEGACY)).keys() == {"tools"}
    assert json.loads(build_snapshot([], NO_SETTINGS).page("tools", None, revision=MODERN))["ttlMs"] == 0


def test_pages_are_cut_as_configured() -> None:
    snapshot = build_snapshot([tools("a", "x", "y", "z")], NO_SETTINGS, page_size=2)
    first = json.loads(snapshot.page("tools", None, revision=LEGACY))
    second = json.loads(snapshot.page("tools", first["nextCursor"], revision=LEGACY))
    assert [entry["name"] for entry in first["tools"] + second["tools"]] == ["a__x", "a__y", "a__z"]
    with pytest.raises(BadRequest):
        snapshot.page("prompts", first["nextCursor"], revision=LEGACY)


def test_names_are_as_short_as_configured() -> None:
    snapshot = build_snapshot([tools("server", "a_tool_with_a_long_name")], NO_SETTINGS, name_length=20)
    assert [len(name) for name in snapshot.tools] == [20]


def test_the_digests_tell_what_changed() -> None:
    before = build_snapshot([tools("a", "x"), resources("a2", "x:y")], NO_SETTINGS)
    after = build_snapshot([tools("a", "x", "z"), resources("a2", "x:y")], NO_SETTINGS)
    assert before.digest != after.digest
    assert [kind for kind in KINDS if before.kind_digest(kind) != after.kind_digest(kind)] == ["tools"]


def test_a_change_that_nobody_sees_changes_no_digest() -> None:
    hidden = {"a": settings(tools={"exclude": ["secret"]})}
    before = build_snapshot([tools("a", "x")], hidden)
    after = build_snapshot([tools("a", "secret", "x")], hidden)
    assert before.digest == after.digest


def big_catalog(servers: int = 12, tools_each: int = 40) -> list[Offer]:
    random = Random(7)
    words = ["list", "get", "search", "create_issue", "delete.file", "read/all", "é", "update_repository_settings_of"]

    def name(i: int) -> str:
        return f"{random.choice(words)}_{i if random.random() < 0.8 else 0}"

    return [
        Offer(
            f"server-{s}",
            tools=tuple(tool(name(i), description="d" * random.randrange(400), x=1e5) for i in range(tools_each)),
            prompts=tuple(prompt(name(i)) for i in range(3)),
            resources=tuple(resource(f"file:///{name(i)}") for i in range(6)),
            templates=(template("file:///{+path}"), template(f"s{s}://{{id}}")),
        )
        for s in range(servers)
    ]


def test_the_bytes_do_not_depend_on_the_order_in_which_things_came() -> None:
    """Clients cache prompts by prefix: the same catalog must be the same bytes after a restart."""
    offers = big_catalog()
    expected = everything(build_snapshot(offers, NO_SETTINGS))
    random = Random(1)
    for _ in range(3):
        random.shuffle(offers)
        assert everything(build_snapshot(offers, NO_SETTINGS)) == expected
    unique = [replace(offer, tools=tuple(dict.fromkeys(offer.tools))) for offer in big_catalog(3)]
    turned = [replace(offer, tools=offer.tools[::-1]) for offer in unique]
    names = [list(build_snapshot(one, NO_SETTINGS).tools) for one in (unique, turned)]
    assert names[0] == names[1]


def test_a_builder_that_remembers_builds_the_same() -> None:
    builder = SnapshotBuilder()
    offers = big_catalog()
    configured: Mapping[str, ServerSettings] = NO_SETTINGS
    for step in range(8):
        if step == 3:
            offers[2] = tools("server-2", "now", "other_tools")
        if step == 5:
            del offers[0]
        if step == 6:
            configured = {"server-3": settings(tool={"get_1": {"rename": "got"}}, tools={"exclude": ["list*"]})}
        if step == 7:
            offers.append(resources("new", "file:///get_0", "ui://x"))
        remembered, fresh = builder.build(offers, configured), build_snapshot(offers, configured)
        assert everything(remembered) == everything(fresh)
        assert remembered.digest == fresh.digest
        assert remembered.dropped == fresh.dropped


def test_what_did_not_change_is_not_made_again() -> None:
    builder = SnapshotBuilder()
    first = builder.build([tools("a", "x"), tools("b", "y")], NO_SETTINGS)
    second = builder.build([tools("a", "x"), tools("b", "z")], NO_SETTINGS)
    assert second.tool("a/x").published is first.tool("a/x").published


def test_every_page_is_one_line() -> None:
    odd = json.dumps({"name": "a", "inputSchema": {"type": "object"}, "k": [1]}, indent=1).encode()
    snapshot = build_snapshot([Offer("s", tools=(odd,), prompts=(odd,))], NO_SETTINGS)
    assert all(b"\n" not in page for page in everything(snapshot))


@given(
    st.lists(
        st.builds(
            Offer,
            server=st.text(max_size=8).filter(lambda name: name not in OWN),
            tools=st.lists(st.binary(max_size=20) | st.text(max_size=8).map(tool), max_size=4).map(tuple),
            prompts=st.lists(st.text(max_size=8).map(prompt), max_size=3).map(tuple),
            resources=st.lists(st.text(max_size=8).map(resource), max_size=3).map(tuple),
            templates=st.lists(st.text("{}ab:/", max_size=8).map(template), max_size=3).map(tuple),
        ),
        unique_by=lambda offer: offer.server,
        max_size=4,
    )
)
def test_whatever_is_offered_becomes_a_catalog(offers: list[Offer]) -> None:
    snapshot = build_snapshot(offers, NO_SETTINGS)
    for page in everything(snapshot):
        json.loads(page)
    for wire, ref in snapshot.tools.items():
        assert snapshot.tool(wire) is ref
    for uri, ref in snapshot.resources.items():
        assert snapshot.resource(uri) == (ref.server, ref.uri)
    known = sum(len(offer.of(kind)) for offer in offers for kind in KINDS)
    shown = sum(len(listed(snapshot, kind)) for kind in KINDS)
    assert shown + sum(drop.field is None for drop in snapshot.dropped) == known


def test_numbers_and_spelling_cross_unchanged() -> None:
    raw = b'{"name":"a","inputSchema":{"type":"object"},"n":[1e5,12345678901234567890123,null],"t":"\\u00e9"}'
    snapshot = build_snapshot([Offer("s", tools=(raw,))], NO_SETTINGS)
    assert snapshot.page("tools", None, revision=LEGACY) == b'{"tools":[' + raw.replace(b'"a"', b'"s__a"') + b"]}"


def test_a_list_is_fresh_for_as_long_as_each_part_of_it_is() -> None:
    """The least of the bridge's own and what the servers say; private, as views differ by who asks."""
    offers = [
        replace(tools("a", "x"), ttl_ms={"tools": 5_000, "prompts": 90_000}),
        replace(tools("b", "y"), ttl_ms={"tools": 70_000}),
        tools("c", "z"),
    ]
    snapshot = build_snapshot(offers, NO_SETTINGS, ttl_ms=60_000)
    pages = {kind: json.loads(snapshot.page(kind, None, revision=MODERN)) for kind in KINDS}
    assert {kind: page["ttlMs"] for kind, page in pages.items()} == {
        "tools": 5_000,
        "prompts": 60_000,
        "resources": 60_000,
        "templates": 60_000,
    }
    assert {page["cacheScope"] for page in pages.values()} == {"private"}
    assert snapshot.digest == build_snapshot([replace(offer, ttl_ms={}) for offer in offers], NO_SETTINGS).digest


@pytest.mark.parametrize(
    ("ui", "expected"),
    [({"visibility": ["app"]}, True), ({"visibility": ["model", "app"]}, False), ({"visibility": ["model"]}, False),
     ({"visibility": "app"}, False), ({}, False), (None, False), ("app", False)],
)  # fmt: skip
def test_a_tool_for_apps_alone_is_listed_callable_and_known_as_such(ui: Any, expected: bool) -> None:
    """MCP Apps, visibility: such tools are kept out of what models search."""
    snapshot = build_snapshot([Offer("a", tools=(tool("x", _meta={"ui": ui}),))], NO_SETTINGS)
    assert snapshot.tool("x").app_only is expected
    assert [entry["name"] for entry in listed(snapshot, "tools")] == ["a__x"]
