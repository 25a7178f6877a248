"""A server that nothing but SIGKILL ends: it and what it started ignore every signal, and the end of its input.

What it started: a process of its own group, and one that left the group with setsid.
"""

import os
import signal
import sys
import time

from plain import Server


def grow() -> None:
    """Start the two, which have ignored signals before anybody can send one."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for leaves in (False, True):
        if os.fork() == 0:
            if leaves:
                os.setsid()
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            stay()


def stay() -> None:
    """Never end."""
    while True:
        time.sleep(60)


if __name__ == "__main__":
    grow()
    Server(*sys.argv[1:]).run()
    stay()
