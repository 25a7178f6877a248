"""A question as the revision of its client knows it: what must change changes, and nothing else."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, SAMPLE, ClientCapabilities, Question, QuestionRefused
from mcpbridge.downstream.elicitation.question_forms import phrase

EVERYTHING = ClientCapabilities(
    form=True, url=True, sampling=True, sampling_tools=True, sampling_context=True, roots=True
)
OLD, NEW, MODERN = "2025-06-18", "2025-11-25", "2026-07-28"
Message = dict[str, Any]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
own = {"message", "mode", "requestedSchema", "elicitationId", "task", "_meta", "messages", "includeContext", "tools"}
fields = st.dictionaries(texts.filter(lambda name: name not in own | {"toolChoice"}), values, max_size=4)


def put(
    method: str, params: Message | None, version: str = NEW, profile: ClientCapabilities = EVERYTHING, **more: Any
) -> Message:
    """The params as they are put."""
    raw = Raw(b"{}" if params is None else json.dumps(params).encode())
    return json.loads(bytes(phrase(Question("up", method, raw), version, profile, **more)))


@given(fields, texts, st.sampled_from([OLD, NEW, MODERN]))
def test_a_form_keeps_everything_but_gets_the_name_of_its_server(more: Message, words: str, version: str) -> None:
    """To the client all servers are the bridge, so a question says whose it is."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x", "maxLength": 3}}, "x-y": [1]}
    asked = {**more, "message": words, "requestedSchema": schema}
    named = words if words.startswith("[up]") else f"[up] {words}"
    assert put(ELICIT, asked, version) == {**asked, "message": named}


@given(fields)
def test_sampling_and_roots_stay_as_they_are(more: Message) -> None:
    asked = {**more, "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "tools": []}
    for version in (NEW, MODERN):
        assert put(SAMPLE, asked, version) == asked
    assert put(LIST_ROOTS, more) == more
    assert put(LIST_ROOTS, None) == {}


def test_bytes_that_nothing_concerns_stay_the_bytes_that_came() -> None:
    raw = Raw(b'{ "messages":[ ],"maxTokens":1e2, "x": 123456789012345678901234567890 }')
    assert bytes(phrase(Question("up", SAMPLE, raw), NEW, EVERYTHING)) == bytes(raw)


def test_a_name_that_another_server_takes_is_not_believed() -> None:
    assert put(ELICIT, {"message": "[bank] Your PIN?"})["message"] == "[up] [bank] Your PIN?"
    assert put(ELICIT, {"message": "[up] hello"})["message"] == "[up] hello"
    assert put(ELICIT, {"message": "[up]hello"})["message"] == "[up]hello"


def test_what_belongs_to_one_hop_stays_behind() -> None:
    meta = {"progressToken": 7, "io.modelcontextprotocol/related-task": {"taskId": "t"}, "vendor/key": None}
    asked = {"message": "[up] a", "task": {"ttl": 1}, "_meta": meta}
    assert put(ELICIT, asked) == {"message": "[up] a", "_meta": {"vendor/key": None}}
    assert put(ELICIT, {**asked, "_meta": {"progressToken": 7}}) == {"message": "[up] a"}
    assert put(ELICIT, {"message": "[up] a", "_meta": {}}) == {"message": "[up] a", "_meta": {}}


# -- pages

PAGE = {"mode": "url", "message": "[up] (opens example.com) Sign in", "url": "https://example.com/?a=1&b=%20"}


def test_a_page_has_an_id_for_clients_whose_revision_has_them() -> None:
    page = {**PAGE, "message": "Sign in"}
    assert put(ELICIT, page, NEW, elicitation_id="ours") == {**PAGE, "elicitationId": "ours"}
    with_id = {"elicitationId": "theirs"}
    assert put(ELICIT, page | with_id, NEW, elicitation_id="ours") == PAGE | with_id
    assert put(ELICIT, page | with_id, MODERN) == PAGE
    assert put(ELICIT, page, MODERN) == PAGE


def test_the_kind_of_a_form_is_told_where_the_revision_has_kinds() -> None:
    form = {"mode": "form", "message": "[up] a", "requestedSchema": {}}
    assert put(ELICIT, form, NEW) == form
    assert put(ELICIT, form, OLD) == {"message": "[up] a", "requestedSchema": {}}


# -- choices


def form(**properties: Message) -> Message:
    return {"message": "[up] a", "requestedSchema": {"type": "object", "properties": properties, "required": ["a"]}}


TITLED = {
    "type": "string",
    "title": "Colour",
    "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0"}],
    "default": "#f00",
}


def test_titled_choices_get_the_older_form_for_older_clients() -> None:
    """Clients of 2025-06-18 know `enum` with `enumNames` only (MCP 2025-06-18, Elicitation)."""
    asked = form(a=TITLED, b={"type": "string", "enum": ["x"], "enumNames": ["X"]}, c={"type": "boolean"})
    lowered = {
        "type": "string",
        "title": "Colour",
        "enum": ["#f00", "#0f0"],
        "enumNames": ["Red", "#0f0"],
        "default": "#f00",
    }
    told = put(ELICIT, asked, OLD)["requestedSchema"]
    assert told["properties"] == {**asked["requestedSchema"]["properties"], "a": lowered}
    assert list(told["properties"]) == ["a", "b", "c"]
    assert told["required"] == ["a"]
    assert put(ELICIT, asked, NEW) == asked


def test_several_choices_at_a_time_cannot_be_put_to_older_clients() -> None:
    several = {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}
    asked = form(a=several)
    assert put(ELICIT, asked, NEW) == asked
    with pytest.raises(QuestionRefused) as caught:
        put(ELICIT, asked, OLD)
    assert json.loads(caught.value.error)["code"] < 0


@pytest.mark.parametrize(
    "schema", [None, [], "x", {"properties": []}, {"properties": {"a": 1, "b": {"oneOf": 5}, "c": {"oneOf": [1]}}}]
)
def test_a_schema_of_an_odd_shape_is_the_clients_to_judge(schema: object) -> None:
    asked = {"message": "[up] a", "requestedSchema": schema}
    assert put(ELICIT, asked, NEW) == asked
    with contextlib.suppress(QuestionRefused):
        assert put(ELICIT, asked, OLD)["message"] == "[up] a"


# -- sampling


def sampling(*contents: object, **more: object) -> Message:
    return {"messages": [{"role": "user", "content": content, "x": 1} for content in contents], **more}


def test_lists_of_content_are_split_for_older_clients() -> None:
    """Before 2025-11-25 a message has one content (MCP 2025-06-18, Sampling)."""
    one, two = {"type": "text", "text": "1"}, {"type": "image", "data": "", "mimeType": "image/png"}
    asked = sampling(one, [one, two], [])
    assert put(SAMPLE, asked, OLD) == sampling(one, one, two)
    assert put(SAMPLE, asked, NEW) == asked


@pytest.mark.parametrize("version", [OLD, NEW, MODERN])
def test_context_of_servers_goes_to_those_who_take_it(version: str) -> None:
    asked = sampling(includeContext="allServers")
    assert put(SAMPLE, asked, version) == asked
    without = ClientCapabilities(sampling=True)
    assert put(SAMPLE, asked, version, without) == sampling()


# -- refusals


@pytest.mark.parametrize(
    ("method", "params", "profile"),
    [
        (ELICIT, {"message": "a"}, ClientCapabilities(url=True)),
        (ELICIT, {"message": "a", "mode": "form"}, ClientCapabilities(url=True)),
        (ELICIT, {"message": "a", "mode": "url", "url": "https://x"}, ClientCapabilities(form=True)),
        (ELICIT, {"message": "a", "mode": "hologram"}, EVERYTHING),
        (SAMPLE, {"messages": []}, ClientCapabilities(form=True)),
        (SAMPLE, {"messages": [], "tools": []}, ClientCapabilities(sampling=True)),
        (SAMPLE, {"messages": [], "toolChoice": {}}, ClientCapabilities(sampling=True)),
        (LIST_ROOTS, {}, ClientCapabilities(sampling=True)),
        ("tools/call", {}, EVERYTHING),
    ],
)
def test_what_a_client_cannot_be_asked_is_refused(method: str, params: Message, profile: ClientCapabilities) -> None:
    with pytest.raises(QuestionRefused) as caught:
        put(method, params, NEW, profile)
    assert json.loads(caught.value.error)["code"] == -32601


def test_a_mode_is_known_in_any_spelling() -> None:
    page = Raw(rb'{"message":"a","mode":"\u0075rl","url":"https://example.com"}')
    with pytest.raises(QuestionRefused, match="'url'"):
        phrase(Question("up", ELICIT, page), NEW, ClientCapabilities(form=True))
    assert b"elicitationId" in bytes(phrase(Question("up", ELICIT, page), NEW, EVERYTHING, elicitation_id="ours"))


@pytest.mark.parametrize(
    "params", [b"[]", b"5", b'{"message":7}', b"{}", b'{"message":null}', b'{"message":"a","mode":1}']
)
def test_params_that_cannot_be_read_are_refused(params: bytes) -> None:
    with pytest.raises(QuestionRefused) as caught:
        phrase(Question("up", ELICIT, Raw(params)), NEW, EVERYTHING)
    assert json.loads(caught.value.error)["code"] == -32602
