"""`mcpbridge check`: is the configuration right, does every server answer, and does every tool work?"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import counted, note, print_json, print_table, progress, visible
from mcpbridge.app.cli.server_states import State, fault, is_ready, offers
from mcpbridge.app.exit_codes import OK, UNREACHABLE, USAGE
from mcpbridge.base.errors import UnknownName
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import TOOLS
from mcpbridge.library.bridge import Bridge

_UNKNOWN = "unknown"


@click.command("check")
@click.argument("names", nargs=-1)
@config_option
@as_json_option
@header_option
def check_command(*, names: tuple[str, ...], config: str | None, as_json: bool) -> int:
    """Check the configuration, connect to every server, and check every tool of [tools].

    With NAMES only these are checked: servers, tools of [tools], built-in tools (builtin/NAME), or single tools by
    their id (`github/create_issue`) or by the name that clients see. Rules, hooks and tables that match no tool are
    reported too. Exit code 4: one does not work.

    \u0008
    Examples:
      mcpbridge check
      mcpbridge check github weather
    """

    async def checking(loaded: Loaded, redact: Redactor) -> int:
        if names:
            return await _check_named(names, loaded, redact, as_json=as_json)
        async with bridge_session.settle(loaded, redact) as bridge:
            servers = bridge_session.wanted_servers(bridge)
            with progress("checking the tools …"):
                await bridge.startup.settled()
                tools = [one.as_json() for one in await bridge.health_checks.check_all() if one.kind == "backend"]
            status = bridge.status()
            warnings = [*status["warnings"], *_missing_programs(loaded.settings)]
        ready = all(map(is_ready, servers)) and all(one["ok"] for one in tools)
        if as_json:
            found = {"servers": servers, "tools": tools, "inactive": status["inactive"], "warnings": warnings}
            print_json("check/1", {"config": loaded.settings.source, "ok": ready, **found})
        else:
            _print(servers, tools, status["inactive"], loaded.settings.builtin.enable)
        for warning in warnings if not as_json else ():
            note(visible(redact(warning)))
        return OK if ready else UNREACHABLE

    return bridge_session.run(checking, config, as_json=as_json)


def _print(
    servers: Sequence[State], tools: Sequence[State], inactive: Sequence[State], builtins: Sequence[str]
) -> None:
    if servers:
        print_table(["Result", "Server", "Transport", "Protocol", "Offers"], list(map(_row, servers)), wraps="Offers")
    if tools:
        if servers:
            print()
        print_table(["Result", "Tool", "Found"], list(map(_check_row, tools)), wraps="Found")
    lacking = {one["name"] for one in inactive}
    if own := [name for name in dict.fromkeys(builtins) if name not in lacking]:
        print(f"built-in: {', '.join(own)}")
    for one in inactive:
        print(visible(f"inactive: {one['name']}: {one['reason']}"))
    if not servers and not tools and not builtins:
        print("the configuration is right; no server and no tool is enabled in it")


async def _check_named(names: Sequence[str], loaded: Loaded, redact: Redactor, *, as_json: bool) -> int:
    """Look at some alone; only the servers are started that they need."""
    async with bridge_session.settle(loaded, redact, _needed(names, loaded.settings)) as bridge:
        with progress(f"checking {counted(len(names), 'name')} …"):
            await bridge.startup.settled()
            checks = [await _looked_at(bridge, name) for name in dict.fromkeys(names)]
    is_well = all(one["ok"] for one in checks)
    if as_json:
        print_json("check-names/1", {"config": loaded.settings.source, "ok": is_well, "checks": checks})
    else:
        print_table(["Result", "Name", "Found"], list(map(_check_row, checks)), wraps="Found")
    if unknown := [one for one in checks if one["kind"] == _UNKNOWN]:
        fail(USAGE, visible(" ".join(one["detail"] for one in unknown)))
    return OK if is_well else UNREACHABLE


def try_out(name: str, config: str | None, *, is_tool: bool) -> dict[str, Any] | None:
    """Whether one server, or one tool of [tools], works: it alone is started. None: it is switched off, or not tried.

    What keeps it from being tried is reported.
    """
    found: list[dict[str, Any]] = []

    async def look(loaded: Loaded, redact: Redactor) -> int:
        settings = loaded.settings
        added = settings.tools.get(name) if is_tool else settings.servers.get(name)
        if added is None or added.disabled:
            return OK
        async with bridge_session.settle(loaded, redact, [] if is_tool else [name]) as bridge:
            await bridge.startup.settled()
            if is_tool:
                with suppress(UnknownName):  # somebody switched it off over the API
                    check = await bridge.health_checks.check(f"{TOOLS}/{name}")
                    found.append({"ok": check.ok, "detail": redact(check.detail.removeprefix(f"backend {name}: "))})
                return OK
            for server in bridge_session.wanted_servers(bridge):  # none, if somebody switched it off over the API
                is_well = is_ready(server)
                detail = f"{server.get('protocol')}, {offers(server)}" if is_well else fault(server)
                found.append({"ok": is_well, "detail": redact(detail)})
        return OK

    bridge_session.run(look, config)
    return found[0] if found else None


def _needed(names: Sequence[str], settings: Settings) -> list[str] | None:
    """The servers to start; None: all, since a name can be of any."""
    servers: list[str] = []
    for name in names:
        head, _, rest = name.partition("/")
        if head in settings.servers:
            servers.append(head)
        elif not (head in settings.tools or (head == TOOLS and rest in settings.tools) or _is_builtin(name, settings)):
            return None
    return list(dict.fromkeys(servers))


def _is_builtin(name: str, settings: Settings) -> bool:
    return name.rpartition("/")[2] in settings.builtin.enable


async def _looked_at(bridge: Bridge, name: str) -> dict[str, Any]:
    settings = bridge.settings
    off = settings.servers.get(name) or settings.tools.get(name.removeprefix(f"{TOOLS}/"))
    if off is not None and off.disabled:
        return {"name": name, "kind": "switched off", "ok": False, "detail": "it is switched off"}
    try:
        return (await bridge.health_checks.check(name)).as_json()
    except UnknownName as error:
        return {"name": name, "kind": _UNKNOWN, "ok": False, "detail": error.full_message()}


def _missing_programs(settings: Settings) -> Iterator[str]:
    """Hooks whose program there is not: no call of their tools would pass, or nothing would guard it."""
    directory = Path(settings.source).parent if settings.source else Path()
    for number, hook in enumerate(settings.hooks, 1):
        if hook.command is not None:
            program = hook.command[0]
            where = str(directory / program) if "/" in program else program
            if shutil.which(where, path=hook.env.get("PATH")) is None:
                yield f"hook {number} of `hooks`: there is no program {program!r} that can be run"


def _row(server: State) -> list[str]:
    reached = [str(server.get(key) or "") for key in ("name", "transport", "protocol")]
    return ["ok", *reached, offers(server)] if is_ready(server) else ["FAILED", *reached, fault(server)]


def _check_row(check: State) -> list[str]:
    return ["ok" if check["ok"] else "FAILED", str(check["name"]), visible(str(check["detail"])) or "it works"]
