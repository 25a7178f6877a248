"""What came of the calls of a run, kept so that a run that goes on later repeats none of them.

The records are in the store, by run and call, and belong to the user of the run: another process finds them as well.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.backends.outputs import Misshapen, json_of
from mcpbridge.context import Keeping
from mcpbridge.errors import StoreFailed
from mcpbridge.library.call_results import result_of
from mcpbridge.logs import get_logger
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall

__all__ = ["KEPT_SECONDS", "Finished"]

log = get_logger("mcpbridge.library")

KIND = "finished"
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a run can be gone on with and finds what its calls came to."""


class _Record(Struct, frozen=True):
    raw: Mapping[str, Any]
    artifacts: Sequence[Any] = ()
    paused: PausedCall | None = None


class Finished:
    """The records of one run."""

    def __init__(self, store: Keeping, *, run: str, user: str) -> None:
        self._store, self._run, self._user = store, run, user

    async def keep(self, call: ToolCall[Any, Any], result: CallResult[Any]) -> None:
        """Keep what came of a call; also that it is paused. What cannot be kept is logged, and the run goes on."""
        try:
            body = msgspec.json.encode(_Record(result.raw, result.artifacts, result.paused), enc_hook=_as_json)
            handle = self._handle(call)
            await self._store.put(KIND, body, principal=self._user, expires_in=KEPT_SECONDS, handle=handle)
        except (StoreFailed, Misshapen) as error:
            log.warning("result of a run not kept", run=self._run, error=str(error))

    async def find(self, call: ToolCall[Any, Any]) -> CallResult[Any] | None:
        """What came of a call before, perhaps that it is paused; None: it was not made, or that is not known."""
        body = await self._store.get(KIND, self._handle(call), principal=self._user)
        if body is None:
            return None
        record = msgspec.json.decode(body, type=_Record)
        return result_of(record.raw, call, artifacts=record.artifacts, paused=record.paused)

    def _handle(self, call: ToolCall[Any, Any]) -> str:
        """The name of a record. Not the id alone: some models count their calls anew in each turn."""
        parts = self._run.encode(), call.id.encode(), call.name.encode(), _arguments(call)
        whole = sha256()
        for part in parts:
            whole.update(b"%d:%b" % (len(part), part))
        return whole.hexdigest()


def _arguments(call: ToolCall[Any, Any]) -> bytes:
    if call.problem:
        return call.problem.encode()
    return msgspec.json.encode(msgspec.json.decode(json_of(call.arguments)), order="sorted")


def _as_json(value: object) -> Any:
    return msgspec.Raw(json_of(value))
