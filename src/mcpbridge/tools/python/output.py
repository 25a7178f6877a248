"""What a Python function returned, yielded or attached, as the result and the progress of a tool.

A text is a text; None is an empty one. What has parts becomes JSON text with the same as `structuredContent`, which is
always an object: anything else is in its `result`. Content blocks (objects with the `type` and the members of one),
and a whole result with such `content`, pass as they are. Bytes become an image if they are one, else a resource.

An event is any JSON value. A text is a message; an object may have `message`, `progress` and `total`, as notifications
of progress do. The whole event goes along in `_meta` where it says more than that. Progress must increase (spec,
progress): events without a number continue the count.

`ToolResult` brings further values for the program. No client and no model sees them: they are kept in the store, and
the result has their handle only, which is good for the caller alone, as long as the store keeps them.
"""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeGuard, TypeVar, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.core.context import Keeping
from mcpbridge.core.model import Call
from mcpbridge.core.tool_calls_and_results import ToolResult
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode

Check = Callable[[object], str]
"""What is wrong with a JSON value; empty: nothing."""

Promise = Callable[[object, bytes | None], str]
"""What is wrong with a value that a function returned; empty: nothing. The bytes: its JSON, if that is made already."""

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}

_MEMBERS: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource": {"resource": dict},
    "resource_link": {"uri": str, "name": str},
}
"""The members that make an object a content block, by its `type`."""


class Misshapen(Exception):
    """A result is no JSON, or not what the tool's output schema allows; the message says why."""


def wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema as tools may have it, which is one of an object: of anything else, the value of `result`."""
    if schema.get("type") == "object":
        return dict(schema)
    if "type" not in schema and ("properties" in schema or "$ref" in schema):
        return {"type": "object", **schema}
    inner = {name: value for name, value in schema.items() if name not in ("$defs", "$schema", "$id")}
    outer = {name: value for name, value in schema.items() if name in ("$defs", "$schema", "$id")}
    return {**outer, "type": "object", "properties": {"result": inner}, "required": ["result"]}


def is_wrapped(schema: Mapping[str, Any] | None, published: Mapping[str, Any] | None) -> bool:
    """Whether `wrapped(schema)` is an object around what the schema is of."""
    return schema is not None and published is not None and published not in (schema, {"type": "object", **schema})


def check_of(schema: Mapping[str, Any]) -> Check:
    """The check of a JSON schema. Raises ValueError: it is none."""
    from jsonschema_rs import FancyRegexOptions, ValidationError, validator_for

    options = FancyRegexOptions(backtrack_limit=10_000)
    try:
        validator = validator_for(dict(schema), validate_formats=False, retriever=_refuse, pattern_options=options)
    except ValueError as error:
        raise ValueError(str(error).partition("\n")[0][:300]) from error

    def check(value: object) -> str:
        try:
            validator.validate(value)
        except ValidationError as error:
            place = ".".join(map(str, error.instance_path))
            return f"{place}: {error.message}"[:500] if place else error.message[:500]
        except (ValueError, RecursionError) as error:
            return str(error)[:500]
        return ""

    return check


def _refuse(uri: str) -> Any:
    raise ValueError(f"not within the schema: {uri[:100]}")


def json_of(value: object) -> bytes:
    """A value as JSON: models, dataclasses, dates, sets and so on as pydantic writes them.

    Raises:
        Misshapen: it is none.
    """
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="null")
    except (PydanticSerializationError, ValueError, RecursionError, UnicodeError) as error:
        raise Misshapen(f"{type(value).__name__} is no JSON: {str(error)[:300]}") from error


def result_of(
    value: object,
    name: str,
    check: Check | None = None,
    *,
    is_wrapped: bool = False,
    promise: Promise | None = None,
) -> Body:
    """The result of a tool. `check`: of its output schema; `is_wrapped`: that one describes the value of `result`.

    `promise`: what is known of the value besides, of which clients see nothing: the result is the same without it.

    Raises:
        Misshapen: it is no JSON, or does not fit.
    """
    if isinstance(value, bytes | bytearray):
        _keep_to(promise, value)
        return Body(encode({"content": [_of_bytes(bytes(value), name)]}))
    if (value is None or isinstance(value, str)) and check is None:
        _keep_to(promise, value)
        return Body(encode({"content": [_text((value or "").encode("utf-8", "replace").decode())]}))
    data = json_of(value)
    _keep_to(promise, value, data)
    plain = cast("object", msgspec.json.decode(data))
    members = _members(plain)
    if members is not None and _are_blocks(members.get("content")):
        return _whole(members, check)
    if check is None and (_is_block(plain) or _are_blocks(plain)):
        return Body(encode({"content": plain if members is None else [plain]}))
    is_object = members is not None and not is_wrapped
    structured: object = members if is_object else {"result": plain}
    if check is not None and (fault := check(structured)):
        raise Misshapen(f"it does not fit the output schema: {fault}")
    text = plain if isinstance(plain, str) else data.decode()
    result: dict[str, object] = {"content": [_text(text)]}
    if check is not None or isinstance(plain, dict | list):
        result["structuredContent"] = Raw(data) if is_object else structured
    return Body(encode(result))


def _keep_to(promise: Promise | None, value: object, data: bytes | None = None) -> None:
    if promise is not None and (fault := promise(value, data)):
        raise Misshapen(f"it returned what its annotation does not allow: {fault}")


def failure(text: str) -> Body:
    """A result that says what went wrong."""
    shown = text.encode("utf-8", "replace").decode()
    return Body(encode({"content": [_text(shown)], "isError": True}))


def _whole(result: dict[str, Any], check: Check | None) -> Body:
    structured = result.get("structuredContent")
    if structured is None:
        result.pop("structuredContent", None)
    if check is not None and not result.get("isError") and (fault := check(structured)):
        raise Misshapen(f"its structuredContent does not fit the output schema: {fault}")
    return Body(encode({name: member for name, member in result.items() if member is not None}))


def _members(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _is_block(value: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(value, dict):
        return False
    block = cast("dict[str, object]", value)
    members = _MEMBERS.get(str(block.get("type")))
    return members is not None and all(isinstance(block.get(name), kind) for name, kind in members.items())


def _are_blocks(value: object) -> bool:
    return isinstance(value, list) and bool(cast("object", value)) and all(map(_is_block, cast("list[object]", value)))


def _of_bytes(data: bytes, name: str) -> dict[str, Any]:
    coded = base64.b64encode(data).decode()
    kind = next((kind for start, kind in _IMAGES.items() if data.startswith(start)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind:
        return {"type": "image", "data": coded, "mimeType": kind}
    resource = {"uri": f"tools://{name}/result", "mimeType": "application/octet-stream", "blob": coded}
    return {"type": "resource", "resource": resource}


EVENT = "mcpbridge/event"
"""In `_meta` of a notification of progress: the event that a tool yielded."""

LONGEST_MESSAGE = 200
"""Characters of an event that is sent as a message because it has none of its own."""

TOO_LARGE = 1e300
"""Numbers from here on count as none: near the largest that JSON's readers know, nothing could increase any more."""

_SPOKEN = frozenset({"message", "progress", "total"})

T = TypeVar("T")


class Result(Generic[T]):
    """Yielded in place of an event: the result, after which nothing more is wanted. Async generators return nothing."""

    __slots__ = ("value",)

    def __init__(self, value: T | ToolResult[T]) -> None:
        self.value = value


class EventRefused(Exception):
    """An event is no JSON, or not what the tool's `event_schema` allows; the message says why."""


class ProgressReporter:
    """Notifies the client of one call's events. On the event loop."""

    __slots__ = ("_call", "_last")

    def __init__(self, call: Call | None) -> None:
        """`call`: None where nobody listens."""
        self._call = call
        self._last: float | None = None

    def report(self, event: object) -> None:
        """Report one event, a JSON value."""
        if self._call is None or not self._call.wants_progress:
            return
        params = parameters_of(event, self._last)
        self._last = params["progress"]
        self._call.update("notifications/progress", Raw(encode(params)))


_TRACE = 1e-9
"""How much progress rises where nothing says how much: other programs read it as a decimal number."""


def parameters_of(event: object, last: float | None) -> dict[str, Any]:
    """An event as parameters of a notification of progress. `last`: the progress before; None: this is the first."""
    said: Mapping[str, object] = cast("Mapping[str, object]", event) if isinstance(event, dict) else {}
    own, total, message = _number(said.get("progress")), _number(said.get("total")), said.get("message")
    if own is not None and (last is None or own > last):
        params: dict[str, Any] = {"progress": own}
    elif last is None:
        params = {"progress": 1}
    elif "progress" in said or last != int(last):
        params = {"progress": max(math.nextafter(last, math.inf), last + _TRACE)}  # between numbers of its own
    else:
        params = {"progress": int(last) + 1}
    if total is not None:
        params["total"] = total
    if told := message if isinstance(message, str) else _short(cast("object", event), said):
        params["message"] = told
    if not isinstance(event, str) and (not said or said.keys() - _SPOKEN):
        params["_meta"] = {EVENT: event}
    return params


def _number(value: object) -> float | None:
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < TOO_LARGE
    return cast("float", value) if is_one else None  # no NaN either


def _short(event: object, fields: Mapping[str, object]) -> str:
    if isinstance(event, str):
        return event
    if fields and not fields.keys() - _SPOKEN:
        return ""
    text = encode(event).decode()
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


log = get_logger("mcpbridge.backends")

ARTIFACTS = "mcpbridge/artifacts"
"""In `_meta` of a result: the handle of its artifacts."""
KIND = "artifact"
"""What the store calls them."""
LIFETIME = 86400.0
"""Seconds that they are kept."""

_OURS = "mcpbridge/"


async def to_result(
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
