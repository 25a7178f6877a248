"""The program of such a process: reads one request on its standard input, writes the result on its standard output.

With the argument `data` it reads some bytes first, then any number of requests: functions that get these bytes. Each
message has its length before it, in eight bytes. It ends with its input. Its work comes after that of the bridge: what
calls need takes little of the processor, and at once.
"""

import os
import sys

from mcpbridge.sandbox.worker_messages import run_request

_NICE = 10


def main() -> None:
    """Run what is asked for. What goes wrong ends the process with an error, and no answer."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
    if sys.argv[1:] == ["data"]:
        _serve_data()
        return
    sys.stdout.buffer.write(run_request(sys.stdin.buffer.read()))
    sys.stdout.buffer.flush()


def _serve_data() -> None:
    data = _message()
    while request := _message():
        answer = run_request(request, data)
        sys.stdout.buffer.write(len(answer).to_bytes(8, "big"))
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


def _message() -> bytes:
    """The next message; empty: there is none."""
    return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "big"))


if __name__ == "__main__":
    main()
