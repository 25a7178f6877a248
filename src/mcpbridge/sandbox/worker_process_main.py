"""The program of such a process: reads one request on its standard input, writes the result on its standard output."""

import sys

from mcpbridge.sandbox.worker_messages import run_request


def main() -> None:
    """Run what is asked for. What goes wrong ends the process with an error, and no answer."""
    sys.stdout.buffer.write(run_request(sys.stdin.buffer.read()))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
