"""The store of `mcpbridge secret`: encrypted, its user's alone, and never written over when it cannot be opened."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.named_secrets import LARGEST, NAME, NamedSecrets


class Key:
    def __init__(self, byte: bytes = b"k") -> None:
        self._key = byte * 32

    def key(self) -> bytes:
        return self._key


def store(folder: Path, key: Key | None = None) -> NamedSecrets:
    return NamedSecrets({"XDG_DATA_HOME": str(folder)}, key)


def test_what_is_set_is_there_until_it_is_removed(tmp_path: Path) -> None:
    secrets = store(tmp_path)
    assert secrets.list() == []
    assert secrets.get("a") is None
    assert secrets.remove("a") is False
    assert not secrets.path.exists(), "looking makes nothing"
    assert secrets.set("b", "two") is False
    assert secrets.set("a", "one\n more ☃") is False
    assert secrets.set("b", "three") is True
    again = store(tmp_path)
    assert (again.get("a"), again.get("b")) == ("one\n more ☃", "three")
    assert [one.name for one in again.list()] == ["a", "b"]
    assert all(one.at.endswith("+00:00") for one in again.list())
    assert again.remove("b") is True
    assert secrets.get("b") is None


def test_nothing_of_it_can_be_read_without_the_key_and_by_nobody_else(tmp_path: Path) -> None:
    secrets = store(tmp_path, Key())
    secrets.set("name-of-it", "value-of-it")
    data = secrets.path.read_bytes()
    assert b"name-of-it" not in data
    assert b"value-of-it" not in data
    assert secrets.path.stat().st_mode & 0o077 == 0
    assert secrets.path.parent.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        store(tmp_path, Key(b"o")).get("name-of-it")
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        store(tmp_path, Key(b"o")).set("other", "x")
    assert secrets.path.read_bytes() == data


def test_each_changed_byte_is_noticed(tmp_path: Path) -> None:
    secrets = store(tmp_path, Key())
    secrets.set("a", "b")
    data = secrets.path.read_bytes()
    for at in range(len(data)):
        secrets.path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ConfigError):
            secrets.get("a")


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_one_that_others_can_read_is_refused(tmp_path: Path, what: str) -> None:
    secrets = store(tmp_path)
    secrets.set("a", "b")
    (secrets.path if what == "file" else secrets.path.parent).chmod(0o755)
    with pytest.raises(ConfigError, match="others than its user"):
        secrets.get("a")


@pytest.mark.parametrize("name", ["", "-x", "a b", "a}", "${a}", "a" * 129, "ä", "a\n"])
def test_a_name_that_no_reference_could_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="not usable as the name"):
        store(tmp_path).set(name, "x")


@pytest.mark.parametrize("value", ["", "a\0b", "x" * (LARGEST + 1)])
def test_a_value_that_is_none_is_refused_and_not_repeated(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        store(tmp_path).set("a", value)
    assert len(str(refused.value)) < 200


@given(st.dictionaries(st.from_regex(NAME, fullmatch=True), st.text(min_size=1).filter(lambda text: "\0" not in text)))
def test_whatever_is_stored_comes_back(tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]) -> None:
    secrets = store(tmp_path_factory.mktemp("store"), Key())
    storable = {name: value for name, value in values.items() if value.encode("utf-8", "replace").decode() == value}
    for name, value in storable.items():
        secrets.set(name, value)
    assert {one.name: secrets.get(one.name) for one in secrets.list()} == storable
