"""The vault of users' accounts: encrypted, bound to its user, and with keys that can be changed (issue 23)."""

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage import vault_keys as keys_module
from mcpbridge.storage.vault import Row, Vault
from mcpbridge.storage.vault_keys import KeysInFile, KeysInKeyring, vault_keys

ALICE = Row("account", "alice", "up", "https://up.example/mcp", "https://as.example")
BOB = replace(ALICE, principal="bob")
SECRET = b"refresh-1234567890"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(keys_module, "keyring_of_desktop", lambda: None)
    return tmp_path / "accounts"


def vault_in(folder: Path, key: str | None = None, *old: str) -> Vault:
    return Vault(lambda: folder, lambda directory: vault_keys(directory, key, old))


async def test_what_is_kept_is_found_again_and_is_nobody_elses(folder: Path) -> None:
    vault = vault_in(folder)
    assert await vault.load(ALICE) is None
    await vault.save(ALICE, SECRET)
    again = vault_in(folder)
    assert await again.load(ALICE) == SECRET
    assert await again.load(BOB) is None
    assert await again.load(replace(ALICE, server="other")) is None
    assert await again.load(replace(ALICE, url="https://elsewhere.example/mcp")) is None
    [row] = again.rows()
    assert (row.principal, row.server, row.issuer) == ("alice", "up", "https://as.example")
    assert await again.drop(ALICE)
    assert not await again.drop(ALICE)
    assert again.rows() == []


async def test_nothing_of_it_can_be_read_and_nobody_else_may_look(folder: Path) -> None:
    await vault_in(folder).save(ALICE, SECRET)
    assert not any(SECRET in path.read_bytes() for path in folder.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir() if path.suffix != ".lock"} == {0}


async def test_a_row_that_was_moved_to_another_user_does_not_open(folder: Path) -> None:
    vault = vault_in(folder)
    await vault.save(ALICE, SECRET)
    await vault.save(BOB, b"of bob")
    [alices, bobs] = (folder / f"{row.place}.row" for row in (ALICE, BOB))
    shutil.copy(alices, bobs)
    assert await vault.load(BOB) is None
    assert await vault.load(ALICE) == SECRET


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"principal":"alice"', b'"principal":"bob"'),
        (b'"server":"up"', b'"server":"to"'),
        (b"as.example", b"az.example"),
        (b"up.example", b"uq.example"),
    ],
)
async def test_a_head_that_was_changed_opens_nothing(folder: Path, old: bytes, new: bytes) -> None:
    vault = vault_in(folder)
    await vault.save(ALICE, SECRET)
    path = folder / f"{ALICE.place}.row"
    data = path.read_bytes()
    assert old in data
    changed = data.replace(old, new, 1)
    path.write_bytes(changed)
    row = replace(ALICE, principal="bob") if b"bob" in new else ALICE
    if b"bob" in new:
        path.rename(folder / f"{BOB.place}.row")
    if b"uq" in new:
        row = replace(ALICE, url="https://uq.example/mcp")
    assert await vault.load(row) is None


@pytest.mark.parametrize("size", [0, 5, 40, -1])
async def test_a_damaged_row_is_as_good_as_none(folder: Path, size: int) -> None:
    vault = vault_in(folder)
    await vault.save(ALICE, SECRET)
    path = folder / f"{ALICE.place}.row"
    path.write_bytes(path.read_bytes()[:size])
    assert await vault.load(ALICE) is None
    await vault.save(ALICE, SECRET)
    assert await vault.load(ALICE) == SECRET


async def test_others_who_can_look_are_an_error(folder: Path) -> None:
    vault = vault_in(folder)
    await vault.save(ALICE, SECRET)
    folder.chmod(0o755)
    with pytest.raises(ConfigError, match="others"):
        await vault.load(ALICE)


async def test_a_key_of_its_own_is_changed_and_the_old_one_forgotten(folder: Path) -> None:
    vault = vault_in(folder)
    await vault.save(ALICE, SECRET)
    await vault.save(BOB, b"of bob")
    before = (folder / "key").read_bytes()
    assert vault.rotate() == (2, 0)
    after = (folder / "key").read_bytes()
    assert before != after
    assert len(after.split()) == 1
    for one in (vault, vault_in(folder)):
        assert await one.load(ALICE) == SECRET
    (folder / "key").write_bytes(before)
    assert await vault_in(folder).load(ALICE) is None


async def test_a_rotation_that_was_cut_short_loses_nothing(folder: Path) -> None:
    """The new key is there, and some rows are of the old one."""
    vault = vault_in(folder)
    await vault.save(ALICE, SECRET)
    KeysInFile(folder / "key").renew()
    await vault.save(BOB, b"of bob")
    assert await vault.load(ALICE) == SECRET
    assert await vault.load(BOB) == b"of bob"
    assert vault.rotate() == (2, 0)
    assert await vault_in(folder).load(ALICE) == SECRET


async def test_a_configured_key_is_changed_by_naming_the_old_one(folder: Path) -> None:
    first, second = "a passphrase that is long", os.urandom(32).hex()
    await vault_in(folder, first).save(ALICE, SECRET)
    assert await vault_in(folder, second).load(ALICE) is None
    both = vault_in(folder, second, first)
    assert await both.load(ALICE) == SECRET
    assert both.rotate() == (1, 0)
    assert await vault_in(folder, second).load(ALICE) == SECRET
    assert not (folder / "key").exists()


class Keyring:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self.kept[service, name] = value


async def test_the_key_may_be_in_the_keyring(folder: Path) -> None:
    keyring = Keyring()
    vault = Vault(lambda: folder, lambda _: KeysInKeyring(keyring))
    await vault.save(ALICE, SECRET)
    [before] = keyring.kept.values()
    assert not (folder / "key").exists()
    assert vault.rotate() == (1, 0)
    [after] = keyring.kept.values()
    assert before != after
    assert await vault.load(ALICE) == SECRET


async def test_a_key_file_of_another_kind_is_an_error_and_says_what_to_do(folder: Path) -> None:
    await vault_in(folder).save(ALICE, SECRET)
    (folder / "key").write_text("short\n")
    with pytest.raises(ConfigError, match="not the key"):
        await vault_in(folder).save(BOB, b"x")
