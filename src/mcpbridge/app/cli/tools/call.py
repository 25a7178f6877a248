"""`mcpbridge call` and `read`: call one tool, print one resource."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from mcpbridge.app.cli.failures import failure_code
from mcpbridge.app.cli.options import as_json_option, config_option, standalone_option
from mcpbridge.app.cli.output import is_at_terminal, print_json, print_text, show_contents
from mcpbridge.app.cli.tools.arguments import from_json, from_words
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import OK

TRANSFORM, WHOLE, APPROVALS = "mcpbridge/transform", "mcpbridge/results", "mcpbridge/approvals"
"""As in `protocol/meta.py`, whose import takes longer than the rest; a test compares them."""


@click.command("call")
@click.argument("tool")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@config_option
@click.option("--json", "given", metavar="ARGS", help="All arguments as a JSON object; - reads it from standard input.")
@click.option("--raw", is_flag=True, help="Print the whole result as one JSON document.")
@click.option("--fit", is_flag=True, help="Print what a model would see: a large result is kept and previewed.")
@click.option("--transform", metavar="SCRIPT", help="Print what this JavaScript makes of `result`.")
@standalone_option
def call_command(
    *,
    tool: str,
    words: tuple[str, ...],
    config: str | None,
    given: str | None,
    raw: bool,
    fit: bool,
    transform: str | None,
    standalone: bool,
) -> int:
    """Call TOOL, by the name that `list` shows, or as SERVER/TOOL.

    A value is taken as text where the tool wants text, and otherwise as JSON if it is JSON:
    mcpbridge call time/convert_time source_timezone=UTC time=12:30 target_timezone=Asia/Tokyo

    The result is printed whole, however large, unless --fit or --transform asks for less:
    mcpbridge call git/git_log repo_path=. --transform "result.slice(0, 200)"
    """
    if given is not None and words:
        raise click.UsageError("Give the arguments as KEY=VALUE or with --json, not both.")

    if "|" in tool:
        from mcpbridge.sandbox.javascript.scripts import transform_suffix

        if (suffixed := transform_suffix(tool)) is not None:
            tool, transform = suffixed[0], transform or suffixed[1]
    meta = {TRANSFORM: transform} if transform else {} if fit else {WHOLE: "whole"}
    if not is_at_terminal():
        meta[APPROVALS] = "pause"  # nobody sees that a person has to agree: the call ends, and says how
    text = sys.stdin.read() if given == "-" else given
    arguments = None if text is None else from_json(text)
    from_words(words, {})  # what is wrong with them is said before anything is started

    async def calling(session: Session) -> int:
        known = await session.ask("tool", name=tool)
        called = from_words(words, known.get("schema") or {}) if arguments is None else arguments
        params = {"name": tool, "arguments": called, **({"_meta": meta} if meta else {})}
        return _print(await session.request("tools/call", params), raw=raw)

    async def alone(loaded: Any, redact: Any) -> int:
        from mcpbridge.app.cli.tools.own_session import call_alone

        inner = arguments if arguments is not None else from_words(words, {})
        return await call_alone(tool, inner, calling, loaded, redact)

    return run(calling, config, standalone=standalone, as_json=raw or given is not None, alone=alone)


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
@standalone_option
def read_command(*, uri: str, config: str | None, as_json: bool, standalone: bool) -> int:
    """Print the resource URI, as `list --resources` shows it. Binary contents go to a file or pipe as they are."""

    async def reading(session: Session) -> int:
        result = await session.request("resources/read", {"uri": uri})
        if as_json:
            print_json(result)
        else:
            show_contents(result.get("contents", []))
        return OK

    async def alone(loaded: Any, redact: Any) -> int:
        from mcpbridge.app.cli.tools.own_session import read_alone

        return await read_alone(uri, reading, loaded, redact)

    return run(reading, config, standalone=standalone, as_json=as_json, alone=alone)
