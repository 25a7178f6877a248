"""`mcpbridge call` and `read`: call one tool, print one resource."""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.failures import failure_code
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import print_json, print_text, show_contents
from mcpbridge.app.cli.tools.arguments import from_json, from_words
from mcpbridge.app.cli.tools.tool_owner import owner_of
from mcpbridge.app.exit_codes import OK
from mcpbridge.base.errors import UnknownName
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.meta import TRANSFORM, WHOLE
from mcpbridge.sandbox.javascript.scripts import transform_suffix


@click.command("call")
@click.argument("tool")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@config_option
@click.option("--json", "given", metavar="ARGS", help="All arguments as a JSON object; - reads it from standard input.")
@click.option("--raw", is_flag=True, help="Print the whole result as one JSON document.")
@click.option("--fit", is_flag=True, help="Print what a model would see: a large result is kept and previewed.")
@click.option("--transform", metavar="SCRIPT", help="Print what this JavaScript makes of `result`.")
def call_command(
    *,
    tool: str,
    words: tuple[str, ...],
    config: str | None,
    given: str | None,
    raw: bool,
    fit: bool,
    transform: str | None,
) -> int:
    """Call TOOL, by the name that `list` shows, or as SERVER/TOOL.

    A value is taken as text where the tool wants text, and otherwise as JSON if it is JSON:
    mcpbridge call time/convert_time source_timezone=UTC time=12:30 target_timezone=Asia/Tokyo

    The result is printed whole, however large, unless --fit or --transform asks for less:
    mcpbridge call git/git_log repo_path=. --transform "result.slice(0, 200)"
    """
    if given is not None and words:
        raise click.UsageError("Give the arguments as KEY=VALUE or with --json, not both.")

    if (suffixed := transform_suffix(tool)) is not None:
        tool, transform = suffixed[0], transform or suffixed[1]
    meta = {TRANSFORM: transform} if transform else {} if fit else {WHOLE: "whole"}
    text = sys.stdin.read() if given == "-" else given  # before there is a loop, which it would hold up

    async def calling(loaded: Loaded, redact: Redactor) -> int:
        arguments = None if text is None else from_json(text)
        from_words(words, {})  # what is wrong with them is said before anything is started
        owner = owner_of(loaded.settings, tool)
        if owner.is_own:
            async with bridge_session.settle(loaded, redact, owner.servers, waits=False) as bridge:
                if (schema := _own_schema_of(bridge, tool)) is not None:
                    return await _call(bridge, arguments, schema)
                if owner.servers is not None:
                    bridge_session.warn_of_owners(bridge, tool)
                    return await _call(bridge, arguments, {})  # which says why there is none
        elif owner.servers:
            async with bridge_session.settle(loaded, redact, owner.servers) as bridge:
                if (schema := await _schema_of(bridge, tool)) is not None:
                    return await _call(bridge, arguments, schema)
                bridge_session.warn_of_absent(bridge, only_servers=True)  # ends here if none of them is there
        async with bridge_session.settle(loaded, redact) as bridge:
            if (schema := await _schema_of(bridge, tool)) is None:
                bridge_session.warn_of_owners(bridge, tool)
            return await _call(bridge, arguments, schema or {})

    async def _call(bridge: Bridge, arguments: dict[str, Any] | None, schema: dict[str, Any]) -> int:
        arguments = from_words(words, schema) if arguments is None else arguments
        params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
        result = await bridge_session.ask(bridge, "tools/call", params)
        return _print(result, raw=raw)

    return bridge_session.run(calling, config, as_json=raw or given is not None)


async def _schema_of(bridge: Bridge, tool: str) -> dict[str, Any] | None:
    """The input schema of the tool that `tool` probably names; only for reading arguments, the bridge resolves it."""
    ends = tuple(tool.replace(separator, "__", 1) for separator in ("/", "."))
    for entry in await bridge_session.all_pages(bridge, "tools", "tools/list"):
        name = str(entry.get("name"))
        if name == tool or name in ends or name.endswith(f"__{tool}"):
            return entry.get("inputSchema") or {}
    return None


def _own_schema_of(bridge: Bridge, tool: str) -> dict[str, Any] | None:
    """The same of a tool that no server has, without waiting for servers that start."""
    try:
        found = bridge.catalog.snapshot.tool(tool)
    except UnknownName:
        return None
    if found.server in bridge.settings.servers:
        return None
    schema: Any = msgspec.json.decode(found.definition).get("inputSchema")
    return schema or {}


def _print(result: dict[str, Any], *, raw: bool) -> int:
    failed = bool(result.get("isError"))
    content: Sequence[dict[str, Any]] = result.get("content") or []
    if raw:
        print_json(result)
    elif content:
        show_contents(content)
    elif result.get("structuredContent") is not None:
        print_json(result["structuredContent"])
    elif not failed:
        print_text("(an empty result)")
    return failure_code(result.get("_meta")) if failed else OK


@click.command("read")
@click.argument("uri")
@config_option
@as_json_option
def read_command(*, uri: str, config: str | None, as_json: bool) -> int:
    """Print the resource URI, as `list --resources` shows it. Binary contents go to a file or pipe as they are."""

    async def reading(loaded: Loaded, redact: Redactor) -> int:
        async with bridge_session.settle(loaded, redact) as bridge:
            result = await bridge_session.ask(bridge, "resources/read", {"uri": uri})
            if as_json:
                print_json(result)
            else:
                show_contents(result.get("contents", []))
        return 0

    return bridge_session.run(reading, config, as_json=as_json)
