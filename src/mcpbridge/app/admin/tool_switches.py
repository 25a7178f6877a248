"""Switch a tool on or off, pin it to the lists of clients, or hide it from them, while the bridge runs.

Who sits at this machine changes `servers.toml`, as `mcpbridge enable` and `disable` do: comments stay, a copy is kept,
and a file that somebody trusted stays trusted. Who administers the bridge over HTTP changes what lies over the file, by
the rules of the HTTP API (`engine/registry/http_rules.py`).
"""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio.to_thread

from mcpbridge.app.admin.errors import Problem
from mcpbridge.base.errors import BridgeError
from mcpbridge.config.edit_servers_toml import Listing, list_tool
from mcpbridge.config.write_servers_toml import prepared, write
from mcpbridge.core.model import BRIDGE, BUILTIN
from mcpbridge.engine.registry.http_rules import RegistryProblem
from mcpbridge.library.bridge import Bridge

Reload = Callable[..., Awaitable[dict[str, object]]]


async def switch_tool(bridge: Bridge, id_: str, *, on: bool, by: str, is_local: bool) -> None:
    """Switch a tool, by its id, on or off. `is_local`: for the person at this machine.

    Raises:
        Problem: there is none, it cannot be switched, or this person may not.
    """
    if id_.partition("/")[0] in (BRIDGE, BUILTIN):
        raise Problem("invalid", f"{id_[:200]} is one of the bridge's own tools: `builtin.enable` says which there are")
    registry = bridge.registry
    try:
        section, name, tool = registry.owner("servers", id_)
        entry = registry.entries.get((section, name))
        is_in_file = bridge.settings.source is not None and (entry is None or entry.table is None)
        if is_local and is_in_file:
            await registry.switch(section, name, on=on, tool=tool, by=by, keep="file")
            return
        if on and not is_local:
            registry.refuse_switching_on(section, name, tool)
        await registry.switch(section, name, on=on, tool=tool, by=by, keep=bridge.settings.source is not None)
    except RegistryProblem as problem:
        raise Problem(problem.code, bridge.redact(str(problem))) from problem
    except BridgeError as error:
        raise Problem("failed", bridge.redact(error.full_message())) from error


async def set_listing(bridge: Bridge, reload: Reload | None, id_: str, listing: Listing) -> None:
    """Pin a tool, hide it, or let the mode decide, in the configuration file; `reload` puts that into effect.

    Raises:
        Problem: there is no file, or it cannot be changed so.
    """
    source = bridge.settings.source
    if source is None or reload is None:
        raise Problem("invalid", "there is no configuration file to write to")
    try:
        change = await anyio.to_thread.run_sync(
            partial(prepared, Path(source), partial(list_tool, tool=id_, listing=listing), os.environ)
        )
        if change.loaded is not None:
            await anyio.to_thread.run_sync(write, change, os.environ)
    except BridgeError as error:
        raise Problem("failed", bridge.redact(error.full_message())) from error
    done = await reload()
    if not done.get("ok"):
        raise Problem("failed", "the file was changed, and something else in it is wrong: see above")
