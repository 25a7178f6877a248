"""Record a run of `mcpbridge demo` at a terminal of its own, and write it as an animated picture.

    python scripts/pictures/record_demo.py docs/images/demo.svg

The question in the sixth scene is answered with `y`. Pauses of the run are shortened, and after each scene there is
time to read; what is shown is otherwise what the run printed, when it did.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from terminal_svg import Frame, picture

COLUMNS, ROWS = 92, 27
_LONGEST = 120.0
"""Seconds for the run."""
_THINKS = 1.8
"""Seconds until the question is answered."""

_LONGEST_GAP, _SHORTEST_GAP = 0.7, 0.1
"""Seconds between two lines, as they are shown."""
_READING, _END = 1.9, 6.0
"""Seconds that a finished scene stays, and the last one."""
_COMMAND = "mcpbridge demo"
_TYPING = 0.07
"""Seconds a key."""


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 if the demo failed; 2 for wrong arguments."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    code, pieces = record()
    if code:
        print("".join(text for _, text in pieces), file=sys.stderr)
        return 1
    drawn = picture(
        paced(pieces),
        columns=COLUMNS,
        rows=ROWS,
        title="mcpbridge demo, recorded",
        description=(
            "A terminal in which mcpbridge demo plays eight scenes: five servers become one short list, a tool is "
            "found by words, a large result arrives as a preview and is queried, a result goes from tool to tool by "
            "its handle, wrong arguments are mended or refused, a call waits for a yes, a killed server comes back, "
            "and the bill of the tokens that were saved."
        ),
        hold=_END,
    )
    Path(arguments[0]).write_text(drawn, "utf-8")
    print(f"{arguments[0]}: {len(drawn.encode()):,} bytes")
    return 0


def record() -> tuple[int, list[Frame]]:
    """The exit code of the demo, and what it printed, with the seconds since its start."""
    with tempfile.TemporaryDirectory() as home:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            "PATH": path,
            "HOME": home,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        }
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.execve(sys.executable, [sys.executable, "-m", "mcpbridge", "demo"], environment)
        try:
            pieces = _followed(terminal)
        except BaseException:
            os.kill(child, signal.SIGTERM)
            raise
        finally:
            _, status = os.waitpid(child, 0)
            os.close(terminal)
    return os.waitstatus_to_exitcode(status), pieces


def _followed(terminal: int) -> list[Frame]:
    began = time.monotonic()
    pieces: list[Frame] = []
    answer_at = 0.0
    while (now := time.monotonic() - began) < _LONGEST:
        ready, _, _ = select.select([terminal], [], [], 0.05)
        if answer_at and now > answer_at:
            os.write(terminal, b"y")
            answer_at = 0.0
        if not ready:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux says so when the program has ended
            break
        if not piece:
            break
        pieces.append((now, piece.decode("utf-8", errors="replace")))
        if b"[y/n]" in piece:
            answer_at = now + _THINKS
    return pieces


def paced(pieces: list[Frame]) -> list[Frame]:
    """The same, line by line, at a pace that people can follow; the command is typed first."""
    shown: list[Frame] = [(0.0, "\x1b[1;32m$\x1b[0m ")]
    clock = 0.4
    for key in _COMMAND:
        clock += _TYPING
        shown.append((clock, key))
    shown.append((clock + 0.3, "\r\n"))
    clock += 0.5
    before = pieces[0][0]
    for at, piece in pieces:
        gap = at - before
        before = at
        for line in piece.splitlines(keepends=True):
            clock += min(max(gap, _SHORTEST_GAP), _LONGEST_GAP if "[y/n]" not in piece else gap)
            gap = 0.0
            shown.append((clock, line))
            if "✓" in line:
                clock += _READING
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
