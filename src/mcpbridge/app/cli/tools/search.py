"""What `find_tools` would say to a client, for commands.

`mcpbridge search`: which tools are found for what somebody wants, as `find_tools` answers it.

`mcpbridge rank`: the ranker behind `find_tools`, over tools in files, in JSON lines; for scoring it.

    {"op": "load", "tools_path": "…", "servers_path": "…" or null}    ->  {"ok": true}
    {"op": "rank", "id": "…", "query": "…", "k": 8}                   ->  {"id": "…", "ids": ["…", …]}, best first
    {"op": "exit"}

A line of the tools file has `id`, `server`, `name`, `description` and `inputSchema`, one of the servers file `server`,
`title` and `description`. What cannot be done is answered with {"error": "…"}, and the next line is read.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from mcpbridge.app.cli import bridge_session as engine
from mcpbridge.app.cli.exit_codes import OK, TOOL_ERROR
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import print_json, print_text
from mcpbridge.base.errors import ConfigError, nearest
from mcpbridge.base.redaction import Redactor
from mcpbridge.catalog.search.duplicates import Ability
from mcpbridge.catalog.search.found import Finding, find
from mcpbridge.catalog.search.ranker import Ranker, ServerText, ToolText
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
    result = await bridge.routing.builtins[_NAME].run(call)
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
def command(
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
        async with engine.settle(loaded, redact, [server] if server else None) as bridge:
            engine.warn_of_absent(bridge, only_servers=server is not None)
            client = Client(version=LATEST_LEGACY, profile_name=profile or "")
            visible = bridge.routing.visible_to(client)
            most = limit or bridge.settings.search.limit
            found = find(query, most, visible, await visible.ranker(query))
            if as_json:
                print_json(_document(query, found, most, detail))
            else:
                print_text(await found_text(bridge, client, {"query": query, "limit": most, "detail": detail}))
        return OK if found.fits else TOOL_ERROR

    return engine.run(searching, config, as_json=as_json)


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


_MOST = 1000
"""Tools of one answer."""


class _Wrong(ValueError):
    """A line that cannot be obeyed; says why."""


@click.command("rank")
def rank_command() -> int:
    """Rank tools out of files for queries on stdin, in JSON lines: load, rank, exit. Made for scoring the ranker."""
    ranker: Ranker | None = None
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            asked = _asked(line)
            if asked.get("op") == "exit":
                break
            if asked.get("op") == "load":
                ranker = _loaded(asked)
                answer: dict[str, Any] = {"ok": True}
            else:
                answer = _ranked(asked, ranker)
        except _Wrong as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return OK


def _asked(line: str | bytes) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        raise _Wrong("not JSON") from None
    if not isinstance(asked, dict):
        raise _Wrong("not an object")
    return cast("dict[str, Any]", asked)


def _loaded(asked: Mapping[str, Any]) -> Ranker:
    tools, servers = asked.get("tools_path"), asked.get("servers_path")
    if not isinstance(tools, str) or not isinstance(servers, str | None):
        raise _Wrong("`tools_path` must be a path, `servers_path` a path or null")
    from mcpbridge.catalog.search.index import CatalogRankers

    return CatalogRankers().of(texts_of(Path(tools), Path(servers) if servers else None))


def _ranked(asked: Mapping[str, Any], ranker: Ranker | None) -> dict[str, Any]:
    if asked.get("op") != "rank":
        raise _Wrong("`op` must be load, rank or exit")
    if ranker is None:
        raise _Wrong("nothing is loaded")
    query, k = asked.get("query"), asked.get("k", 8)
    if not isinstance(query, str) or not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise _Wrong("`query` must be a text, `k` a positive number")
    return {"id": asked.get("id"), "ids": [hit.id for hit in ranker.rank(query, min(k, _MOST))]}


def texts_of(tools: Path, servers: Path | None) -> list[tuple[ServerText, list[ToolText]]]:
    """The tools of the files by server, in the order in which they first come.

    Raises:
        ValueError: a file cannot be read, or a line of it is no object.
    """
    about = {_text(row, "server"): row for row in _rows(servers)} if servers else {}
    grouped: dict[str, list[ToolText]] = {}
    for row in _rows(tools):
        schema = row.get("inputSchema")
        server = _text(row, "server")
        tool = ToolText(
            id=_text(row, "id"),
            server=server,
            name=_text(row, "name"),
            title=_text(row, "title"),
            description=_text(row, "description"),
            schema=cast("dict[str, Any]", schema) if isinstance(schema, dict) else None,
        )
        grouped.setdefault(server, []).append(tool)
    return [
        (ServerText(name, _text(about.get(name, {}), "title"), _text(about.get(name, {}), "description")), of)
        for name, of in grouped.items()
    ]


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text("utf-8", errors="replace").split("\n")
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise _Wrong(f"{str(path)!r} cannot be read") from error
    for line in lines:
        if line.strip():
            yield _asked(line)
