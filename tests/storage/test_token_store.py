"""What keeps secrets: every `SecretStore` alike, and what files demand beyond that (issue 3)."""

import asyncio
import base64
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.token_encryption_key import KeyFile, KeyringKey, best_source
from mcpbridge.storage.token_store import MemorySecrets, SealedFiles, secrets_directory
from mcpbridge.upstream.auth.grant import Grant, SecretStore

SECRET = b'{"access_token": "a-token-that-nobody-may-see"}'


@pytest.fixture(params=["memory", "files", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SecretStore:
    if request.param == "memory":
        return MemorySecrets()
    directory = tmp_path / "data" / "secrets"
    return SealedFiles(directory, KeyringKey(FakeKeyring()) if request.param == "keyring" else None)


class FakeKeyring:
    """The functions of the package `keyring` that are used."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, user: str) -> str | None:
        return self.entries.get((service, user))

    def set_password(self, service: str, user: str, password: str) -> None:
        self.entries[service, user] = password


async def test_what_is_saved_is_loaded(store: SecretStore) -> None:
    assert await store.load("one") is None
    await store.save("one", SECRET)
    await store.save("two", b"")
    assert await store.load("one") == SECRET
    assert await store.load("two") == b""
    await store.save("one", b"newer")
    assert await store.load("one") == b"newer"


async def test_what_is_dropped_is_gone(store: SecretStore) -> None:
    assert not await store.drop("one")
    await store.save("one", SECRET)
    assert await store.drop("one")
    assert await store.load("one") is None


async def test_a_lock_is_held_by_one(store: SecretStore) -> None:
    async with store.lock("one", 1):
        async with store.lock("two", 1):
            pass
        with pytest.raises(TimeoutError):
            async with store.lock("one", 0.1):
                pytest.fail("it was held twice")
    async with store.lock("one", 1):
        pass


async def test_a_lock_is_freed_when_its_holder_fails(store: SecretStore) -> None:
    with pytest.raises(KeyError):
        async with store.lock("one", 1):
            raise KeyError
    async with store.lock("one", 1):
        pass


@given(pairs=st.dictionaries(st.text(), st.binary(max_size=2000), max_size=8))
@settings(max_examples=20, deadline=None)
def test_any_key_and_value_come_back(pairs: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    async def round_trip() -> None:
        files = SealedFiles(tmp_path_factory.mktemp("secrets", numbered=True))
        for key, value in pairs.items():
            await files.save(key, value)
        assert {key: await files.load(key) for key in pairs} == pairs

    anyio.run(round_trip)


@given(st.binary(max_size=300))
def test_a_grant_of_another_shape_is_none(data: bytes) -> None:
    found = Grant.decode(data)
    assert found is None or isinstance(found, Grant)
    assert Grant.decode(None) is None


async def test_nothing_is_made_before_something_is_kept(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    assert await SealedFiles(directory).load("one") is None
    assert not directory.exists()


async def test_files_are_private_and_tell_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    await SealedFiles(directory).save("oauth\nname\nhttps://server.example", SECRET)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = list(directory.iterdir())
    assert len(files) == 2
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"token" not in file.read_bytes()
        assert "server" not in file.name


@pytest.mark.parametrize("name", ["secrets", "secrets/key"])
async def test_what_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    store = SealedFiles(tmp_path / "secrets")
    await store.save("one", SECRET)
    (tmp_path / name).chmod(0o644 if name.endswith("key") else 0o755)
    with pytest.raises(ConfigError, match="chmod"):
        await SealedFiles(tmp_path / "secrets").load("one")
    with pytest.raises(ConfigError, match="chmod"):
        await SealedFiles(tmp_path / "secrets").save("one", b"more")


async def test_a_file_that_was_changed_or_moved_is_no_secret(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    store = SealedFiles(directory)
    await store.save("one", SECRET)
    [path] = directory.glob("*.sealed")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert await store.load("one") is None
    await store.save("two", b"of another")
    [other] = [found for found in directory.glob("*.sealed") if found != path]
    path.write_bytes(other.read_bytes())
    assert await store.load("one") is None
    for damaged in (b"", b"mcpb1", data[:10], b"x" * 100):
        path.write_bytes(damaged)
        assert await store.load("one") is None


async def test_secrets_of_another_key_are_not_there(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    await SealedFiles(directory).save("one", SECRET)
    (directory / "key").unlink()
    assert await SealedFiles(directory).load("one") is None
    await SealedFiles(directory).save("one", b"new")
    assert await SealedFiles(directory).load("one") == b"new"


async def test_a_directory_that_cannot_be_made_is_a_fault_of_the_set_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        await SealedFiles(tmp_path / "file" / "secrets").save("one", SECRET)


async def test_a_store_that_cannot_be_looked_into_is_empty_and_complains_once(tmp_path: Path) -> None:
    """Another user's, say: a server that needs no sign-in must not suffer for it."""
    store = SealedFiles(tmp_path / ("x" * 300))  # the system refuses even to look
    with capture_logs() as said:
        for _ in range(3):
            assert await store.load("one") is None
    assert len(said) <= 1
    with pytest.raises(ConfigError, match="cannot be made"):
        await store.save("one", SECRET)


def test_a_key_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(base64.b64encode(b"short"))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="not the key"):
        KeyFile(path).key()


def test_two_processes_agree_on_one_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert KeyFile(path).key() == KeyFile(path).key()
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_keyring_that_fails_says_so() -> None:
    def locked(*_: str) -> None:
        raise RuntimeError("the keyring is locked")

    with pytest.raises(ConfigError, match="the keyring is locked"):
        KeyringKey(SimpleNamespace(get_password=locked)).key()


def test_a_keyring_is_used_if_there_is_one_and_no_key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = FakeKeyring()
    module = SimpleNamespace(
        get_keyring=lambda: SimpleNamespace(priority=5),
        get_password=keyring.get_password,
        set_password=keyring.set_password,
    )
    monkeypatch.setitem(sys.modules, "keyring", module)
    assert isinstance(best_source(tmp_path), KeyringKey)
    KeyFile(tmp_path / "key").key()
    assert isinstance(best_source(tmp_path), KeyFile)
    (tmp_path / "key").unlink()
    module.get_keyring = lambda: SimpleNamespace(priority=0.5)
    assert isinstance(best_source(tmp_path), KeyFile)


def test_the_directory_is_the_users(tmp_path: Path) -> None:
    assert secrets_directory({"XDG_DATA_HOME": str(tmp_path)}) == tmp_path / "mcpbridge" / "secrets"
    assert secrets_directory({}).parts[-2:] == ("mcpbridge", "secrets")


ADD_ONE = """
import sys, anyio
from pathlib import Path
from mcpbridge.storage.token_store import SealedFiles

async def main():
    store = SealedFiles(Path(sys.argv[1]))
    for _ in range(10):
        async with store.lock("count", 30):
            await store.save("count", b"%d" % (int(await store.load("count") or b"0") + 1))

anyio.run(main)
"""


async def test_processes_take_turns(tmp_path: Path) -> None:
    """Two bridges renew one token: the second must see what the first brought."""
    directory = tmp_path / "secrets"
    with anyio.fail_after(60):
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", ADD_ONE, str(directory)) for _ in range(3)
        ]
        assert [await process.wait() for process in processes] == [0, 0, 0]
    assert await SealedFiles(directory).load("count") == b"30"
    assert not [file for file in directory.iterdir() if file.name.startswith(".")]


HOLD = """
import sys, time, anyio
from pathlib import Path
from mcpbridge.storage.token_store import SealedFiles

async def main():
    async with SealedFiles(Path(sys.argv[1])).lock("one", 5):
        print("held", flush=True)
        time.sleep(60)

anyio.run(main)
"""


async def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    store = SealedFiles(tmp_path / "secrets")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(tmp_path / "secrets"), stdout=asyncio.subprocess.PIPE
    )
    with anyio.fail_after(30):
        assert process.stdout
        assert await process.stdout.readline() == b"held\n"
        with pytest.raises(TimeoutError):
            async with store.lock("one", 0.1):
                pytest.fail("two hold it")
        process.kill()
        await process.wait()
        async with store.lock("one", 5):
            pass
    process._transport.close()  # pyright: ignore
