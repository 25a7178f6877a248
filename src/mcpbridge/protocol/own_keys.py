"""Takes out of what a server sends what only the bridge says: keys of `_meta` that begin with `mcpbridge/`. Pure.

Clients and programs act on these keys: a result that was shortened, a call that waits for approval, an error of the
bridge. `_meta` is in results, content, definitions, params and in what they hold (MCP, Base Protocol, `_meta`); in
the `data` of an error the same keys count. Data of tools is no place for it and stays as it is: schemas, arguments and
structured content. `Peer` asks this for every message that contains the prefix; names were spelled plainly before.
"""

import re
from typing import Any, cast

import msgspec

from mcpbridge.protocol.canonical_json import decode_exactly
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.meta import OWN

MARK = b'"' + OWN.encode()
"""Is in every message that has such a key."""

holds_mark = re.compile(re.escape(MARK)).search
"""The search for large messages: it does not copy them."""

_DATA = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema", "arguments", "input"})
"""Members that are data of tools where their values are objects; the `arguments` of a prompt are a list."""


def remove_own_keys(frame: Frame) -> None:
    """Take these keys out of a message.

    Raises:
        msgspec.DecodeError, RecursionError: it is nested too deeply to be looked through.
    """
    frame.params = _cleaned(frame.params)
    frame.result = _cleaned(frame.result)
    frame.error = _cleaned(frame.error, "data")


def _cleaned(data: msgspec.Raw, also: str = "_meta") -> msgspec.Raw:
    if MARK not in bytes(data):
        return data
    value = decode_exactly(bytes(data))
    removed = _remove_from(cast("dict[str, Any]", value).get(also)) if isinstance(value, dict) else 0
    # A loop and no recursion: the decoder reads deeper than Python calls.
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            members = cast("dict[str, Any]", one)
            removed += _remove_from(members.get("_meta"))
            waiting += [inner for name, inner in members.items() if name not in _DATA or isinstance(inner, list)]
        elif isinstance(one, list):
            waiting += cast("list[Any]", one)
    return msgspec.Raw(encode(value)) if removed else data


def _remove_from(meta: object) -> int:
    """How many keys were there."""
    if not isinstance(meta, dict):
        return 0
    members = cast("dict[str, Any]", meta)
    own = [key for key in members if key.startswith(OWN)]
    for key in own:
        del members[key]
    return len(own)
