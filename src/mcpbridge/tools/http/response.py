"""From the answer of a service to the result of a tool, checked against the output schema. Pure.

A status that another try may change is raised, so that the pipeline can try again where that is harmless. Any other
failure is a result that the model reads, with the service's own words: it can often correct its arguments by them.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import UpstreamHttpError
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import known_only
from mcpbridge.base.units import show_bytes
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.http.client import describe_redirect
from mcpbridge.tools.http.request import Answer
from mcpbridge.tools.json_mapping import MISSING, MappingFailed, Paths, mapped
from mcpbridge.tools.python.output import check_of, wrapped

log = get_logger("mcpbridge.backends")


class Output:
    """One output schema, compiled at the first result."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """A `schema` of anything but an object describes the value of `result`: structured content is an object."""
        self.schema = wrapped(schema)
        self._is_wrapped = self.schema.keys() != {"type", *schema}
        self._check: Callable[[object], str] | None = None

    def structured(self, value: Raw) -> Raw:
        """The structured content that stands for a JSON value."""
        return Raw(encode({"result": value})) if self._is_wrapped else value

    def fault(self, structured: Raw) -> str:
        """What is wrong with structured content; empty: nothing, or nobody knows."""
        if self._check is None:
            try:
                self._check = check_of(self.schema)
            except ValueError as error:
                log.warning("results cannot be validated against an output schema", error=str(error))
                self._check = lambda _: ""
        if bytes(memoryview(structured)[:1]) != b"{":
            return "it is no object"
        try:
            return self._check(msgspec.json.decode(structured))
        except msgspec.DecodeError as error:  # such as a number that is too large for a float
            return str(error)


_T = TypeVar("_T")

_decode = msgspec.json.Decoder(float_hook=lambda _: 0.0).decode
"""For finding out whether it is JSON: a number that is too large for a float is one all the same."""
_LARGE = 64 << 10
"""Bytes from which an answer is read in a thread."""
_ERROR_TEXT_LENGTH = 2000
"""Characters of a service's own words about a failure."""
_REPORTED_HEADERS = ("location", "content-type", "content-length", "last-modified", "etag", "retry-after")
"""Headers that are shown of an answer without a body."""
_TEXTS = ("text/", "application/xml", "application/yaml", "application/x-yaml", "application/javascript")
_TEXT_ENDINGS = ("+xml", "+yaml", "x-www-form-urlencoded", "ndjson", "jsonl", "json-seq", "graphql", "sql", "toml")


class Read(Struct, frozen=True):
    """What was read from an answer."""

    content: dict[str, Any]
    """One item of the result's `content`."""
    value: Raw | None = None
    """The JSON that it is, compact; None: it is none."""

    @property
    def is_object(self) -> bool:
        """The JSON is an object, as structured content must be."""
        return self.value is not None and bytes(memoryview(self.value)[:1]) == b"{"


def result_of(
    upstream: str, answer: Answer, mapping: Paths | None, output: Output | None, redact: Callable[[str], str]
) -> Body:
    """The result of a call.

    Raises:
        UpstreamHttpError: the service failed, and may not fail the next time.
    """
    if answer.status >= 300:
        return refusal_of(upstream, answer, redact)
    if answer.is_cut:
        return failed(
            f"The answer is larger than {show_bytes(len(answer.body))} (`max_response`). Ask for less: "
            "fewer items, a smaller range, a filter"
        )
    found = read(answer, redact)
    if mapping is not None:
        try:
            found = _mapped(found, mapping)
        except MappingFailed as error:
            return failed(f"The answer of the service is not as `output_mapping` expects it: {error}")
    if output is None:
        return result_body(found, found.value if found.is_object else None)
    structured = output.structured(found.value) if found.value is not None else None
    fault = output.fault(structured) if structured is not None else "it is no JSON"
    if fault:
        return failed(f"The answer of the service is not as `output_schema` of this tool has it: {fault}")
    return result_body(found, structured)


def result_body(answer: Read, structured: Raw | None) -> Body:
    """The result with this content."""
    members: dict[str, Any] = {"content": [answer.content]}
    if structured is not None:
        members["structuredContent"] = structured
    return Body(encode(members))


async def aside(size: int, work: Callable[[], _T]) -> _T:
    """Do the work on an answer of this size: in a thread if it is large, so that calls of other tools continue."""
    return await asyncio.to_thread(work) if size > _LARGE else work()


def failed(text: str) -> Body:
    """A result that says to the model what went wrong."""
    return Body(encode({"content": [{"type": "text", "text": text}], "isError": True}))


def read(answer: Answer, redact: Callable[[str], str]) -> Read:
    """What an answer without a failure holds: JSON, text, a picture, a sound, or bytes."""
    redact = known_only(redact)  # it is data
    media_type, charset = _media_type(answer.headers.get("content-type", ""))
    if not answer.body:
        told = [f"{name}: {answer.headers[name]}" for name in _REPORTED_HEADERS if name in answer.headers]
        return Read(_text(redact("\n".join([f"{_status(answer.status)}, without content", *told]))))
    is_json = media_type in ("", "application/json", "text/json") or media_type.endswith("+json")
    if is_json and (value := _json(answer.body, redact)) is not None:
        return Read(_text(bytes(value).decode()), value)
    if is_json or media_type.startswith(_TEXTS) or media_type.endswith(_TEXT_ENDINGS):
        text = _decoded(answer.body, charset)
        if media_type or text.isprintable() or "\ufffd" not in text:
            return Read(_text(redact(text)))
    data = base64.b64encode(answer.body).decode()
    kind = media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return Read({"type": kind, "data": data, "mimeType": media_type})
    address = redact(answer.url.partition("?")[0])
    media_type = media_type or "application/octet-stream"
    return Read({"type": "resource", "resource": {"uri": address, "mimeType": media_type, "blob": data}})


def _mapped(answer: Read, mapping: Paths) -> Read:
    if answer.value is None:
        raise MappingFailed("it is no JSON")
    try:
        value = mapped(mapping, msgspec.json.decode(answer.value))
    except msgspec.DecodeError as error:
        raise MappingFailed(f"it cannot be read: {error}") from error
    if value is MISSING:
        raise MappingFailed(f"there is nothing at {mapping}")
    data = encode(value)
    return Read(_text(value if isinstance(value, str) else data.decode()), Raw(data))


def refusal_of(upstream: str, answer: Answer, redact: Callable[[str], str]) -> Body:
    """What another status than 2xx means."""
    from mcpbridge.protocol.http.responses import excerpt, seconds_to_wait

    status = answer.status
    if status < 400:
        return failed(f"{_status(status)}: {describe_redirect(answer, redact)}")
    if _is_passing(status):
        text = excerpt(answer.body, redact)
        wait = seconds_to_wait(answer.headers.get("retry-after", ""), datetime.now(UTC))
        raise UpstreamHttpError(upstream, status, f"{_status(status)}{': ' if text else ''}{text}", retry_after=wait)
    _, charset = _media_type(answer.headers.get("content-type", ""))
    text = redact(_decoded(answer.body[: 4 * _ERROR_TEXT_LENGTH], charset)).strip()
    if text[:1] == "<":  # a page for people: its title says it
        text = excerpt(answer.body, redact)
    text = "".join(character for character in text if character.isprintable() or character == "\n")
    if len(text) > _ERROR_TEXT_LENGTH:
        text = f"{text[:_ERROR_TEXT_LENGTH]}…"
    advice = ""
    if status in (401, 407):
        advice = "\nThe service requires credentials: whoever runs the bridge sets `auth` or `headers` of this tool."
    return failed(f"{_status(status)}{': ' if text else ''}{text}{advice}")


def _is_passing(status: int) -> bool:
    """A status that may be another one in a moment."""
    return status in (408, 429) or (status >= 500 and status not in (501, 505))


def _status(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"  # an unregistered status has no phrase


def _media_type(header: str) -> tuple[str, str]:
    """Media type and charset in lower case; empty where nothing is said."""
    media_type, *rest = header.split(";")
    parameters = dict(_pair(part) for part in rest)
    return media_type.strip().lower(), parameters.get("charset", "")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip().strip('"').lower()


def _json(body: bytes, redact: Callable[[str], str]) -> Raw | None:
    """The JSON in a body, its numbers as they came, on one line; None: there is none."""
    try:
        text = body.removeprefix(b"\xef\xbb\xbf").decode()
        masked = redact(text)
        # Decoded as a whole to be sure that it is JSON; that `format` looks less closely is of no matter then.
        _decode(masked)
        return Raw(msgspec.json.format(masked.encode(), indent=-1))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset or "utf-8", "replace")
    except LookupError:  # a charset that nobody knows
        return body.decode("utf-8", "replace")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
