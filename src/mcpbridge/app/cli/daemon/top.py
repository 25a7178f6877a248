"""`mcpbridge top`: the console in a terminal."""

from collections.abc import Mapping
from typing import Any

import click

from mcpbridge.app.cli.daemon.ui import running_bridge
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import config_option
from mcpbridge.app.exit_codes import OK, USAGE

_PATIENCE = 5.0


@click.command("top")
@config_option
def top_command(*, config: str | None) -> int:
    """Watch servers, calls and approvals in the terminal: y approves the chosen call, n denies it, q ends.

    Needs the extra `top`: `pip install 'mcpbridge[top]'`. In a browser `mcpbridge ui` shows more.

    \u0008
    Examples:
      mcpbridge top
    """
    try:
        from mcpbridge.app.console.terminal import Top
    except ImportError:
        fail(USAGE, "`mcpbridge top` needs Textual", "Install it: pip install 'mcpbridge[top]'. Or try `mcpbridge ui`.")
    bridge = running_bridge(config)

    def ask(do: str, **more: object) -> Mapping[str, Any]:
        return bridge.ask(do, patience=_PATIENCE, **more)

    Top(ask).run()
    return OK
