"""Kept results as resources, for the principal that they belong to. They are in no list.

Reading one is a request like every other: it comes here through the plan (`pipeline/plan.py`), which counts and records
it as it does those for servers.

    mcpbridge://results/HANDLE             the whole result of the call as JSON, byte for byte what the server sent
    mcpbridge://results/HANDLE/text        its text: the text blocks, one below the other
    mcpbridge://results/HANDLE/content/N   the content block at place N, from 0: a text, an image, a file

Reading counts as use: a result that is read is kept longer.
"""

import re
from collections.abc import Mapping
from functools import partial

import anyio.to_thread
import msgspec
from msgspec import Raw

from mcpbridge.base.errors import UnknownName
from mcpbridge.core.model import Call, Caller
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_array, encode
from mcpbridge.results.header_line import URI
from mcpbridge.results.kept_results import KeptResults

RESULT_URIS = URI
"""What URIs of kept results begin with; the handle follows."""

_PART = re.compile(r"([a-z0-9]{1,64})(?:/(text)|/content/([0-9]{1,6}))?", re.ASCII)

_LARGE = 32 * 1024
"""Bytes of a result from which on the answer is made in a thread: it would hold up all other requests."""
_LONGEST_READ = 1024 * 1024
"""Characters of a text that is read to find what kind it is; of a longer one the beginning."""

_JSON, _PLAIN = "application/json", "text/plain"
_TYPES: dict[str, str] = {
    "json": _JSON,
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "html": "text/html",
    "markdown": "text/markdown",
    "table": "text/markdown",
    "diff": "text/x-diff",
}

_Contents = dict[str, object]


class ResultResources:
    """Reads them from the kept results."""

    def __init__(self, kept_results: KeptResults) -> None:
        """`kept_results`: those of all principals."""
        self._kept_results = kept_results

    async def has(self, caller: Caller, uri: str) -> bool:
        """Whether there is such a result for who asks, whatever part of it the URI names."""
        named = _named(uri)
        return named is not None and await self._kept_results.has_for(named[1], caller)

    async def read(self, call: Call) -> Body:
        """The result of a `resources/read` whose target is the URI.

        Raises:
            UnknownName: there is none, not any more, it has no such part, it is another principal's, or of a tool that
                there is not for this client.
        """
        uri, named = call.target, _named(call.target)
        data = await self._kept_results.get_for(named[1], call.caller) if named else None
        if named is None or data is None:
            raise UnknownName("resource", uri)
        make = partial(_result, data, uri, named)
        result = await anyio.to_thread.run_sync(make) if len(data) > _LARGE else make()
        if result is None:
            raise UnknownName("resource", uri)
        return result


def _named(uri: str) -> re.Match[str] | None:
    """The handle in a URI, and the part; None: it names no result."""
    return _PART.fullmatch(uri, len(URI)) if uri.startswith(URI) else None


def _result(data: bytes, uri: str, named: re.Match[str]) -> Body | None:
    contents = _contents(data, named)
    return None if contents is None else Body(encode({"contents": [{"uri": uri, **contents}]}))


def _contents(data: bytes, named: re.Match[str]) -> _Contents | None:
    """What is read, but for the URI; None: there is no such part."""
    if named[2]:
        from mcpbridge.results.content import text_of  # loaded with the first result that is read

        text = text_of(data)
        return {"mimeType": _type_of(text), "text": text} if text else None
    if named[3]:
        return _block(data, int(named[3]))
    return {"mimeType": _JSON, "text": data.decode("utf-8", "replace")}


def _block(data: bytes, place: int) -> _Contents | None:
    try:
        listed = Body(data).get("content")
        blocks = decode_array(listed) if listed is not None else ()
        if place >= len(blocks):
            return None
        block = Body(blocks[place])
        return _contents_of(block) or {"mimeType": _JSON, "text": str(memoryview(blocks[place]), "utf-8", "replace")}
    except (msgspec.DecodeError, RecursionError):
        return None


def _contents_of(block: Body) -> _Contents | None:
    """A block as the contents of a resource, its data as it came; None: it is of another kind, such as a link."""
    match bytes(block.get("type") or b""):
        case b'"text"' if _is_text(block.get("text")):
            return {"mimeType": _type_of(_decoded(block.get("text"))), "text": block.get("text")}
        case b'"image"' | b'"audio"' if _is_text(block.get("data")):
            said = block.get("mimeType")
            return {"mimeType": said if _is_text(said) else "application/octet-stream", "blob": block.get("data")}
        case b'"resource"':
            inner = block.inner("resource")
            fields: Mapping[str, Raw] = inner.fields if inner is not None else {}
            if _is_text(fields.get("text")) or _is_text(fields.get("blob")):
                return {name: value for name, value in fields.items() if name != "uri"}
        case _:
            pass
    return None


def _is_text(raw: Raw | None) -> bool:
    return raw is not None and bytes(memoryview(raw)[:1]) == b'"'


def _decoded(raw: Raw | None) -> str:
    """The text; empty for one that is no UTF-8."""
    try:
        return msgspec.json.decode(raw or b'""', type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _type_of(text: str) -> str:
    """The media type of a text. Of a long one only the beginning is read, and its end seen."""
    if len(text) > _LONGEST_READ:
        ends = text[:100].lstrip()[:1] + text[-100:].rstrip()[-1:]
        if ends in ("{}", "[]"):
            return _JSON
        text = text[: text.rfind("\n", 0, _LONGEST_READ) + 1]
    from mcpbridge.results.document import read

    document = read(text)
    is_alone = document.kind == "table" or not any(document.around)
    return _TYPES.get(document.kind, _PLAIN) if is_alone else _PLAIN
