"""A catalog made with the forms of earlier runs is the one that would be made without them."""

from typing import Any

import pytest

from mcpbridge.catalog import snapshot_builder as snapshot_module
from mcpbridge.catalog.definitions import cache as forms_module
from mcpbridge.catalog.definitions.cache import DefinitionCache
from mcpbridge.catalog.slim.levels import Level
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.upstream.settings import ServerSettings

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "title": "A"}}, "title": "x"}
MARKED = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
TOOLS = (
    {"name": "plain", "description": "  Says   hello. ", "inputSchema": SCHEMA, "outputSchema": {"type": "object"}},
    {"name": "mended", "description": 5, "inputSchema": {"properties": {"a": {}}, "required": None}},
    {"name": "marked", "inputSchema": MARKED},
    {"name": "app", "inputSchema": SCHEMA, "_meta": {"ui": {"resourceUri": "ui://a"}}},
    {"name": "task", "inputSchema": SCHEMA, "execution": {"taskSupport": "required"}},
    {"name": "broken"},
)
OFFERS = (
    Offer("one", tuple(encode(tool) for tool in TOOLS), prompts=(b'{"name":"p"}',)),
    Offer("two", tuple(encode(tool) for tool in TOOLS[:3]), resources=(b'{"uri":"a:b","name":"b"}',), runs_tasks=True),
)
SERVERS = {
    "one": ServerSettings.model_validate({"command": "x", "tool": {"plain": {"rename": "fancy", "description": "D"}}}),
    "two": ServerSettings.model_validate({"url": "http://localhost/"}),
}


def made(saved: dict[str, bytes], slim: Level, *, is_remembered: bool = True) -> Snapshot:
    cache = DefinitionCache(lambda key: saved.get(key, b""), saved.__setitem__) if is_remembered else None
    return SnapshotBuilder(slim=slim, results=ResultSettings(), cache=cache).build(OFFERS, SERVERS)


@pytest.mark.parametrize("slim", ["off", "tidy", "skeleton"])
def test_it_is_the_same_with_and_without(slim: Level) -> None:
    saved: dict[str, bytes] = {}
    without, first, again = made({}, slim, is_remembered=False), made(saved, slim), made(saved, slim)
    for one in (first, again):
        assert one.digest == without.digest
        assert (one.tools, one.prompts, one.resources) == (without.tools, without.prompts, without.resources)
        assert one.dropped == without.dropped
    assert {*saved} == {"forms of one", "forms of two"}


def test_nothing_is_checked_or_shortened_that_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: dict[str, bytes] = {}
    made(saved, "tidy")
    checked: list[bytes] = []
    check = forms_module.check

    def counted(kind: Any, raw: bytes, *, over_http: bool) -> Any:
        checked.append(raw)
        return check(kind, raw, over_http=over_http)

    monkeypatch.setattr(forms_module, "check", counted)
    monkeypatch.setattr(snapshot_module, "slimmed", None)
    assert made(saved, "tidy").tools
    assert checked == [encode(TOOLS[-1])], "what cannot be listed is looked at each time"


def test_what_is_known_is_asked_of_earlier_snapshots_first() -> None:
    saved: dict[str, bytes] = {}
    builder = SnapshotBuilder(cache=DefinitionCache(lambda key: b"", saved.__setitem__))
    builder.build(OFFERS, SERVERS)
    kept = dict(saved)
    saved.clear()
    builder.build(OFFERS, SERVERS)
    assert saved == {}
    more = Offer("one", (*OFFERS[0].tools, encode({"name": "new", "inputSchema": SCHEMA})))
    builder.build((more, OFFERS[1]), SERVERS)
    assert {*saved} == {"forms of one"}
    assert len(saved["forms of one"]) > len(kept["forms of one"])
