"""Run as a program: outlive the bridge by a moment, to end the servers it left behind.

    python -I -S orphan_reaper_main.py BRIDGE_PID

Standard input gets `+COOKIE 0` before a server is started, `+COOKIE PID` when it was, and `-COOKIE` when it has ended.
At end of file, so also when the bridge was killed with SIGKILL, every process group still listed gets SIGTERM, then
SIGKILL; then whatever carries one of the cookies in its environment (descendants that left their group, or a server
that was just being started) goes too.

There are two of these: the first forwards to the second all that it gets. Should it be killed together with the bridge,
the second ends what is left. Standard library only.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

COOKIE_NAME = "MCPBRIDGE_COOKIE"
"""Environment variable that marks a server and all its descendants."""

ORPHAN_TERM_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL of servers whose bridge is gone. A bridge that runs grants more (`TERM_GRACE` of
`process.py`), since it also waits for what they write at their end."""
_TOGETHER = 10.0
"""Seconds after the end of the first guard within which the end of the bridge is the second one's business."""


def carriers(cookies: set[str]) -> dict[int, str]:
    """The processes whose environment carries one of the cookies, and which. Empty where there is no /proc."""
    wanted = {f"{COOKIE_NAME}={cookie}".encode(): cookie for cookie in cookies}
    found: dict[int, str] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return found
    for entry in entries:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    environment = file.read()
            except OSError:
                continue
            if COOKIE_NAME.encode() in environment:
                for variable in wanted.keys() & environment.split(b"\0"):
                    found[int(entry)] = wanted[variable]
    return found


def kill_carriers(cookies: set[str]) -> int:
    """Kill every process that carries one of the cookies, again until none is left. Returns how many were killed."""
    killed = 0
    for _ in range(10):  # a process may fork while we look; ten rounds are bounded
        pids = carriers(cookies)
        for pid in pids:
            _signal(os.kill, pid, signal.SIGKILL)
        killed += len(pids)
        if not pids:
            break
        time.sleep(0.01)
    return killed


def _signal(send: Callable[[int, int], None], pid: int, number: int) -> None:
    with suppress(OSError):  # it is gone already
        send(pid, number)


def _to_nobody(line: str) -> None:
    """There is no other guard."""


def _listed(lines: Iterable[str], tell: Callable[[str], None] = _to_nobody) -> dict[str, int]:
    """What is listed at the end: cookies and process ids, 0 where that was not known yet."""
    alive: dict[str, int] = {}
    for line in lines:
        tell(line)
        if line.startswith("+") and line.endswith("\n"):
            cookie, pid = line[1:].split()
            alive[cookie] = int(pid)
        else:
            alive.pop(line[1:].strip(), None)
    return alive


def _end(alive: dict[str, int]) -> None:
    groups = [pid for pid in alive.values() if pid]
    for pid in groups:
        _signal(os.killpg, pid, signal.SIGTERM)
    time.sleep(ORPHAN_TERM_GRACE)
    for pid in groups:
        _signal(os.killpg, pid, signal.SIGKILL)
    kill_carriers(set(alive))


class _Bridge:
    """The process that all this is about."""

    def __init__(self, pid: int) -> None:
        self._descriptor = -1
        self._pid = pid
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._descriptor = os.pidfd_open(pid)

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so soon."""
        if self._descriptor >= 0:
            return bool(select.select([self._descriptor], [], [], seconds)[0])
        try:  # it cannot be waited for
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        return False


def _with_second(bridge: _Bridge) -> Callable[[str], None]:
    """Start the other guard; returns what tells it a line."""
    theirs, ours = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        os.close(0)  # the end of the bridge is for the first one to hear
        _second(theirs, bridge)
        os._exit(0)
    os.close(theirs)

    def tell(line: str) -> None:
        with suppress(OSError):  # it was killed: then there is this one
            os.write(ours, line.encode())

    return tell


def _second(descriptor: int, bridge: _Bridge) -> None:
    """The other guard. Process ids are nothing to go by any more: the first one heard of their ends, and is gone."""
    with open(descriptor) as lines:
        alive = _listed(lines)
    if alive and bridge.ends_within(_TOGETHER):
        kill_carriers(set(alive))


def main() -> None:
    """Watch the pipe; end what is left when it closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tell = _with_second(_Bridge(int(sys.argv[1]))) if hasattr(os, "fork") else _to_nobody
    alive = _listed(sys.stdin, tell)
    if alive:
        _end(alive)
    for cookie in alive:
        tell(f"-{cookie}\n")


if __name__ == "__main__":
    main()
