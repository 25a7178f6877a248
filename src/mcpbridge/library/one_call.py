"""One call of a tool by the program: the request, what is heard meanwhile, and what came of it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw

from mcpbridge.backends.outputs import json_of
from mcpbridge.downstream.channel import Notify
from mcpbridge.library.call_results import failed, result_of
from mcpbridge.model import Session
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall
from mcpbridge.wire.envelope import CALL, TURN, WHOLE

__all__ = ["Asked", "Progress", "Requesting", "make_call"]

R = TypeVar("R")

Progress = Callable[[Mapping[str, Any]], object]
"""Hears the parameters of each notification of progress: `progress`, perhaps `total` and `message`, and in
`_meta["mcpbridge/event"]` what a tool yielded."""


class Asked(msgspec.Struct, frozen=True):
    """Whose a request of the program is, and what it belongs to."""

    run: str = ""
    user: str = ""
    tenant: str = ""
    metadata: Mapping[str, Any] | None = None
    session: Session | None = None
    turn: str = ""
    """The model's turn: calls of one run side by side, a few at a time."""
    meta: Mapping[str, Any] | None = None
    """Further members of the request's `_meta`."""


class Requesting(Protocol):
    """Takes requests of the program; see `Engine.request`."""

    async def request(  # noqa: D102 - as in `Engine`
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        run: str = "",
        session: Session | None = None,
        notify: Notify = ...,
    ) -> dict[str, Any]: ...

    async def artifacts_of(self, meta: Mapping[str, Any], user: str) -> list[Any]:
        """What a result's `_meta` leads to, for the program alone."""
        ...

    async def paused_of(self, meta: Mapping[str, Any], user: str) -> PausedCall | None:
        """The call that a result says is paused."""
        ...


async def make_call(
    bridge: Requesting,
    call: ToolCall[Any, R],
    asked: Asked,
    *,
    whole: bool = False,
    on_progress: Progress | None = None,
) -> CallResult[R]:
    """What came of a call.

    Raises:
        RequestFailed: it could not be made.
    """
    if call.problem:
        return failed(call.problem, call)
    meta: dict[str, Any] = {**(asked.meta or {}), CALL: call.id}
    if whole:
        meta[WHOLE] = "whole"
    if asked.turn:
        meta[TURN] = asked.turn
    if on_progress is not None:
        meta["progressToken"] = call.id
    params = {"name": call.name, "arguments": Raw(_json_of(call.arguments)), "_meta": meta}
    raw = await bridge.request(
        "tools/call",
        params,
        user=asked.user,
        tenant=asked.tenant,
        metadata=asked.metadata,
        run=asked.run,
        session=asked.session,
        notify=_hearing(on_progress),
    )
    said = cast("Mapping[str, Any]", raw.get("_meta") or {})
    artifacts = await bridge.artifacts_of(said, asked.user)
    return result_of(raw, call, artifacts=artifacts, paused=await bridge.paused_of(said, asked.user))


_encode = msgspec.json.Encoder(decimal_format="number").encode
"""Numbers that no Python number is came as `Decimal`, and go as they came."""


def _json_of(arguments: object) -> bytes:
    try:
        return _encode(arguments)
    except (TypeError, ValueError, RecursionError):  # models, or no JSON at all
        return json_of(arguments)


def _hearing(on_progress: Progress | None) -> Notify:
    def hear(message: bytes) -> None:
        if on_progress is not None:
            told = msgspec.json.decode(message, type=_Told)
            if told.method == "notifications/progress":
                on_progress(told.params)

    return hear


class _Told(msgspec.Struct):
    method: str = ""
    params: dict[str, Any] = {}
