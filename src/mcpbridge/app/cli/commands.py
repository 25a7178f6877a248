"""All subcommands but `serve`, as a click group. Each one's module is imported when it is used."""

import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from mcpbridge.app.cli.failures import page_of, print_error, report
from mcpbridge.app.exit_codes import INTERRUPTED
from mcpbridge.base.version import __version__

COMMANDS: Mapping[str, tuple[str, str]] = {
    "serve": ("serve", "Serve all configured servers as one, on stdio or over HTTP."),
    "demo": ("demo", "Show what a bridge does, on servers that it brings."),
    # -- setting up
    "init": ("clients.init", "Set up: find servers, write servers.toml, put the bridge into your clients."),
    "import": ("clients.import_servers", "Take over the servers that your clients have in their files."),
    "install": ("clients.install", "Put the bridge into a client's file."),
    "uninstall": ("clients.install", "Take it out again."),
    "doctor": ("config.doctor", "Find out what is wrong, and what to do about it."),
    # -- the daemon
    "up": ("daemon.control", "Start the daemon in the background."),
    "down": ("daemon.control", "Stop it."),
    "restart": ("daemon.control", "Stop it and start it anew; clients stay connected."),
    "reload": ("daemon.control", "Have running bridges read their configuration again."),
    "logs": ("daemon.logs", "Show what the daemon logs."),
    "service": ("daemon.service", "Have the system start the daemon."),
    "daemon": ("daemon.run", "Be the daemon, in the foreground."),
    "ui": ("daemon.ui", "Open the console in a browser."),
    "top": ("daemon.top", "Watch servers, calls and approvals in the terminal."),
    # -- the configuration
    "add": ("config.edit", "Put a server or a tool into the configuration."),
    "remove": ("config.edit", "Take one out of it."),
    "enable": ("config.edit", "Switch a server or a tool on."),
    "disable": ("config.edit", "Switch one off."),
    "trust": ("config.trust", "Trust a servers.toml of a working directory."),
    "untrust": ("config.trust", "Trust it no longer."),
    # -- servers and tools
    "manage": ("tools.manage", "Have a tool of your own do a management command."),
    "list": ("tools.list", "List what the servers offer."),
    "search": ("tools.search", "Find tools by what they do."),
    "call": ("tools.call", "Call a tool."),
    "read": ("tools.call", "Read a resource."),
    "check": ("config.check", "Check the configuration and connect to every server."),
    "login": ("access.login", "Sign in to a server."),
    "logout": ("access.login", "Forget the sign-in to a server."),
    # -- what runs, and what ran
    "status": ("daemon.status", "Show the bridges that are running."),
    "stats": (
        "calls.stats",
        "Show how often each tool was called, how long it took, and the tokens that results cost.",
    ),
    "tokens": ("tools.tokens", "Show what each server's tools cost a model's context."),
    "bench": ("tools.bench", "Measure how well tools are found."),
    "log": ("calls.log", "Show what was called."),
    "approvals": ("calls.approvals", "List the calls that wait for approval."),
    "approve": ("calls.approvals", "Approve a call that waits for it."),
    "deny": ("calls.approvals", "Refuse a call that waits for approval."),
    "results": ("calls.results", "Show, read or forget large results that were kept."),
    "cache": ("calls.cache", "Show or clear the results that are kept."),
    # -- for programs
    "token": ("access.token", "Make bearer tokens for the HTTP front."),
    "rank": ("tools.rank", "Rank tools out of files, in JSON lines, to score the ranker."),
}
"""Each command, in the order of `mcpbridge --help`: its module below `app/cli`, which has it as `NAME_command`; and
what it does, in a line."""


def command_of(name: str) -> click.Command:
    """A command of the table but `serve` and `daemon`, from its module."""
    module = importlib.import_module(f"mcpbridge.app.cli.{COMMANDS[name][0]}")
    return getattr(module, f"{name}_command")


class _Commands(click.Group):
    """Finds a subcommand by the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "serve":  # has a parser of its own, and is dispatched before this module is imported
            return click.Command("serve")
        return command_of(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from mcpbridge.base.suggestions import nearest

            close = nearest(name, COMMANDS, limit=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, summary) for name, (_, summary) in COMMANDS.items()]
            )  # without importing any of them


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
        _show_usage(error, arguments)
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except Exception as error:  # the end of the program: what it knows, it says
        known = report(error, as_json="--json" in arguments, command=arguments[0] if arguments else "")
        if known is None:
            raise
        return known
    return code if isinstance(code, int) else 0


def _show_usage(error: click.ClickException, arguments: Sequence[str]) -> None:
    """Say on standard error how the command is used."""
    about = error.ctx if isinstance(error, click.UsageError) else None
    if "--json" in arguments:
        words = about.command_path.split()[1:] if about is not None else []
        advice = f"`{about.command_path} --help` shows how it is used." if about is not None else ""
        print_error(error.exit_code, error.format_message(), advice, page_of(" ".join(words[:1])), as_json=True)
        return
    error.show(file=sys.stderr)
    if isinstance(error, click.NoSuchOption) and about is not None and about.parent is None:
        print("The options of a command come after it: mcpbridge list --config FILE.", file=sys.stderr)
