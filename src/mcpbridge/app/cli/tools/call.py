"""The arguments of `mcpbridge call` and the like, from `key=value` words or a JSON object; pure.

`mcpbridge call`: call one tool and print its result.

`mcpbridge read`: print a resource.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import click

from mcpbridge.app.cli import bridge_session as engine
from mcpbridge.app.cli.exit_codes import OK, USAGE, fail, failure_code
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import print_json, print_text, show_contents
from mcpbridge.base.redaction import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.meta import TRANSFORM, WHOLE
from mcpbridge.sandbox.javascript.scripts import transform_suffix

Schema = Mapping[str, Any]


def from_json(text: str, option: str = "--json") -> dict[str, Any]:
    """The arguments as one JSON object, given with this option.

    Raises:
        CommandFailed: it is none.
    """
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        fail(USAGE, f"{option}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}")
    except RecursionError:
        fail(USAGE, f"{option}: nested too deeply")
    if not isinstance(value, dict):
        fail(USAGE, f"{option}: expected a JSON object", f'For instance {option} \'{{"city": "Berlin"}}\'.')
    return cast("dict[str, Any]", value)


def from_words(words: Sequence[str], schema: Schema, option: str = "--json") -> dict[str, Any]:
    """The arguments given as `key=value`. What the schema calls a string stays text; the rest is JSON if it parses.

    Raises:
        CommandFailed: a word is no `key=value`, or a key stands twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            fail(USAGE, f"expected key=value, found {word!r}", f"Or give all at once with {option} '{{…}}'.")
        if key in arguments:
            fail(USAGE, f"the argument {key!r} stands twice", 'A list is written as JSON: key=\'["a", "b"]\'.')
        arguments[key] = text if _is_text(schema, key) else _json_or_text(text)
    return arguments


def _is_text(schema: Schema, key: str) -> bool:
    """The schema wants a string for `key`, and nothing else that JSON could say."""
    properties = schema.get("properties")
    wanted = cast("Schema", properties).get(key) if isinstance(properties, dict) else None
    if not isinstance(wanted, dict):
        return False
    kinds = cast("Schema", wanted).get("type")
    if isinstance(kinds, list):
        return set(cast("list[object]", kinds)) <= {"string", "null"}
    return kinds == "string"


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@click.command("call")
@click.argument("tool")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@config_option
@click.option("--json", "given", metavar="ARGS", help="All arguments as a JSON object; - reads it from standard input.")
@click.option("--raw", is_flag=True, help="Print the whole result as one JSON document.")
@click.option("--fit", is_flag=True, help="Print what a model would see: a large result is kept and previewed.")
@click.option("--transform", metavar="SCRIPT", help="Print what this JavaScript makes of `result`.")
def command(
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
        if likely := engine.likely_servers(loaded, tool):
            async with engine.settle(loaded, redact, likely) as bridge:
                if (schema := await _schema_of(bridge, tool)) is not None:
                    return await _call(bridge, arguments, schema)
                engine.warn_of_absent(bridge, only_servers=True)  # ends here if none of them is there
        async with engine.settle(loaded, redact) as bridge:
            if (schema := await _schema_of(bridge, tool)) is None:
                engine.warn_of_owners(bridge, tool)
            return await _call(bridge, arguments, schema or {})

    async def _call(bridge: Bridge, arguments: dict[str, Any] | None, schema: dict[str, Any]) -> int:
        arguments = from_words(words, schema) if arguments is None else arguments
        params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
        result = await engine.ask(bridge, "tools/call", params)
        return _print(result, raw=raw)

    return engine.run(calling, config, as_json=raw or given is not None)


async def _schema_of(bridge: Bridge, tool: str) -> dict[str, Any] | None:
    """The input schema of the tool that `tool` probably names; only for reading arguments, the bridge resolves it."""
    ends = tuple(tool.replace(separator, "__", 1) for separator in ("/", "."))
    for entry in await engine.all_pages(bridge, "tools", "tools/list"):
        name = str(entry.get("name"))
        if name == tool or name in ends or name.endswith(f"__{tool}"):
            return entry.get("inputSchema") or {}
    return None


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
        async with engine.settle(loaded, redact) as bridge:
            result = await engine.ask(bridge, "resources/read", {"uri": uri})
            if as_json:
                print_json(result)
            else:
                show_contents(result.get("contents", []))
        return 0

    return engine.run(reading, config, as_json=as_json)
