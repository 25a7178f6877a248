"""What earlier runs made of definitions is found again, and is what would be made now."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.definitions import cache as module
from mcpbridge.catalog.definitions import format as saved_format
from mcpbridge.catalog.definitions.cache import DefinitionCache
from mcpbridge.catalog.definitions.check import Definition, Unusable, check
from mcpbridge.catalog.definitions.format import ListedDefinition
from mcpbridge.catalog.definitions.scanner.finding import Finding, Scanned
from mcpbridge.protocol.jsonrpc import encode

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS = {
    "plain": {"name": "plain", "inputSchema": SCHEMA},
    "mended": {"name": "mended", "description": 5, "inputSchema": {"properties": {"a": {}}, "required": None}},
    "marked": {
        "name": "marked",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}},
    },
    "app": {
        "name": "app",
        "inputSchema": SCHEMA,
        "_meta": {"ui": {"resourceUri": "ui://a"}},
        "annotations": {"readOnlyHint": True},
        "execution": {"taskSupport": "required"},
    },
}


class Shelf:
    """What is saved, by key."""

    def __init__(self) -> None:
        self.saved: dict[str, bytes] = {}
        self.times = 0

    def run(self) -> DefinitionCache:
        """A run of the bridge."""
        return DefinitionCache(lambda key: self.saved.get(key, b""), self._save)

    def _save(self, key: str, data: bytes) -> None:
        self.saved[key] = data
        self.times += 1


def never() -> ListedDefinition:
    raise AssertionError("it was made before")


def test_a_definition_that_was_read_back_takes_no_more_memory_than_needed() -> None:
    """Of thousands of tools most change nothing and have no headers: those share what is empty (issue 21)."""
    shelf, raw = Shelf(), encode(TOOLS["plain"])
    run = shelf.run()
    run.of("a").check("tools", raw, over_http=False)
    run.save()
    known = shelf.run().of("a")
    found = known.check("tools", raw, over_http=False)
    assert isinstance(found, Definition)
    assert found.raw is raw
    assert found.name is found.key
    assert list(known.checked.values()) == [found]
    assert next(iter(known.checked.values())) is found
    checked = check("tools", raw)
    assert isinstance(checked, Definition)
    for member in ("changes", "for_legacy", "for_modern", "headers"):
        assert getattr(found, member) is getattr(checked, member)


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("over_http", [False, True])
def test_a_definition_that_was_checked_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch, name: str, over_http: bool
) -> None:
    shelf, raw = Shelf(), encode(TOOLS[name])
    first = shelf.run()
    found = first.of("up").check("tools", raw, over_http=over_http)
    assert found == check("tools", raw, over_http=over_http)
    first.save()
    monkeypatch.setattr(module, "check", never)
    again = shelf.run().of("up").check("tools", raw, over_http=over_http)
    assert isinstance(again, Definition)
    assert again == found
    assert again.raw is raw


def test_over_http_a_definition_may_be_another_one() -> None:
    made = Shelf().run().of("up")
    raw = encode(TOOLS["marked"])
    plain, http = (made.check("tools", raw, over_http=over_http) for over_http in (False, True))
    assert isinstance(plain, Definition)
    assert isinstance(http, Definition)
    assert not plain.headers
    assert http.headers


def test_what_cannot_be_listed_is_looked_at_each_time() -> None:
    shelf = Shelf()
    for _ in range(2):
        cache = shelf.run()
        assert isinstance(cache.of("up").check("tools", b"[]", over_http=False), Unusable)
        cache.save()


def listed(cache: DefinitionCache, changes: Any, level: str, shown: ListedDefinition | None = None) -> ListedDefinition:
    made = cache.of("up")
    definition = made.check("tools", encode(TOOLS["plain"]), over_http=False)
    assert isinstance(definition, Definition)
    return made.listed_definition(definition, changes, level, never if shown is None else lambda: shown)


def test_what_is_listed_depends_on_all_that_it_is_made_of() -> None:
    shelf = Shelf()
    cache = shelf.run()
    one, two, three = (ListedDefinition(text, None, b"") for text in (b"1", b"2", b"3"))
    assert listed(cache, {"name": b'"a"'}, "tidy", one) is one
    assert listed(cache, {"name": b'"b"'}, "tidy", two) is two
    assert listed(cache, {"name": b'"a"'}, "slim", three) is three
    cache.save()
    cache = shelf.run()
    assert listed(cache, {"name": b'"a"'}, "tidy") == one
    assert listed(cache, {"name": b'"b"'}, "tidy") == two
    assert listed(cache, {"name": b'"a"'}, "slim") == three


def test_only_news_is_saved_and_what_nobody_asks_for_any_more_is_not_kept() -> None:
    shelf = Shelf()
    cache = shelf.run()
    old, new = (ListedDefinition(text, b"modern", b"d") for text in (b"old", b"new"))
    listed(cache, {"name": b'"old"'}, "off", old)
    cache.save()
    cache.save()
    assert shelf.times == 1
    cache = shelf.run()
    listed(cache, {"name": b'"old"'}, "off")
    cache.save()
    assert shelf.times == 1, "nothing is new"
    cache = shelf.run()
    listed(cache, {"name": b'"new"'}, "off", new)
    cache.save()
    listed(cache, {"name": b'"newer"'}, "off", new)
    cache.save()
    assert shelf.times == 3
    cache = shelf.run()
    assert listed(cache, {"name": b'"new"'}, "off") == new
    with pytest.raises(AssertionError, match="made before"):
        listed(cache, {"name": b'"old"'}, "off")


def test_another_program_makes_other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    cache = shelf.run()
    listed(cache, {}, "off", ListedDefinition(b"1", None, b""))
    cache.save()
    monkeypatch.setattr(saved_format, "__version__", "another")
    with pytest.raises(AssertionError, match="made before"):
        listed(shelf.run(), {}, "off")


@given(data=st.data())
def test_what_was_damaged_is_as_good_as_nothing(data: st.DataObject) -> None:
    shelf = Shelf()
    cache = shelf.run()
    listed(cache, {}, "off", ListedDefinition(b"1", None, b""))
    cache.save()
    [(key, whole)] = shelf.saved.items()
    cut = data.draw(st.one_of(st.binary(max_size=50), st.integers(0, len(whole) - 1).map(lambda at: whole[:at])))
    shelf.saved[key] = cut
    assert listed(shelf.run(), {}, "off", ListedDefinition(b"2", None, b"")).legacy == b"2"


def test_a_definition_that_was_scanned_is_not_scanned_again_while_it_is_the_same() -> None:
    shelf, raw = Shelf(), encode(TOOLS["plain"])
    first = shelf.run()
    scanned = Scanned((Finding("orders-model", "description", "words"),), (("description", "send_email"),))
    assert first.of("up").scan(raw, lambda _: scanned) == scanned
    first.save()

    def never_read(_: bytes) -> Scanned:
        raise AssertionError("it was read before")

    again = shelf.run().of("up").scan(raw, never_read)
    assert again == scanned
    assert [one.rule for one in again.beside({"send_email"})] == ["orders-model", "other-servers-tool"]
    assert shelf.run().of("up").scan(raw + b" ", lambda _: Scanned()) == Scanned()
