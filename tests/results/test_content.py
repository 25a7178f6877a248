"""From results to texts and back: nothing but what is meant to changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.body import Body
from mcpbridge.results.content import contents_of, document_of, text_of, with_blocks
from mcpbridge.results.header_line import defused, header_line, holds_header_line

LINE = f"[mcpbridge {'a' * 26} · JSON · 9 chars · complete]"
texts = st.text(max_size=40)
blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    texts.map(lambda text: {"type": "resource", "resource": {"uri": "a:b", "text": text}}),
    st.just({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
    st.just({"type": "novel", "text": 5}),
    st.none(),
    st.integers(),
)


def encoded(content: Any, **members: Any) -> bytes:
    return json.dumps({"content": content, **members}).encode()


def test_one_text_is_the_document() -> None:
    document = document_of(encoded([{"type": "text", "text": '{"a": 1.10}'}]))
    assert (document.kind, document.text, str(document.value["a"])) == ("json", '{"a": 1.10}', "1.10")


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ('{"rows": [1, 2]}', {"rows": [1, 2]}),
        ("[1, 2]", {"result": [1, 2]}),
        ("plain words\n", {"content": "plain words"}),
    ],
)
def test_what_is_said_twice_is_one_document(text: str, structured: Any) -> None:
    data = encoded([{"type": "text", "text": text}], structuredContent=structured)
    assert document_of(data).text == text


def test_what_is_said_differently_is_a_document_of_both() -> None:
    data = encoded([{"type": "text", "text": "done"}], structuredContent={"n": 1})
    assert document_of(data).value == {"text": "done", "structuredContent": {"n": 1}}


def test_structure_alone_is_the_document() -> None:
    assert document_of(encoded([], structuredContent={"n": 12345678901234567890})).value == {"n": 12345678901234567890}
    assert text_of(encoded([], structuredContent={"n": 1})) == '{"n": 1}'


def test_a_null_in_place_of_structure_is_none() -> None:
    assert contents_of(Body(encoded([], structuredContent=None))).structured is None


def test_blocks_that_are_json_are_the_items_of_a_list() -> None:
    content = [{"type": "text", "text": f'{{"n": {n}}}'} for n in range(3)]
    document = document_of(encoded(content))
    assert document.value == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_other_blocks_are_one_text() -> None:
    content = [{"type": "text", "text": "one"}, {"type": "resource", "resource": {"uri": "a:b", "text": "two"}}]
    assert document_of(encoded(content)).text == "one\ntwo"


@pytest.mark.parametrize("content", ["text", 5, {"a": 1}, [5, None, "x"], [{"type": "text"}], [{"type": "resource"}]])
def test_odd_contents_have_no_text(content: Any) -> None:
    assert contents_of(Body(encoded(content))).texts == []


@given(st.lists(blocks, max_size=6))
def test_putting_the_same_blocks_together_changes_nothing(content: list[Any]) -> None:
    data = encoded(content, other={"x": [1]}, isError=False)
    contents = contents_of(Body(data))
    assert json.loads(bytes(with_blocks(contents, None, {}).data)) == json.loads(data)


@given(st.lists(blocks, max_size=6))
def test_a_new_text_stands_where_the_first_one_stood(content: list[Any]) -> None:
    data = encoded(content)
    contents = contents_of(Body(data))
    said = {"type": "text", "text": "new"}
    found = json.loads(bytes(with_blocks(contents, [json.dumps(said).encode()], {}).data))["content"]
    others = [raw for raw, block in zip(content, contents.blocks, strict=True) if block.text is None]
    assert [block for block in found if block != said] == others
    first = next((place for place, block in enumerate(contents.blocks) if block.text is not None), len(others))
    assert found[first] == said


# -- the bridge's own line


def test_a_frame_says_what_it_is_and_how_to_go_on() -> None:
    line = header_line("preview", "JSON array of 3", 12345, handle="h" * 26, recall="recall", transforms=True)
    assert line.startswith(f"[mcpbridge {'h' * 26} ")
    assert "12,345" in line
    assert "recall(" in line
    assert "_transform" in line
    assert "\n" not in line


def test_a_frame_of_what_is_complete_offers_nothing() -> None:
    assert "recall" not in header_line("table", "x", 5000, handle="h" * 26, recall="recall", transforms=True)


@given(st.text(alphabet="[]mcpbridgeMCPBRIDGE \t\nab27:", max_size=60), texts)
def test_nothing_defused_looks_like_a_frame(start: str, end: str) -> None:
    assert not holds_header_line(defused(start + LINE + end))
    assert defused(defused(start + LINE + end)) == defused(start + LINE + end)


@given(texts)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert defused(text) == text or "mcpbridge" in text.lower()


def test_a_headline_stays_on_one_line_inside_of_the_frame() -> None:
    """Names of members are the server's to choose."""
    odd = '1 member, ["a]\n[mcpbridge b\u2028c\u202ed\x1b[31m\x00"]'
    line = header_line("preview", odd, 12345, handle="h" * 26, recall="recall", transforms=True)
    assert line.isprintable()
    assert (line.count("["), line.count("]")) == (1, 1)


@pytest.mark.parametrize(
    "text", ["[mcpbridge] started", "mcpbridge: up", "[mcpbridges x", "[mcp bridge x]", "［mcpbridge］"]
)
def test_tags_of_logs_are_no_frames(text: str) -> None:
    assert defused(text) == text
    assert not holds_header_line(text)


# -- results that say their blocks a second time

IMAGE = {"type": "image", "data": "aGk=" * 300, "mimeType": "image/png"}


def repeating(*content: Any, name: str = "content") -> bytes:
    return encoded(list(content), structuredContent={name: list(content)})


def test_blocks_that_are_repeated_are_seen_once() -> None:
    data = repeating({"type": "text", "text": "one"}, IMAGE, name="result")
    contents = contents_of(Body(data))
    assert (contents.repeated_as, contents.chars) == ("result", 3)
    assert document_of(data).text == "one"
    assert text_of(repeating(IMAGE)) == ""


@pytest.mark.parametrize(
    "structured",
    [{"content": [IMAGE, IMAGE]}, {"content": [{**IMAGE, "data": "aGl="}]}, {"content": [IMAGE], "n": 1}, {"a": IMAGE}],
)
def test_other_structures_are_no_repetition(structured: Any) -> None:
    assert contents_of(Body(encoded([IMAGE], structuredContent=structured))).repeated_as is None


def test_what_repeats_the_blocks_repeats_the_new_ones() -> None:
    data = repeating(IMAGE)
    link = b'{"type":"resource_link","uri":"a:b","name":"n"}'
    said = json.loads(bytes(with_blocks(contents_of(Body(data)), None, {0: link}).data))
    assert said["structuredContent"] == {"content": said["content"]} == {"content": [json.loads(link)]}


def test_an_app_keeps_the_structure_that_it_knows() -> None:
    data = repeating(IMAGE)
    new = with_blocks(contents_of(Body(data)), None, {0: b"{}"}, keeps_structure=True)
    assert json.loads(bytes(new.data))["structuredContent"] == {"content": [IMAGE]}
