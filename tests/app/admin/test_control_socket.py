"""How commands find the bridges of this user, and talk to them."""

import asyncio
import json
import os
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from mcpbridge.app.admin import control_socket
from mcpbridge.app.admin.control_client import LARGEST_REQUEST, Document, ask_all
from mcpbridge.app.admin.control_socket import Answers, publish
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.errors import ConfigError
from support.harness import eventually

NOTHING = {"status": lambda _: {}}


async def ask(directory: Path) -> list[object]:
    return list(await anyio.to_thread.run_sync(ask_all, directory))


async def test_a_running_bridge_is_found_and_an_ended_one_is_not(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    assert await ask(directory) == []
    async with publish({"status": lambda _: {"pid": 1, "text": "ü" * 100_000}}, directory):
        assert await ask(directory) == [{"pid": 1, "text": "ü" * 100_000}]
        assert await ask(directory) != []
    assert await ask(directory) == []
    assert list(directory.iterdir()) == []


async def test_only_the_user_may_ask(tmp_path: Path) -> None:
    async with publish(NOTHING, tmp_path / "run"):
        [path] = (tmp_path / "run").iterdir()
        assert path.name == f"{os.getpid()}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_directory_that_is_open_to_others_is_not_used(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(0o755)
    async with publish(NOTHING, directory):  # the bridge runs all the same
        assert list(directory.iterdir()) == []
    with pytest.raises(ConfigError, match="only this user can use"):
        ask_all(directory)


async def test_a_link_to_a_directory_is_not_used(tmp_path: Path) -> None:
    """Someone else could turn it to a place of their own."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    async with publish(NOTHING, tmp_path / "run"):
        assert list((tmp_path / "real").iterdir()) == []


async def test_a_socket_that_a_killed_bridge_left_is_removed(tmp_path: Path) -> None:
    """One whose process lives is about to listen, and stays."""
    tmp_path.chmod(0o700)
    async with await anyio.open_process(["true"]) as process:
        await process.wait()
    for number in (process.pid, os.getpid()):
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(tmp_path / f"{number}.sock"))
    assert await ask(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == [f"{os.getpid()}.sock"]


async def test_the_sockets_of_clients_are_not_asked(tmp_path: Path) -> None:
    """They stand in the same directory."""
    tmp_path.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "daemon-1234.sock"))
        assert await ask(tmp_path) == []
        assert (tmp_path / "daemon-1234.sock").exists()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"{", "its answer cannot be read"),
        (b"[" * 100_000, "its answer cannot be read"),
        (b"[]", "its answer cannot be read"),
        (b"", "it ended before it had answered"),
        (b" " * (16 * 1024**2 + 1), "its answer is larger than 16 MiB"),
    ],
)
async def test_a_bridge_that_answers_nonsense_is_listed_as_such(tmp_path: Path, said: bytes, told: str) -> None:
    tmp_path.chmod(0o700)
    listener = await anyio.create_unix_listener(tmp_path / "77.sock")

    async def nonsense(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError):  # nobody takes all of what is too large
                await stream.send(said)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, nonsense)
        assert await ask(tmp_path) == [{"pid": 77, "code": "silent", "error": told}]
        tasks.cancel_scope.cancel()


async def test_who_connects_and_leaves_disturbs_nobody(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    async with publish({"status": lambda _: {"filling": "x" * 5_000_000}}, directory):
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


@pytest.mark.parametrize("wrong", [lambda _: {}["x"], lambda _: {"a": object()}])
async def test_a_status_that_cannot_be_told_ends_nothing(wrong: Callable[[Document], Document], tmp_path: Path) -> None:
    async with publish({"status": wrong}, tmp_path / "run"):
        for _ in range(2):
            [told] = await ask(tmp_path / "run")
            assert told == {"pid": os.getpid(), "error": "it cannot report its status; see its log"}


async def cancelled_itself(_: Document) -> Document:
    """It waits for what somebody of its own cancelled."""
    work = asyncio.ensure_future(asyncio.sleep(10, {}))
    work.cancel()
    return await work


async def cancels_its_task(_: Document) -> Document:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return {}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (cancelled_itself, "it cannot report its status; see its log"),
        (cancels_its_task, "it ended before it had answered"),
    ],
)
async def test_an_answer_that_is_cancelled_from_within_ends_nothing(
    tmp_path: Path, answer: Callable[[Document], Awaitable[Document]], told: str
) -> None:
    """It would pass for the cancellation of all answers, and end the bridge without a word."""
    ends: list[str] = []
    async with publish({"status": answer}, tmp_path / "run"):
        for _ in range(2):
            [said] = await ask(tmp_path / "run")
            assert cast("Document", said)["error"] == told
        ends.append("in order")
    assert ends == ["in order"], "the body came to its end"


async def said_to(directory: Path, *pieces: bytes, ends: bool = False) -> Any:
    """What the bridge says to one who sends this."""
    [path] = directory.iterdir()
    async with await anyio.connect_unix(path) as stream:
        for piece in pieces:
            await stream.send(piece)
        if ends:
            await stream.send_eof()
        received = b""
        with anyio.fail_after(60):
            async for chunk in stream:
                received += chunk
    return json.loads(received)


async def double(request: Document) -> Document:
    return {"twice": str(request["word"]) * 2}


ANSWERS: Answers = {"status": lambda _: {"is": "well"}, "double": double}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has something to say is too late, also on a busy machine."""
    monkeypatch.setattr(control_socket, "_TIME_TO_ASK", 60)


@pytest.mark.usefixtures("patient")
async def test_a_request_is_one_line_and_gets_one_document(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    async with publish(ANSWERS, directory):
        assert await said_to(directory, b'{"do":"double","word":"ab"}\n') == {"twice": "abab"}
        assert await said_to(directory, b'{"do":"dou', b'ble","word":"c"}\n{"do":"status"}\n') == {"twice": "cc"}
        assert await said_to(directory, b'{"do":"double","word":"d"}', ends=True) == {"twice": "dd"}
        request = {"do": "double", "word": "e"}
        assert await anyio.to_thread.run_sync(ask_all, directory, request) == [{"twice": "ee"}]


@pytest.mark.usefixtures("patient")
async def test_a_request_of_the_largest_size_is_taken(tmp_path: Path) -> None:
    """Promise of LARGEST_REQUEST, which commands keep to."""
    request = json.dumps({"do": "double", "word": ""}).encode()
    word = "x" * (LARGEST_REQUEST - len(request))
    request = request.replace(b'""', f'"{word}"'.encode())
    async with publish(ANSWERS, tmp_path / "run"):
        assert await said_to(tmp_path / "run", request + b"\n") == {"twice": word * 2}


async def test_who_says_nothing_is_told_the_status(tmp_path: Path) -> None:
    """Commands of releases that knew nothing else only read."""
    directory = tmp_path / "run"
    async with publish(ANSWERS, directory):
        assert await said_to(directory) == {"is": "well"}
        assert await said_to(directory, ends=True) == {"is": "well"}
        assert await said_to(directory, b"\n") == {"is": "well"}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense\n", "invalid"),
        (b"[1]\n", "invalid"),
        (b"x" * 100_000 + b"\n", "invalid"),
        (b"[" * 60_000 + b"\n", "invalid"),
        (b'{"do":"fly"}\n', "unsupported"),
        (b"{}\n", "unsupported"),
    ],
)
async def test_what_is_no_request_is_told_so(line: bytes, code: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    async with publish(ANSWERS, directory):
        assert (await said_to(directory, line))["code"] == code


async def test_a_bridge_of_an_older_release_answers_before_it_is_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    listener = await anyio.create_unix_listener(tmp_path / "77.sock")

    async def status(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.send(b'{"pid": 77}')

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, status)
        for _ in range(5):
            assert await ask(tmp_path) == [{"pid": 77}]
        tasks.cancel_scope.cancel()


async def test_who_connects_while_it_ends_leaves_no_trace(tmp_path: Path) -> None:
    """`mcpbridge restart` looks again and again, also in the moment in which the socket is given up."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    for _ in range(20):
        async with publish(NOTHING, tmp_path / "run"):
            [path] = (tmp_path / "run").iterdir()
            await anyio.sleep(0)
            with socket.socket(socket.AF_UNIX) as hasty:
                hasty.connect(str(path))
    await anyio.sleep(0)
    assert complaints == []


async def test_a_socket_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    async with publish({"status": lambda _: {"is": "well"}}, directory, look_every=0.01):
        shutil.rmtree(directory)

        async def told() -> list[object]:
            return await ask(directory)

        assert await eventually(told, bool) == [{"is": "well"}]
    assert list(directory.iterdir()) == []
