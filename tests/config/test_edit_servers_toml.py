"""Changes to the configuration that leave comments and the rest alone (issue 8)."""

import tomllib
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.edit_servers_toml import list_tool, put_table, remove_table, switch

FILE = """# mine

[bridge]
name = "b"   # a name

# the clock
[servers.time]
command = "uvx"          # with uv
args = ["mcp-server-time"]

[servers.time.tool.convert]
disabled = true

# the rest
[servers.web]
url = "https://example.com/mcp" # remote

[log]
level = "debug"
"""


def without_comments(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def test_a_table_is_added_and_comments_stay() -> None:
    after = put_table(FILE, "servers", "new", {"url": "https://x.example/mcp", "headers": {"A": "${TOKEN}"}})
    assert without_comments(after)["servers"]["new"] == {"url": "https://x.example/mcp", "headers": {"A": "${TOKEN}"}}
    for comment in ("# mine", "# a name", "# the clock", "# with uv", "# the rest", "# remote"):
        assert comment in after
    assert remove_table(after, "servers", "new").strip() == FILE.strip()


def test_the_first_table_of_a_section_and_of_a_file() -> None:
    assert without_comments(put_table("", "tools", "x", {"endpoint": "https://e"})) == {
        "tools": {"x": {"endpoint": "https://e"}}
    }
    after = put_table(FILE, "tools", "x", {"command": ["ls", "{path}"]})
    assert without_comments(after)["tools"]["x"]["command"] == ["ls", "{path}"]
    assert after.startswith(FILE.rstrip("\n"))


def test_what_is_there_is_replaced_only_if_that_is_said() -> None:
    with pytest.raises(ConfigError, match="already"):
        put_table(FILE, "servers", "web", {"url": "https://y.example"})
    after = put_table(FILE, "servers", "web", {"url": "https://y.example"}, may_replace=True)
    assert without_comments(after)["servers"]["web"] == {"url": "https://y.example"}
    assert "# the clock" in after


def test_switching_off_and_on_again_is_no_change() -> None:
    off = switch(FILE, "servers", "web", on=False)
    assert without_comments(off)["servers"]["web"]["disabled"] is True
    assert switch(off, "servers", "web", on=True) == FILE
    assert switch(FILE, "servers", "web", on=True) == FILE


def test_single_tools_are_switched() -> None:
    on = switch(FILE, "servers", "time", tool="convert", on=True)
    assert "disabled" not in without_comments(on)["servers"]["time"]["tool"].get("convert", {})
    off = switch(FILE, "servers", "web", tool="do_it", on=False)
    assert without_comments(off)["servers"]["web"]["tool"]["do_it"]["disabled"] is True
    assert without_comments(off)["log"] == {"level": "debug"}


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="Did you mean `time`"):
        remove_table(FILE, "servers", "tme")
    with pytest.raises(ConfigError, match="no such table"):
        switch(FILE, "tools", "x", on=False)
    with pytest.raises(ConfigError, match="not TOML"):
        switch("a = ", "tools", "x", on=False)


names = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
values = st.recursive(
    st.text(max_size=20) | st.integers(-1000, 1000) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, min_size=1, max_size=3),
    max_leaves=5,
)


@given(names.filter(lambda name: name not in ("time", "web")), st.dictionaries(names, values, max_size=4))
def test_whatever_is_added_reads_back_and_goes_without_a_trace(name: str, table: dict[str, Any]) -> None:
    after = put_table(FILE, "servers", name, table)
    read = without_comments(after)
    assert read["servers"].pop(name) == table
    assert read == without_comments(FILE)
    assert without_comments(remove_table(after, "servers", name)) == without_comments(FILE)


def test_comments_of_the_next_table_stay_and_those_of_the_removed_one_go() -> None:
    text = '[tools.a]\nfunction = "m:f" # one\n# of a\n\n# about the rest\n# of it\n[builtin]\nenable = []\n'
    after = remove_table(text, "tools", "a")
    assert after == "# about the rest\n# of it\n[builtin]\nenable = []\n"
    two = '[tools.x]\nfunction = "m:g"\n\n' + text
    after = remove_table(two, "tools", "a")
    assert "# about the rest\n# of it\n[builtin]" in after
    assert "# of a" not in after
    assert without_comments(after) == {"tools": {"x": {"function": "m:g"}}, "builtin": {"enable": []}}
    assert "# about the rest" in remove_table(two, "tools", "x")


LISTED = """\
# what clients see
[expose]
mode = "auto"  # by client
pins = [
    "git/status",  # asked for all the time
    "time/*",
]

[servers.git]
command = "git-mcp"
"""


def test_a_tool_is_pinned_and_hidden_and_neither_and_comments_stay() -> None:
    """Issue 20, Catalog: on/off, hide, pin; comments are kept."""
    pinned = list_tool(LISTED, "git/log", "pin")
    assert tomllib.loads(pinned)["expose"]["pins"] == ["git/status", "time/*", "git/log"]
    for comment in ("# what clients see", "# by client", "# asked for all the time"):
        assert comment in pinned
    hidden = list_tool(pinned, "git/log", "hide")
    assert tomllib.loads(hidden)["expose"] == {"mode": "auto", "pins": ["git/status", "time/*"], "hide": ["git/log"]}
    assert tomllib.loads(list_tool(hidden, "git/log", "auto"))["expose"]["hide"] == []
    assert list_tool(LISTED, "time/now", "pin") == LISTED, "a glob pins it already"


def test_a_glob_about_other_tools_is_left_to_people() -> None:
    with pytest.raises(ConfigError, match=r"time/\*"):
        list_tool(LISTED, "time/now", "hide")
    with pytest.raises(ConfigError, match=r"time/\*"):
        list_tool(LISTED, "time/now", "auto")
    over = LISTED.replace("pins", "hide")
    assert tomllib.loads(list_tool(over, "time/now", "pin"))["expose"]["pins"] == ["time/now"], "a pin comes first"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[servers.a]\ncommand = 'x'\n",
        "expose = {mode = 'all'}\n",
        "expose.mode = 'all'\n",
        "[expose.clients.'a*']\nmode = 'all'\n[servers.a]\ncommand = 'x'\n",
        "[expose]\r\npins = []\r\n",
        "[servers.a]\nurl = 'x'\n[expose.clients.b]\nmode = 'all'\n[servers.c]\nurl = 'x'\n[expose]\nmap = true\n",
    ],
)
@pytest.mark.parametrize("tool", ["git/log", "git/[x]*", 'a/"b"\\c', "a/ä\n#"])
def test_whatever_stands_in_the_file_the_tool_is_pinned_and_nothing_else_changes(text: str, tool: str) -> None:
    before = tomllib.loads(text.replace("\r\n", "\n"))
    after = tomllib.loads(list_tool(text, tool, "pin").replace("\r\n", "\n"))
    (glob,) = after["expose"].pop("pins")
    assert fnmatchcase(tool, glob)
    before.get("expose", {}).pop("pins", None)
    assert {**after, "expose": after["expose"] or {}} == {**before, "expose": before.get("expose", {})}
