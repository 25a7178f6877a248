"""`mcpbridge search`: which tools are found for what somebody wants, as `find_tools` answers it."""

import click

from mcpbridge.app.cli.options import as_json_option, config_option, standalone_option
from mcpbridge.app.cli.output import print_json, print_text
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session

_DETAILS = ("names", "signatures", "schemas")


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 50), metavar="N", help="At most N tools (default: `search.limit`).")
@click.option("--detail", type=click.Choice(_DETAILS), default="signatures", help="How much to show of each tool.")
@click.option("--server", metavar="NAME", help="Search this server alone.")
@click.option("--profile", metavar="NAME", help="Only what belongs to this profile.")
@config_option
@as_json_option
@standalone_option
def search_command(
    *,
    words: tuple[str, ...],
    limit: int | None,
    detail: str,
    server: str | None,
    profile: str | None,
    config: str | None,
    as_json: bool,
    standalone: bool,
) -> int:
    """Find tools by what they do, as `find_tools` answers it to a model.

    server:NAME and tag:NAME among the words narrow the search, as in: mcpbridge search "create an issue server:git*"

    Exit code 5: no tool seems to do that.
    """
    query = " ".join(words).encode(errors="replace").decode()  # arguments may be any bytes
    if not query.strip():
        raise click.UsageError("Say what the tool should do, in a few words.")

    async def searching(session: Session) -> int:
        request = {"query": query, "limit": limit, "detail": detail, "server": server or "", "profile": profile or ""}
        found = await session.ask("search", **request)
        if as_json:
            told = {"query": query, "fits": found["fits"], "tools": found["tools"]}
            print_json(told if found["fits"] else {**told, "nearest": found["nearest"]})
        else:
            print_text(found["text"])
        return found["code"]

    return run(searching, config, standalone=standalone, as_json=as_json, servers=[server] if server else None)
