"""Results and errors in the form of the client's older revision; pure.

A strict client refuses a whole result over one part that its revision does not have. `lower` says such parts in what
the revision does have, so that nothing is lost to the reader. Everything else stays the bytes that came. A client
that is not older than the server costs one comparison.

`pages_first` is for servers that want pages visited before they run a call (-32042, revision 2025-11-25 only). A
client of that revision that opens URLs gets the error as it is, and hears when the page has done its work. Any other
legacy client gets a failed call that names the pages. Modern clients that open URLs are asked by
`elicitation/multi_round_trip.py`.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest, BridgeError, UpstreamAnswered, UpstreamGarbled, UrlRequired
from mcpbridge.core.elicitation import ELICIT, URL_SINCE, Question, QuestionRefused
from mcpbridge.downstream.client import Client
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import URL_ELICITATION_REQUIRED, code_of
from mcpbridge.protocol.jsonrpc import Fields, decode_array, decode_fields, decode_text, encode
from mcpbridge.protocol.meta import strip_for_legacy
from mcpbridge.protocol.revisions import (
    FIRST_WITH_ANNOTATIONS,
    FIRST_WITH_ICONS,
    FIRST_WITH_STRUCTURE,
    LEGACY,
    is_modern,
)

_NEWS: Mapping[str, str] = {
    '"icons"': FIRST_WITH_ICONS,
    '"structuredContent"': FIRST_WITH_STRUCTURE,
    '"resource_link"': FIRST_WITH_STRUCTURE,
    '"audio"': FIRST_WITH_ANNOTATIONS,
}
"""What is in a result that has something for older clients to change, and the revision that brought it."""

_LOOKED_FOR = {
    revision: [word.encode() for word, since in _NEWS.items() if revision < since] for revision in (*LEGACY, "")
}


def lower(method: str, result: Body, *, spoken: str, understood: str) -> None:
    """Say the result of a server that speaks revision `spoken` in the client's revision, `understood`, in place.

    A result that is not shaped as its method wants it is left alone: what it lacks is not for the bridge to judge.
    """
    if understood >= spoken:
        return
    try:
        if is_modern(spoken) and not is_modern(understood):
            strip_for_legacy(result)
            if method == "tools/call":
                _drop_structure(result, understood)
        if understood >= FIRST_WITH_ICONS:
            return
        if method == "tools/call" and _has_news(result, understood):
            _drop_structure(result, understood)
            if (content := _blocks(result.get("content"), understood)) is not None:
                result.put("content", content)
        elif method == "prompts/get":
            _lower_messages(result, understood)
    except (msgspec.DecodeError, RecursionError):
        return


def news_for(revision: str) -> Sequence[bytes]:
    """What the result of a legacy server's tool has, one of these, if `lower` has to change it for such a client."""
    return _LOOKED_FOR.get(revision, _LOOKED_FOR[""])


def _has_news(result: Body, revision: str) -> bool:
    if result.words is not None:
        return "structuredContent" in result or not result.words.isdisjoint(news_for(revision))
    data = bytes(result.data)
    for word in news_for(revision):  # noqa: SIM110 - a generator costs more than the looks
        if word in data:
            return True
    return False


# -- structured results


def _drop_structure(result: Body, revision: str) -> None:
    """Take out a structured result that the client cannot have, once the text tells the same.

    Up to 2025-11-25 it had to be an object. One that is none belongs to a tool that is listed without its
    `outputSchema` to these clients, so that nobody misses it.
    """
    structured = result.fields.get("structuredContent")
    if structured is None:
        return
    is_object = bytes(memoryview(structured)[:1]) == b"{"
    if is_object and revision >= FIRST_WITH_STRUCTURE:
        return
    content = decode_array(result.get("content") or b"[]")
    text = bytes(structured).decode()
    if text != "null" and not _is_in_text(content, _value_of(text)):
        result.put("content", [*content, {"type": "text", "text": text}])
    result.drop("structuredContent")


def _is_in_text(content: list[Raw], structured: object) -> bool:
    """Whether the text has the whole structured value, or the one value that frameworks wrap as `{"result": …}`."""
    said = [structured]
    if isinstance(structured, dict):
        members = cast("dict[str, object]", structured)
        said += [members["result"]] if members.keys() == {"result"} else []
    texts = [text for text in map(_text_of, content) if text is not None]
    values = [_value_of(text) for text in texts]
    return any(one in said for one in (*texts, *values, texts, values))


def _text_of(block: Raw) -> str | None:
    try:
        fields = decode_fields(block)
        return decode_text(fields["text"]) if _kind(fields) == b'"text"' else None
    except (msgspec.DecodeError, KeyError):
        return None


def _value_of(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


# -- content


def _lower_messages(result: Body, revision: str) -> None:
    """A message of a prompt holds one block of content, so one that must be said in several becomes several."""
    messages = decode_array(result.fields.get("messages", b"[]"))
    lowered: list[object] = []
    is_changed = False
    for message in messages:
        fields = decode_fields(message)
        content = fields.get("content", Raw(b"null"))
        is_list = bytes(memoryview(content)[:1]) == b"["
        blocks = _blocks(content if is_list else encode([content]), revision)
        if blocks is None and is_list:
            blocks = list[object](decode_array(content))
        if blocks is None:
            lowered.append(message)
        else:
            is_changed = True
            lowered += [{**fields, "content": block} for block in blocks]
    if is_changed:
        result.put("messages", lowered)


def _blocks(content: Raw | bytes | None, revision: str) -> list[object] | None:
    """The blocks of content that say the same to this revision; None when they are those that came."""
    lowered: list[object] = []
    is_changed = False
    for block in decode_array(content or b"[]"):
        instead = _instead(block, revision) if bytes(memoryview(block)[:1]) == b"{" else None
        is_changed = is_changed or instead is not None
        lowered += [block] if instead is None else instead
    return lowered if is_changed else None


def _instead(block: Raw, revision: str) -> list[object] | None:
    fields = decode_fields(block)
    kind = _kind(fields)
    if kind == b'"resource_link"':
        if revision < FIRST_WITH_STRUCTURE:
            return [_text(_described(fields), fields)]
        return [{name: value for name, value in fields.items() if name != "icons"}] if "icons" in fields else None
    if kind == b'"audio"' and revision < FIRST_WITH_ANNOTATIONS:
        return _attached(fields)
    return None


def _described(link: Fields) -> str:
    name, uri, mime_type, description = (_member(link, key) for key in ("name", "uri", "mimeType", "description"))
    text = f"Resource {name!r}: {uri}" if name else f"Resource: {uri}"
    text += f" ({mime_type})" if mime_type else ""
    return f"{text}\n{description}" if description else text


def _attached(audio: Fields) -> list[object]:
    """A note, and the sound as an embedded resource, which all revisions have; named by its content (RFC 6920)."""
    mime_type = _member(audio, "mimeType") or "application/octet-stream"
    try:
        blob = audio["data"]
        digest = sha256(b64decode(decode_text(blob), validate=True)).digest()
    except (ValueError, KeyError, msgspec.DecodeError):
        return [_text(f"Audio ({mime_type}) that cannot be read: its data is not base64.", audio)]
    uri = "ni:///sha-256;" + urlsafe_b64encode(digest).decode().rstrip("=")
    resource = {"uri": uri, "mimeType": mime_type, "blob": blob}
    note = f"Audio ({mime_type}), attached as a resource: this client's protocol revision has no audio content."
    return [_text(note, audio), {"type": "resource", "resource": resource, **_annotations_of(audio)}]


def _text(text: str, block: Fields) -> dict[str, object]:
    return {"type": "text", "text": text, **_annotations_of(block)}


def _annotations_of(block: Fields) -> Fields:
    """What a block says of itself that its replacement can say too."""
    return {name: block[name] for name in ("annotations", "_meta") if name in block}


def _kind(fields: Fields) -> bytes:
    return bytes(fields.get("type", b""))


def _member(fields: Fields, name: str) -> str:
    value: object = msgspec.json.decode(fields[name]) if name in fields else ""
    return value if isinstance(value, str) else ""


def pages_first(error: UpstreamAnswered, client: Client) -> BridgeError:
    """What this client gets of an upstream's error; the error itself when it is of another kind."""
    pages = [Body(question.params) for question in url_questions(error)]
    if not pages:
        return error
    # here, since it loads the HTTP library, and few clients are ever asked to open a page
    from mcpbridge.downstream.elicitation.page_addresses import checked_page

    try:
        for page in pages:
            checked_page(page.text("url"))
    except QuestionRefused as refused:
        return UpstreamGarbled(error.upstream, f"it asks to open a page first. {refused}")
    if client.modern or not client.capabilities.url or client.version < URL_SINCE:
        return UrlRequired(error.upstream, [page.text("url") for page in pages])
    for page in pages:
        with suppress(KeyError, msgspec.DecodeError):  # without an id that can be read nothing is told of it later
            client.elicitations.add((error.upstream, page.text("elicitationId")))
    said = msgspec.json.decode(error.error)
    for entry in said["data"]["elicitations"]:
        if isinstance(entry, dict):
            _show_host(error.upstream, cast("dict[str, Any]", entry))
    return BadRequest(URL_ELICITATION_REQUIRED, str(said.get("message", "")), said["data"])


def _show_host(server: str, entry: dict[str, Any]) -> None:
    from mcpbridge.downstream.elicitation.page_addresses import checked_page, message_of_page, plain_url

    url: object = entry.get("url")
    if isinstance(url, str):
        page = checked_page(url)
        entry["url"] = plain_url(page, url)
        entry["message"] = message_of_page(server, entry.get("message"), page)


class _UrlError(msgspec.Struct):
    code: int
    data: dict[str, Any] = {}


_decode_url_error = msgspec.json.Decoder(_UrlError).decode


def url_questions(error: UpstreamAnswered) -> list[Question]:
    """The pages that an error of code -32042 (URLElicitationRequired) asks to be visited; empty for other errors."""
    if code_of(error.error) != URL_ELICITATION_REQUIRED:
        return []
    try:
        said = _decode_url_error(error.error)
    except (msgspec.DecodeError, RecursionError):
        return []
    entries = said.data.get("elicitations")
    if said.code != URL_ELICITATION_REQUIRED or not isinstance(entries, list):
        return []
    return [
        Question(error.upstream, ELICIT, Raw(encode({"mode": "url", "message": "", **entry})))
        for entry in entries  # pyright: ignore[reportUnknownVariableType] - JSON
        if isinstance(entry, dict) and isinstance(entry.get("url"), str)  # pyright: ignore[reportUnknownMemberType] - JSON
    ]
