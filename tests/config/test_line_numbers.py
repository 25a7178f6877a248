"""Lines of keys in configuration files."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.config.line_numbers import json_line, toml_line

TOML = """\
# a comment
[servers.time]
command = "x"
args = [
  "a = 1",
]

[servers."odd.name".tools]
include = []

[bridge]
name.first = "y"
[[http.tokens]]
name = "a"
[[http.tokens]]
name = "b"
"""


def test_toml_keys_are_found() -> None:
    assert toml_line(TOML, ["servers", "time"]) == 2
    assert toml_line(TOML, ["servers", "time", "command"]) == 3
    assert toml_line(TOML, ["servers", "time", "args", "0"]) == 4
    assert toml_line(TOML, ["servers", "odd.name", "tools", "include"]) == 9
    assert toml_line(TOML, ["bridge", "name", "first"]) == 12
    assert toml_line(TOML, ["http", "tokens", "1", "name"]) == 16


def test_a_toml_key_that_is_not_there_gets_the_line_of_what_would_hold_it() -> None:
    assert toml_line(TOML, ["servers", "time", "cwd"]) == 2
    assert toml_line(TOML, ["log", "level"]) is None


@given(st.text())
def test_any_text_may_be_searched(text: str) -> None:
    """A line that is found is one of the text, and says something."""
    line = toml_line(text, ["a", "b"])
    if line is not None:
        assert text.split("\n")[line - 1].strip()


documents = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(documents, st.data())
def test_a_json_key_is_found_on_its_line(document: Any, data: st.DataObject) -> None:
    """With one member a line, the line found must begin with the key (or hold the item)."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    key, value = list[str](), document
    while isinstance(value, dict | list) and value:
        part = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        key.append(str(part))
        value = value[part]
        line = json_line(text, key)
        assert line is not None
        found = text.split("\n")[line - 1].strip()
        expected = f"{json.dumps(part, ensure_ascii=False)}: " if isinstance(part, str) else ""
        assert found.startswith(expected + json.dumps(value, indent=1, ensure_ascii=False).split("\n")[0])
    assert json_line(text, []) is None
