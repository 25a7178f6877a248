"""YAML: one entry of a map or list in or out, and every other character as it was."""

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbridge.config.files.edit import NotEditable, Spot, entries, entry, put, take_out
from mcpbridge.config.files.edit_yaml import YamlEditor

EDITOR = YamlEditor()
MAP = Spot(("extensions",), "mcpbridge")
LIST = Spot(("extensions",), "mcpbridge", in_list=True)
OURS = {
    "type": "stdio",
    "cmd": "/usr/local/bin/mcpbridge",
    "args": ["serve", "--config", 'C:\\a "b": #ü\x85.toml', "yes", "1", "@x", ""],
    "enabled": True,
    "timeout": 300,
    "envs": {},
}


def read(text: str) -> Any:
    return yaml.safe_load(text)


def named(spot: Spot, table: Any) -> Any:
    if spot.in_list:
        return [
            {key: value for key, value in item.items() if key != "name"}
            for item in table
            if isinstance(item, dict) and item.get("name") == spot.name
        ][-1]
    return table[spot.name]


SCALARS = st.sampled_from(
    [
        "1",
        "yes",
        "~",
        "",
        "'a: b'",
        '"c # d"',
        "plain text",
        "|\n{0}  block\n{0}  mcpbridge: 1",
        ">-\n{0}  folded\n",
        "|+\n{0}  kept\n\n",
        "&anchor x",
        "!!str 5",
        "2024-01-01",
        "[a, {{b: c}}]",
        "{{}}",
        "[]",
        "'two\n{0}  lines'",
    ]
)
NAMES = st.sampled_from(["extensions", "a", "'b c'", "mcpbridge", "name", '"extensions"', "? d\n{0}", "é"])
COMMENTS = st.sampled_from(["", "", "", " # one: {{", "   "])
BETWEEN = st.sampled_from(["", "", "", "\n", "# two\n", "{0}# three\n", "   \n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Maps and lists in block style, with all that may stand between, and values in flow style."""

    def table(indent: int, left: int) -> str:
        pad, step = " " * indent, draw(st.integers(1, 4))
        lines = ""
        for _ in range(draw(st.integers(1, 3))):
            lines += draw(BETWEEN).format(pad)
            name = draw(NAMES).format(pad)
            lines += f"{pad}{name}:" + value(indent, step, left)
        return lines

    def value(indent: int, step: int, left: int) -> str:
        kind, pad = draw(st.integers(0, 3 if left else 0)), " " * indent
        if kind == 3:
            dash = " " * draw(st.sampled_from([indent, indent + step]))
            items = [draw(st.sampled_from(["name: x", "name: mcpbridge", "y"])) for _ in range(draw(st.integers(1, 3)))]
            inner = draw(st.sampled_from(["", "\n" + dash + "  args: [a]"]))
            return (
                draw(COMMENTS).format()
                + "\n"
                + "".join(f"{dash}- {item}{inner if ':' in item else ''}\n" for item in items)
            )
        if kind:
            return draw(COMMENTS).format() + "\n" + table(indent + step, left - 1)
        scalar = draw(SCALARS).format(pad)
        tail = "" if "\n" in scalar else draw(COMMENTS).format()
        return f" {scalar}{tail}" + ("" if scalar.endswith("\n") else "\n")

    text = draw(st.sampled_from(["", "---\n", "# top\n", "\ufeff", "%YAML 1.1\n---\n"])) + table(0, 2)
    text += draw(BETWEEN).format("") + draw(st.sampled_from(["", "...\n", "# end"]))
    if draw(st.booleans()):
        text = text.rstrip("\n")
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@settings(max_examples=80, deadline=None)
@given(documents(), st.sampled_from([MAP, LIST]))
@example("", MAP)
@example("\ufeff", LIST)
@example("# nothing", MAP)
@example("---\n", MAP)
@example("{}", MAP)
@example("extensions: {}", LIST)
@example("extensions: [] # none", LIST)
@example('{"extensions": {"a": {"cmd": "x"}}, "z": 1}\n', MAP)
@example("extensions: [{name: a}, {name: mcpbridge}]\n", LIST)
@example("extensions:\n  mcpbridge: {cmd: old}\n  a: {cmd: x}\n", MAP)
@example("a: |+\n  kept\n\n", MAP)
@example("a: |\n  no line end", MAP)
def test_what_is_put_in_and_taken_out_leaves_no_trace(text: str, spot: Spot) -> None:
    try:
        before = EDITOR.parse(text)
        is_there = entry(before, spot)
        done = put(EDITOR, text, spot, OURS)
    except NotEditable:
        return  # the next test says when
    assert named(spot, read(done.text)["extensions"]) == OURS
    assert put(EDITOR, done.text, spot, OURS).text == done.text
    if is_there is None:
        assert take_out(EDITOR, done.text, spot, done.undo) == text
    without = take_out(EDITOR, done.text, spot)
    after = EDITOR.parse(without)
    assert entry(after, spot) is None
    for document in (before, after):
        if isinstance(document, dict):
            document.pop("extensions", None)
    assert (before or {}) == (after or {})
    if "mcpbridge" not in entries(EDITOR.parse(text), spot):
        assert without.count("#") == text.count("#")


SMALL = {"cmd": "b", "args": ["serve"], "enabled": True}
LAYOUTS = {
    "nothing": (MAP, "", "extensions:\n  mcpbridge:\n    cmd: b\n    args: [serve]\n    enabled: true\n"),
    "a map": (
        MAP,
        "extensions: # all\n    # the first\n    a:\n        cmd: x\n\nGOOSE: 1\n",
        (
            "extensions: # all\n    mcpbridge:\n        cmd: b\n        args: [serve]\n        enabled: true\n"
            "    # the first\n    a:\n        cmd: x\n\nGOOSE: 1\n"
        ),
    ),
    "a list that is not indented": (
        LIST,
        "extensions:\n- name: a\n  cmd: x\nz: 1\n",
        "extensions:\n- name: mcpbridge\n  cmd: b\n  args: [serve]\n  enabled: true\n- name: a\n  cmd: x\nz: 1\n",
    ),
    "nothing in it": (
        MAP,
        "a: 1\nextensions:\nz: 1\n",
        "a: 1\nextensions:\n  mcpbridge:\n    cmd: b\n    args: [serve]\n    enabled: true\nz: 1\n",
    ),
    "an empty map": (
        MAP,
        "extensions: {} # none\nz: 1\n",
        "extensions: # none\n  mcpbridge:\n    cmd: b\n    args: [serve]\n    enabled: true\nz: 1\n",
    ),
    "flow style": (
        MAP,
        "extensions: {a: {cmd: x}}\n",
        "extensions: {mcpbridge: {cmd: b, args: [serve], enabled: true}, a: {cmd: x}}\n",
    ),
    "no table yet, CRLF, no line end": (
        MAP,
        "a: 1\r\nb: 2",
        "a: 1\r\nb: 2\r\nextensions:\r\n  mcpbridge:\r\n    cmd: b\r\n    args: [serve]\r\n    enabled: true",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_it_goes(layout: str) -> None:
    spot, before, after = LAYOUTS[layout]
    done = put(EDITOR, before, spot, SMALL)
    assert done.text == after
    assert take_out(EDITOR, after, spot, done.undo) == before


def test_an_older_entry_is_replaced_where_it_stands() -> None:
    before = "extensions:\n  a: {cmd: x}\n  mcpbridge:\n    cmd: old\n    envs:\n      X: 1\n  # the next\n  z: {}\n"
    done = put(EDITOR, before, MAP, SMALL)
    assert done.text == (
        "extensions:\n  a: {cmd: x}\n  mcpbridge:\n    cmd: b\n    args: [serve]\n    enabled: true\n"
        "  # the next\n  z: {}\n"
    )
    assert take_out(EDITOR, done.text, MAP) == "extensions:\n  a: {cmd: x}\n  # the next\n  z: {}\n"


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "not valid YAML: expected ',' or ']'", 3),
        ("a: 1\n\tb: 2\n", "not valid YAML: found character '\\t'", 2),
        ("a: 1\nb: \x00", "not valid YAML: a character", 2),
        ("a: 1\n---\nb: 2\n", "not valid YAML: but found another document", 2),
        ("a: " + "[" * 1200, "nested too deeply", None),
        ("- a\n", "expected a table with keys as the whole, and found a list", None),
        ("extensions: []\n", "expected a table with keys at `extensions`, and found a list", None),
        ("extensions: text\n", "and found a text", None),
        ("x: &s {a: {cmd: x}}\nextensions: *s\n", "cannot be edited without changing", None),
    ],
)
def test_what_cannot_be_edited_is_left_alone(text: str, what: str, line: int | None) -> None:
    with pytest.raises(NotEditable) as refused:
        put(EDITOR, text, MAP, SMALL)
    assert what in refused.value.what
    assert refused.value.line == line


def test_a_map_in_the_place_of_a_list_is_an_error() -> None:
    with pytest.raises(NotEditable, match="expected a list at `extensions`, and found a table"):
        put(EDITOR, "extensions:\n  a: {}\n", LIST, SMALL)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.booleans())
def test_any_text_is_written_so_that_it_reads_back(name: str, in_list: bool) -> None:
    spot = Spot(("extensions",), name, in_list=in_list)
    done = put(EDITOR, "a: 1\n", spot, {"cmd": name, "envs": {name: name}})
    assert named(spot, read(done.text)["extensions"]) == {"cmd": name, "envs": {name: name}}
    assert take_out(EDITOR, done.text, spot, done.undo) == "a: 1\n"
