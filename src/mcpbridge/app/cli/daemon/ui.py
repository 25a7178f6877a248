"""`mcpbridge ui`: open the console in a browser."""

import os

import click

from mcpbridge.app.cli.config.config_path import config_path, load_trusted
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import note, print_json
from mcpbridge.app.cli.running_bridges import RunningBridge, ensure_daemon, survey
from mcpbridge.app.exit_codes import OK, UNREACHABLE, USAGE
from mcpbridge.base.errors import ConfigError

_PATIENCE = 30.0
"""Seconds that the bridge may take to open the console."""


@click.command("ui")
@config_option
@click.option("--no-open", is_flag=True, help="Print the link, and open no browser.")
@as_json_option
def ui_command(*, config: str | None, no_open: bool, as_json: bool) -> int:
    """Open the console in a browser: servers, calls, tools, approvals, savings.

    The console is part of the bridge that runs for this configuration; if none runs, the daemon is started. The link
    works once, and for a minute. Over SSH, forward the port that it names: `ssh -L PORT:127.0.0.1:PORT HOST`.

    \u0008
    Examples:
      mcpbridge ui
      mcpbridge ui --no-open
    """
    running = running_bridge(config)
    answer = running.ask("console", patience=_PATIENCE)
    if "url" not in answer:
        code = USAGE if answer.get("code") == "disabled" else UNREACHABLE
        fail(code, str(answer.get("error") or "the bridge opened no console"), "`mcpbridge logs` may say why.")
    url = str(answer["url"])
    if as_json:
        print_json("ui/1", {"pid": running.pid, "url": url})
        return OK
    if not no_open and _open(url):
        note("the console opens in your browser; if it does not, this link works once, for a minute:")
    print(url)
    return OK


def running_bridge(config: str | None) -> RunningBridge:
    """The bridge whose console is meant; starts the daemon if none runs."""
    try:
        path = config_path(config)
    except ConfigError:
        found = survey(None).bridges
        if config is not None or len(found) != 1:
            raise
        return found[0]  # one bridge runs, and there is no configuration file here
    around = survey(path)
    around.require_answer(path)
    if around.bridges:
        return (around.daemons or around.bridges)[-1]
    loaded = load_trusted(config, fetches=False)
    return ensure_daemon(path, stays=False, is_found=loaded.is_found)


def _open(url: str) -> bool:
    """Bring the page before the user of this desktop; False: there is none."""
    import anyio

    from mcpbridge.upstream.auth.browser import has_browser, open_page

    return has_browser(os.environ) and anyio.run(open_page, url)
