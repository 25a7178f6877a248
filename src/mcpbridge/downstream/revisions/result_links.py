"""URIs inside results, changed to those that clients know (`catalog/uris.py`); pure.

Only results of a server whose URIs are rewritten come here, so other results are never parsed for it. Where no URI
changes, the bytes stay.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from mcpbridge.protocol.apps import with_published_uris
from mcpbridge.protocol.body import Body

_Change = Callable[[Body], bool]
"""Changes an object in place and says whether it did."""

_decode_list = msgspec.json.Decoder(list[Raw]).decode


def publish_uris(method: str, result: Body, publish: Callable[[str], str]) -> None:
    """Spell the URIs of links, embedded resources and contents in the result as `publish` does."""

    def uri(entry: Body) -> bool:
        if "uri" not in entry:
            return False
        own = entry.text("uri")
        published = publish(own)
        if published != own:
            entry.put("uri", published)
        return published != own

    def block(entry: Body) -> bool:
        kind = bytes(entry.get("type") or b"")
        if kind == b'"resource_link"':
            return uri(entry)
        return kind == b'"resource"' and _inside(entry, "resource", uri)

    try:
        if method == "tools/call":
            _each(result, "content", block)
            _app(result, publish)
        elif method == "prompts/get":
            _each(result, "messages", lambda message: _inside(message, "content", block))
        elif method == "resources/read":
            _each(result, "contents", uri)
    except msgspec.DecodeError:
        return  # of an odd shape, but that is not ours to judge


def _app(result: Body, publish: Callable[[str], str]) -> None:
    """The app that shows this result, where the result itself names one."""
    meta = result.inner("_meta")
    if meta is not None and (changed := with_published_uris(meta.data, publish)) is not None:
        result.put("_meta", Raw(changed))


def _each(body: Body, name: str, change: _Change) -> None:
    """Apply `change` to every object of a list member."""
    if name not in body:
        return
    entries = _decode_list(body.fields[name])
    changed = False
    for at, entry in enumerate(entries):
        inner = Body(entry)
        try:
            is_other = change(inner)
        except msgspec.DecodeError:
            continue  # one entry of an odd shape must not keep the others from being usable
        if is_other:
            entries[at] = Raw(bytes(inner.data))
            changed = True
    if changed:
        body.put(name, entries)


def _inside(body: Body, name: str, change: _Change) -> bool:
    """Apply `change` to a member that is an object."""
    inner = body.inner(name)
    if inner is None or not change(inner):
        return False
    body.put(name, inner)
    return True
