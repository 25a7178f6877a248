"""Say once to each client that a server which it has used has lost its memory (issue 24).

A server with `share = "fleet"` has one process for all bridges. It begins anew when its bridge dies or drains, or when
it ends by itself, and what it kept in its memory is gone. The next result of its tools for a client says so: to models
at the end of the content, to programs in `_meta`. That reaches clients of all revisions, at whichever bridge.

Processes are numbered (`Processes.epoch`). Which one a client has used last is known to the whole fleet, so that one
bridge says it, once. A bridge asks for that at the first call of a client since the process began, and once a day.
While the records are away nothing is said; the next call asks again.
"""

from collections.abc import Collection
from time import monotonic
from typing import Protocol, cast

from msgspec import Raw

from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import BRIDGE, Call, CallHandler, Tool
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.per_client import Recent, shared_client_of
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.task_results import is_task
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_array

LOST_MEMORY_META = "mcpbridge/lostMemory"
"""In `_meta` of a result: the servers whose memory was lost since the client used them."""
_RENEW_SECONDS = 24 * 3600.0
"""After which a use is written down again, so that it is not forgotten."""
_PROGRAMS = "run_code"
"""The tool whose programs call others: its own result is what a model gets of them."""
_FACT = "lost memory"


class Processes(Protocol):
    """The processes that the fleet has once."""

    def epoch(self, server: str) -> int:
        """The number of the process that calls of this server go to; later ones have higher ones. 0: none is known."""
        ...

    async def used(self, server: str, client: str, epoch: int) -> int:
        """Write down that a client has used this process. Returns the last that it had used; 0: none.

        Raises:
            StoreFailed: the records are away.
        """
        ...


class LostMemory:
    """Makes the stages, and knows which processes clients of this bridge have used."""

    def __init__(self) -> None:
        self._servers: Collection[str] = ()
        self._processes: Processes | None = None
        self._known = Recent[dict[str, tuple[int, float]]](dict)
        """By client and server: the process that is written down, and when it was."""

    def configure(self, servers: Collection[str]) -> None:
        """The fleet has these once, from now on."""
        self._servers = servers

    def join(self, processes: Processes | None) -> None:
        """What knows the processes; None: this bridge is no member any more."""
        self._processes = processes

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools of servers that the fleet has once, and for programs that call them."""
        if tool is None or not self._servers:
            return None
        if tool.server in self._servers:
            return _Noting(self, tool.server)
        return _of_program if _is_program(tool) else None

    def is_known(self, server: str, call: Call) -> bool:
        """That the client uses this process is written down, so there is nothing to say."""
        if self._processes is None:
            return True
        epoch, at = self._known.of(shared_client_of(call)).get(server, (0, 0.0))
        return epoch == self._processes.epoch(server) and monotonic() - at < _RENEW_SECONDS

    async def has_lost(self, server: str, call: Call) -> bool:
        """Note that the client uses the process. Returns whether it has used another one before, and now hears so."""
        if self._processes is None or self.is_known(server, call):
            return False
        client = shared_client_of(call)
        known, epoch = self._known.of(client), self._processes.epoch(server)
        try:
            before = await self._processes.used(server, client, epoch)
        except StoreFailed:
            return False
        before = max(before, known.get(server, (0, 0.0))[0])  # the records may have lost it
        known[server] = epoch, monotonic()
        return 0 < before < epoch


class _Noting:
    """The stage of one tool."""

    def __init__(self, memory: LostMemory, server: str) -> None:
        self._memory, self._server = memory, server

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        result = await proceed(call)
        outer = call
        while outer.within is not None:
            outer = outer.within
        if needs_driving(result) or is_task(result) or not (outer is call or _is_program(outer.tool)):
            return result  # what code of the user's own gets is for no model
        if not await self._memory.has_lost(self._server, call):
            return result
        if outer is call:
            return _with_note(result, [self._server])
        outer.note(_FACT, [*_noted(outer), self._server])
        return result

    def express_end(self, call: Call, result: Raw, seconds: float) -> bool:
        """See `pipeline/stage.py`."""
        return self._memory.is_known(self._server, call)


async def _of_program(call: Call, proceed: CallHandler) -> Body:
    result = await proceed(call)
    return _with_note(result, servers) if (servers := _noted(call)) and not needs_driving(result) else result


def _is_program(tool: Tool | None) -> bool:
    return tool is not None and tool.server == BRIDGE and tool.name == _PROGRAMS


def _noted(call: Call) -> list[str]:
    found = (call.facts or {}).get(_FACT)
    return cast("list[str]", found) if isinstance(found, list) else []


def _with_note(result: Body, servers: list[str]) -> Body:
    noted = result.copy()  # others may hold the same result
    meta = noted.inner("_meta") or Body()
    meta.put(LOST_MEMORY_META, servers)
    noted.put("_meta", meta)
    content = noted.get("content")
    if content is not None and bytes(content).startswith(b"["):
        texts = [{"type": "text", "text": _text_of(server)} for server in servers]
        noted.put("content", [*decode_array(content), *texts])
    return noted


def _text_of(server: str) -> str:
    return (
        f"[mcpbridge: server '{server}' was started anew since you used it last. What it kept in its memory, such as "
        "open pages or a selection, is lost]"
    )
