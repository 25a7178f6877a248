"""JSON and JSONC: one entry in or out, and every other character as it was."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbridge.config.files.edit import NotEditable, Spot, entries, entry, put, take_out
from mcpbridge.config.files.edit_json import JsonEditor
from mcpbridge.config.mcp_servers_json import plain_json

EDITOR = JsonEditor()
SPOT = Spot(("mcpServers",), "mcpbridge")
OURS = {"command": "/usr/local/bin/mcpbridge", "args": ["serve", "--config", 'C:\\a "b"\\ü.toml'], "timeout": 30}


def read(text: str) -> dict[str, Any]:
    """What another parser than the editor's reads."""
    return json.loads(plain_json(text))


BLANK = st.sampled_from(["", " ", "\n", "\n  ", "\t", " \n\t\t", "  "])
COMMENTED = st.one_of(BLANK, st.sampled_from([" // one } , {\n", "/* two , */", '\n  // three: "\n  ', "/*\n*/ "]))
NAMES = st.sampled_from(["a", "mcpServers", "mcp", "mcpbridge", "b c", "é", 'q"', "\\", ""])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)


@st.composite
def documents(
    draw: st.DrawFn, blank: st.SearchStrategy[str] = COMMENTED, depth: int = 3, *, trailing: bool = True
) -> str:
    """Objects as people, programs and merges leave them."""

    def gap() -> str:
        return draw(blank)

    def value(left: int) -> str:
        kind = draw(st.integers(0, 4 if left else 0))
        if kind == 0:
            return json.dumps(draw(SCALARS), ensure_ascii=draw(st.booleans()))
        if kind == 1:
            return some("[", [value(left - 1) for _ in range(draw(st.integers(0, 2)))], "]")
        return table(left)

    def table(left: int) -> str:
        names = draw(st.lists(NAMES, max_size=3))
        return some("{", [f"{json.dumps(name)}{gap()}:{gap()}{value(left - 1)}" for name in names], "}")

    def some(opening: str, items: list[str], closing: str) -> str:
        comma = "," if items and trailing and draw(st.booleans()) else ""
        return opening + ",".join(f"{gap()}{item}{gap()}" for item in items) + comma + gap() + closing

    end = draw(st.sampled_from(["\n", "\r\n", None]))
    text = draw(st.sampled_from(["", "\ufeff"])) + gap() + table(depth) + gap()
    return text if end is None else text.replace("\n", end)


@settings(max_examples=100, deadline=None)
@given(documents())
@example("")
@example("\ufeff")
@example(" \n")
@example("// nothing yet")
@example("{}")
@example('{"mcpServers": null}')
@example('{"mcpServers": {"mcpbridge": null, "mcpbridge": null}}')
@example('{"mcpServers": {"mcpbridge": null // one } , {\n, "a": null}}')
@example('{"mcpServers": {}, "mcpServers": {"a": {}}}')
@example('{\n  "mcpServers": {\n    "a": {"command": "x"} // last\n  }\n}\n')
def test_what_is_put_in_and_taken_out_leaves_no_trace(text: str) -> None:
    try:
        before = EDITOR.parse(text)
        is_there = entry(before, SPOT)
    except NotEditable:
        with pytest.raises(NotEditable):
            put(EDITOR, text, SPOT, OURS)
        return
    done = put(EDITOR, text, SPOT, OURS)
    assert read(done.text)["mcpServers"]["mcpbridge"] == OURS
    assert put(EDITOR, done.text, SPOT, OURS).text == done.text
    if is_there is None:
        assert take_out(EDITOR, done.text, SPOT, done.undo) == text
    without = take_out(EDITOR, done.text, SPOT)
    left = read(without)
    assert "mcpbridge" not in left.pop("mcpServers", {})
    had = {**before} if isinstance(before, dict) else {}
    had.pop("mcpServers", None)
    assert left == had
    for comment in () if "mcpbridge" in entries(before, SPOT) else ("// one } , {", "/* two , */", '// three: "', "/*"):
        assert without.count(comment) == text.count(comment)


@settings(max_examples=80, deadline=None)
@given(documents(BLANK, trailing=False))
def test_strict_json_stays_strict(text: str) -> None:
    """Some clients read nothing else."""
    try:
        done = put(EDITOR, text, SPOT, OURS)
    except NotEditable:
        return
    assert json.loads(done.text.removeprefix("\ufeff"))["mcpServers"]["mcpbridge"] == OURS
    json.loads(take_out(EDITOR, done.text, SPOT).removeprefix("\ufeff"))


SMALL = {"command": "b", "args": ["serve"]}
WHOLE = """{
  "mcpServers": {
    "mcpbridge": {
      "command": "b",
      "args": ["serve"]
    }
  }
}
"""
LAYOUTS = {
    "nothing": ("", WHOLE),
    "two blanks": (
        """{
  "mcpServers": {
    "a": {
      "command": "x"
    }
  }
}
""",
        """{
  "mcpServers": {
    "a": {
      "command": "x"
    },
    "mcpbridge": {
      "command": "b",
      "args": ["serve"]
    }
  }
}
""",
    ),
    "tabs, CRLF, a comma behind the last": (
        '{\r\n\t"mcpServers": {\r\n\t\t"a": {\r\n\t\t\t"command": "x",\r\n\t\t},\r\n\t},\r\n}',
        (
            '{\r\n\t"mcpServers": {\r\n\t\t"a": {\r\n\t\t\t"command": "x",\r\n\t\t},\r\n'
            '\t\t"mcpbridge": {\r\n\t\t\t"command": "b",\r\n\t\t\t"args": ["serve"]\r\n\t\t},\r\n\t},\r\n}'
        ),
    ),
    "one line": (
        '{"a":1,"mcpServers":{"x":{"command":"x"}}}',
        '{"a":1,"mcpServers":{"x":{"command":"x"},"mcpbridge":{"command":"b","args":["serve"]}}}',
    ),
    "a server a line": (
        """{
    "mcpServers": {
        "a": {"command": "x"} // mine
        // more to come
    }
}
""",
        """{
    "mcpServers": {
        "a": {"command": "x"}, // mine
        "mcpbridge": {"command": "b", "args": ["serve"]}
        // more to come
    }
}
""",
    ),
    "no table yet": (
        """{
    "theme": "dark"
}
""",
        """{
    "theme": "dark",
    "mcpServers": {
        "mcpbridge": {
            "command": "b",
            "args": ["serve"]
        }
    }
}
""",
    ),
    "an empty table": (
        '{\n\t"mcpServers": {},\n\t"z": 1\n}\n',
        """{
\t"mcpServers": {
\t\t"mcpbridge": {
\t\t\t"command": "b",
\t\t\t"args": ["serve"]
\t\t}
\t},
\t"z": 1
}
""",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_written_as_its_neighbours_are(layout: str) -> None:
    before, after = LAYOUTS[layout]
    done = put(EDITOR, before, SPOT, SMALL)
    assert done.text == after
    assert take_out(EDITOR, after, SPOT, done.undo) == before


def test_an_older_entry_is_replaced_where_it_stands() -> None:
    before = '{\n  "mcpServers": {\n    "mcpbridge": {"command": "old"}, // ours\n    "a": {}\n  }\n}\n'
    done = put(EDITOR, before, SPOT, SMALL)
    assert done.text.index("mcpbridge") < done.text.index('"a"')
    assert "// ours" in done.text
    assert read(done.text)["mcpServers"] == {"mcpbridge": SMALL, "a": {}}
    assert read(take_out(EDITOR, done.text, SPOT))["mcpServers"] == {"a": {}}


def test_what_was_added_behind_it_later_stays() -> None:
    done = put(EDITOR, "{}", SPOT, SMALL)
    grown = done.text.replace('["serve"]\n    }', '["serve"]\n    },\n    "new": {"command": "n"}')
    left = take_out(EDITOR, grown, SPOT, done.undo)
    assert read(left) == {"mcpServers": {"new": {"command": "n"}}}


def test_one_that_stands_twice_is_taken_out_twice() -> None:
    text = '{"mcpServers": {"mcpbridge": {"command": "1"}, "a": {}, "mcpbridge": {"command": "2"}}}'
    assert take_out(EDITOR, text, SPOT) == '{"mcpServers": {"a": {}}}'


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "expected `,` or `}`, and found '\"'", 3),
        ('{"a": }', "expected a value, and found '}'", 1),
        ('{\n"a": tru}', "expected a value", 2),
        ('{"a": 1', "found the end", 1),
        ("{} {}", "expected the end", 1),
        ("{a: 1}", "a name in quotes", 1),
        ('{"a" 1}', "expected `:`", 1),
        ("[1 2]", "expected `,` or `]`", 1),
        ('{"a": "\\x"}', "a text", 1),
        ("[" * 5000, "nested too deeply", None),
    ],
)
def test_what_is_no_json_is_left_alone_and_its_line_named(text: str, what: str, line: int | None) -> None:
    with pytest.raises(NotEditable) as refused:
        put(EDITOR, text, SPOT, SMALL)
    assert what in refused.value.what
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "expected a table with keys as the whole, and found a list"),
        ('{"mcpServers": []}', "expected a table with keys at `mcpServers`, and found a list"),
        ('{"mcpServers": "x"}', "and found a text"),
        ('{"mcpServers": 1}', "and found a number"),
        ('{"mcpServers": true}', "and found a truth value"),
    ],
)
def test_something_else_in_the_place_of_the_table_is_an_error(text: str, what: str) -> None:
    with pytest.raises(NotEditable, match=what):
        put(EDITOR, text, SPOT, SMALL)


def test_tables_below_tables_are_made_as_needed() -> None:
    spot = Spot(("projects", "/home/me/x", "mcpServers"), "mcpbridge")
    text = '{\n  "projects": {\n    "/home/me/y": {\n      "mcpServers": {}\n    }\n  }\n}\n'
    done = put(EDITOR, text, spot, SMALL)
    assert read(done.text)["projects"]["/home/me/x"] == {"mcpServers": {"mcpbridge": SMALL}}
    assert take_out(EDITOR, done.text, spot, done.undo) == text
