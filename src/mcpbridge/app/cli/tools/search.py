"""`mcpbridge search`: which tools are found for what somebody wants, as `find_tools` answers it."""

from collections.abc import Mapping
from typing import Any

import click

from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import print_json, print_text
from mcpbridge.app.exit_codes import OK, TOOL_ERROR
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.search.duplicates import Ability
from mcpbridge.catalog.search.find import Finding, find
from mcpbridge.catalog.signatures.signature import signature
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BRIDGE, Call, Caller
from mcpbridge.downstream.client import Client
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.revisions import LATEST_LEGACY

_NAME = "find_tools"


async def found_text(bridge: Bridge, client: Caller, arguments: Mapping[str, Any]) -> str:
    """The text of its answer. Nothing is logged or counted of it as a call."""
    call = Call("tools/call", BRIDGE, _NAME, Body(encode({"name": _NAME, "arguments": arguments})))
    call.caller = client
    result = await bridge.tool_search.builtins[_NAME].run(call)
    return result.value()["content"][0]["text"]


_DETAILS = ("names", "signatures", "schemas")


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 50), metavar="N", help="At most N tools (default: `search.limit`).")
@click.option("--detail", type=click.Choice(_DETAILS), default="signatures", help="What is told of each tool.")
@click.option("--server", metavar="NAME", help="Start and search this server alone.")
@click.option("--profile", metavar="NAME", help="Only what belongs to this profile.")
@config_option
@as_json_option
def search_command(
    *,
    words: tuple[str, ...],
    limit: int | None,
    detail: str,
    server: str | None,
    profile: str | None,
    config: str | None,
    as_json: bool,
) -> int:
    """Find tools by what they do, as `find_tools` answers it to a model.

    server:NAME and tag:NAME among the words narrow the search, as in: mcpbridge search "create an issue server:git*"

    Exit code 5: no tool seems to do that.
    """
    query = " ".join(words).encode(errors="replace").decode()  # arguments may be any bytes
    if not query.strip():
        raise click.UsageError("Say what the tool should do, in a few words.")

    async def searching(loaded: Loaded, redact: Redactor) -> int:
        _check_profile(loaded.settings, profile)
        async with bridge_session.settle(loaded, redact, [server] if server else None) as bridge:
            bridge_session.warn_of_absent(bridge, only_servers=server is not None)
            client = Client(version=LATEST_LEGACY, profile_name=profile or "")
            visible = bridge.tool_search.visible_to(client)
            most = limit or bridge.settings.search.limit
            found = find(query, most, visible, await visible.ranker(query))
            if as_json:
                print_json(_document(query, found, most, detail))
            else:
                print_text(await found_text(bridge, client, {"query": query, "limit": most, "detail": detail}))
        return OK if found.fits else TOOL_ERROR

    return bridge_session.run(searching, config, as_json=as_json)


def _check_profile(settings: Settings, name: str | None) -> None:
    if name is not None and name not in settings.profiles:
        close = nearest(name, settings.profiles, limit=1)
        known = ", ".join(sorted(settings.profiles)) or "none"
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {known}."
        raise ConfigError(f"no profile is called {name!r}", key="--profile", hint=hint)


def _document(query: str, found: Finding, limit: int, detail: str) -> dict[str, Any]:
    tools = [_entry(found, ability, detail) for ability in found.named[:limit]]
    if found.fits:
        return {"query": query, "fits": True, "tools": tools}
    return {"query": query, "fits": False, "tools": [], "nearest": tools}


def _entry(found: Finding, ability: Ability, detail: str) -> dict[str, Any]:
    one, hit = found.tools[ability.id], found.scores[ability.id]
    entry: dict[str, Any] = {
        "id": ability.id,
        "name": one.tool.wire,
        "score": round(hit.score, 4),
        "is_named": hit.is_named,
        "also": list(ability.also),
    }
    if detail != "names":
        entry["signature"] = signature(one.tool.wire, one.description, one.text.schema).text
    if detail == "schemas":
        entry |= {"description": one.description, "inputSchema": one.text.schema}
    return entry
