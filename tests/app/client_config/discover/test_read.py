"""Files of clients, in each of their formats."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.client_config.clients import Format
from mcpbridge.app.client_config.discover.read import format_of, parse, read_text
from mcpbridge.base.errors import ConfigError


@pytest.mark.parametrize("written_as", ["json", "jsonc", "toml", "yaml"])
@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_an_empty_file_holds_nothing(written_as: Format, text: str) -> None:
    assert parse(text, "f", written_as).value == {}


def test_a_file_of_comments_holds_nothing() -> None:
    assert parse("// nothing yet\n", "f", "jsonc").value == {}
    assert parse("# nothing yet\n", "f", "yaml").value is None


@pytest.mark.parametrize(
    ("written_as", "text", "error"),
    [
        ("jsonc", '{\n  "a": x\n}', "f:2:8: not valid JSON"),
        ("toml", 'a = 1\nb = "x', "f:2"),
        ("yaml", "a: 1\nb: [1\nc: 2\n", "f:3"),
        ("yaml", "a: &a [*a]\n", "nested too deeply"),
    ],
)
def test_a_broken_file_is_told_with_its_line(written_as: Format, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as broken:
        parse(text, "f", written_as)
    assert error in str(broken.value)


def test_aliases_that_multiply_are_refused() -> None:
    """A few lines of YAML can stand for billions of values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="too large"):
        parse("\n".join(lines), "f", "yaml")


@pytest.mark.parametrize(
    ("written_as", "text", "key", "line"),
    [
        ("jsonc", '{ // x\n "a": {\n  "b": 1,\n } }', ["a", "b"], 3),
        ("toml", "\n[a]\nc = 1\n[a.b]\nd = 2\n", ["a", "b"], 4),
        ("yaml", "# x\na:\n  - name: n\n  - name: m\n", ["a", "1"], 4),
        ("yaml", "a:\n  b:\n    c: 1\n", ["a", "b"], 2),
    ],
)
def test_the_line_of_a_key_is_known(written_as: Format, text: str, key: list[str], line: int) -> None:
    assert parse(text, "f", written_as).line_of(key) == line


def test_values_that_only_one_format_knows_become_text() -> None:
    assert parse("a: 2026-01-02\nb: !!binary eHk=\n1: x\n", "f", "yaml").value == {
        "a": "2026-01-02",
        "b": "xy",
        "1": "x",
    }
    assert parse("a = 2026-01-02", "f", "toml").value == {"a": "2026-01-02"}


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b"{\r\n}"])
def test_marks_and_line_ends_of_windows_are_no_obstacle(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert parse(read_text(path), "f", "jsonc").value == {}


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{\n "a": "\xff"}')
    with pytest.raises(ConfigError, match=r"a\.json:2: not UTF-8"):
        read_text(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "written_as"),
    [
        ("a.json", "", "jsonc"),
        ("a.yml", "", "yaml"),
        ("a.toml", "", "toml"),
        ("settings", '// x\n{"a": 1}', "jsonc"),
        ("settings", "[mcp_servers.a]\ncommand = 'x'", "toml"),
        ("settings", "mcpServers:\n  a: {}", "yaml"),
    ],
)
def test_the_format_is_told_by_name_or_content(name: str, text: str, written_as: Format) -> None:
    assert format_of(Path(name), text) == written_as


@given(st.text(max_size=60), st.sampled_from(["json", "jsonc", "toml", "yaml"]))
def test_any_text_is_read_or_refused(text: str, written_as: Format) -> None:
    try:
        document = parse(text, "f", written_as)
    except ConfigError:
        return
    assert repr(parse(text, "f", written_as).value) == repr(document.value)  # `nan` is not equal to itself
    if isinstance(document.value, dict) and document.value:
        line = document.line_of(["a", "b"])
        assert line is None or 1 <= line <= len(text.splitlines()) + 1
