"""MCP Apps in the `_meta` of tools and results: which `ui://` resources it names, and for whom the tool is; pure.

MCP Apps 2026-01-26, Resource Discovery: hosts know apps by the scheme, read the resource, and show it. Everything else
that is there (`csp`, `domain`, `permissions`, …) is between server and host.
"""

from collections.abc import Callable
from typing import cast

import msgspec
from msgspec import Raw

from mcpbridge.protocol.jsonrpc import decode_fields, encode, encode_fields

_NESTED, _FLAT = "resourceUri", "ui/resourceUri"
"""Where the URI is: in the member `ui` of `_meta`, or (deprecated) in `_meta` itself."""


def app_uris(meta: object) -> tuple[str, ...]:
    """The URIs that a decoded `_meta` names, each once."""
    uris = _ui(meta).get(_NESTED), _members(meta).get(_FLAT)
    return tuple(dict.fromkeys(uri for uri in uris if isinstance(uri, str) and uri))


def is_for_apps_only(meta: object) -> bool:
    """Whether the tool with this `_meta` is called by its server's apps alone, and is nothing for models."""
    return _ui(meta).get("visibility") == ["app"]


def with_published_uris(meta: Raw | bytes, publish: Callable[[str], str]) -> bytes | None:
    """The `_meta` object with the URI of its app replaced by `publish`; None where that changes nothing.

    Raises:
        msgspec.DecodeError: it is no object.
    """
    fields = decode_fields(meta)
    ui = decode_fields(fields["ui"]) if "ui" in fields and bytes(memoryview(fields["ui"])[:1]) == b"{" else {}
    is_changed = False
    for holder, member in ((ui, _NESTED), (fields, _FLAT)):
        uri: object = msgspec.json.decode(holder[member]) if member in holder else None
        if isinstance(uri, str) and (published := publish(uri)) != uri:
            holder[member] = Raw(encode(published))
            is_changed = True
    if ui:
        fields["ui"] = Raw(encode_fields(ui))
    return encode_fields(fields) if is_changed else None


def _ui(meta: object) -> dict[str, object]:
    return _members(_members(meta).get("ui"))


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
