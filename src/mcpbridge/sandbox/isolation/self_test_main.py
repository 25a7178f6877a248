"""Run as a program inside a sandbox: try everything that must not work, and report what did.

    python self_test_main.py < WORLD

`WORLD` is JSON: what lies outside, see `self_test.py`. The answer is a JSON object on standard output: of each
property, what got through; an empty list is what a sandbox should give. It leaves a process behind that must not
survive. Standard library only.
"""

import errno
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NONE_LEFT = 75
"""Exit code: it could not be tried, because other processes of the user have taken the places."""
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_MANY = 56
_AFTER = 2.0
"""Seconds that a connection may take to fail."""


def _tried(got_through: "list[str]", name: str, attempt: "Callable[[], Any]") -> None:
    """Note the attempt if it does not fail. `MemoryError` is a failure too."""
    try:
        if attempt() is not False:
            got_through.append(name)
    except (OSError, MemoryError, ValueError, ImportError):
        pass


def _sends(family: int, kind: int, address: "Any", text: bytes) -> None:
    with socket.socket(family, kind) as opened:
        opened.settimeout(_AFTER)
        opened.connect(address)
        opened.send(text)


def _by_datagram_pair(path: str) -> None:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with first, second:
        first.connect(path)


def _network(world: "dict[str, Any]") -> "list[str]":
    found: list[str] = []
    host, port = "127.0.0.1", int(world["port"])
    text = str(world["secret"]).encode()
    _tried(found, "TCP", lambda: _sends(socket.AF_INET, socket.SOCK_STREAM, (host, port), text))
    # That a datagram was sent says nothing: the other side tells whether it arrived.
    _tried([], "UDP", lambda: _sends(socket.AF_INET, socket.SOCK_DGRAM, (host, int(world["datagrams"])), text))
    if hasattr(socket, "AF_UNIX"):
        _tried(found, "a Unix socket", lambda: _sends(socket.AF_UNIX, socket.SOCK_STREAM, world["socket"], text))
        abstract = "\0" + str(world["abstract"])
        _tried(found, "an abstract socket", lambda: _sends(socket.AF_UNIX, socket.SOCK_STREAM, abstract, text))
        _tried(found, "a pair of sockets", lambda: _by_datagram_pair(str(world["socket"])))
    return found


def _files(world: "dict[str, Any]") -> "list[str]":
    found: list[str] = []
    outside, file = Path(world["outside"]), Path(world["file"])
    _tried(found, "reading outside", file.read_bytes)
    _tried(found, "listing outside", lambda: list(outside.iterdir()))
    link = Path("way-out")
    _tried([], "", lambda: link.symlink_to(file))
    _tried(found, "reading by a link", link.read_bytes)
    for password in ("/etc/shadow", "/etc/passwd"):
        _tried(found, f"reading {password}", Path(password).read_bytes)
    # Written files are looked at from outside: where the view is another one, something may be written to nobody.
    for name in ("new", "file"):
        _tried([], "", lambda name=name: (outside / name).write_text("canary"))
    _tried([], "", lambda: os.truncate(file, 0))
    _tried([], "", lambda: file.chmod(0o700))
    _tried([], "", lambda: os.link(file, outside / "linked"))
    _tried([], "", lambda: file.rename(outside / "renamed"))
    _tried([], "", (outside / "made").mkdir)
    return found


def _environment(world: "dict[str, Any]") -> "list[str]":
    return [f"the variable {name}" for name in sorted(set(os.environ) - set(world["variables"]))]


def _processes(world: "dict[str, Any]") -> "list[str]":
    found: list[str] = []
    other, secret = int(world["process"]), str(world["secret"]).encode()
    for name in ("environ", "cmdline"):
        _tried(
            found, f"another process's {name}", lambda name=name: secret in Path(f"/proc/{other}/{name}").read_bytes()
        )
    _tried([], "", lambda: os.kill(other, signal.SIGKILL))
    if hasattr(os, "pidfd_open"):
        _tried([], "", lambda: signal.pidfd_send_signal(os.pidfd_open(other), signal.SIGKILL))
    return found


def _forks(most: int) -> "list[str]":
    """Start many more than `most` processes that wait for the end of this function.

    Not just one more: where the kernel counts all processes of a user, the others of him come and go meanwhile.
    """
    read, write = os.pipe()
    started: list[int] = []
    for _ in range(most + _MANY):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        started.append(pid)
    os.close(write)
    os.close(read)
    for pid in started:
        os.waitpid(pid, 0)
    return [f"{len(started)} processes beside the first"] if len(started) == most + _MANY else []


def _memory(most: int) -> "list[str]":
    found: list[str] = []
    _tried(found, "more memory in one process", lambda: mmap.mmap(-1, most + (most >> 2), flags=_PRIVATE))
    _tried(found, "memory that is no process's", lambda: hasattr(os, "memfd_create") and os.memfd_create("canary"))
    return found


def _leave_behind() -> None:
    """A process in a session of its own, if that can be had, that holds no stream and ends by itself much later."""
    try:
        if pid := os.fork():
            os.waitpid(pid, 0)  # until it has left: what ends with us would be ended with us
            return
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork():
        os._exit(0)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(120)
    signal.pause()


def _together(each: int, children: int) -> None:
    """Hold memory in several processes, in each less than is allowed to all; the system is to end this."""
    try:
        for _ in range(children):
            if os.fork() == 0:
                break
    except OSError:
        os._exit(NONE_LEFT)
    held = bytearray(b"\1") * each
    signal.alarm(60)
    signal.pause()
    held.clear()


def main() -> None:
    """Try, and report."""
    world: dict[str, Any] = json.load(sys.stdin)
    if world.get("together"):
        _together(int(world["together"]), int(world["children"]))
        return
    answer = {
        "net": _network(world),
        "fs": _files(world),
        "env": _environment(world),
        "memory": _memory(int(world["memory"])),
        "pids": _forks(int(world["pids"])),
        "proc": _processes(world),
    }
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    _leave_behind()


if __name__ == "__main__":
    main()
