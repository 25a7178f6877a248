"""Run as a program: tie this process's life to its parent's, then become the given command.

    python -I -S parent_death_main.py PARENT_PID COMMAND ARG...

A parent-death signal must be asked for by the child itself (prctl(2), PR_SET_PDEATHSIG; it survives
execve), and doing that between fork and exec inside a threaded parent is unsafe. So this file is run
by a fresh interpreter: standard library only, about 10 ms, gone after exec.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the command; on failure say why on stderr and exit as a shell would (126, 127)."""
    parent, command, *args = int(sys.argv[1]), *sys.argv[2:]
    import ctypes  # only here: the module is also imported for its path

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the line above
        os._exit(1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec passes that on
    try:
        os.execvp(command, [command, *args])
    except OSError as error:
        print(f"cannot run {command}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
