"""A bridge for the time of one command: load the configuration, start what the command needs, ask, stop."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import anyio

from mcpbridge.app.admin.tool_documents import require_server
from mcpbridge.app.cli.config.config_path import load_trusted
from mcpbridge.app.cli.failures import CommandFailed, fail, failure_code, failure_page, only_error, report
from mcpbridge.app.cli.output import StatusLine, counted, is_at_terminal, note, progress, visible
from mcpbridge.app.cli.prompts import answer_beside_the_loop, ask_at_terminal
from mcpbridge.app.cli.server_states import State, absent, is_ready
from mcpbridge.app.cli.signals import ended_by_signals
from mcpbridge.app.cli.tools.session import print_notes
from mcpbridge.app.daemon.handshake import project_uri
from mcpbridge.app.exit_codes import OK
from mcpbridge.app.logging_setup import set_up_logs
from mcpbridge.app.stdio_proxy.handshake import project_of
from mcpbridge.base.directories import cache_directory, state_directory
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.settings import LogSettings
from mcpbridge.config.load import Loaded
from mcpbridge.downstream.elicitation.program import ProgramAnswers
from mcpbridge.engine.requests import RequestFailed
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client.open_options import patient
from mcpbridge.upstream.manifest import Manifest

Command = Callable[[Loaded, Redactor], Awaitable[int]]
"""The work of a command; returns the exit code."""

_QUIET = LogSettings(level="critical")
"""A command says in its own words what went wrong."""


def run(
    command: Command, config: str | None, *, as_json: bool = False, load: Callable[[str | None], Loaded] = load_trusted
) -> int:
    """Load the configuration, run the command on an event loop and return its exit code. Errors are reported."""
    redact = Redactor()
    try:
        loaded = load(config)
        redact = Redactor(loaded.secrets)
        set_up_logs(_QUIET, redact)
        for warning in loaded.warnings:
            note(redact(warning))
        options = {"use_uvloop": find_spec("uvloop") is not None}
        code = anyio.run(_until_signalled, command, loaded, redact, backend_options=options)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # the end of the program: what it knows, it says
        if isinstance(only_error(error), BrokenPipeError):  # the reader of our output has seen enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        known = report(error, as_json=as_json, redact=redact)
        if known is None:
            raise
        return known
    return code


async def _until_signalled(command: Command, loaded: Loaded, redact: Redactor) -> int:
    received: list[signal.Signals] = []
    with anyio.CancelScope() as scope:

        def end(number: signal.Signals) -> None:
            received.append(number)
            scope.cancel()

        with ended_by_signals(end):
            return await command(loaded, redact)
    (number,) = received
    raise CommandFailed(128 + number, "interrupted" if number == signal.SIGINT else f"ended by {number.name}")


@asynccontextmanager
async def settle(
    loaded: Loaded,
    redact: Redactor,
    servers: Sequence[str] | None = None,
    *,
    waits: bool = True,
    remembers: bool = False,
) -> AsyncGenerator[Bridge]:
    """A bridge whose servers (all, or those named) and own tools are ready or have failed once.

    `waits` False: only its own tools are waited for, while servers start. `remembers`: servers whose offers are known
    from before are started by the first call only.

    Raises:
        ConfigError: there is no server of such a name.
    """
    settings = patient(loaded.settings)  # what is missing from one answer is never announced here
    known = settings.servers
    if servers is not None:
        servers = [name for name in servers if name not in settings.tools]  # these are there in any case
        for name in servers:
            require_server(settings, name)
        settings = settings.model_copy(update={"servers": {name: known[name] for name in servers}})
    enabled = [server for server in settings.servers.values() if not server.disabled]
    longest = max([settings.bridge.startup_wait, *(server.init_timeout for server in enabled)])
    # No other command finds this bridge, so who runs this one is the only person that can be asked.
    settings = settings.model_copy(update={"approval": settings.approval.model_copy(update={"ask": []})})
    manifest = None
    if remembers:
        manifest = Manifest(cache_directory(os.environ) / "manifest")
        settings = settings.model_copy(update={"daemon": settings.daemon.model_copy(update={"warm_up": 0})})
    async with Bridge(
        settings,
        redact=redact,
        manifest=manifest,
        sights=state_directory(os.environ) / "pins",
        answers=ProgramAnswers(answer_beside_the_loop) if is_at_terminal() else None,
        approver=ask_at_terminal,
        is_whole=servers is None,
        project=project_uri(project_here()),
    ) as bridge:
        with progress(_starting(bridge)) as line:
            async with anyio.create_task_group() as tasks:
                if line.is_seen:
                    tasks.start_soon(_show_starts, bridge, line)
                if waits:
                    await bridge.settled(longest + 1)
                else:
                    with anyio.move_on_after(longest + 1):
                        await _own_tools_settled(bridge)
                tasks.cancel_scope.cancel()
        yield bridge


_LOOK = 0.1
"""Seconds between two looks at servers that start, while a person is looking."""


async def _show_starts(bridge: Bridge, line: StatusLine) -> None:
    while True:
        await anyio.sleep(_LOOK)
        line.show(_starting(bridge))


def _starting(bridge: Bridge) -> str:
    """Which servers have started so far."""
    servers = [one for one in bridge.status()["servers"] if one["state"] != "disabled"]
    if not servers:
        return "starting the bridge …"
    ready = [one["name"] for one in servers if is_ready(one)]
    failed = [f"{one['name']} (failed)" for one in servers if one["cause"]]
    done = [*ready, *failed]
    if not done:
        return f"starting {counted(len(servers), 'server')} …"
    return f"starting servers, {len(done)} of {len(servers)} done: {', '.join(done)} …"


async def _own_tools_settled(bridge: Bridge) -> None:
    """Return once tools that no server has are ready or have failed."""
    await bridge.registry.loaded.wait()
    while any(backend["state"] == "starting" for backend in bridge.status()["backends"]):
        if not await bridge.startup.more():
            break
    bridge.catalog.flush()


def project_here() -> str:
    """The directory of the project that a command works in, as `mcpbridge serve` would take it; empty: in none."""
    try:
        return project_of(os.environ, os.getcwd())  # noqa: PTH109 - text is wanted
    except FileNotFoundError:
        return project_of(os.environ, "")


def wanted_servers(bridge: Bridge) -> list[State]:
    """What the bridge says of each server that is not switched off."""
    servers = bridge.settings.servers
    return [server for server in bridge.status()["servers"] if not servers[server["name"]].disabled]


def warn_of_absent(bridge: Bridge) -> None:
    """Say what is missing from what is shown, and end the command if nothing of what is configured works."""
    print_notes(absent(bridge))


async def ask(bridge: Bridge, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request; an error ends the command with the exit code that fits."""
    try:
        return await bridge.request(method, params)
    except RequestFailed as error:
        fail(failure_code(error.data), visible(str(error)), page=failure_page(error.data))
