"""`mcpbridge manage`: have a tool that runs do a management command."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from mcpbridge.app.admin.control_client import LARGEST_REQUEST, SILENT, Document
from mcpbridge.app.admin.control_commands import management_command
from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.config.config_path import config_path
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import note, print_json, print_json_value, print_text, visible
from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.app.cli.tools.arguments import from_json, from_words
from mcpbridge.app.exit_codes import OK, TIMED_OUT, TOOL_ERROR, UNREACHABLE, USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.units import show_bytes
from mcpbridge.config.load import Loaded

_PATIENCE = 610.0
"""Seconds: somewhat more than a bridge grants a management command."""
_CODES = {
    "unknown": USAGE,
    "invalid": USAGE,
    "unsupported": USAGE,
    "failed": TOOL_ERROR,
    "timeout": TIMED_OUT,
    SILENT: TIMED_OUT,
}


@click.command("manage")
@click.argument("name")
@click.argument("action", metavar="COMMAND")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--data", metavar="JSON", help="All data as a JSON object; - reads it from standard input.")
@config_option
@as_json_option
def manage_command(
    *, name: str, action: str, words: tuple[str, ...], data: str | None, config: str | None, as_json: bool
) -> int:
    """Run the management COMMAND of the tool NAME of [tools], or of a pack, with this data, and print the result.

    Every running bridge with this configuration runs it. If none runs, one is started for this alone.

    Exit code 2: there is no such tool or command; 4: a bridge ended, or did not take it; 5: it failed; 7: no answer
    came in time, or none that can be read.

    \u0008
    Examples:
      mcpbridge manage glossary reindex language=de
    """
    if data is not None and words:
        raise click.UsageError("Give the data as KEY=VALUE or with --data, not both.")
    text = sys.stdin.read() if data == "-" else data
    given = from_words(words, {}, "--data") if text is None else from_json(text, "--data")
    request = {"name": name, "command": action, "data": given}
    if len(json.dumps({"do": "command", **request})) > LARGEST_REQUEST:
        what = f"the command with its data is larger than {show_bytes(LARGEST_REQUEST)}"
        fail(USAGE, what, "Let the data name a file instead.")
    path = config_path(config)
    around = survey(path)
    around.require_answer(path)  # before any other does it
    for line in around.describe_silent():
        note(line)
    if around.bridges:
        told = around.ask("command", patience=_PATIENCE, **request)
        return _show([_whole(document) for document in told], as_json=as_json)
    if around.silent:  # one of them may be who has to do it
        if as_json:
            print_json("manage/1", {"ok": False, "bridges": []})
        return TIMED_OUT

    async def alone(loaded: Loaded, redact: Redactor) -> int:
        if not as_json:
            note("no bridge runs with this configuration: what the command changes in memory ends with it")
        async with bridge_session.settle(loaded, redact, ()) as bridge:
            await bridge.startup.settled()
            return _show([await management_command(bridge, redact, request)], as_json=as_json)

    return bridge_session.run(alone, config, as_json=as_json)


def _whole(document: Document) -> Document:
    """What a bridge says, which is a result or an error in any case."""
    if document.get("code") == SILENT:
        return {**document, "error": f"{document['error']}; whether the command was done is not known"}
    if "result" not in document and "error" not in document:  # its status: the request did not reach it in time
        return {"pid": document.get("pid"), "error": "it did not take the command"}
    return document


def _show(documents: Sequence[Document], *, as_json: bool) -> int:
    failed = [document for document in documents if "error" in document]
    if as_json:
        print_json("manage/1", {"ok": not failed, "bridges": list(map(dict, documents))})
    else:
        for document in documents:
            _print(document, who=f"process {document.get('pid')}: " if len(documents) > 1 else "")
    return _CODES.get(str(failed[0].get("code")), UNREACHABLE) if failed else OK


def _print(document: Mapping[str, Any], *, who: str) -> None:
    if "error" in document:
        note(visible(f"{who}{document['error']}"))
        return
    if who:
        print(who.strip())
    result = document.get("result")
    if isinstance(result, str):
        print_text(result)
    elif result is not None:
        print_json_value(result)
    elif not who:
        print_text("done")
