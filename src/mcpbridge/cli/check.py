"""`mcpbridge check`: is the configuration right, and does every server answer?"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from mcpbridge.cli import engine
from mcpbridge.cli.exits import OK, UNREACHABLE
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, print_table, visible
from mcpbridge.cli.states import State, fault, is_ready, offers
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.redaction import Redactor

__all__ = ["command"]


@click.command("check")
@config_option
@as_json_option
def command(*, config: str | None, as_json: bool) -> int:
    """Check the configuration, connect to every server and say how each one is. Exit code 4 if one fails.

    Rules, hooks and tables of tools that match no tool are told of too.
    """

    async def checking(loaded: Loaded, redact: Redactor) -> int:
        async with engine.settle(loaded, redact) as bridge:
            servers = engine.wanted_servers(bridge)
            warnings = [*bridge.status()["warnings"], *_missing_programs(loaded.settings)]
        ready = all(map(is_ready, servers))
        if as_json:
            print_json({"config": loaded.settings.source, "ok": ready, "servers": servers, "warnings": warnings})
        elif servers:
            titles = ["", "Server", "Transport", "Protocol", "Offers"]
            print_table(titles, [_row(server) for server in servers], wraps="Offers")
        else:
            print("the configuration is right; no server is enabled in it")
        for warning in warnings if not as_json else ():
            note(visible(redact(warning)))
        return OK if ready else UNREACHABLE

    return engine.run(checking, config, as_json=as_json)


def _missing_programs(settings: Settings) -> Iterator[str]:
    """Hooks whose program there is not: no call of their tools would pass, or nothing would guard it."""
    directory = Path(settings.source).parent if settings.source else Path()
    for number, hook in enumerate(settings.hooks, 1):
        if hook.command is not None:
            program = hook.command[0]
            where = str(directory / program) if "/" in program else program
            if shutil.which(where, path=hook.env.get("PATH")) is None:
                yield f"hook {number} of `hooks`: there is no program {program!r} that can be run"


def _row(server: State) -> list[str]:
    reached = [str(server.get(key) or "") for key in ("name", "transport", "protocol")]
    return ["ok", *reached, offers(server)] if is_ready(server) else ["FAILED", *reached, fault(server)]
