"""What came of the calls of a run, kept so that a run that goes on later repeats none of them.

The records are in the store, by tenant, run and call, and belong to the user of the run: another process finds them as
well. That they are kept is worth less than the run: what cannot be is logged, and the run goes on.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mcpbridge.backends.outputs import Misshapen, json_of
from mcpbridge.context import Keeping
from mcpbridge.errors import StoreFailed
from mcpbridge.library.call_results import result_of
from mcpbridge.library.one_call import encoded
from mcpbridge.logs import get_logger
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall
from mcpbridge.wire.python_values import decoded

__all__ = ["KEPT_SECONDS", "Finished"]

log = get_logger("mcpbridge.library")

KIND = "finished"
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a run can be gone on with and finds what its calls came to."""


class _Record(Struct, frozen=True):
    raw: Raw
    """The result object; each as JSON, since it is read as programs get it (`decoded`)."""
    artifacts: Raw
    paused: Raw
    """The `PausedCall`, or null."""


class Finished:
    """The records of one run."""

    def __init__(self, store: Keeping, *, run: str, user: str, tenant: str = "") -> None:
        self._store, self._run, self._user, self._tenant = store, run, user, tenant

    def handles(self, calls: Sequence[ToolCall[Any, Any]]) -> list[str]:
        """The names of the records of a turn's calls, all of them, in their order.

        Not their ids: some models count their calls anew in each turn, or give all of a turn the same.
        """
        seen = Counter[str]()
        named: list[str] = []
        for call in calls:
            name = self._named(call.id, call.name, arguments=_arguments(call))
            named.append(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] += 1
        return named

    @property
    def name(self) -> str:
        """Of all records of the run together, as a handle."""
        return self._named("")

    async def keep(self, handle: str, result: CallResult[Any]) -> None:
        """Keep what came of a call; also that it is paused. Does not raise."""
        try:
            body = _encode({"raw": result.raw, "artifacts": result.artifacts, "paused": result.paused})
            await self._store.put(KIND, body, principal=self._user, expires_in=KEPT_SECONDS, handle=handle)
        except (StoreFailed, Misshapen, TypeError, ValueError, RecursionError) as error:
            log.warning("result of a run not kept", run=self._run, error=str(error))

    async def find(self, handle: str, call: ToolCall[Any, Any]) -> CallResult[Any] | None:
        """What came of a call before, perhaps that it is paused; None: it was not made, or that is not known.

        Raises:
            StoreFailed: the store cannot be read: then nobody knows what was made.
        """
        body = await self._store.get(KIND, handle, principal=self._user)
        if body is None:
            return None
        try:
            record = msgspec.json.decode(body, type=_Record)
            paused = msgspec.convert(decoded(bytes(record.paused)), PausedCall | None)
            return result_of(
                decoded(bytes(record.raw)), call, artifacts=decoded(bytes(record.artifacts)), paused=paused
            )
        except (msgspec.DecodeError, RecursionError) as error:
            log.warning("result of a run cannot be read", run=self._run, error=str(error))
            return None

    def _named(self, *names: str, arguments: bytes = b"") -> str:
        texts = [self._run, *names, *([self._tenant] if self._tenant else [])]
        whole = sha256()
        for part in [*(text.encode("utf-8", "surrogatepass") for text in texts), arguments]:
            whole.update(b"%d:%b" % (len(part), part))
        return whole.hexdigest()


def _as_json(value: object) -> Any:
    return Raw(json_of(value))


_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_as_json).encode
_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def _arguments(call: ToolCall[Any, Any]) -> bytes:
    """In one spelling for all that are equal, as far as they can be read."""
    if call.problem:
        return call.problem.encode()
    try:
        data = encoded(call.arguments)
    except Misshapen:  # such a call is never made
        return b""
    try:
        return _encode_sorted(decoded(data))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return data
