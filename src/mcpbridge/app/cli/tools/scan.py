"""`mcpbridge scan`: texts of servers that try to steer a model."""

from collections.abc import Mapping
from typing import Any

import click

from mcpbridge.app.cli.options import as_json_option, config_option, header_option, standalone_option
from mcpbridge.app.cli.output import print_json, print_table
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import OK, TOOL_ERROR


@click.command("scan")
@click.argument("server", required=False)
@config_option
@as_json_option
@standalone_option
@header_option
def scan_command(*, server: str | None, config: str | None, as_json: bool, standalone: bool) -> int:
    """Look for texts that try to steer a model, in all that SERVER, or every server, lists.

    Rules find what is written; silence is no proof. The exit code is 5 if there is something to look at.

    \u0008
    Examples:
      mcpbridge scan
      mcpbridge scan github --json
    """

    async def scanning(session: Session) -> int:
        found = (await session.ask("scan", server=server or ""))["findings"]
        if as_json:
            print_json("scan/1", {"findings": found})
        elif found:
            rows = [[one["verdict"], _named(one), one["rule"], one["where"], one["text"]] for one in found]
            print_table(["Verdict", "Of", "Rule", "Where", "Text"], rows)
        else:
            print("nothing suspicious")
        return TOOL_ERROR if any(one["verdict"] in ("warn", "hold") for one in found) else OK

    return run(scanning, config, standalone=standalone, as_json=as_json, servers=[server] if server else None)


def _named(finding: Mapping[str, Any]) -> str:
    name = f"{finding['server']}/{finding['name']}"
    return f"{name} (not agreed to)" if finding.get("unapproved") else name
