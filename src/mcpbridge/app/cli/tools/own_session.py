"""A command's session with a bridge of its own, which starts what the command needs and ends with it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from mcpbridge.app.admin.tool_documents import PATIENCE, is_ambiguous, schema_of, tool_answers
from mcpbridge.app.admin.tool_owner import OVER_ALL, owner_of
from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.config.audited import audit
from mcpbridge.app.cli.failures import CommandFailed
from mcpbridge.app.cli.output import progress
from mcpbridge.app.cli.server_states import absent
from mcpbridge.app.cli.tools.session import Work, print_notes
from mcpbridge.app.daemon.handshake import project_uri
from mcpbridge.base.errors import UnknownName
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.engine.audit_trail import UNKNOWN_TOOL
from mcpbridge.library.bridge import Bridge

_DOING = {
    "search": "indexing the tools, and searching …",
    "query": "indexing the tools, and searching …",
    "tokens": "counting tokens …",
}
"""What may take a while of what a command asks."""


class OwnSession:
    """Meets `Session`."""

    def __init__(self, bridge: Bridge, redact: Redactor, *, waits: bool = True) -> None:
        """`waits` False: no question waits for servers that start."""
        self.bridge = bridge
        self._waits = waits
        self.project = project_uri(bridge_session.project_here())
        self._answers = tool_answers(bridge, redact)

    async def ask(self, do: str, **more: object) -> Mapping[str, Any]:
        """See `Session`."""
        with progress(_DOING.get(do, "")):
            return print_notes(await self._answers[do]({"waits": self._waits, **more}))

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """See `Session`."""
        return await bridge_session.ask(self.bridge, method, dict(params))


def run(
    work: Work,
    config: str | None,
    *,
    as_json: bool,
    servers: Sequence[str] | None,
    alone: Callable[[Loaded, Redactor], Awaitable[int]] | None,
) -> int:
    """Load the configuration, start these servers (None: all), do the work, end them. See `session.run`."""

    async def working(loaded: Loaded, redact: Redactor) -> int:
        async with bridge_session.settle(loaded, redact, servers) as bridge:
            return await work(OwnSession(bridge, redact))

    return bridge_session.run(alone or working, config, as_json=as_json)


_MORE_SECONDS = 1.0
"""Seconds that servers of which nothing is known have to start, once there is a tool of the name that is called: one of
them may have such a tool, too."""


async def call_alone(tool: str, arguments: Mapping[str, Any], work: Work, loaded: Loaded, redact: Redactor) -> int:
    """Do the work, a call of this tool with these arguments, with no more servers than it needs.

    Of servers that were up before it is known what they offer, so only the one that is called is started.

    Raises:
        CommandFailed: there is no such server.
    """
    try:
        owner = owner_of(loaded.settings, tool)
    except CommandFailed:
        audit(loaded.settings.audit, UNKNOWN_TOOL, {"tool": tool, "outcome": "refused"}, redact)
        raise
    if owner.is_own:
        async with bridge_session.settle(loaded, redact, owner.servers, waits=False) as bridge:
            is_there = owner.servers is not None or _is_there(bridge, tool)
            return await work(OwnSession(bridge, redact) if is_there else _after_the_start(bridge, redact))
    if owner.servers:
        async with bridge_session.settle(loaded, redact, owner.servers) as bridge:
            if _is_there(bridge, tool):
                return await work(OwnSession(bridge, redact))
            print_notes(absent(bridge, only_servers=True))  # ends here if none of them is there
        async with bridge_session.settle(loaded, redact) as bridge:
            return await work(OwnSession(bridge, redact))
    bare = tool.rpartition("/")[2].rpartition("__")[2]
    inner = str(arguments.get("name") or "") if bare == "call_tool" else ""
    if bare not in OVER_ALL or inner:
        name = inner or tool
        return await _search(loaded, redact, work, lambda bridge: _is_there(bridge, name) or is_ambiguous(bridge, name))
    async with bridge_session.settle(loaded, redact, waits=False, remembers=True) as bridge:
        with anyio.move_on_after(PATIENCE):
            await bridge.settled(PATIENCE)
        return await work(_after_the_start(bridge, redact))


async def read_alone(uri: str, work: Work, loaded: Loaded, redact: Redactor) -> int:
    """Do the work, which reads this resource, with no more servers than it needs."""
    return await _search(loaded, redact, work, lambda bridge: uri.startswith("mcpbridge://") or _has(bridge, uri))


async def _search(loaded: Loaded, redact: Redactor, work: Work, is_there: Callable[[Bridge], bool]) -> int:
    """Do the work once a server that starts, or one that is known from before, has what it is about, or none has it."""
    async with bridge_session.settle(loaded, redact, waits=False, remembers=True) as bridge:
        has_come = await _comes(bridge, lambda: is_there(bridge))
        resting = [server for server, upstream in bridge.pool.upstreams.items() if upstream.is_at_rest]
        if has_come or not resting:
            return await work(_after_the_start(bridge, redact))
        print_notes({"notes": absent(bridge)["notes"]})
    # Those that were waited for do not have it. The others are known from before, and may have changed since.
    async with bridge_session.settle(loaded, redact, resting) as bridge:
        return await work(OwnSession(bridge, redact))


async def _comes(bridge: Bridge, is_there: Callable[[], bool]) -> bool:
    """Whether it is there, as far as servers that start tell while they are waited for."""
    while not is_there():
        if not await bridge.startup.more():
            bridge.catalog.flush()
            return is_there()
        bridge.catalog.flush()
    await bridge.settled(_MORE_SECONDS)
    return is_there()


def _after_the_start(bridge: Bridge, redact: Redactor) -> OwnSession:
    """The session of a call that has waited for servers to start, and does not wait for them once more."""
    bridge.startup.end()
    return OwnSession(bridge, redact, waits=False)


def _is_there(bridge: Bridge, tool: str) -> bool:
    return schema_of(bridge, tool) is not None


def _has(bridge: Bridge, uri: str) -> bool:
    try:
        bridge.catalog.snapshot.resource(uri)
    except UnknownName:
        return False
    return True
