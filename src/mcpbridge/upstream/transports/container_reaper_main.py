"""Run as a program: wait until the bridge lets go of our standard input or is gone, then remove a container.

    python -I -S container_reaper_main.py ENGINE CONTAINER

The bridge holds the other end of the pipe, so also SIGKILL ends it. The container may just be starting at that moment:
it tries a few times. Standard library only. Also here: how the names of containers show which bridge they are
of, for the bridge that removes those whose reaper was killed as well.
"""

# It loads little, as it waits for as long as the bridge runs:
# ruff: noqa: PTH112, PTH116, PTH123

import hashlib
import os
import subprocess
import sys
import time

PREFIX = "mcpbridge"
ENDED = b"."
"""What the bridge writes when the engine's program has ended: then no container can be on its way any more."""
_LOOKS, _PAUSE = 6, 0.5
"""Looks for a container that is not there, and seconds between two: the engine's program outlives the bridge by a
moment, and its service may take longer."""
_SECONDS = 30.0


def machine() -> str:
    """This machine since its start, and the processes that we see of it: two bridges that can look for each other."""
    facts: list[str] = []
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            with open(path, encoding="ascii") as file:
                facts.append(file.read().strip())
        except (OSError, UnicodeDecodeError):
            facts.append("")
    try:
        facts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        facts.append("")
    if not any(facts):
        import platform

        facts.append(platform.node())
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def name_of(bridge: int, random: str) -> str:
    """The name of a container of this bridge, a process id."""
    return f"{PREFIX}-{bridge}-{_started(bridge)}-{random}"


def is_orphan(name: str) -> bool:
    """Whether the bridge of this container, which ran on this machine, is gone."""
    prefix, _, rest = name.partition("-")
    words = rest.split("-")
    if prefix != PREFIX or len(words) != 3 or not (words[0].isdigit() and words[1].isdigit()):
        return False
    return _started(int(words[0])) != int(words[1])


def _started(pid: int) -> int:
    """When a process started, so that nobody takes another one with its id for it; -1: there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return -1
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except OSError:
        pass
    return 0  # a system that says no more than that it is there


def main() -> None:
    """Wait, then remove."""
    engine, container = sys.argv[1:]
    heard = b""
    while piece := os.read(0, 4096):
        heard += piece
    for _ in range(2 if heard else _LOOKS):
        try:
            listed = _run(engine, "ps", "--all", "--quiet", "--filter", f"name={container}")
            if listed.stdout.strip() or listed.returncode:
                _run(engine, "kill", container)  # `rm` alone would wait 10 s for it to end by itself
                _run(engine, "rm", "--force", container)
            elif heard:
                return
        except (OSError, subprocess.SubprocessError):
            pass
        time.sleep(_PAUSE)


def _run(*argv: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, start_new_session=True
    )


if __name__ == "__main__":
    main()
