"""The format of `servers.lock`."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.definitions.pins.canonical import canonical, digest
from mcpbridge.catalog.definitions.pins.files import LockFiles, lock_path
from mcpbridge.catalog.definitions.pins.lock_file import Lock, Pin, parse_lock, render_lock, summary_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DIGESTS = st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1, max_size=3).map(tuple)
KEYS = st.tuples(st.sampled_from(["tool", "prompt", "resource"]), TEXT).map(":".join) | st.just("instructions:")
LOCKS = st.builds(
    Lock,
    st.dictionaries(TEXT, st.dictionaries(KEYS, st.builds(Pin, DIGESTS, TEXT), max_size=3), max_size=3),
    st.integers(1, 10**6),
)


@given(LOCKS)
def test_lock_files_round_trip(lock: Lock) -> None:
    """Issue 22: whatever servers and tools are called."""
    text = render_lock(lock)
    assert parse_lock(text, "servers.lock") == lock
    assert render_lock(parse_lock(text, "servers.lock")) == text
    assert sum(line.startswith('"') for line in text.split("\n")) == sum(map(len, lock.servers.values()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "format = 2",
        "no toml at all",
        "format = 1\nservers = 3",
        'format = 1\nversion = "a"',
        "format = 1\nother = 1",
        "format = 1\n[servers]\na = 1",
        'format = 1\n[servers.a]\n"tool:x" = 1',
        'format = 1\n[servers.a]\n"tool:x" = { sha256 = [] }',
        'format = 1\n[servers.a]\n"tool:x" = { sha256 = ["../../etc/passwd"] }',
        f'format = 1\n[servers.a]\n"thing:x" = {{ sha256 = ["{"a" * 64}"] }}',
    ],
)
def test_a_file_that_is_wrong_says_so_and_what_to_do(text: str) -> None:
    """House rule: bad input gets a clear error."""
    with pytest.raises(ConfigError) as caught:
        parse_lock(text, "servers.lock")
    assert "servers.lock" in caught.value.full_message()
    assert "mcpbridge lock" in caught.value.full_message()


def test_definitions_are_found_by_their_digest_and_only_if_they_have_it(tmp_path: Path) -> None:
    """Issue 22: a fresh clone can list the old ones; nobody can put others in their place."""
    files = LockFiles(lock_path(str(tmp_path / "servers.toml")))
    assert files.path == tmp_path / "servers.lock"
    assert files.read() is None
    raw = b'{"name":"x", "description":"d"}'
    lock = Lock({"a": {"tool:x": Pin((digest(raw),), "d")}})
    assert files.write(lock, {digest(raw): raw, digest(b"1"): b"1"})
    assert not files.write(lock, {})
    assert files.read() == lock
    assert files.definition(digest(raw)) == canonical(raw)
    assert files.definition(digest(b"1")) is None
    (files.directory / f"{digest(raw)}.json").write_bytes(b'{"name":"evil"}')
    assert files.definition(digest(raw)) is None
    files.write(Lock({}), {})
    assert not list(files.directory.iterdir())


def test_a_summary_is_short_and_hides_nothing() -> None:
    """It is read in reviews."""
    assert summary_of("tool", b'{"name":"x","description":"a\\u200bb\\n c"}') == "a\ufffdb c"
    assert len(summary_of("tool", b'{"description":"%b"}' % (b"x" * 500))) == 80
    assert summary_of("identity", b'{"name":"a","version":"1"}') == "a 1"
    assert summary_of("tool", b"{") == ""
