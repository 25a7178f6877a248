"""Reading the envelope of a modern request: what it declares, and what is wrong with it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import BadRequest
from mcpbridge.downstream.http.reply import declares_modern
from mcpbridge.downstream.revisions.request_meta import modern_client, reads_as_modern
from mcpbridge.protocol.error_codes import UNSUPPORTED_VERSION
from mcpbridge.protocol.jsonrpc import Frame, decode_frame

PREFIX = "io.modelcontextprotocol/"
VERSION = PREFIX + "protocolVersion"
GOOD = {VERSION: "2026-07-28", PREFIX + "clientCapabilities": {}}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


def frame(params: Any) -> Frame:
    return decode_frame(json.dumps({"id": 1, "method": "tools/list", "params": params}).encode())


def test_a_sound_envelope_makes_a_client() -> None:
    meta = {**GOOD, PREFIX + "clientInfo": {"name": "c"}, PREFIX + "logLevel": "warning"}
    client = modern_client(frame({"_meta": meta}), "alice")
    assert (client.modern, client.version, client.info) == (True, "2026-07-28", {"name": "c"})
    assert (client.log_level, client.principal, client.declared_capabilities) == ("warning", "alice", {})


@pytest.mark.parametrize("level", ["chatty", 5, None, {"a": 1}, ["info"]])
def test_a_log_level_nobody_knows_is_none(level: Any) -> None:
    assert modern_client(frame({"_meta": {**GOOD, PREFIX + "logLevel": level}})).log_level == ""


@pytest.mark.parametrize("info", [5, None, "c", []])
def test_an_identity_of_an_odd_shape_is_none(info: Any) -> None:
    assert modern_client(frame({"_meta": {**GOOD, PREFIX + "clientInfo": info}})).info == {}


@pytest.mark.parametrize("key", list(GOOD))
@pytest.mark.parametrize("value", [None, 5, [], True])
def test_a_required_key_that_is_missing_or_odd_is_named(key: str, value: Any) -> None:
    for meta in ({**GOOD, key: value}, {k: v for k, v in GOOD.items() if k != key}):
        with pytest.raises(BadRequest, match=key) as caught:
            modern_client(frame({"_meta": meta}))
        assert caught.value.code == -32602


@pytest.mark.parametrize("version", ["2025-11-25", "2031-01-01", ""])
def test_a_revision_that_is_not_spoken_is_answered_with_those_that_are(version: str) -> None:
    with pytest.raises(BadRequest) as caught:
        modern_client(frame({"_meta": {**GOOD, VERSION: version}}))
    assert caught.value.code == UNSUPPORTED_VERSION
    assert caught.value.data == {"supported": ["2026-07-28"], "requested": version}


@given(st.one_of(ANY, st.fixed_dictionaries({"_meta": ANY}), st.fixed_dictionaries({"arguments": st.just(GOOD)})))
def test_only_the_key_in_meta_makes_a_request_modern(params: Any) -> None:
    meta = params.get("_meta") if isinstance(params, dict) else None
    assert reads_as_modern(frame(params)) == (isinstance(meta, dict) and VERSION in meta)
    assert reads_as_modern(frame({"_meta": {VERSION: params}}))


@pytest.mark.parametrize("key", list(GOOD))
def test_half_an_envelope_is_a_bad_one_and_no_legacy_request(key: str) -> None:
    """MCP 2026-07-28, Base Protocol, `_meta`: either key alone is −32602."""
    assert reads_as_modern(frame({"_meta": {key: GOOD[key]}}))
    assert not reads_as_modern(frame({"_meta": {PREFIX + "clientInfo": {}, "io.modelcontextprotocol": 1}}))


def test_a_slash_may_be_escaped() -> None:
    """Some encoders write it so by default (PHP's does)."""
    escaped = json.dumps({"id": 1, "method": "tools/list", "params": {"_meta": GOOD}}).replace("/", r"\/").encode()
    assert b"\\/protocolVersion" in escaped
    found = decode_frame(escaped)
    assert reads_as_modern(found)
    assert modern_client(found).version == "2026-07-28"
    assert declares_modern(escaped, found)


def test_a_request_without_params_is_not_modern_and_makes_no_client() -> None:
    bare = decode_frame(b'{"id":1,"method":"tools/list"}')
    assert not reads_as_modern(bare)
    with pytest.raises(BadRequest):
        modern_client(bare)


@given(ANY)
def test_whatever_the_envelope_holds_it_is_a_client_or_a_bad_request(value: Any) -> None:
    for meta in (value, {**GOOD, VERSION: value}, {**GOOD, PREFIX + "clientCapabilities": value}):
        try:
            client = modern_client(frame({"_meta": meta}))
        except BadRequest:
            continue
        assert client.version == "2026-07-28"
