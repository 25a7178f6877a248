"""The `mcpbridge` command: gets to the right subcommand by the shortest way.

A client starts `mcpbridge serve` and waits for it, and scripts ask for `--version`, so neither pays for the import of
what only the other commands need.
"""

import gc
import sys

from mcpbridge.app.exit_codes import INTERRUPTED

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit code. See `app/exit_codes.py`."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["--version"], ["-V"]):
        from mcpbridge.base.version import __version__

        print(f"mcpbridge {__version__}")
        return 0
    if arguments[:1] == ["__complete"]:  # a shell asks, since a person has pressed Tab
        from mcpbridge.app.cli.help.complete import complete

        return complete(arguments[1:])
    gc.disable()  # till all is loaded there is no garbage, and much to look at
    try:
        if arguments[:1] == ["serve"]:
            return _serve(arguments[1:])
        _remember_interrupts()
        if arguments[:1] == ["daemon"]:
            _load_less()
            from mcpbridge.app.cli.daemon.run import daemon  # enables it in time, too

            return daemon(arguments[1:])
        if not arguments:
            from mcpbridge.app.cli.help.start_page import start_page

            return start_page()
        from mcpbridge.app.cli.commands import run

        gc.enable()
        return run(arguments)
    except KeyboardInterrupt:  # in one of the imports: there is nothing to stop yet
        return INTERRUPTED
    finally:
        gc.freeze()  # the process ends, and what is left goes with it unseen
        gc.enable()


def _serve(arguments: list[str]) -> int:
    if sys.platform == "win32":  # its Python knows no Unix sockets
        return _serve_here(arguments, b"")
    from mcpbridge.app.stdio_proxy.main import serve

    return serve(arguments, _serve_here)


def _serve_here(arguments: "Sequence[str]", head: bytes) -> int:
    """The bridge in this process. `head`: what was read of its client already."""
    _remember_interrupts()
    _load_less()
    from mcpbridge.app.cli.serve import serve  # enables the garbage collection in time

    return serve(arguments, head=head) if head else serve(arguments)


def _load_less() -> None:
    """Before all that imports pydantic: what runs a bridge stays."""
    from mcpbridge.base.import_pydantic import import_pydantic

    import_pydantic()


def _remember_interrupts() -> None:
    from mcpbridge.app.cli.signals import remember_interrupts

    remember_interrupts()
