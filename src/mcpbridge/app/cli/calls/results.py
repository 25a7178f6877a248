"""`mcpbridge results`: large results that were kept; find them, read them whole, forget them."""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import click

from mcpbridge.app.admin.stats import summary_as_json
from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.calls.store import absence, result_stores
from mcpbridge.app.cli.config.config_path import load_or_default
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import first_line, note, print_json, print_table, print_text
from mcpbridge.app.exit_codes import OK, TOOL_ERROR, USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.results.kept_results import KeptResults, ResultSummary

_ALL = 1_000_000
"""More than there are."""
_WHOLE = 26
"""Characters of a handle."""

principal_option = click.option(
    "--principal", metavar="NAME", default="", help="What is kept for this user; default: for the local one."
)
search_option = click.option("--search", metavar="WORDS", default="", help="Only those with all of these words.")
limit_option = click.option("-n", "--limit", type=click.IntRange(1), default=50, help="The N newest (default: 50).")


@click.group("results", invoke_without_command=True)
@search_option
@limit_option
@principal_option
@config_option
@as_json_option
@click.pass_context
@header_option
def results_command(context: click.Context, **options: Any) -> int:
    """Show the large results that were kept, the newest first. They are in the store, so no bridge has to run.

    \u0008
    Examples:
      mcpbridge results
      mcpbridge results --search 'git_log HEAD' -n 5
    """
    return OK if context.invoked_subcommand is not None else _list(**options)


@results_command.command("list")
@search_option
@limit_option
@principal_option
@config_option
@as_json_option
def listing(**options: Any) -> int:
    """Show the results that are kept. --search looks at tool, arguments, outcome, kind, headline and client.

    \u0008
    Examples:
      mcpbridge results list --search 'git_log HEAD'
    """
    return _list(**options)


@results_command.command("show")
@click.argument("handle")
@click.option("--raw", is_flag=True, help="The result of the call, as JSON, byte for byte.")
@click.option("--preview", type=click.IntRange(1), metavar="N", help="Statistics of it in at most N characters.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Into this file.")
@principal_option
@config_option
@as_json_option
def show(
    *,
    handle: str,
    raw: bool,
    preview: int | None,
    output: Path | None,
    principal: str,
    config: str | None,
    as_json: bool,
) -> int:
    """Print the text of the result HANDLE (or that begins with HANDLE), as the server sent it.

    Exit code 5: there is none.

    \u0008
    Examples:
      mcpbridge results show qdx3
      mcpbridge results show qdx3 --raw --output result.json
    """
    if raw and preview is not None:
        raise click.UsageError("--raw and --preview exclude each other.")
    if as_json and output is not None:
        raise click.UsageError("--json and --output exclude each other.")

    async def work(kept_results: KeptResults) -> int:
        whole = await _whole_handle(kept_results, handle, principal)
        data = await kept_results.get(whole, principal=principal)
        if data is None:
            _fail_unknown(handle)
        shown = data if raw else _text_of(data, preview)
        if as_json:
            summary = await kept_results.summary(whole, principal=principal)
            content = json.loads(shown) if isinstance(shown, bytes) else shown
            known = {} if summary is None else summary_as_json(summary)
            kind = "result" if raw else "text" if preview is None else "preview"
            print_json("results-show/1", {**known, kind: content})
        elif output is not None:
            _write(output, shown)
        elif isinstance(shown, bytes) and not sys.stdout.isatty():
            sys.stdout.buffer.write(shown)
        else:
            print_text(shown.decode(errors="replace") if isinstance(shown, bytes) else shown)
        return OK

    return _with_kept_results(work, config, as_json=as_json)


@results_command.command("rm")
@click.argument("handles", nargs=-1, metavar="HANDLE…")
@click.option("--all", "everything", is_flag=True, help="All that are kept for the user.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@principal_option
@config_option
@as_json_option
def remove(
    *, handles: Sequence[str], everything: bool, yes: bool, principal: str, config: str | None, as_json: bool
) -> int:
    """Delete kept results: nothing can be recalled from them any more. Exit code 5: there is no such result.

    \u0008
    Examples:
      mcpbridge results rm qdx3
      mcpbridge results rm --all --yes
    """
    if everything == bool(handles):
        raise click.UsageError("Name the results, or all of them by --all.")

    async def work(kept_results: KeptResults) -> int:
        if everything:
            found = [summary.handle for summary in await kept_results.summaries(principal=principal, limit=_ALL)]
            if found and not yes:
                _ask(len(found))
        else:
            found = [await _whole_handle(kept_results, handle, principal) for handle in handles]
        dropped = [handle for handle in dict.fromkeys(found) if await kept_results.drop(handle, principal=principal)]
        if as_json:
            print_json("results-rm/1", {"forgotten": dropped})
        else:
            note(f"{len(dropped)} {'result' if len(dropped) == 1 else 'results'} forgotten")
        return OK

    return _with_kept_results(work, config, as_json=as_json)


def _list(*, search: str, limit: int, principal: str, config: str | None, as_json: bool) -> int:
    async def work(kept_results: KeptResults) -> int:
        summaries = await kept_results.summaries(principal=principal, search=search, limit=limit)
        if as_json:
            print_json("results/1", {"results": [summary_as_json(summary) for summary in summaries]})
        elif summaries:
            print_table(["Handle", "Time", "Tool", "What", "Arguments"], [_row(summary) for summary in summaries])
        else:
            note("no kept result matches" if search else "no result is kept")
        return OK

    return _with_kept_results(work, config, as_json=as_json)


def _with_kept_results(
    work: Callable[[KeptResults], Awaitable[int]], config: str | None, *, as_json: bool = False
) -> int:
    async def doing(loaded: Loaded, redact: Redactor) -> int:
        if why := absence(loaded.settings):
            note(why)
        async with result_stores(loaded.settings, redact) as stores:
            return await work(stores.kept_results)

    return run(doing, config, as_json=as_json, load=load_or_default)


async def _whole_handle(kept_results: KeptResults, typed: str, principal: str) -> str:
    """The handle that is, or begins with, what was typed. Ends the command if that is none, or several."""
    typed = typed.strip().lower()
    if len(typed) >= _WHOLE:
        found = [typed] if await kept_results.summary(typed, principal=principal) is not None else []
    else:
        summaries = await kept_results.summaries(principal=principal, limit=_ALL)
        found = [summary.handle for summary in summaries if typed and summary.handle.startswith(typed)]
    if len(found) > 1:
        fail(USAGE, f"several results begin with {typed!r}: {', '.join(found[:5])}", "Type more of it.")
    return found[0] if found else _fail_unknown(typed)


def _fail_unknown(handle: str) -> NoReturn:
    fail(TOOL_ERROR, f"no result is kept under {handle[:40]!r}, or not any more", "`mcpbridge results` lists them.")


def _text_of(data: bytes, preview: int | None) -> str:
    from mcpbridge.results.content import document_of, text_of

    if preview is None:
        text = text_of(data)
        if not text:
            note("it has no text; --raw shows the result")
        return text
    from mcpbridge.results.preview.preview import preview as preview_of

    return preview_of(document_of(data), preview)


def _write(path: Path, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else content.encode(errors="replace")
    try:
        with open(path, "wb", opener=_for_me_alone) as file:
            file.write(data)
    except OSError as error:
        fail(USAGE, f"{path} cannot be written: {error.strerror}")
    note(f"{len(data):,} bytes written to {path}")


def _for_me_alone(path: str, flags: int) -> int:
    """Opens a file that, if it is new, nobody else can read: in the store they cannot either."""
    return os.open(path, flags, 0o600)


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        fail(USAGE, f"{count} results would be forgotten", "Say --yes if they shall be.")
    click.confirm(f"Forget {count} results?", abort=True, err=True)


def _row(summary: ResultSummary) -> list[str]:
    what = f"{summary.headline or summary.kind or '-'}{'' if summary.outcome == 'ok' else ' (error)'}"
    at = f"{datetime.fromtimestamp(summary.at).astimezone():%Y-%m-%d %H:%M:%S}"
    return [
        summary.handle,
        at,
        first_line(summary.tool or "-", 40),
        first_line(what, 60),
        first_line(summary.arguments, 60),
    ]
