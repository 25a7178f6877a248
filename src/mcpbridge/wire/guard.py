"""Run as a program: outlive the bridge by a moment, to end the servers it left behind.

    python -I -S guard.py

Standard input gets `+PID COOKIE` when a server starts and `-PID` when it has ended. At end of file, so
also when the bridge was killed with SIGKILL, every process group still listed gets SIGTERM, then SIGKILL;
then whatever carries one of the cookies in its environment (descendants that left their group) goes too.
Standard library only.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

COOKIE_NAME = "MCPBRIDGE_COOKIE"
"""Environment variable that marks a server and all its descendants."""

_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""


def carriers(cookies: set[str]) -> list[int]:
    """Ids of the processes whose environment carries one of the cookies. Empty where there is no /proc."""
    wanted = {f"{COOKIE_NAME}={cookie}".encode() for cookie in cookies}
    found: list[int] = []
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
            if not wanted.isdisjoint(environment.split(b"\0")):
                found.append(int(entry))
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


def main() -> None:
    """Watch the pipe; end what is left when it closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    alive: dict[int, str] = {}
    for line in sys.stdin:
        if line.startswith("+"):
            pid, cookie = line[1:].split()
            alive[int(pid)] = cookie
        else:
            alive.pop(int(line[1:]), None)
    if not alive:
        return
    for pid in alive:
        _signal(os.killpg, pid, signal.SIGTERM)
    time.sleep(_GRACE)
    for pid in alive:
        _signal(os.killpg, pid, signal.SIGKILL)
    kill_carriers(set(alive.values()))


if __name__ == "__main__":
    main()
