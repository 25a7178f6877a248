"""Results for clients of older revisions: readable for them, and otherwise what the server sent."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import validate_server_result

from mcpbridge.downstream.revisions.downgrade import lower
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.revisions import LEGACY, MODERN, REVISIONS

SOUND = b64encode(b"RIFF").decode()
LINK = {
    "type": "resource_link",
    "name": "notes",
    "uri": "file:///notes",
    "description": "What was said.",
    "mimeType": "text/plain",
    "icons": [{"src": "https://x/i.png"}],
    "annotations": {"audience": ["user"]},
    "_meta": {"v/k": None},
}
AUDIO = {"type": "audio", "data": SOUND, "mimeType": "audio/wav", "_meta": {"v/k": 1}}
TEXT = {"type": "text", "text": "hello"}


def lowered(result: dict[str, Any], understood: str, *, spoken: str = MODERN[-1], method: str = "tools/call") -> Any:
    body = Body(json.dumps(result).encode())
    lower(method, body, spoken=spoken, understood=understood)
    return body.value()


# -- who is concerned


@pytest.mark.parametrize("spoken", REVISIONS)
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read", "completion/complete"])
def test_a_client_that_is_not_older_gets_the_bytes_that_came(spoken: str, method: str) -> None:
    """Whatever they are: future content types and fields cross unchanged, and nobody looks inside."""
    for data in (b'{"content":[{"type":"hologram","n":1e5}],"structuredContent":[1]}', b"[1", b""):
        for understood in (revision for revision in REVISIONS if revision >= spoken):
            body = Body(data)
            lower(method, body, spoken=spoken, understood=understood)
            assert body.data is data


@pytest.mark.parametrize("understood", LEGACY)
def test_content_that_no_revision_knows_crosses_to_everybody(understood: str) -> None:
    future = {"type": "hologram", "uri": "x:y", "n": None}
    assert lowered({"content": [future, 7, None], "x": None}, understood) == {"content": [future, 7, None], "x": None}


# -- structured results


@pytest.mark.parametrize("understood", ["2024-11-05", "2025-03-26"])
def test_a_structured_result_becomes_text_where_the_text_does_not_tell_it(understood: str) -> None:
    body = Body(b'{"content":[{"type":"text","text":"2 found"}],"structuredContent":{"n":[1e5, 2],"z":null}}')
    lower("tools/call", body, spoken="2025-06-18", understood=understood)
    assert body.value() == {
        "content": [{"type": "text", "text": "2 found"}, {"type": "text", "text": '{"n":[1e5, 2],"z":null}'}]
    }


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"a": 1}'], {"a": 1}),
        (["Found:", '{ "b": [], "a": 1 }'], {"a": 1, "b": []}),
        (["5"], {"result": 5}),
        (["plain words"], {"result": "plain words"}),
        (["1", "2"], {"result": [1, 2]}),
        (["a", "b"], {"result": ["a", "b"]}),
        (['{"a":1}', '{"a":2}'], {"result": [{"a": 1}, {"a": 2}]}),
        ([], None),
    ],
)
def test_text_that_tells_it_already_is_not_repeated(texts: list[str], structured: Any) -> None:
    """Servers repeat it as text by the specification; frameworks wrap what is no object as `{"result": ...}`."""
    content = [{"type": "text", "text": text} for text in texts]
    result = {"content": content, "structuredContent": structured}
    assert lowered(result, "2025-03-26", spoken="2025-06-18") == {"content": content}


@pytest.mark.parametrize("understood", ["2025-06-18", "2025-11-25"])
def test_a_structured_object_is_kept_where_there_is_such_a_thing(understood: str) -> None:
    result = {"content": [TEXT], "structuredContent": {"a": 1}}
    assert lowered(result, understood) == result


@pytest.mark.parametrize("understood", LEGACY)
@pytest.mark.parametrize("structured", [[1, 2], 5, "text", True])
def test_a_structured_value_that_is_no_object_becomes_text(understood: str, structured: Any) -> None:
    """Up to 2025-11-25 it had to be one; the tool is listed without its schema to these clients."""
    for content in ([], [TEXT]):
        result = lowered({"content": content, "structuredContent": structured}, understood)
        assert result == {"content": [*content, {"type": "text", "text": json.dumps(structured)}]}
    assert "structuredContent" not in lowered({"content": [], "structuredContent": None}, understood)
    assert lowered({"structuredContent": structured}, understood)["content"], "also where the list is missing"


def test_a_structured_value_of_another_kind_of_result_means_nothing() -> None:
    result = {"contents": [], "structuredContent": 5}
    assert lowered(result, "2024-11-05", method="resources/read") == result


def test_an_error_stays_an_error() -> None:
    result = {"content": [TEXT], "isError": True, "structuredContent": {"code": 7}}
    assert lowered(result, "2024-11-05")["isError"] is True


# -- content


@pytest.mark.parametrize("understood", ["2024-11-05", "2025-03-26"])
def test_a_link_becomes_text_with_all_that_leads_to_it(understood: str) -> None:
    [block] = lowered({"content": [LINK]}, understood)["content"]
    assert block.pop("text") == "Resource 'notes': file:///notes (text/plain)\nWhat was said."
    assert block == {"type": "text", "annotations": LINK["annotations"], "_meta": LINK["_meta"]}


def test_a_link_of_few_words_becomes_text_too() -> None:
    [block] = lowered({"content": [{"type": "resource_link", "uri": "x:y"}]}, "2025-03-26")["content"]
    assert block == {"type": "text", "text": "Resource: x:y"}


def test_a_link_loses_its_icons_only_where_links_have_none() -> None:
    [block] = lowered({"content": [LINK]}, "2025-06-18")["content"]
    assert block == {name: value for name, value in LINK.items() if name != "icons"}
    assert lowered({"content": [LINK]}, "2025-11-25")["content"] == [LINK]


def test_audio_becomes_a_note_and_a_resource_that_holds_it() -> None:
    [note, attached] = lowered({"content": [AUDIO]}, "2024-11-05")["content"]
    assert note["type"] == "text"
    assert "audio/wav" in note["text"]
    assert attached["type"] == "resource"
    assert attached["resource"].pop("uri").startswith("ni:///sha-256;")
    assert attached["resource"] == {"mimeType": "audio/wav", "blob": SOUND}
    assert note["_meta"] == attached["_meta"] == AUDIO["_meta"]
    assert lowered({"content": [AUDIO]}, "2025-03-26")["content"] == [AUDIO]


@pytest.mark.parametrize("audio", [{"data": "???"}, {"data": 5}, {"mimeType": "audio/wav"}, {}])
def test_audio_without_sound_is_a_note(audio: dict[str, Any]) -> None:
    [note] = lowered({"content": [{"type": "audio", **audio}]}, "2024-11-05")["content"]
    assert "cannot be read" in note["text"]


def test_other_content_beside_it_keeps_its_bytes() -> None:
    odd = b'{ "type":"text","text":"caf\\u00e9","n":1e5 }'
    body = Body(b'{"z":1e5,"content":[' + odd + b"," + json.dumps(LINK).encode() + b'],"y":null}')
    lower("tools/call", body, spoken="2025-11-25", understood="2025-03-26")
    assert odd in bytes(body.data)
    assert bytes(body.data).startswith(b'{"z":1e5,"content":[')
    assert bytes(body.data).endswith(b'"y":null}')


# -- prompts


def test_a_message_that_must_be_said_in_several_becomes_several() -> None:
    """A message of a prompt holds one block of content in every revision."""
    result = {
        "description": "d",
        "messages": [{"role": "user", "content": AUDIO, "x": 1}, {"role": "assistant", "content": TEXT}],
    }
    messages = lowered(result, "2024-11-05", method="prompts/get")["messages"]
    assert [(one["role"], one["content"]["type"]) for one in messages] == [
        ("user", "text"),
        ("user", "resource"),
        ("assistant", "text"),
    ]
    assert messages[0]["x"] == messages[1]["x"] == 1


def test_a_message_with_a_list_of_content_is_split() -> None:
    result = {"messages": [{"role": "user", "content": [TEXT, LINK]}]}
    messages = lowered(result, "2025-03-26", method="prompts/get")["messages"]
    assert [one["content"]["type"] for one in messages] == ["text", "text"]
    messages = lowered(result, "2025-06-18", method="prompts/get", spoken="2025-11-25")["messages"]
    assert [one["content"]["type"] for one in messages] == ["text", "resource_link"]


def test_messages_that_all_can_read_keep_their_bytes() -> None:
    body = Body(data := b'{"messages":[ {"role":"user","content": {"type":"text","text":"1"}} ]}')
    lower("prompts/get", body, spoken="2025-11-25", understood="2024-11-05")
    assert body.data is data


# -- whatever comes

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_EXTRA = st.dictionaries(st.sampled_from(["x-one", "_meta"]), st.dictionaries(st.text(max_size=3), _JSON, max_size=2))
_BLOCKS = st.tuples(
    st.sampled_from(
        [
            TEXT,
            {"type": "image", "data": SOUND, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "x:y", "text": "t"}},
            LINK,
            {"type": "resource_link", "uri": "x:z", "name": "n"},
            AUDIO,
        ]
    ),
    _EXTRA,
).map(lambda parts: {**parts[0], **parts[1]})
_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}


def is_readable(block: dict[str, Any], revision: str) -> bool:
    return _SINCE.get(block["type"], "") <= revision and not ("icons" in block and revision < "2025-11-25")


@given(
    st.lists(_BLOCKS, max_size=4),
    st.none() | _JSON.map(lambda value: {"structuredContent": value}),
    _EXTRA,
    st.sampled_from(LEGACY),
    st.sampled_from(REVISIONS),
)
def test_any_tool_result_is_valid_in_the_clients_revision_and_otherwise_unchanged(
    blocks: list[dict[str, Any]], structured: Any, extra: dict[str, Any], understood: str, spoken: str
) -> None:
    before = {"content": blocks, **(structured or {}), **extra}
    if not isinstance(before.get("structuredContent", {}), dict) and spoken < MODERN[-1]:
        del before["structuredContent"]  # no server of these revisions may send it
    after = lowered(before, understood, spoken=spoken)
    if understood >= spoken:
        assert after == before
        return
    validate_server_result("tools/call", understood, after)
    assert all(is_readable(block, understood) for block in after["content"])
    structure = after.get("structuredContent", {})
    assert isinstance(structure, dict)
    assert "structuredContent" not in after or understood >= "2025-06-18"
    kept = [block for block in blocks if is_readable(block, understood)]
    assert [block for block in after["content"] if block in kept] == kept
    ours = {"content", "structuredContent"}
    assert {k: v for k, v in after.items() if k not in ours} == {k: v for k, v in before.items() if k not in ours}
    if all(is_readable(block, understood) for block in blocks) and "structuredContent" in after:
        assert after == before


@given(st.lists(_BLOCKS | st.lists(_BLOCKS, min_size=1, max_size=3), max_size=4), st.sampled_from(LEGACY))
def test_any_prompt_is_valid_in_the_clients_revision(contents: list[Any], understood: str) -> None:
    before = {"messages": [{"role": "user", "content": content} for content in contents]}
    after = lowered(before, understood, method="prompts/get")
    if understood < "2025-11-25":
        validate_server_result("prompts/get", understood, after)
        assert all(is_readable(message["content"], understood) for message in after["messages"])
    else:
        assert after == before


@given(_JSON, _JSON, st.sampled_from(LEGACY), st.sampled_from(["tools/call", "prompts/get", "resources/read"]))
def test_what_is_no_result_of_its_method_is_left_alone(one: Any, other: Any, understood: str, method: str) -> None:
    lowered({"content": one, "messages": other, "structuredContent": one}, understood, method=method)
    body = Body(json.dumps([one]).encode())
    lower(method, body, spoken=MODERN[-1], understood=understood)
    assert json.loads(body.data) == [one]
