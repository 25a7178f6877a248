"""All subcommands but `serve`, as a click group. Each one's module is imported when it is used."""

import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from mcpbridge.app.cli.failures import page_of, print_error, report
from mcpbridge.app.exit_codes import INTERRUPTED
from mcpbridge.base.version import __version__

JOBS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("demo", "Show what the bridge does, on small servers that it brings."),
        "init": ("clients.init", "Set up: find your servers, and put the bridge into your clients."),
        "import": ("clients.import_servers", "Take over the servers that your clients have."),
        "install": ("clients.install", "Put the bridge into a client."),
        "uninstall": ("clients.install", "Take the bridge out of a client."),
        "serve": ("serve", "Serve all servers as one, on stdio or over HTTP."),
        "up": ("daemon.control", "Start the daemon in the background."),
        "down": ("daemon.control", "Stop the daemon."),
        "restart": ("daemon.control", "Start the daemon again; clients stay connected."),
        "service": ("daemon.service", "Make the system start the daemon."),
        "daemon": ("daemon.run_command", "Run the daemon in the foreground."),
        "ui": ("daemon.ui", "Open the console in a browser."),
        "top": ("daemon.top", "Watch servers, calls and approvals in the terminal."),
    },
    "Servers": {
        "add": ("config.edit", "Add a server or a tool to the configuration."),
        "remove": ("config.edit", "Remove a server or a tool from it."),
        "enable": ("config.edit", "Switch a server or a tool on."),
        "disable": ("config.edit", "Switch a server or a tool off."),
        "list": ("tools.list", "List what the servers offer."),
        "search": ("tools.search", "Find tools by what they do."),
        "tokens": ("tools.tokens", "Show what the tools cost a model's context."),
        "bench": ("tools.bench", "Measure how well tools are found."),
        "login": ("access.login", "Sign in to a server."),
        "logout": ("access.login", "Forget the sign-in to a server."),
        "manage": ("tools.manage", "Run a management command of a tool of yours."),
    },
    "Calls": {
        "call": ("tools.call", "Call a tool."),
        "read": ("tools.call", "Read a resource."),
        "log": ("calls.log", "Show the calls that were made."),
        "stats": ("calls.stats", "Show how often tools were called, and what results cost."),
        "usage": ("calls.usage", "Show who used what, and what it cost."),
        "results": ("calls.results", "Show, read or delete large results that were kept."),
        "cache": ("calls.cache", "Show or clear cached results."),
    },
    "Trust": {
        "scan": ("tools.scan", "Look for texts of servers that try to steer a model."),
        "lock": ("tools.lock", "Write down what servers show now, and see what they change."),
        "audit": ("calls.audit", "Show the audit log, and find what was done to it."),
        "approvals": ("calls.approvals", "List the calls that wait for approval."),
        "approve": ("calls.approvals", "Approve a call."),
        "deny": ("calls.approvals", "Refuse a call."),
        "trust": ("config.trust", "Trust a configuration of a working directory."),
        "untrust": ("config.trust", "Stop trusting a configuration."),
        "auth": ("access.auth", "Find out who may do what, and take a role for an emergency."),
        "secret": ("access.secret", "Store the secrets that the configuration refers to."),
        "token": ("access.token", "Make a bearer token for HTTP clients."),
        "users": ("access.users", "Show who has accounts at servers, and take them away."),
        "connections": ("access.users", "Link to the page of users' accounts, set their variables, change the key."),
    },
    "Trouble": {
        "status": ("daemon.status", "Show the bridges that are running, and their servers."),
        "fleet": ("daemon.fleet", "Show the bridges that act as one, and take one of them out."),
        "doctor": ("config.doctor", "Find out what is wrong, and what to do about it."),
        "check": ("config.check", "Check the configuration, every server and every tool."),
        "logs": ("daemon.logs", "Show the log of the daemon."),
        "reload": ("daemon.control", "Make running bridges read the configuration again."),
    },
    "Shells and programs": {
        "completion": ("help.completion", "Complete commands and names in your shell when you press Tab."),
        "rank": ("tools.rank", "Rank tools of files, in JSON lines, to score the ranker."),
    },
}
"""Each command by what people want to do, in the order of `mcpbridge --help`: its module below `app/cli`, which has it
as `NAME_command`; and what it does, in a line."""

COMMANDS: Mapping[str, tuple[str, str]] = {name: one for job in JOBS.values() for name, one in job.items()}
"""All of them."""


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
        widest = max(map(len, COMMANDS))
        for job, commands in JOBS.items():
            with formatter.section(job):
                # Padded, so that all sections have one column. None of the modules is imported.
                formatter.write_dl([(name.ljust(widest), about) for name, (_, about) in commands.items()])


_EXIT_CODES = """Exit codes: 0 done; 2 wrong usage or configuration; 4 a server or bridge cannot be reached;
5 the tool answered with an error; 6 somebody answered before; 7 no answer in time; 130 interrupted."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(__version__, "-V", "--version", message="mcpbridge %(version)s")
def _mcpbridge() -> None:
    """One MCP server in front of all of yours.

    The servers are in servers.toml, or in any mcpServers JSON that --config names. Without a command, mcpbridge shows
    how things are, and what to do next. `mcpbridge COMMAND --help` shows the options of a command, with an example.
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
