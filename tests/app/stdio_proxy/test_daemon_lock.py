"""Who may be the daemon: one, whoever comes at once and whatever was left behind (issue 7)."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpbridge.app.stdio_proxy.daemon_lock import NotPrivate, claim, connect, make_private, socket_path

RACER = """
import sys
from mcpbridge.app.stdio_proxy.daemon_lock import claim
sys.stdin.readline()
claimed = claim(sys.argv[1], "key")
print("won" if claimed else "lost", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Not there yet; a socket's path must be short."""
    path = Path(f"/tmp/mcpb-claim-{secrets.token_hex(4)}/mcpbridge")
    yield path
    subprocess.run(["rm", "-rf", str(path.parent)], check=True)


def test_of_many_that_come_at_once_one_wins(directory: Path) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", RACER, str(directory)]
    racers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(6)]
    try:
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        outcomes = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
        assert sorted(outcomes) == ["lost"] * 5 + ["won"]
        winner = racers[outcomes.index("won")]
        winner.kill()
        winner.wait()
        claimed = claim(directory, "key")
        assert claimed is not None, "the socket that it left is stale"
        claimed.close()
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_who_claims_is_reached_at_once_and_what_is_said_waits(directory: Path) -> None:
    claimed = claim(directory, "key")
    assert claimed is not None
    connection = connect(socket_path(directory, "key"))
    assert connection is not None
    connection.send(b"hello")
    taken, _ = claimed.listener.accept()
    assert taken.recv(100) == b"hello"
    assert claim(directory, "key") is None
    other = claim(directory, "other")
    assert other is not None, "another configuration"
    for one in (connection, taken, claimed, other):
        one.close()
    assert connect(socket_path(directory, "key")) is None


def test_the_lock_lives_as_long_as_any_copy_of_it(directory: Path) -> None:
    """The daemon inherits it from who claimed it."""
    claimed = claim(directory, "key")
    assert claimed is not None
    copy = os.dup(claimed.lock_fd)
    claimed.close()
    assert claim(directory, "key") is None
    os.close(copy)
    again = claim(directory, "key")
    assert again is not None
    again.close()


def test_a_lock_file_that_was_removed_makes_no_second_daemon(directory: Path) -> None:
    """By a program that cleans up; the daemon still listens."""
    claimed = claim(directory, "key")
    assert claimed is not None
    (directory / "daemon-key.lock").unlink()
    assert claim(directory, "key") is None
    claimed.close()
    again = claim(directory, "key")
    assert again is not None
    again.close()


def test_a_directory_that_others_may_use_is_refused(directory: Path) -> None:
    make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o770)
    with pytest.raises(NotPrivate, match="only this user can use"):
        claim(directory, "key")
    directory.chmod(0o700)
    linked = directory.parent / "linked"
    linked.symlink_to(directory)
    with pytest.raises(NotPrivate):
        claim(linked, "key")


def test_nobody_else_can_connect(directory: Path) -> None:
    claimed = claim(directory, "key")
    assert claimed is not None
    assert Path(socket_path(directory, "key")).stat().st_mode & 0o777 == 0o600
    assert (directory / "daemon-key.lock").stat().st_mode & 0o777 == 0o600
    claimed.close()


def test_a_socket_that_nobody_listens_on_is_nobody(directory: Path) -> None:
    make_private(directory)
    path = socket_path(directory, "key")
    assert connect(path) is None
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    assert connect(path) is None
    claimed = claim(directory, "key")
    assert claimed is not None
    claimed.close()


def test_a_path_that_is_too_long_is_an_error(directory: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        claim(directory.parent / ("x" * 100), "key")
