"""One call of a tool by a program: the request, its callbacks, and its result.

A callback of the program that fails costs no call its result. Servers can put anything into a result: a member without
the shape that MCP gives it is treated as missing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, ConfigError
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.core.context import Session
from mcpbridge.core.tool_calls_and_results import CallResult, PausedCall, ToolCall
from mcpbridge.downstream.client import Notify
from mcpbridge.engine.requests import arguments_json, check_names, meta_of, result_of
from mcpbridge.protocol.meta import CALL, TURN, WHOLE

log = get_logger("mcpbridge.library")

T = TypeVar("T")


class CallbackFailed(BridgeError):
    """A function of the program that follows calls (`on_progress`, `on_event`) raised; `__cause__` is its exception.

    The calls were made all the same: `results` holds their results, in their order.
    """

    advice = "The calls were made, and `results` is what came of them: do not make them again."

    def __init__(self, error: Exception, results: Sequence[CallResult[Any]]) -> None:
        super().__init__(f"An event callback failed: {type(error).__name__}: {error}")
        self.results = results


class Listener(Generic[T]):
    """Notifies a function of the program, whatever it raises; the first error is remembered, and logged."""

    def __init__(self, function: Callable[[T], object]) -> None:
        self._function = function
        self._error: Exception | None = None

    def __call__(self, news: T) -> None:
        """Notify it."""
        try:
            self._function(news)
        except Exception as error:  # noqa: BLE001 - the program's own, whatever it is
            if self._error is None:
                self._error = error
                log.warning("an event callback failed", error=type(error).__name__)

    def settle(self, results: Sequence[CallResult[Any]]) -> None:
        """The calls are over, and this is what came of them.

        Raises:
            CallbackFailed: the function failed meanwhile.
        """
        if self._error is not None:
            raise CallbackFailed(self._error, results) from self._error


def failed(text: str, call: ToolCall[Any, Any] | None = None) -> CallResult[Any]:
    """The result of a call that was not made, or of which nothing came."""
    raw = msgspec.to_builtins({"content": [{"type": "text", "text": text}], "isError": True})
    return result_of(raw, call)


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

    def __post_init__(self) -> None:
        """Refuse names that calls would be made without, of which nobody would hear.

        Raises:
            ConfigError: one is no text, or too long.
        """
        check_names(run=self.run, user=self.user, tenant=self.tenant)
        for key, name in (("run", self.run), ("user", self.user), ("tenant", self.tenant)):
            if _text_of(name) != name:
                raise ConfigError("it has characters that are none", key=key)


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

    async def paused_of(
        self, meta: Mapping[str, Any], call: ToolCall[Any, Any], *, run: str = "", user: str = "", tenant: str = ""
    ) -> PausedCall | None:
        """The call, if its result says that it is paused, and the bridge itself said so."""
        ...


async def make_call(
    bridge: Requesting,
    call: ToolCall[Any, R],
    asked: Asked,
    *,
    whole: bool = False,
    on_progress: Progress | None = None,
) -> CallResult[R]:
    """What came of a call. Whatever `on_progress` does, the call is made to its end.

    Raises:
        ArgumentsRefused: its arguments are no JSON.
        RequestFailed: it could not be made.
        CallbackFailed: `on_progress` failed; the error has the result.
    """
    if call.problem:
        return failed(call.problem, call)
    meta: dict[str, Any] = {**(asked.meta or {}), CALL: wire_id(call)}
    if whole:
        meta[WHOLE] = "whole"
    if asked.turn:
        meta[TURN] = asked.turn
    if on_progress is not None:
        meta["progressToken"] = wire_id(call)
    params = {"name": call.name, "arguments": arguments_json(call), "_meta": meta}
    heard = Listener(on_progress) if on_progress is not None else None
    raw = await bridge.request(
        "tools/call",
        params,
        user=asked.user,
        tenant=asked.tenant,
        metadata=asked.metadata,
        run=asked.run,
        session=asked.session,
        notify=_hearing(heard),
    )
    result_meta = meta_of(raw)
    artifacts = await bridge.artifacts_of(result_meta, asked.user)
    paused = await bridge.paused_of(result_meta, call, run=asked.run, user=asked.user, tenant=asked.tenant)
    result: CallResult[R] = result_of(raw, call, artifacts=artifacts, paused=paused)
    if heard is not None:
        heard.settle([result])
    return result


def wire_id(call: ToolCall[Any, Any]) -> str:
    """A call's id as its request has it: some models write what is no text."""
    return _text_of(call.id)


def _text_of(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _hearing(heard: Listener[Mapping[str, Any]] | None) -> Notify:
    def hear(message: bytes) -> None:
        if heard is None:
            return
        notification = msgspec.json.decode(message, type=_Notification)
        if notification.method == "notifications/progress":
            try:
                params: object = decoded(bytes(notification.params))
            except msgspec.DecodeError:  # what it tells is not worth the call
                return
            if isinstance(params, dict):
                heard(cast("Mapping[str, Any]", params))

    return hear


class _Notification(msgspec.Struct):
    method: str = ""
    params: Raw = Raw(b"{}")
