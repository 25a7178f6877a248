"""URIs inside results: those that need it are spelled anew, and nothing else is touched."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.downstream.revisions.result_links import publish_uris
from mcpbridge.protocol.body import Body

METHODS = ["tools/call", "prompts/get", "resources/read", "completion/complete"]
URIS = st.sampled_from(["a:1", "b:2", "keep:3"])
ODD = st.none() | st.integers() | st.text(max_size=2) | st.lists(st.integers(), max_size=2)
CONTENTS = st.fixed_dictionaries({"uri": URIS | ODD, "text": st.just("see a:1")})
BLOCKS = st.one_of(
    ODD,
    CONTENTS,
    st.fixed_dictionaries({"type": st.just("resource_link"), "uri": URIS | ODD, "name": st.text(max_size=2)}),
    st.fixed_dictionaries({"type": st.just("resource"), "resource": CONTENTS | ODD}),
    st.fixed_dictionaries({"type": st.just("text"), "text": st.just('{"uri":"a:1"}')}),
    st.fixed_dictionaries({"type": ODD, "uri": URIS}),
)
RESULTS = st.dictionaries(
    st.sampled_from(["content", "contents", "messages", "structuredContent", "_meta"]),
    st.lists(BLOCKS, max_size=3) | st.lists(st.fixed_dictionaries({"content": BLOCKS}), max_size=3) | BLOCKS,
)


def publish(uri: str) -> str:
    return uri if uri.startswith("keep:") else f"bridge+up:{uri}"


def model(method: str, result: Any) -> Any:
    """What should come out, said in another way: walk the parsed result."""

    def uri(entry: Any) -> None:
        if isinstance(entry, dict) and isinstance(entry.get("uri"), str):
            entry["uri"] = publish(entry["uri"])

    def block(entry: Any) -> None:
        if isinstance(entry, dict):
            if entry.get("type") == "resource_link":
                uri(entry)
            elif entry.get("type") == "resource":
                uri(entry.get("resource"))

    name, visit = {
        "tools/call": ("content", block),
        "prompts/get": ("messages", lambda message: block(message.get("content")) if isinstance(message, dict) else 0),
        "resources/read": ("contents", uri),
    }.get(method, ("", block))
    entries = result.get(name)
    for entry in entries if isinstance(entries, list) else []:
        visit(entry)
    return result


@given(st.sampled_from(METHODS), RESULTS)
def test_every_uri_that_needs_it_is_changed_and_nothing_else(method: str, result: dict[str, Any]) -> None:
    """One odd entry must not keep the others from being usable."""
    body = Body(json.dumps(result).encode())
    publish_uris(method, body, publish)
    assert body.value() == model(method, json.loads(json.dumps(result)))


@given(st.sampled_from(METHODS), RESULTS)
def test_a_result_without_a_uri_to_change_keeps_its_bytes(method: str, result: dict[str, Any]) -> None:
    body = Body(data := json.dumps(result, indent=1).encode())
    publish_uris(method, body, lambda uri: uri)
    assert body.data is data


@pytest.mark.parametrize(
    ("method", "before"),
    [
        ("tools/call", b'{ "content":[ {"n":1.10,"type":"resource_link","uri":%b} ,{ "type":"text" }],"x":null }'),
        ("tools/call", b'{"content":[{"type":"resource","resource":{"uri":%b,"n":1.10}}]}'),
        ("prompts/get", b'{"messages":[{"content":{"type":"resource","resource":{"uri":%b}},"role":"user"}]}'),
        ("resources/read", b'{"contents":[{"uri":%b,"blob":"AAAA"},{ "n" : 1e400 }]}'),
    ],
)
def test_a_changed_result_keeps_the_bytes_of_all_other_values(method: str, before: bytes) -> None:
    body = Body(before % b'"a:1"')
    publish_uris(method, body, publish)
    after = bytes(body.data)
    assert b'"bridge+up:a:1"' in after
    for piece in (b"1.10", b"1e400", b'{ "type":"text" }'):
        assert (piece in after) == (piece in before)


@pytest.mark.parametrize(
    ("meta", "after"),
    [
        (
            b'{"ui":{"resourceUri":"ui:1","csp":{"n":1e5}},"v/k":null}',
            b'{"ui":{"resourceUri":"bridge+up:ui:1","csp":{"n":1e5}},"v/k":null}',
        ),
        (b'{"ui/resourceUri":"ui:1"}', b'{"ui/resourceUri":"bridge+up:ui:1"}'),
        (b'{ "ui":{"resourceUri":"keep:1"}}', b'{ "ui":{"resourceUri":"keep:1"}}'),
        (b'{ "ui": 7, "resourceUri":"ui:1"}', b'{ "ui": 7, "resourceUri":"ui:1"}'),
        (b"null", b"null"),
    ],
)
def test_the_app_that_shows_a_result_is_named_as_in_its_tool(meta: bytes, after: bytes) -> None:
    """MCP Apps: the host reads it by that name. All else in `_meta` is for the app."""
    body = Body(b'{"structuredContent":{"resourceUri":"ui:1"},"_meta":%b}' % meta)
    publish_uris("tools/call", body, publish)
    assert body.data == b'{"structuredContent":{"resourceUri":"ui:1"},"_meta":%b}' % after
