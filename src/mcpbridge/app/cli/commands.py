"""All subcommands but `serve`, as a click group. Each one's module is imported when it is used."""

import importlib
import sys
from collections.abc import Sequence

import click

from mcpbridge.app.cli.exit_codes import report
from mcpbridge.app.cli.signals import INTERRUPTED
from mcpbridge.base.errors import nearest
from mcpbridge.base.version import __version__

_SUMMARIES = {
    "serve": "Serve all configured servers as one, on stdio or over HTTP.",
    "init": "Set up: find servers, write servers.toml, put the bridge into your clients.",
    "import": "Take over the servers that your clients have in their files.",
    "install": "Put the bridge into a client's file.",
    "uninstall": "Take it out again.",
    "doctor": "Find out what is wrong, and what to do about it.",
    "up": "Start the daemon in the background.",
    "down": "Stop it.",
    "restart": "Stop it and start it anew; clients stay connected.",
    "reload": "Have running bridges read their configuration again.",
    "logs": "Show what the daemon logs.",
    "service": "Have the system start the daemon.",
    "daemon": "Be the daemon, in the foreground.",
    "add": "Put a server or a tool into the configuration.",
    "remove": "Take one out of it.",
    "enable": "Switch a server or a tool on.",
    "disable": "Switch one off.",
    "manage": "Have a tool of your own do a management command.",
    "list": "List what the servers offer.",
    "search": "Find tools by what they do.",
    "call": "Call a tool.",
    "read": "Read a resource.",
    "check": "Check the configuration and connect to every server.",
    "login": "Sign in to a server.",
    "logout": "Forget the sign-in to a server.",
    "status": "Show the bridges that are running.",
    "stats": "Show how often each tool was called, how long it took, and the tokens that results cost.",
    "tokens": "Show what each server's tools cost a model's context.",
    "bench": "Measure how well tools are found.",
    "log": "Show what was called.",
    "approvals": "List the calls that wait for approval.",
    "approve": "Approve a call that waits for it.",
    "deny": "Refuse a call that waits for approval.",
    "results": "Show, read or forget large results that were kept.",
    "cache": "Show or clear the results that are kept.",
    "token": "Make bearer tokens for the HTTP front.",
    "rank": "Rank tools out of files, in JSON lines, to score the ranker.",
}


_HOMES = {
    "add": ("app.cli.config.edit", "command"),
    "approvals": ("app.cli.calls.approvals", "command"),
    "approve": ("app.cli.calls.approvals", "approve_command"),
    "bench": ("app.cli.tools.bench", "command"),
    "cache": ("app.cli.calls.results", "cache_command"),
    "call": ("app.cli.tools.call", "command"),
    "check": ("app.cli.config.check", "command"),
    "daemon": ("app.cli.daemon.run", "command"),
    "deny": ("app.cli.calls.approvals", "deny_command"),
    "disable": ("app.cli.config.edit", "disable_command"),
    "doctor": ("app.cli.config.doctor", "command"),
    "down": ("app.cli.daemon.control", "down_command"),
    "enable": ("app.cli.config.edit", "enable_command"),
    "import_servers": ("app.cli.config.import_servers", "command"),
    "init": ("app.cli.config.init", "command"),
    "install": ("app.cli.clients.install", "command"),
    "list": ("app.cli.tools.list", "command"),
    "log": ("app.cli.calls.log", "command"),
    "login": ("app.cli.login", "command"),
    "logout": ("app.cli.login", "logout_command"),
    "logs": ("app.cli.daemon.logs", "command"),
    "manage": ("app.cli.tools.manage", "command"),
    "rank": ("app.cli.tools.search", "rank_command"),
    "read": ("app.cli.tools.call", "read_command"),
    "reload": ("app.cli.daemon.control", "reload_command"),
    "remove": ("app.cli.config.edit", "remove_command"),
    "restart": ("app.cli.daemon.control", "restart_command"),
    "results": ("app.cli.calls.results", "command"),
    "search": ("app.cli.tools.search", "command"),
    "service": ("app.cli.daemon.service", "command"),
    "stats": ("app.cli.calls.stats", "command"),
    "status": ("app.cli.daemon.status", "command"),
    "token": ("app.cli.login", "token_command"),
    "tokens": ("app.cli.tools.tokens", "command"),
    "uninstall": ("app.cli.clients.install", "uninstall_command"),
    "up": ("app.cli.daemon.control", "command"),
}


class _Commands(click.Group):
    """Finds a subcommand `x` as the object `command` of `mcpbridge.cli.x`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUMMARIES:
            return None
        if cmd_name == "serve":  # has a parser of its own, and is dispatched before this module is imported
            return click.Command("serve")
        module = "import_servers" if cmd_name == "import" else cmd_name  # the word is Python's
        home, name = _HOMES[module]
        return getattr(importlib.import_module(f"mcpbridge.{home}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _SUMMARIES and not name.startswith("-"):
            close = nearest(name, _SUMMARIES, limit=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(_SUMMARIES)}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))  # without importing any of them


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="mcpbridge %(version)s")
def _mcpbridge() -> None:
    """One MCP server in front of all of yours.

    The servers stand in servers.toml, or in any mcpServers JSON named with --config.
    """


def run(arguments: Sequence[str]) -> int:
    """Run a subcommand and return its exit code."""
    try:
        code = _mcpbridge.main(list(arguments), prog_name="mcpbridge", standalone_mode=False)
    except click.ClickException as error:
        error.show(file=sys.stderr)
        if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.parent is None:
            print("The options of a command come after it: mcpbridge list --config FILE.", file=sys.stderr)
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except Exception as error:  # the end of the program: what it knows, it says
        known = report(error, as_json="--json" in arguments)
        if known is None:
            raise
        return known
    return code if isinstance(code, int) else 0
