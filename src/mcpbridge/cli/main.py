"""The `mcpbridge` command: gets to the right subcommand by the shortest way.

A client starts `mcpbridge serve` and waits for it, and scripts ask for `--version`, so neither pays for the import of
what only the other commands need.
"""

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
    try:
        if arguments[:1] == ["serve"]:
            from mcpbridge.cli.serve import serve

            return serve(arguments[1:])
        from mcpbridge.cli.commands import run

        return run(arguments)
    except KeyboardInterrupt:  # in one of the imports: there is nothing to stop yet
        return INTERRUPTED
