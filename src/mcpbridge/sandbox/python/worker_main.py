"""Run as a program: run one program of a model's, which arrives on standard input, and end.

    python -I -S worker_main.py PARENT_PID SITE_PACKAGES INTERPRETER

`INTERPRETER` is the file of Monty, a Python of its own without files, network and modules of others; it runs as a child
of this process, which drives it (`worker_steps.py`) and reports its calls to the bridge. Both have given up what they
do not need by then. The standard library and Monty's package only: there is no mcpbridge here.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpbridge.sandbox.python.worker_steps import Pipe, Program
else:  # no package is around it where it runs
    sys.path.append(__file__.rpartition(os.sep)[0])
    from worker_steps import Pipe, Program

_BASE_MEMORY = 1 << 30
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _SIGKILL = 1, 38, 9


def _give_up_rights(parent: int) -> None:
    os.closerange(3, 1 << 16)  # some ways to start a process pass on what is inheritable
    if sys.platform.startswith("linux"):
        try:
            import ctypes

            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
            libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        except (ImportError, OSError, AttributeError):  # a Python built without it: the end of our input remains
            pass
    if sys.platform == "win32":  # the interpreter's own limits, and the bridge's clock
        return
    if os.getppid() != parent:
        os._exit(0)  # it died before we could ask to be told
    _limit({"FSIZE": 0, "CORE": 0, "NOFILE": 64}, 0)


def _limit(limits: "dict[str, int]", pid: int) -> None:
    """Limit this process and what it will start, or another one that runs already."""
    try:
        import resource
    except ImportError:
        return
    for name, most in limits.items():
        try:
            number = getattr(resource, f"RLIMIT_{name}")
            if not pid:
                resource.setrlimit(number, (most, most))
            elif sys.platform.startswith("linux"):
                resource.prlimit(pid, number, (most, most))
        except (AttributeError, OSError, ValueError):  # macOS has no limit of the address space
            continue


def main() -> None:
    """Be ready, run one program, and end."""
    pipe = Pipe(sys.stdin.buffer, sys.stdout.buffer)
    try:
        parent, site, interpreter = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        _give_up_rights(parent)
        sys.path.append(site)
        monty: Any = importlib.import_module("pydantic_monty")
        pool = monty.Monty(binary_path=interpreter, min_processes=1, max_processes=1)
        pool.__enter__()
        with pool.checkout() as session:
            session.feed_run("1")  # what is loaded late is loaded now
    except Exception as error:  # noqa: BLE001 - told to whoever started us: it is the only one who can act on it
        pipe.send("broken", why=f"{type(error).__name__}: {error}"[:500])
        return
    pipe.send("ready")
    asked = pipe.read_object()
    seconds, memory, calls = float(asked["seconds"]), int(asked["memory"]), int(asked["calls"])
    limits = {
        "max_feed_duration_secs": seconds,
        "max_memory": memory,
        "max_suspensions": 4 * calls + 4000,
    }
    checkout = pool.checkout(limits=limits, os_policy={"sleep": "call_host"}, print_flush_interval=0.05)
    with checkout as session:
        most = {"AS": _BASE_MEMORY + 2 * memory, "CPU": int(seconds) + 5}
        if session.worker_pid:
            _limit({**most, "NPROC": 0}, session.worker_pid)
        _limit(most, 0)
        Program(monty, session, pipe, calls).run(asked["code"])
    # No tidy end: the pool's own is not needed, and has been seen to abort.
    sys.stdout.buffer.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
