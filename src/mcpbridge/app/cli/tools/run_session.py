"""Whom `list`, `search`, `tokens`, `call` and `read` ask: the daemon that runs, or a bridge of the command's own.

The work of a command is one coroutine over a `Session`, so that it prints the same either way. The daemon's session
waits on sockets by itself and never suspends, so no event loop is needed for it, and nothing of the engine is loaded.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from mcpbridge.app.cli.failures import report
from mcpbridge.app.cli.tools.session import Work
from mcpbridge.app.exit_codes import OK
from mcpbridge.app.stdio_proxy.start_daemon import STANDALONE


def run(
    work: Work,
    config: str | None,
    *,
    standalone: bool,
    as_json: bool,
    servers: Sequence[str] | None = None,
    alone: Callable[[Any, Any], Awaitable[int]] | None = None,
) -> int:
    """Do the work with the daemon of this configuration where one runs, else with a bridge that ends with the command.

    Errors are reported. `servers`: those that such a bridge starts; None: all. `alone`: does the work without a daemon
    in place of that, with the configuration and what masks its secrets.
    """
    if not standalone and os.environ.get(STANDALONE, "0") in ("", "0") and sys.platform != "win32":
        from mcpbridge.app.cli.tools.daemon_session import connected

        try:
            with connected(config) as daemon:
                if daemon is not None:
                    return _without_loop(work(daemon))
        except (Exception, KeyboardInterrupt) as error:  # the end of the program: what it knows, it says
            if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough, as `head` does
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return OK
            known = report(error, as_json=as_json)
            if known is None:
                raise
            return known
    from mcpbridge.app.cli.tools import own_session

    return own_session.run(work, config, as_json=as_json, servers=servers, alone=alone)


def _without_loop(work: Coroutine[Any, Any, int]) -> int:
    """The outcome of work that waits for nothing but its session, which blocks."""
    try:
        work.send(None)
    except StopIteration as ended:
        sys.stdout.flush()
        return ended.value
    work.close()
    raise RuntimeError("the work of a command waits for something else than its session")
