"""`_meta`: what belongs to one hop ends at the bridge, everything else crosses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.body import Body
from mcpbridge.protocol.meta import PREFIX, RequestMeta, complete_for_modern, strip_for_legacy

INFO = {"name": "mcpbridge", "version": "1"}
SERVER_INFO = b'{"name":"mcpbridge","version":"1"}'
HOP = {
    PREFIX + "protocolVersion": "2099-01-01",
    PREFIX + "clientCapabilities": {"sampling": {}},
    PREFIX + "clientInfo": {"name": "theirs"},
    PREFIX + "logLevel": "debug",
    PREFIX + "subscriptionId": 7,
    PREFIX + "serverInfo": {"name": "theirs"},
    PREFIX + "related-task": {"taskId": "theirs"},
    PREFIX + "model-immediate-response": "wait",
    "progressToken": "theirs",
}
KEPT = {"traceparent": "00-aa-bb-01", "com.example/x": {"big": 123456789012345678901234567890}, "null": None}


def sent(meta: RequestMeta, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What goes out for params of a client."""
    body = Body(json.dumps(params).encode())
    return json.loads(bytes(meta.put(body, body.inner("_meta"), **more)))


def test_a_legacy_request_keeps_what_is_not_of_this_hop() -> None:
    out = sent(RequestMeta("", INFO), {"name": "t", "_meta": {**HOP, **KEPT}})
    assert out == {"name": "t", "_meta": KEPT}
    assert list(out["_meta"]) == list(KEPT)


def test_a_legacy_request_without_meta_stays_the_bytes_that_came() -> None:
    params = Body(data := b'{ "name" : "t" }')
    assert RequestMeta("", INFO).put(params, None) is data


def test_a_legacy_request_gets_meta_only_for_a_progress_token() -> None:
    assert sent(RequestMeta("", INFO), {"name": "t"}, token=b"12") == {"name": "t", "_meta": {"progressToken": 12}}


def test_the_token_of_the_client_never_crosses() -> None:
    assert sent(RequestMeta("", INFO), {"_meta": {"progressToken": "theirs"}}, token=b"12")["_meta"] == {
        "progressToken": 12
    }
    assert sent(RequestMeta("", INFO), {"_meta": {"progressToken": "theirs"}})["_meta"] == {}


def test_a_modern_request_names_the_bridge_and_nobody_else() -> None:
    meta = sent(RequestMeta("2026-07-28", INFO), {"_meta": {**HOP, **KEPT}}, token=b"12", log_level="warning")["_meta"]
    assert meta == {
        **KEPT,
        PREFIX + "protocolVersion": "2026-07-28",
        PREFIX + "clientCapabilities": {},
        PREFIX + "clientInfo": INFO,
        PREFIX + "logLevel": "warning",
        "progressToken": 12,
    }


def test_a_modern_request_of_a_client_without_meta_gets_the_envelope() -> None:
    meta = sent(RequestMeta("2026-07-28", INFO), {})["_meta"]
    assert set(meta) == {PREFIX + key for key in ("protocolVersion", "clientCapabilities", "clientInfo")}


@pytest.mark.parametrize(
    "result",
    [
        b"{}",
        b"{ }",
        b"{\n}",
        b'{"content":[]}',
        b'{ "content" : [] }',
        b'{"_meta":{"a":1},"content":[]}',
        b'{"_meta":null}',
        b'{"resultType":"input_required","x":1}',
        b'{"content":[{"_meta":{"resultType":1}}]}',
    ],
)
@pytest.mark.parametrize("cacheable", [False, True])
def test_any_result_is_made_complete_for_a_modern_client(result: bytes, cacheable: bool) -> None:
    before = json.loads(result)
    after = json.loads(bytes(complete_for_modern(Body(result), SERVER_INFO, cacheable=cacheable).data))
    assert after["resultType"] == before.get("resultType", "complete")
    assert after["_meta"] == {**(before.get("_meta") or {}), PREFIX + "serverInfo": INFO}
    is_kept = cacheable and after["resultType"] == "complete"
    assert ("ttlMs" in after) == ("cacheScope" in after) == is_kept
    added = {"resultType", "_meta", "ttlMs", "cacheScope"}
    assert {k: v for k, v in after.items() if k not in added} == {k: v for k, v in before.items() if k not in added}


def test_cache_hints_of_the_server_are_kept() -> None:
    result = complete_for_modern(Body(b'{"ttlMs":5,"cacheScope":"public"}'), SERVER_INFO, cacheable=True).value()
    assert (result["ttlMs"], result["cacheScope"]) == (5, "public")


@given(
    st.dictionaries(
        st.sampled_from(["content", "x", "_meta", "isError"]),
        st.none() | st.dictionaries(*[st.text(st.characters(exclude_categories=["Cs"]))] * 2),
    )
)
def test_what_is_made_for_a_modern_client_can_be_taken_off_for_a_legacy_one(result: dict[str, Any]) -> None:
    body = Body(bytes(complete_for_modern(Body(json.dumps(result).encode()), SERVER_INFO, cacheable=True).data))
    strip_for_legacy(body)
    left = body.value()
    assert (left.pop("_meta", None) or {}) == (result.pop("_meta", None) or {})
    assert left == result


def test_stripping_keeps_other_meta_and_drops_an_empty_one() -> None:
    both = Body(b'{"_meta":{"io.modelcontextprotocol/serverInfo":{},"a":1},"resultType":"complete","x":1}')
    strip_for_legacy(both)
    assert both.data == b'{"_meta":{"a":1},"x":1}'
    only = Body(b'{"_meta":{"io.modelcontextprotocol/serverInfo":{}},"x":1}')
    strip_for_legacy(only)
    assert only.data == b'{"x":1}'
    untouched = Body(data := b'{ "_meta" : {"a":1} }')
    strip_for_legacy(untouched)
    assert untouched.data is data


def test_a_question_has_no_cache_hints() -> None:
    """A question is nothing to keep, whatever its server put there (MCP 2026-07-28, schema, InputRequiredResult)."""
    asked = Body(b'{"resultType":"input_required","ttlMs":5,"cacheScope":"public","requestState":"x"}')
    result = complete_for_modern(asked, SERVER_INFO, cacheable=True).value()
    assert result.keys() == {"resultType", "requestState", "_meta"}


def test_what_came_of_answers_is_not_kept() -> None:
    """Good for this once, if it was reached through questions; the schema wants the hints all the same."""
    result = Body(b'{"ttlMs":5000,"cacheScope":"public","contents":[]}')
    hints = complete_for_modern(result, SERVER_INFO, cacheable=True, is_of_answers=True).value()
    assert (hints["ttlMs"], hints["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("blanks", [b"", b" ", b" " * 98, b" " * 200, b"\t\n\r " * 1000])
def test_an_empty_result_stays_json_however_many_blanks_it_has(blanks: bytes) -> None:
    completed = complete_for_modern(Body(b"{" + blanks + b"}"), b'{"name":"up"}')
    assert set(json.loads(completed.data)) == {"resultType", "_meta"}
