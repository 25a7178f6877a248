"""The `mcpbridge` command: gets to the right subcommand by the shortest way.

A client starts `mcpbridge serve` and waits for it, and scripts ask for `--version`, so neither pays for the import of
what only the other commands need.
"""

import gc
import sys

from mcpbridge.cli.signals import INTERRUPTED, remember_interrupts

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit code. See `cli/exits.py`."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["--version"], ["-V"]):
        from mcpbridge._version import __version__

        print(f"mcpbridge {__version__}")
        return 0
    remember_interrupts()
    gc.disable()  # till all is loaded there is no garbage, and much to look at
    try:
        if arguments[:1] == ["serve"]:
            from mcpbridge.cli.serve import serve  # enables it in time

            return serve(arguments[1:])
        from mcpbridge.cli.commands import run

        gc.enable()
        return run(arguments)
    except KeyboardInterrupt:  # in one of the imports: there is nothing to stop yet
        return INTERRUPTED
    finally:
        gc.freeze()  # the process ends, and what is left goes with it unseen
        gc.enable()
