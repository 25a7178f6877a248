"""What a tool gives the program beside its result: kept in the store, and named in `_meta` of the result.

`ToolResult` brings them. No client and no model is shown them: a result has their handle only, which is good for the
caller alone, as long as the store keeps them. So what passes a result on or shortens it has nothing to leave out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from mcpbridge.backends.outputs import Check, Misshapen, Promise, json_of, result_of
from mcpbridge.context import Keeping
from mcpbridge.errors import StoreFailed
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.toolcalls import ToolResult
from mcpbridge.wire.body import Body
from mcpbridge.wire.python_values import decoded

__all__ = ["ARTIFACTS", "keep", "made", "read", "reshaped"]

log = get_logger("mcpbridge.backends")

ARTIFACTS = "mcpbridge/artifacts"
"""In `_meta` of a result: the handle of its artifacts."""
KIND = "artifact"
"""What the store calls them."""
LIFETIME = 86400.0
"""Seconds that they are kept."""

_OURS = "mcpbridge/"


async def made(
    value: object,
    call: Call,
    name: str,
    check: Check | None = None,
    *,
    is_wrapped: bool = False,
    promise: Promise | None = None,
) -> Body:
    """The result of a tool that returned this, as `result_of`; of a `ToolResult` with all that it says.

    Raises:
        Misshapen: it is no JSON, does not fit, or says in `_meta` what only the bridge says.
    """
    if not isinstance(value, ToolResult):
        return result_of(value, name, check, is_wrapped=is_wrapped, promise=promise)
    given: ToolResult[Any] = value  # pyright: ignore[reportUnknownVariableType] - of anything
    if given.is_error:
        check, is_wrapped, promise = None, False, None
    result = result_of(given.content, name, check, is_wrapped=is_wrapped, promise=promise)
    if given.is_error:
        result.put("isError", True)  # noqa: FBT003 - a JSON value
    meta = _meta_of(given.meta)
    if given.artifacts and (handle := await keep(call, given.artifacts)):
        meta[ARTIFACTS] = handle
    if meta:
        own = result.inner("_meta") or Body()
        for key, member in meta.items():
            own.put(key, member)
        result.put("_meta", own)
    return result


def reshaped(value: object, shape: Callable[[object], object]) -> object:
    """What was returned, with another shape; of a `ToolResult` that works, its content."""
    if not isinstance(value, ToolResult):
        return shape(value)
    given: ToolResult[Any] = value  # pyright: ignore[reportUnknownVariableType] - of anything
    return given if given.is_error else replace(given, content=shape(given.content))


async def keep(call: Call, artifacts: Sequence[Any]) -> str:
    """Put the artifacts of a call where its caller can get them; returns their handle, empty if they cannot be kept.

    What the tool did is done by then, so a store that fails does not fail the call.

    Raises:
        Misshapen: they are no JSON.
    """
    try:
        body = json_of(list(artifacts))
    except Misshapen as error:
        raise Misshapen(f"its artifacts: {error}") from error
    store, why = call.around.store, "there is no store"
    if store is not None:
        try:
            return await store.put(KIND, body, principal=call.caller.principal, expires_in=LIFETIME)
        except StoreFailed as error:
            why = str(error)
    log.warning("artifacts of a tool are lost", tool=call.target, count=len(artifacts), size=len(body), reason=why)
    return ""


async def read(store: Keeping, principal: str, handle: str) -> list[Any]:
    """The artifacts that a result of this principal names, as JSON values; none if they are not kept any more."""
    body = await store.get(KIND, handle, principal=principal)
    try:
        return decoded(body) if body is not None else []
    except msgspec.DecodeError as error:
        log.warning("artifacts of a tool cannot be read", reason=str(error))
        return []


def _meta_of(given: Mapping[str, Any]) -> dict[str, Any]:
    for key in given:
        if key.startswith(_OURS):
            raise Misshapen(f"its `meta` has {key!r}: names that begin with `{_OURS}` are the bridge's own")
    return decoded(json_of(dict(given)))
