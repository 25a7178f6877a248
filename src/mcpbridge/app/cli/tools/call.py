"""`mcpbridge call` and `read`: call one tool, print one resource."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from mcpbridge.app.cli.failures import failure_code
from mcpbridge.app.cli.options import as_json_option, config_option, standalone_option
from mcpbridge.app.cli.output import is_at_terminal, print_json, print_json_value, print_text, show_contents
from mcpbridge.app.cli.tools.arguments import from_json, from_words
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import OK

TRANSFORM, WHOLE, APPROVALS = "mcpbridge/transform", "mcpbridge/results", "mcpbridge/approvals"
"""As in `protocol/meta.py`, whose import takes longer than the rest; a test compares them."""


class _Call(click.Command):
    """Takes `--json ARGS` for `--args ARGS`, as it was called before `--json` asked for a document here too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        for number, word in enumerate(args[:end]):
            following = args[number + 1 : end][:1]
            if word.startswith("--json=") or (word == "--json" and following and _is_object(following[0])):
                args = [*args[:number], word.replace("--json", "--args", 1), *args[number + 1 :]]
                ctx.meta[_JSON_ERRORS] = True
        return super().parse_args(ctx, args)


_JSON_ERRORS = "mcpbridge.json_errors"


def _is_object(word: str) -> bool:
    """Whether a word behind `--json` is arguments, and not the name of a tool or KEY=VALUE."""
    return word == "-" or word.lstrip().startswith(("{", "["))


@click.command("call", cls=_Call)
@click.argument("tool")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@config_option
@click.option("--args", "given", metavar="JSON", help="All arguments as a JSON object; - reads it from standard input.")
@as_json_option
@click.option("--raw", is_flag=True, help="Print the server's result as it came, in JSON.")
@click.option("--fit", is_flag=True, help="Print what a model would see: a large result is kept and previewed.")
@click.option("--transform", metavar="SCRIPT", help="Print what this JavaScript makes of `result`.")
@standalone_option
@click.pass_context
def call_command(
    context: click.Context,
    *,
    tool: str,
    words: tuple[str, ...],
    config: str | None,
    given: str | None,
    as_json: bool,
    raw: bool,
    fit: bool,
    transform: str | None,
    standalone: bool,
) -> int:
    """Call TOOL, by the name that `list` shows, or as SERVER/TOOL.

    A value is text if the tool wants text; otherwise it is read as JSON if it is JSON. The result is printed whole,
    however large, unless --fit or --transform asks for less.

    \u0008
    Examples:
      mcpbridge call time/convert_time source_timezone=UTC time=12:30 target_timezone=Asia/Tokyo
      mcpbridge call git/git_log repo_path=. --transform "result.slice(0, 200)"
    """
    if given is not None and words:
        raise click.UsageError("Give the arguments as KEY=VALUE or with --args, not both.")
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other.")

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

    has_json_errors = as_json or raw or bool(context.meta.get(_JSON_ERRORS))

    async def calling(session: Session) -> int:
        known = await session.ask("tool", name=tool)
        called = from_words(words, known.get("schema") or {}) if arguments is None else arguments
        params = {"name": tool, "arguments": called, **({"_meta": meta} if meta else {})}
        result = await session.request("tools/call", params)
        if as_json:
            print_json("call/1", {"tool": tool, "ok": not result.get("isError"), "result": result})
            return _code(result)
        return _print(result, raw=raw)

    async def alone(loaded: Any, redact: Any) -> int:
        from mcpbridge.app.cli.tools.own_session import call_alone

        inner = arguments if arguments is not None else from_words(words, {})
        return await call_alone(tool, inner, calling, loaded, redact)

    return run(calling, config, standalone=standalone, as_json=has_json_errors, alone=alone)


def _print(result: dict[str, Any], *, raw: bool) -> int:
    failed = bool(result.get("isError"))
    content: Sequence[dict[str, Any]] = result.get("content") or []
    if raw:
        print_json_value(result)
    elif content:
        show_contents(content)
    elif result.get("structuredContent") is not None:
        print_json_value(result["structuredContent"])
    elif not failed:
        print_text("(an empty result)")
    return _code(result)


def _code(result: dict[str, Any]) -> int:
    return failure_code(result.get("_meta")) if result.get("isError") else OK


@click.command("read")
@click.argument("uri")
@config_option
@as_json_option
@standalone_option
def read_command(*, uri: str, config: str | None, as_json: bool, standalone: bool) -> int:
    """Print the resource URI, as `list --resources` shows it. Binary contents go to a file or a pipe as they are.

    \u0008
    Examples:
      mcpbridge read file:///home/you/notes.md
    """

    async def reading(session: Session) -> int:
        result = await session.request("resources/read", {"uri": uri})
        if as_json:
            print_json("read/1", result)
        else:
            show_contents(result.get("contents", []))
        return OK

    async def alone(loaded: Any, redact: Any) -> int:
        from mcpbridge.app.cli.tools.own_session import read_alone

        return await read_alone(uri, reading, loaded, redact)

    return run(reading, config, standalone=standalone, as_json=as_json, alone=alone)
