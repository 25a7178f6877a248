"""How `mcpbridge status` finds the bridges of this user."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from mcpbridge.admin.status_socket import Status, ask_all, publish, runtime_directory
from mcpbridge.errors import ConfigError


async def ask(directory: Path) -> list[object]:
    return list(await anyio.to_thread.run_sync(ask_all, directory))


async def test_a_running_bridge_is_found_and_an_ended_one_is_not(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    assert await ask(directory) == []
    async with publish(lambda: {"pid": 1, "text": "ü" * 100_000}, directory):
        assert await ask(directory) == [{"pid": 1, "text": "ü" * 100_000}]
        assert await ask(directory) != []
    assert await ask(directory) == []
    assert list(directory.iterdir()) == []


async def test_only_the_user_may_ask(tmp_path: Path) -> None:
    async with publish(dict, tmp_path / "run"):
        [path] = (tmp_path / "run").iterdir()
        assert path.name == f"{os.getpid()}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_directory_that_is_open_to_others_is_not_used(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(0o755)
    async with publish(dict, directory):  # the bridge runs all the same
        assert list(directory.iterdir()) == []
    with pytest.raises(ConfigError, match="only this user can use"):
        ask_all(directory)


async def test_a_link_to_a_directory_is_not_used(tmp_path: Path) -> None:
    """Someone else could turn it to a place of their own."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    async with publish(dict, tmp_path / "run"):
        assert list((tmp_path / "real").iterdir()) == []


async def test_a_socket_that_a_killed_bridge_left_is_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "77.sock"))
    assert await ask(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


async def test_a_bridge_that_answers_nonsense_is_listed_as_such(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    listener = await anyio.create_unix_listener(tmp_path / "77.sock")

    async def nonsense(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.send(b"{")

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, nonsense)
        assert await ask(tmp_path) == [{"pid": 77, "error": "it does not answer"}]
        tasks.cancel_scope.cancel()


async def test_who_connects_and_leaves_disturbs_nobody(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    async with publish(lambda: {"filling": "x" * 5_000_000}, directory):
        [path] = directory.iterdir()
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as hasty:
                hasty.connect(str(path))
        assert len(await ask(directory)) == 1


def test_the_directory_is_the_sessions_own_if_there_is_one(tmp_path: Path) -> None:
    assert runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "mcpbridge"
    fallback = runtime_directory({})
    assert fallback.name == f"mcpbridge-{os.getuid()}"
    assert runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}) == fallback


@pytest.mark.parametrize("wrong", [lambda: {}["x"], lambda: {"a": object()}])
async def test_a_status_that_cannot_be_told_ends_nothing(wrong: Callable[[], Status], tmp_path: Path) -> None:
    async with publish(wrong, tmp_path / "run"):
        for _ in range(2):
            [told] = await ask(tmp_path / "run")
            assert told == {"pid": os.getpid(), "error": "it cannot tell how it is; see its log"}
