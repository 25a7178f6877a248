"""From a call to the request of an operation. Pure."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast

from mcpbridge.backends.http_outgoing import Outgoing, Part
from mcpbridge.backends.http_urls import check_url, query_text, text_of
from mcpbridge.backends.openapi_arguments import BodyShape
from mcpbridge.backends.openapi_operations import Operation
from mcpbridge.backends.openapi_styles import in_cookie, in_header, in_path, in_query
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.wire.frame import encode

__all__ = ["outgoing_of"]


def outgoing_of(operation: Operation, arguments: Mapping[str, Any]) -> Outgoing:
    """The request.

    Raises:
        ArgumentsRefused: an argument is missing, or would lead elsewhere.
    """
    path: dict[str, str] = {}
    query: list[str] = []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            if parameter.place == "path":
                raise ArgumentsRefused(f"`{parameter.argument}` is missing")
        elif parameter.place == "path":
            path[parameter.name] = in_path(parameter, value)
        elif parameter.place == "query":
            query += in_query(parameter, value)
        elif parameter.place == "header":
            headers[parameter.name.lower()] = in_header(parameter, value)
        else:
            cookies.append(in_cookie(parameter, value))
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    filled = "".join(path[text] if is_name else text for is_name, text in operation.path_parts)
    url = f"{operation.base}{filled}{'?' if query else ''}{'&'.join(query)}"
    check_url(url, operation.base, operation.slashes)
    content, parts = b"", None
    if operation.body is not None:
        content, parts, media_type = _body(operation.body, arguments)
        if media_type:
            headers["content-type"] = media_type
    return Outgoing(operation.method, url, tuple(headers.items()), content, parts)


def _body(shape: BodyShape, arguments: Mapping[str, Any]) -> tuple[bytes, tuple[Part, ...] | None, str]:
    """The body, or its parts, and its media type; empty: there is none."""
    if shape.argument:
        value = arguments.get(shape.argument)
        is_given = shape.argument in arguments and (value is not None or shape.format == "json")
    else:
        value = {name: arguments[argument] for argument, name in shape.members.items() if argument in arguments}
        is_given = bool(value)
    if not is_given and not shape.always:
        return b"", None, ""
    if shape.format == "json":
        media_type = "application/json" if "*" in shape.media_type else shape.media_type
        return encode(value), None, media_type
    if shape.format == "text":
        return text_of(value or "", shape.argument).encode(), None, f"{shape.media_type}; charset=utf-8"
    if shape.format == "bytes":
        return _bytes(value or "", shape.argument), None, shape.media_type
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if shape.format == "form":
        return _form(fields), None, shape.media_type
    parts = tuple(part for name, one in fields.items() if one is not None for part in _parts(shape, name, one))
    # A body without parts has no boundary that would tell so.
    return (b"", parts, "") if parts else (_empty_multipart(), None, "multipart/form-data; boundary=none")


def _form(fields: Mapping[str, Any]) -> bytes:
    pairs = [
        f"{query_text(name)}={query_text(text_of(one, name))}"
        for name, value in fields.items()
        if value is not None
        for one in (cast("list[Any]", value) if isinstance(value, list) else [value])
    ]
    return "&".join(pairs).encode()


def _parts(shape: BodyShape, name: str, value: Any) -> list[Part]:
    if name in shape.files:
        return [Part(name, _bytes(value, name), "application/octet-stream", is_file=True)]
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [
        Part(name, text_of(one, name).encode(), "application/json" if isinstance(one, dict | list) else "")
        for one in values
    ]


def _empty_multipart() -> bytes:
    return b"--none--\r\n"


def _bytes(value: Any, name: str) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArgumentsRefused(f"`{name}` must be base64") from error
