"""What servers offered last, on disk: whole or not at all, for one server as it is started now, and without secrets."""

import json
import os
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.upstream import manifest as module
from mcpbridge.upstream.manifest import Known, Manifest, Memory, identity_of
from mcpbridge.upstream.settings import ServerSettings

KNOWN = Known(
    {"tools": (b'{"name":"a","n":1e400}', b'{"name": "b"}'), "prompts": ()},
    {"tools": 5000},
    False,
    "2025-11-25",
    {"tools": {"listChanged": True}, "experimental": {"x": [1, None, "é"]}},
    "be kind",
    "A server",
)


def server(**how: Any) -> ServerSettings:
    return ServerSettings.model_validate({"command": "x", **how})


def remembered(directory: Path, **how: Any) -> Memory:
    """What a bridge that starts now remembers."""
    return Manifest(directory).of("up", server(**how))


async def written(manifest: Manifest) -> None:
    """Everything is on disk."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manifest.run)
        await anyio.sleep(0)
        tasks.cancel_scope.cancel()


async def kept(directory: Path, known: Known = KNOWN, **how: Any) -> None:
    """A bridge saw the server like this, and is over."""
    manifest = Manifest(directory)
    manifest.of("up", server(**how)).keep(known)
    await written(manifest)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.server"))


# -- what is kept


async def test_all_that_is_needed_to_be_listed_comes_back(tmp_path: Path) -> None:
    began = time.time()
    await kept(tmp_path / "deep" / "down")
    memory = remembered(tmp_path / "deep" / "down")
    assert memory.known == KNOWN
    assert began - 1 <= memory.changed <= memory.seen + 1 <= time.time() + 2, "times of files come in steps"


async def test_nothing_is_known_and_nothing_made_at_first(tmp_path: Path) -> None:
    directory = tmp_path / "none"
    memory = remembered(directory)
    assert (memory.known, memory.seen) == (None, 0.0)
    assert not directory.exists()


async def test_a_server_that_is_as_it_was_costs_no_writing(tmp_path: Path) -> None:
    await kept(tmp_path)
    [file] = files(tmp_path)
    os.utime(file, (1.0, 1.0))
    inode = file.stat().st_ino
    assert remembered(tmp_path).seen == 1.0
    await kept(tmp_path)
    assert file.stat().st_ino == inode
    assert remembered(tmp_path).seen > time.time() - 60


async def test_what_is_kept_is_written_while_the_bridge_runs_and_by_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.01)
    manifest = Manifest(tmp_path)
    memory = manifest.of("up", server())
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manifest.run)
            memory.keep(Known({}, {}, False, "2024-11-05", {}))
            memory.keep(KNOWN)
            assert manifest.of("up", server()).known == KNOWN, "also before it is written"
            while remembered(tmp_path).known != KNOWN:
                await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
    assert len(files(tmp_path)) == 1


async def test_whenever_the_end_comes_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the turn in which the writing was to begin."""
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.0)
    for turns in range(10):
        directory = tmp_path / str(turns)
        manifest = Manifest(directory)
        manifest.of("up", server()).keep(KNOWN)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manifest.run)
            for _ in range(turns):
                await anyio.sleep(0)
            tasks.cancel_scope.cancel()
        assert remembered(directory).known == KNOWN


async def test_a_time_of_the_future_tells_nothing(tmp_path: Path) -> None:
    await kept(tmp_path)
    [file] = files(tmp_path)
    os.utime(file, (time.time() + 9e6,) * 2)
    assert remembered(tmp_path).seen == 1.0


# -- for which server


@pytest.mark.parametrize(
    "other",
    [
        {"command": "y"},
        {"args": ["a", "c"]},
        {"env": {"TOKEN": "two"}},
        {"env": {"TOKEN": "one", "MORE": ""}},
        {"cwd": "/"},
        {"inherit_env": True},
        {"era": "legacy"},
        {"share": "session"},
        {"questions": "never"},
    ],
)
async def test_another_way_of_starting_is_another_server(tmp_path: Path, other: dict[str, Any]) -> None:
    how = {"args": ["a", "b"], "env": {"TOKEN": "one"}}
    await kept(tmp_path, **how)
    assert remembered(tmp_path, **{**how, **other}).known is None
    assert remembered(tmp_path, **how).known == KNOWN


async def test_what_is_made_of_a_server_here_does_not_make_it_another_one(tmp_path: Path) -> None:
    await kept(tmp_path)
    how = {"tools": {"include": ["a*"]}, "call_timeout": 5, "start": "eager", "idle_stop": 5, "tags": ["t"]}
    assert remembered(tmp_path, **how).known == KNOWN
    assert Manifest(tmp_path).of("renamed", server()).known == KNOWN


async def test_headers_tell_servers_apart(tmp_path: Path) -> None:
    def remote(token: str) -> ServerSettings:
        return ServerSettings.model_validate({"url": "http://localhost/", "headers": {"Authorization": token}})

    manifest = Manifest(tmp_path)
    manifest.of("up", remote("one")).keep(KNOWN)
    await written(manifest)
    assert Manifest(tmp_path).of("up", remote("one")).known == KNOWN
    assert Manifest(tmp_path).of("up", remote("two")).known is None


# -- who can read it


async def test_neither_names_nor_contents_tell_of_a_secret(tmp_path: Path) -> None:
    """A short secret could be guessed from a plain hash of it: the same settings are named otherwise elsewhere."""
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        await kept(directory, env={"PIN": "1234-secret"}, args=["--token", "1234-secret"])
        for file in directory.iterdir():
            assert b"secret" not in file.read_bytes()
            assert b"PIN" not in file.read_bytes()
    assert files(here)[0].name != files(there)[0].name


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are of POSIX")
async def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    await kept(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}


def test_bridges_that_start_together_agree_on_the_key(tmp_path: Path) -> None:
    def keep(number: int) -> None:
        anyio.run(lambda: kept(tmp_path, args=[str(number)]))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(keep, range(8)))
    assert [remembered(tmp_path, args=[str(number)]).known for number in range(8)] == [KNOWN] * 8
    assert not list(tmp_path.glob("*.draft"))


# -- what cannot be read


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_was_damaged_is_as_good_as_none(tmp_path: Path, data: st.DataObject) -> None:
    directory = tmp_path / "damaged"
    if not directory.exists():
        anyio.run(lambda: kept(directory))
    [file] = files(directory)
    whole = module._encode(module._Entry(module.FORMAT, 1.0, KNOWN))
    kind = data.draw(st.sampled_from(["cut", "replaced", "other"]))
    if kind == "cut":
        file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    elif kind == "replaced":
        at = data.draw(st.integers(0, len(whole) - 1))
        file.write_bytes(whole[:at] + data.draw(st.binary(min_size=1, max_size=9)) + whole[at + 1 :])
    else:
        file.write_bytes(data.draw(st.binary(max_size=200)))
    known = remembered(directory).known
    assert known is None or isinstance(known, Known)
    assert kind == "replaced" or known is None


@pytest.mark.parametrize("damage", ["format", "size", "directory", "key"])
async def test_what_cannot_be_used_is_not_used_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    await kept(tmp_path)
    [file] = files(tmp_path)
    with monkeypatch.context() as patch:
        match damage:
            case "format":
                patch.setattr(module, "FORMAT", module.FORMAT + 1)
                file.rename(tmp_path / f"{Manifest(tmp_path).fingerprint(server())}.server")
            case "size":
                patch.setattr(module, "LARGEST", 20)
            case "directory":
                file.unlink()
                file.mkdir()
            case _:
                (tmp_path / "key").write_bytes(b"short")
        assert remembered(tmp_path).known is None
    if damage == "directory":
        file.rmdir()
    await kept(tmp_path)
    assert remembered(tmp_path).known == KNOWN


async def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await kept(tmp_path / "file")
    assert remembered(tmp_path / "file").known is None


async def test_what_cannot_be_written_of_one_server_is_no_harm_to_others(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    odd = Known({}, {}, False, "", {"x": 2**80})
    manifest.of("odd", server(args=["odd"])).keep(odd)
    manifest.of("up", server()).keep(KNOWN)
    await written(manifest)
    assert remembered(tmp_path, args=["odd"]).known is None
    assert remembered(tmp_path).known == KNOWN


# -- what is not needed any more


async def test_what_nobody_used_for_long_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.0)
    for name in ("old", "new", "used"):
        await kept(tmp_path, args=[name])
    by_name = {
        name: tmp_path / f"{Manifest(tmp_path).fingerprint(server(args=[name]))}.server"
        for name in ("old", "new", "used")
    }
    left = tmp_path / "0.draft"
    left.write_bytes(b"")
    long_ago = time.time() - module.KEPT_SECONDS - 10
    for file in (by_name["old"], by_name["used"], left):
        os.utime(file, (long_ago, long_ago))
    manifest = Manifest(tmp_path)
    manifest.of("used", server(args=["used"]))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manifest.run)
            manifest.of("another", server(args=["another"])).keep(KNOWN)
            while by_name["old"].exists() or left.exists():
                await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
    assert by_name["new"].exists()
    assert remembered(tmp_path, args=["used"]).seen == pytest.approx(long_ago, abs=1), "used, but not seen"
    assert by_name["used"].stat().st_atime > long_ago + 60


async def test_there_are_not_more_files_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(module, "MOST_FILES", 3)
    for number in range(5):
        await kept(tmp_path, args=[str(number)])
        file = tmp_path / f"{Manifest(tmp_path).fingerprint(server(args=[str(number)]))}.server"
        os.utime(file, (time.time() - 100 + number,) * 2)
    manifest = Manifest(tmp_path)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manifest.run)
            manifest.of("another", server(args=["another"])).keep(KNOWN)
            while len(files(tmp_path)) > 3:
                await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
    assert remembered(tmp_path, args=["another"]).known == KNOWN
    assert remembered(tmp_path, args=["4"]).known == KNOWN
    assert remembered(tmp_path, args=["0"]).known is None


# -- what else is kept there


async def test_what_is_put_aside_comes_back_under_its_key_alone(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    assert manifest.aside("a") == b""
    manifest.put_aside("a", b"one")
    manifest.put_aside("a", b"two")
    assert manifest.aside("a") == b"two", "also before it is written"
    await written(manifest)
    assert Manifest(tmp_path).aside("a") == b"two"
    assert Manifest(tmp_path).aside("b") == b""
    assert remembered(tmp_path).known is None


@pytest.mark.parametrize(
    "how",
    [
        {"command": "x", "args": ["a", "é"], "env": {"A": "1"}, "cwd": "/tmp/x", "inherit_env": ["P"], "era": "modern"},
        {"command": "x", "inherit_env": True, "share": "session", "roots": ["/tmp"], "questions": "never"},
        {"command": "x", "may_ask": ["sampling"]},
        {"url": "https://example.com/mcp", "headers": {"A": "b"}, "auth": "none", "transport": "sse"},
        {"url": "https://example.com/mcp", "auth": {"scopes": ["a"], "client_id": "c", "client_secret": "s"}},
        {"url": "https://example.com/mcp", "tls": {"ca": "/x.pem"}, "proxy": "http://proxy:1"},
        {"image": "ghcr.io/x/y", "container": {"memory": "512MiB"}},
    ],
    ids=str,
)
def test_what_a_server_is_known_by_is_what_its_settings_say(how: dict[str, Any]) -> None:
    """In the spelling of `model_dump`: what was kept under it by a former release is known still."""
    found = ServerSettings.model_validate(how)
    _, described = json.loads(identity_of(found))
    assert described.keys() > {"command", "url", "auth", "env"}
    assert described == found.model_dump(mode="json", include=set(described))
