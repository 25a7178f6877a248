"""`servers.lock` is read as it was written, and a broken one is refused with its line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.pins.definition import FACTS, PIN_KINDS, Pin, PinKind, pin, pin_fact
from mcpbridge.catalog.pins.lock_file import (
    Agreed,
    Lock,
    PinKey,
    definitions_folder,
    format_lock,
    lock_of,
    parse_lock,
    read_definition,
    read_lock,
    write_lock,
)
from mcpbridge.protocol.canonical_json import canonical

DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def keys(draw: st.DrawFn) -> PinKey:
    kind: PinKind = draw(st.sampled_from(PIN_KINDS))
    return PinKey(draw(st.text()), kind, draw(st.sampled_from(FACTS) if kind == "server" else st.text()))


ENTRIES = st.builds(
    Agreed, st.lists(DIGESTS, min_size=1, max_size=3, unique=True).map(lambda some: tuple(sorted(some))), st.text()
)


@given(st.dictionaries(keys(), ENTRIES, max_size=8))
def test_a_lock_is_read_as_it_was_written(entries: dict[PinKey, Agreed]) -> None:
    text = format_lock(Lock(entries))
    assert parse_lock(text).entries == entries
    assert format_lock(parse_lock(text)) == text
    assert all(char.isprintable() or char == "\n" for char in text)  # nothing hides from who reviews it


def a_tool(name: str, **members: Any) -> Pin:
    return pin("tools", name, json.dumps({"name": name, "description": f"{name} it", **members}).encode())


def test_each_definition_has_one_line_in_order() -> None:
    text = format_lock(lock_of({"b": [a_tool("z"), a_tool("a")], "a": [pin_fact("instructions", "Be kind.")]}))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    names = [line.partition(" =")[0] for line in lines]
    assert names == ["format", "[servers.a.server]", "instructions", "[servers.b.tools]", "a", "z"]
    assert lines[2].endswith('summary = "Be kind." }')
    assert lines[4].endswith('summary = "a it" }')


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("format = 1\n<<<<<<< HEAD\n", "line 2", "no TOML"),
        ("format = 2\n", "line 1", "format = 1"),
        ("", "", "format = 1"),
        ('format = 1\n\n[servers.a.tools]\nx = "y"\n', "line 4", "no table"),
        ('format = 1\n[servers.a.tools]\nx = { digests = ["12"] }\n', "line 3", "64 hexadecimal digits"),
        ("format = 1\n[servers.a.tools]\nx = { digests = [] }\n", "line 3", "digests"),
        ("format = 1\n[servers.a.toolz]\n", "line 2", "'toolz' is not known"),
        ("format = 1\n[servers.a.server]\nx = { digests = [] }\n", "line 3", "'x' is not known"),
        ("format = 1\nmore = 1\n", "line 2", "'more' is not known"),
        ("format = 1\nservers = 1\n", "line 2", "no table"),
    ],
)
def test_a_broken_lock_is_refused_with_its_line_and_advice(tmp_path: Path, text: str, line: str, what: str) -> None:
    path = tmp_path / "servers.lock"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_lock(path)
    message = str(refused.value)
    assert str(path) in message
    assert line in message
    assert what in message
    assert "`mcpbridge lock --anew`" in message


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_lock("format = 1\n" + text)
    except ConfigError:
        pass


def test_definitions_lie_beside_the_lock_under_their_digests(tmp_path: Path) -> None:
    path = tmp_path / "servers.lock"
    assert read_lock(path) is None
    old, new = a_tool("x"), a_tool("x", title="X", _meta={"big": 1.50})
    write_lock(path, lock_of({"s": [old, new]}), [old.definition, new.definition])
    lock = read_lock(path)
    assert lock is not None
    (entry,) = lock.entries.values()
    assert entry.digests == tuple(sorted((old.digest, new.digest)))
    assert {read_definition(path, digest) for digest in entry.digests} == {old.definition, new.definition}

    write_lock(path, lock_of({"s": [new]}))
    assert [file.stem for file in definitions_folder(path).iterdir()] == [new.digest]
    file = definitions_folder(path) / f"{new.digest}.json"
    file.write_bytes(file.read_bytes().replace(b"x it", b"y it"))
    assert read_definition(path, new.digest) is None  # altered
    assert read_definition(path, old.digest) is None  # not there
    assert sorted(one.name for one in tmp_path.iterdir()) == ["servers.lock", "servers.lock.d"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_a_digest_is_that_of_the_one_spelling(value: Any) -> None:
    spread, dense = json.dumps(value, indent=3), json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    pins = [pin("tools", "x", text.encode()) for text in (spread, dense)]
    assert pins[0] == pins[1]
    assert pins[0].definition == canonical(dense.encode())


@given(JSON)
def test_any_definition_is_read_back_by_its_digest(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.lock"
    one = pin("tools", "x", json.dumps(value).encode())
    write_lock(path, lock_of({"s": [one]}), [one.definition])
    assert read_definition(path, one.digest) == one.definition


def test_each_member_counts() -> None:
    assert a_tool("x", icons=[]).digest != a_tool("x").digest
    days = [b'{"name":"x","description":"Reads. Today is %b.","n":1.50}' % day for day in (b"Mon", b"Tue")]
    assert len({pin("tools", "x", day).digest for day in days}) == 2
    assert pin("tools", "x", days[0]).definition == b'{"description":"Reads. Today is Mon.","n":1.50,"name":"x"}'
