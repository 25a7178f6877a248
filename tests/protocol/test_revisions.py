"""Extensions cross the bridge by an allow-list (docs/reference/protocol.md, Extensions and MCP Apps)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.extensions import APP_MIME_TYPE, UI, declared_to_clients, declared_to_servers, extensions_of

OTHER = "com.example/other"


def test_servers_are_told_of_apps_whoever_the_client_is() -> None:
    """What a legacy session declares is settled at its start; a server whose app is not shown still gives its text."""
    assert declared_to_servers({}) == {UI: {"mimeTypes": [APP_MIME_TYPE]}}


def test_what_a_client_can_show_beyond_that_is_told_too() -> None:
    client = {UI: {"mimeTypes": ["text/x", APP_MIME_TYPE], "theme": 1}, OTHER: {"on": True}}
    assert declared_to_servers(client) == {UI: {"mimeTypes": [APP_MIME_TYPE, "text/x"], "theme": 1}}
    assert declared_to_servers(client, {OTHER})[OTHER] == {"on": True}


def test_clients_are_told_what_some_server_has() -> None:
    servers = [{UI: {"mimeTypes": ["a"], "n": 1}}, {}, {UI: {"mimeTypes": ["b", "a"], "n": 2}, OTHER: {}}]
    assert declared_to_clients(servers) == {UI: {"mimeTypes": ["a", "b"], "n": 1}}
    assert declared_to_clients(servers, {OTHER}).keys() == {UI, OTHER}
    assert declared_to_clients([{}]) == {}


@pytest.mark.parametrize("declared", [None, [], 1, {UI: 1, OTHER: None}])
def test_a_declaration_of_the_wrong_shape_is_none(declared: Any) -> None:
    assert extensions_of({"extensions": declared}) == {}
    assert extensions_of({}) == {}


_SETTINGS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 3), max_size=2) | st.integers(), max_size=2)
_DECLARED = st.dictionaries(st.sampled_from([UI, OTHER, "x/y"]), _SETTINGS)


@given(st.lists(_DECLARED, max_size=3), st.sets(st.sampled_from([OTHER, "x/y"])))
def test_nothing_crosses_that_is_not_allowed(declared: list[dict[str, Any]], allowed: set[str]) -> None:
    before = repr(declared)
    published = declared_to_clients(declared, allowed)
    assert published.keys() <= allowed | {UI}
    assert list(published) == sorted(published)
    for one in declared:
        assert declared_to_servers(one, allowed).keys() <= allowed | {UI}
    assert repr(declared) == before, "what a peer declared is not changed"
