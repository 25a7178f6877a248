"""TOML: one table in or out, and every other character as it was."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbridge.config.files.edit import NotEditable, Spot, entry, put, take_out
from mcpbridge.config.files.edit_toml import TomlEditor

EDITOR = TomlEditor()
SPOT = Spot(("mcp_servers",), "mcpbridge")
OURS = {
    "command": "/usr/local/bin/mcpbridge",
    "args": ["serve", "--config", 'C:\\a "b"\\ü\x7f.toml'],
    "env": {"A.B": "x"},
    "required": True,
    "startup_timeout_sec": 30,
}


def read(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"))


VALUES = st.sampled_from(
    [
        "1",
        "true",
        '"x # ] }"',
        "'''\n[mcp_servers.mcpbridge]\n'''",
        '"""\na = "b"\n\\""""',
        "[\n  1, # ]\n  2,\n]",
        "nan",
        "{ a = 1, b = { c = '}' } }",
        "{}",
        "1979-05-27",
        "[[1], ['a,b']]",
        '"\\"[x]"',
        "''",
        '""""quoted"""""',
    ]
)
KEYS = st.sampled_from(["a", "b", '"c d"', "'e.f'", "mcpbridge", "a.b", "b . c", "mcpbridge.env.X"])
HEADERS = st.sampled_from(
    [
        "[mcp_servers]",
        "[mcp_servers.a]",
        "[ mcp_servers . b ]",
        "[mcp_servers.a.env]",
        "[x]",
        "[x.y]",
        "[[list]]",
        "[mcp_servers.mcpbridge]",
        "[mcp_servers.mcpbridge.env]",
        '[mcp_servers."mcp bridge"] # [x]',
        "[mcp_serversx]",
    ]
)
LINES = st.one_of(
    st.tuples(KEYS, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}"),
    st.tuples(KEYS, VALUES).map(lambda pair: f"mcp_servers.{pair[0]}={pair[1]} # [mcp_servers.mcpbridge]"),
    HEADERS,
    HEADERS.map(lambda header: f"  {header}"),
    st.sampled_from(["", "  ", "# [mcp_servers.mcpbridge]", "\t# x = '''", "mcp_servers = {}", "mcp_servers = { }"]),
    st.sampled_from(["mcp_servers = { a = { command = 'x' }, mcpbridge = { command = ']' } }", "mcp_servers = []"]),
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Files that are valid TOML, built line by line."""
    lines: list[str] = []
    for line in draw(st.lists(LINES, max_size=10)):
        try:
            tomllib.loads("\n".join([*lines, line]))
        except tomllib.TOMLDecodeError:
            continue
        lines.append(line)
    text = draw(st.sampled_from(["", "\ufeff"])) + "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@settings(max_examples=100, deadline=None)
@given(documents())
@example("")
@example("mcp_servers.a.command = 'x'\n")
@example("[mcp_servers]\nmcpbridge.command = 'old'\na = {}\n")
@example("[mcp_servers.mcpbridge]\na=1\n[x]\n[mcp_servers.mcpbridge.env]\nb=1")
def test_what_is_put_in_and_taken_out_leaves_no_trace(text: str) -> None:
    try:
        before = EDITOR.parse(text)
        is_there = entry(before, SPOT)
    except NotEditable:
        with pytest.raises(NotEditable):
            put(EDITOR, text, SPOT, OURS)
        return
    done = put(EDITOR, text, SPOT, OURS)
    assert read(done.text)["mcp_servers"]["mcpbridge"] == OURS
    assert put(EDITOR, done.text, SPOT, OURS).text == done.text
    if is_there is None:
        assert take_out(EDITOR, done.text, SPOT, done.undo) == text
    without = take_out(EDITOR, done.text, SPOT)
    left = read(without)
    assert "mcpbridge" not in left.pop("mcp_servers", {})
    had = {**before} if isinstance(before, dict) else {}
    had.pop("mcp_servers", None)
    assert repr(left) == repr(had)


SMALL = {"command": "b", "args": ["serve"], "required": True}
BLOCK = '[mcp_servers.mcpbridge]\ncommand = "b"\nargs = ["serve"]\nrequired = true\n'
LAYOUTS = {
    "nothing": ("", BLOCK),
    "settings": ('model = "x"\n', f'model = "x"\n\n{BLOCK}'),
    "servers, and a blank line at the end": (
        '[mcp_servers.a] # mine\ncommand = "x"\n\n# the end\n\n',
        f'[mcp_servers.a] # mine\ncommand = "x"\n\n# the end\n\n{BLOCK}',
    ),
    "no line end at the end": ("a = 1", f"a = 1\n\n{BLOCK.rstrip()}"),
    "CRLF": ("a = 1\r\n", f"a = 1\n\n{BLOCK}".replace("\n", "\r\n")),
    "an inline table": (
        "mcp_servers = { a = { command = 'x' } } # all\n[tui]\n",
        (
            "mcp_servers = { a = { command = 'x' }, "
            'mcpbridge = { command = "b", args = ["serve"], required = true } } # all\n[tui]\n'
        ),
    ),
    "an empty one": (
        "mcp_servers = {}\n",
        'mcp_servers = { mcpbridge = { command = "b", args = ["serve"], required = true } }\n',
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_it_goes(layout: str) -> None:
    before, after = LAYOUTS[layout]
    done = put(EDITOR, before, SPOT, SMALL)
    assert done.text == after
    assert take_out(EDITOR, after, SPOT, done.undo) == before
    if layout != "an empty one":
        assert take_out(EDITOR, after, SPOT).rstrip() == before.rstrip()


def test_an_older_entry_is_replaced_where_it_stands_with_its_sub_tables() -> None:
    before = (
        "# ours\n[mcp_servers.mcpbridge]\ncommand = 'old'\n[mcp_servers.mcpbridge.env]\nX = '1'\n\n"
        "# the next\n[mcp_servers.z]\ncommand = 'z'\n\n[mcp_servers.mcpbridge.tools.x]\napproval_mode = 'auto'\n"
    )
    done = put(EDITOR, before, SPOT, SMALL)
    assert done.text == f"# ours\n{BLOCK}\n# the next\n[mcp_servers.z]\ncommand = 'z'\n"
    assert done.undo is None


def test_without_a_record_one_blank_line_goes_with_it() -> None:
    text = "a = 1\n\n\n"
    assert take_out(EDITOR, f"{text}{BLOCK}", SPOT) == "a = 1\n\n"
    assert take_out(EDITOR, f"a = 1\n\n{BLOCK}\n[b]\n", SPOT) == "a = 1\n\n[b]\n"


def test_what_was_added_to_it_goes_with_it_and_comments_of_the_next_stay() -> None:
    done = put(EDITOR, "a = 1\n", SPOT, SMALL)
    grown = done.text + "\n[mcp_servers.mcpbridge.tools.x]\napproval_mode = 'auto'\n\n# next\n[b]\n"
    assert take_out(EDITOR, grown, SPOT, done.undo) == "a = 1\n\n# next\n[b]\n"


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("a = 1\nb = = 2\n", "not valid TOML: invalid value", 2),
        ("a = [1,\n", "not valid TOML", 2),
        ("a = " + "[" * 5000, "nested too deeply", None),
        ("mcp_servers = []\n", "expected a table with keys at `mcp_servers`, and found a list", None),
        ("[[mcp_servers]]\n", "expected a table with keys at `mcp_servers`, and found a list", None),
        ("mcp_servers = 1979-05-27\n", "found something else", None),
    ],
)
def test_what_cannot_be_edited_is_left_alone(text: str, what: str, line: int | None) -> None:
    with pytest.raises(NotEditable) as refused:
        put(EDITOR, text, SPOT, SMALL)
    assert what in refused.value.what
    assert refused.value.line == line


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_is_written_so_that_it_reads_back(name: str) -> None:
    spot = Spot(("mcp_servers",), name)
    done = put(EDITOR, "a = 1\n", spot, {"command": name, "env": {name: name}})
    assert read(done.text)["mcp_servers"] == {name: {"command": name, "env": {name: name}}}
    assert json.dumps(read(take_out(EDITOR, done.text, spot))) == '{"a": 1}'
