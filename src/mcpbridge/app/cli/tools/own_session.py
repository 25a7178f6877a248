"""A command's session with a bridge of its own, which starts what the command needs and ends with it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from mcpbridge.app.admin.tool_documents import absent, schema_of, tool_answers
from mcpbridge.app.admin.tool_owner import OVER_ALL, owner_of
from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.output import progress
from mcpbridge.app.cli.tools.session import Work, print_notes
from mcpbridge.app.daemon.handshake import project_uri
from mcpbridge.base.errors import UnknownName
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.library.bridge import Bridge

_DOING = {
    "search": "indexing the tools, and searching …",
    "query": "indexing the tools, and searching …",
    "tokens": "counting tokens …",
}
"""What may take a while of what a command asks."""


class OwnSession:
    """Meets `Session`."""

    def __init__(self, bridge: Bridge, redact: Redactor) -> None:
        self.bridge = bridge
        self.project = project_uri(bridge_session.project_here())
        self._answers = tool_answers(bridge, redact)

    async def ask(self, do: str, **more: object) -> Mapping[str, Any]:
        """See `Session`."""
        with progress(_DOING.get(do, "")):
            return print_notes(await self._answers[do](more))

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
_ALL_SECONDS = 10.0
"""Seconds that they have where the tools of all of them are meant."""


async def call_alone(tool: str, arguments: Mapping[str, Any], work: Work, loaded: Loaded, redact: Redactor) -> int:
    """Do the work, a call of this tool with these arguments, with no more servers than it needs.

    Of servers that were up before it is known what they offer, so only the one that is called is started.

    Raises:
        CommandFailed: there is no such server.
    """
    owner = owner_of(loaded.settings, tool)
    if owner.is_own:
        async with bridge_session.settle(loaded, redact, owner.servers, waits=False) as bridge:
            if owner.servers is not None or _is_there(bridge, tool):
                return await work(OwnSession(bridge, redact))
    elif owner.servers:
        async with bridge_session.settle(loaded, redact, owner.servers) as bridge:
            if _is_there(bridge, tool):
                return await work(OwnSession(bridge, redact))
            print_notes(absent(bridge, only_servers=True))  # ends here if none of them is there
    else:
        bare = tool.rpartition("/")[2].rpartition("__")[2]
        inner = str(arguments.get("name") or "") if bare == "call_tool" else ""
        async with bridge_session.settle(loaded, redact, waits=False, remembers=True) as bridge:
            if bare in OVER_ALL and not inner:
                with anyio.move_on_after(_ALL_SECONDS):
                    await bridge.settled(_ALL_SECONDS)
                return await work(OwnSession(bridge, redact))
            if await _comes(bridge, lambda: _is_there(bridge, inner or tool)):
                return await work(OwnSession(bridge, redact))
    async with bridge_session.settle(loaded, redact) as bridge:
        return await work(OwnSession(bridge, redact))


async def read_alone(uri: str, work: Work, loaded: Loaded, redact: Redactor) -> int:
    """Do the work, which reads this resource, with no more servers than it needs."""
    async with bridge_session.settle(loaded, redact, waits=False, remembers=True) as bridge:
        if uri.startswith("mcpbridge://") or await _comes(bridge, lambda: _has(bridge, uri)):
            return await work(OwnSession(bridge, redact))
    async with bridge_session.settle(loaded, redact) as bridge:
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


def _is_there(bridge: Bridge, tool: str) -> bool:
    return schema_of(bridge, tool) is not None


def _has(bridge: Bridge, uri: str) -> bool:
    try:
        bridge.catalog.snapshot.resource(uri)
    except UnknownName:
        return False
    return True
