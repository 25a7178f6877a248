"""A server that wants pages visited before it runs a call (-32042, revision 2025-11-25 only).

To a client of that revision that opens URLs the error goes as it is, and it is told when the server says that the page
has done its work. Any other gets a failed call that names the pages. Modern clients that open URLs are asked in
their own way, in `relaying`.
"""

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.downstream.channel import Client
from mcpbridge.errors import BadRequest, BridgeError, UpstreamAnswered, UrlRequired
from mcpbridge.interaction import ELICIT, URL_SINCE, Question
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["pages_first", "url_questions"]

URL_REQUIRED = -32042


def pages_first(error: UpstreamAnswered, client: Client) -> BridgeError:
    """What to tell this client of an upstream's error; the error itself when it is of another kind."""
    pages = [Body(question.params) for question in url_questions(error)]
    if not pages:
        return error
    if client.modern or not client.profile.url or client.version < URL_SINCE:
        return UrlRequired(error.upstream, [page.text("url") for page in pages])
    for page in pages:
        with suppress(KeyError, msgspec.DecodeError):  # without an id that can be read nothing is told of it later
            client.elicitations.add((error.upstream, page.text("elicitationId")))
    said = msgspec.json.decode(error.error)
    return BadRequest(URL_REQUIRED, str(said.get("message", "")), said.get("data"))


class _UrlError(msgspec.Struct):
    code: int
    data: dict[str, Any] = {}


_decode_url_error = msgspec.json.Decoder(_UrlError).decode


def url_questions(error: UpstreamAnswered) -> list[Question]:
    """The pages that an error of code -32042 (URLElicitationRequired) asks to be visited; empty for other errors."""
    if b"-32042" not in error.error:
        return []
    try:
        said = _decode_url_error(error.error)
    except (msgspec.DecodeError, RecursionError):
        return []
    entries = said.data.get("elicitations")
    if said.code != URL_REQUIRED or not isinstance(entries, list):
        return []
    return [
        Question(error.upstream, ELICIT, Raw(encode({"mode": "url", "message": "", **entry})))
        for entry in entries  # pyright: ignore[reportUnknownVariableType]
        if isinstance(entry, dict) and isinstance(entry.get("url"), str)  # pyright: ignore[reportUnknownMemberType]
    ]
