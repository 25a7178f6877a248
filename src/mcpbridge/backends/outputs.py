"""What a function returned, as the result of a tool.

A text is a text; None is an empty one. What has parts becomes JSON text with the same as `structuredContent`, which is
always an object: what is none stands in its `result`. Content blocks (objects with the `type` and the members of one),
and a whole result with such `content`, pass as they are. Bytes become an image if they are one, else a resource.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

import msgspec
from msgspec import Raw

from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["Check", "Misshapen", "Promise", "check_of", "failure", "is_wrapped", "json_of", "result_of", "wrapped"]

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
    """An output schema as tools may have it, which is one of an object: of anything else, what stands in `result`."""
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
    """The result of a tool. `check`: of its output schema; `is_wrapped`: that is one of what stands in `result`.

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
