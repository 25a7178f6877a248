"""`mcpbridge check`: is the configuration right, and does every server answer?"""

import click

from mcpbridge.cli import engine
from mcpbridge.cli.exits import OK, UNREACHABLE
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import print_json, print_table
from mcpbridge.cli.states import State, fault, is_ready, offers
from mcpbridge.config.load import Loaded
from mcpbridge.redaction import Redactor

__all__ = ["command"]


@click.command("check")
@config_option
@as_json_option
def command(*, config: str | None, as_json: bool) -> int:
    """Check the configuration, connect to every server and say how each one is. Exit code 4 if one fails."""

    async def checking(loaded: Loaded, redact: Redactor) -> int:
        async with engine.settle(loaded, redact) as bridge:
            servers = engine.wanted_servers(bridge)
        ready = all(map(is_ready, servers))
        if as_json:
            print_json({"config": loaded.settings.source, "ok": ready, "servers": servers})
        elif servers:
            titles = ["", "Server", "Transport", "Protocol", "Offers"]
            print_table(titles, [_row(server) for server in servers], wraps="Offers")
        else:
            print("the configuration is right; no server is enabled in it")
        return OK if ready else UNREACHABLE

    return engine.run(checking, config, as_json=as_json)


def _row(server: State) -> list[str]:
    reached = [str(server.get(key) or "") for key in ("name", "transport", "protocol")]
    return ["ok", *reached, offers(server)] if is_ready(server) else ["FAILED", *reached, fault(server)]
