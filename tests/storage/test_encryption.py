"""Values that only who has the key can read, in a real file (issue 5: results at rest)."""

import asyncio
import base64
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from mcpbridge.storage.compression import Unreadable, pack
from mcpbridge.storage.encryption import Seals
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from mcpbridge.storage.sqlite import schema as wrapping
from mcpbridge.storage.sqlite.store import SqliteStore

KEY, OTHER_KEY = "5a" * 32, "a passphrase, and a long one"
PLAIN = b"the-plain-text-of-a-result"
LABEL = b"the-plain-text-of-a-label"
LONG = PLAIN * 500


@asynccontextmanager
async def opened(path: Path, key: str | None) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, key=key)
    try:
        yield store
    finally:
        await store.close()


async def put_two(store: SqliteStore) -> None:
    await store.put("result", LONG, principal="ann", expires_in=600, handle="long", label=LABEL)
    await store.put("result", PLAIN, principal="ann", expires_in=600, handle="short", label=LABEL)


async def got(store: SqliteStore) -> list[bytes | None]:
    return [await store.get("result", handle, principal="ann") for handle in ("long", "short")]


@pytest.mark.parametrize("key", [KEY, OTHER_KEY, base64.b64encode(b"x" * 32).decode()])
async def test_nothing_of_a_value_can_be_read_in_the_files(tmp_path: Path, key: str) -> None:
    path = tmp_path / "a.db"
    async with opened(path, key) as store:
        await put_two(store)
        assert await store.renew("result", "short", principal="ann", expires_in=600, label=LABEL + b" 2")
        files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}  # while the write-ahead log is there
        assert "a.db-wal" in files
        assert await got(store) == [LONG, PLAIN]
    files["closed"] = path.read_bytes()
    for data in files.values():
        for secret in (PLAIN, LABEL, key.encode()):
            assert secret not in data
    async with opened(path, key) as store:
        assert await got(store) == [LONG, PLAIN]
        assert [entry.label for entry in await store.entries("result", principal="ann")] == [LABEL, LABEL + b" 2"]
        assert await store.take("result", "long", principal="ann") == LONG


@pytest.mark.parametrize("key", [None, OTHER_KEY])
async def test_without_the_right_key_values_count_as_missing_and_that_is_told_once(
    tmp_path: Path, key: str | None
) -> None:
    path = tmp_path / "a.db"
    async with opened(path, KEY) as store:
        await put_two(store)
    async with opened(path, key) as store:
        with capture_logs() as logs:
            assert await store.entries("result", principal=None) == []
            assert await store.entry("result", "long", principal="ann") is None
            assert not await store.renew("result", "long", principal="ann", expires_in=60)
            assert not await store.renew("result", "long", principal="ann", expires_in=60, label=b"x")
    [line] = logs
    assert line["log_level"] == "warning"
    assert "2 were written with a" in line["reason"]
    assert KEY not in str(line)
    async with opened(path, key) as store:
        with capture_logs() as logs:
            assert await got(store) == [None, None]
            assert await store.take("result", "long", principal="ann") is None
            assert await store.put("result", b"mine", principal="ann", expires_in=60) != "long"
    assert len(logs) == 1
    async with opened(path, KEY) as store:
        assert await got(store) == [LONG, PLAIN]  # nothing was lost


@pytest.mark.parametrize("key", [None, OTHER_KEY])
async def test_a_value_without_a_label_is_in_no_listing_of_others_either(tmp_path: Path, key: str | None) -> None:
    path = tmp_path / "a.db"
    async with opened(path, KEY) as store:
        await store.put("grant", b"{}", principal="ann", expires_in=600, handle="a")
    async with opened(path, key) as store:
        await store.put("grant", b"{}", principal="ann", expires_in=600, handle="b")
        assert await store.entry("grant", "a", principal="ann") is None
        assert [entry.handle for entry in await store.entries("grant", principal="ann")] == ["b"]


async def test_small_values_do_not_wait_for_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def pack_once_told(body: bytes) -> tuple[int, bytes]:
        begun.set()
        assert go.wait(90)
        return pack(body)

    async with opened(tmp_path / "a.db", KEY) as store:
        await put_two(store)
        monkeypatch.setattr(wrapping, "pack", pack_once_told)
        large = [
            asyncio.create_task(store.put("result", LONG * 2000, principal="ann", expires_in=600)) for _ in range(4)
        ]
        try:
            with anyio.fail_after(60):
                assert await asyncio.to_thread(begun.wait, 60)
                assert await got(store) == [LONG, PLAIN]
            assert not any(task.done() for task in large)
        finally:
            go.set()
        with anyio.fail_after(60):
            await asyncio.gather(*large)


async def test_who_has_no_key_can_still_drop_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path, KEY) as store:
        await put_two(store)
    async with opened(path, None) as store:
        assert await store.drop("result", "long", principal="ann")
        assert await store.put_if_absent("result", b"new", principal="ann", expires_in=60, handle="short") == b"new"
        assert await got(store) == [None, b"new"]


async def test_what_was_kept_before_there_was_a_key_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path, None) as store:
        await put_two(store)
    async with opened(path, KEY) as store:
        assert await got(store) == [LONG, PLAIN]
        assert [entry.label for entry in await store.entries("result", principal="ann")] == [LABEL, LABEL]
        assert await store.renew("result", "long", principal="ann", expires_in=60)
        # A label is no more readable than it has to be, so the whole has to be put again.
        assert not await store.renew("result", "long", principal="ann", expires_in=60, label=b"new")
        await put_two(store)
    async with opened(path, None) as store:
        assert await got(store) == [None, None]


TAMPERED = {
    "swapped": "UPDATE entry SET number = -number; UPDATE entry SET number = 3 + number",
    "a bit": "UPDATE body SET data = substr(data, 1, 20) || x'ff' || substr(data, 22)",
    "cut": "UPDATE body SET data = substr(data, 1, 10)",
    "nothing": "UPDATE body SET data = x''",
    "size": "UPDATE entry SET size = size + 1",
    "form": "UPDATE entry SET form = 1 - form",
}


@pytest.mark.parametrize("how", TAMPERED)
async def test_what_was_tampered_with_counts_as_missing(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.db"
    async with opened(path, KEY) as store:
        await store.put("result", LONG, principal="ann", expires_in=600, handle="long", label=LABEL)
        await store.put("result", LONG, principal="ann", expires_in=600, handle="short", label=LABEL)
        with closing(sqlite3.connect(path)) as other:
            other.executescript(TAMPERED[how])
        with capture_logs() as logs:
            assert await got(store) == [None, None]
    [line] = logs
    assert line["log_level"] == "warning"
    assert "changed or damaged" in line["reason"]


async def test_a_value_cannot_be_passed_to_another_principal_or_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path, KEY) as store:
        await put_two(store)
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE entry SET principal = 'bob' WHERE handle = 'long'")
            other.execute("UPDATE entry SET kind = 'grant' WHERE handle = 'short'")
            other.commit()
        assert await store.get("result", "long", principal="bob") is None
        assert await store.get("grant", "short", principal="ann") is None
        assert [entry.label for entry in await store.entries("result", principal="bob")] == [b""]


async def test_a_file_that_is_made_anew_has_a_seal_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path, KEY) as store, opened(path, KEY) as other:
        await put_two(store)
        assert await got(other) == [LONG, PLAIN]
        for file in tmp_path.iterdir():
            file.unlink()
        await put_two(store)
        assert await got(store) == [LONG, PLAIN]
        assert await got(other) == [LONG, PLAIN]


def test_every_spelling_of_32_bytes_is_the_same_key_and_texts_are_passphrases() -> None:
    raw = bytes(range(200, 232))
    salt = b"salt" * 4
    spellings = [
        raw.hex(),
        raw.hex().upper() + "\n",
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]
    assert len({Seals(text).of(salt).id for text in spellings}) == 1
    seals = Seals(spellings[0])
    assert seals.of(salt).id != seals.of(b"other").id
    assert seals.of(salt) != Seals("another passphrase").of(salt)
    assert raw.hex() not in repr(seals.of(salt))


def test_names_cannot_run_into_each_other() -> None:
    seal = Seals(KEY).of(b"salt")
    closed = seal.close(b"value", "ab", "c")
    assert seal.open(closed, "ab", "c") == b"value"
    assert closed != seal.close(b"value", "ab", "c")
    for name in (("a", "bc"), ("abc",), ("ab", "c", ""), ()):
        with pytest.raises(Unreadable):
            seal.open(closed, *name)


async def test_the_key_is_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    settings = StoreSettings(path=str(path), key=KEY)
    assert KEY not in repr(settings)
    store = LazyStore(settings)
    handle = await store.put("result", LONG, principal="", expires_in=60)
    await store.close()
    assert PLAIN not in path.read_bytes()
    store = LazyStore(settings)
    assert await store.get("result", handle, principal="") == LONG
    await store.close()
    with pytest.raises(ValidationError):
        StoreSettings(key="short")


# -- the form in which values lie in the file, which no release may change


FIXTURES = Path(__file__).parent / "fixtures"
OLDER = {"passphrase": "a passphrase of an older release", "key": KEY}


def older_file(path: Path, name: str) -> Path:
    """A file as a release of before wrote it, with three sealed values."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FIXTURES / f"sealed_with_a_{name}.sql").read_text())
    return path


@pytest.mark.parametrize("name", OLDER)
async def test_what_an_older_release_sealed_can_be_read(tmp_path: Path, name: str) -> None:
    async with opened(older_file(tmp_path / "a.db", name), OLDER[name]) as store:
        assert await store.get("result", "short", principal="ann") == b"a short value"
        assert await store.get("result", "long", principal="ann") == b"a long value, " * 200
        assert await store.get("grant", "unlabelled", principal="") == b'{"tool":"x"}'
        labels = {entry.handle: entry.label for entry in await store.entries("result", principal="ann")}
        assert labels == {"short": b"a label", "long": b"another label"}


@pytest.mark.parametrize("name", OLDER)
async def test_a_key_belongs_to_the_salt_of_its_file(tmp_path: Path, name: str) -> None:
    """The same secret opens nothing in a file with another salt, so two files never share a key."""
    path = older_file(tmp_path / "a.db", name)
    with closing(sqlite3.connect(path)) as connection:
        (salt,) = connection.execute("SELECT value FROM salt").fetchone()
        connection.execute("UPDATE salt SET value = ?", (bytes(reversed(salt)),))
        connection.commit()
    async with opened(path, OLDER[name]) as store:
        with capture_logs() as logs:
            assert await store.get("result", "short", principal="ann") is None
            assert await store.entries("result", principal="ann") == []
    [line] = logs
    assert "3 were written with another key" in line["reason"]


async def test_every_new_file_has_a_salt_of_its_own(tmp_path: Path) -> None:
    salts, seals = set[bytes](), set[int]()
    for number in range(3):
        path = tmp_path / f"{number}.db"
        async with opened(path, KEY) as store:
            await put_two(store)
        with closing(sqlite3.connect(path)) as connection:
            salts |= {salt for (salt,) in connection.execute("SELECT value FROM salt")}
            seals |= {seal for (seal,) in connection.execute("SELECT seal FROM entry")}
    assert len(salts) == len(seals) == 3
    assert {len(salt) for salt in salts} == {16}


SALT = bytes(range(16))


@pytest.mark.parametrize(
    ("secret", "number", "sealed"),
    [
        (
            "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
            3238669601,
            "0d331f258fa16d2b86a8acbeb57e36898917a17d8e28b00622c2384c2caf7b50da4cb5d26ed17cf969816e",
        ),
        (
            "ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=",
            266698898,
            "f2efd6900656ef0b5aec925bf4fe8da6a64dbdff3bd4eed4eb6770cceeee011474e5c5e764a73d219c9d9e",
        ),
        (
            "a passphrase",
            2536695211,
            "ea3f8d17e74c84b7974a410fcb31c4289460c8cd6c034e666479771bed53691ada317c2375e839ebe28760",
        ),
        (
            "\xe4 long p\xe5ssphrase \ud800",
            3858134926,
            "6a0c0170047667651596c19b1dc8d6077fa52702f75082ac4f001a22c19e836d87547b0cbf3a53dc870bf6",
        ),
    ],
)
def test_the_key_and_the_form_of_a_sealed_value_are_what_they_were(secret: str, number: int, sealed: str) -> None:
    """Known answers: a change of the derivation, the cipher or what it is bound to loses what people have kept."""
    seal = Seals(secret).of(SALT)
    assert seal.id == number
    assert seal.open(bytes.fromhex(sealed), "body", "result", "ann", "h") == b"what was sealed"
    with pytest.raises(Unreadable):
        seal.open(bytes.fromhex(sealed), "body", "result", "bob", "h")
