"""Gives a server the names that it chose, where clients were shown them without their hidden characters.

Names of parameters and values that a schema lists are sent back by models as they were shown. Without this stage a
server would not know them again.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from mcpbridge.base.hidden_json import may_hide, renamed_strings
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_array, decode_fields, decode_text, encode, encode_fields

_LEVELS = 32


class OriginalNames:
    """Makes the stages."""

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools with hidden characters in their inputSchema: next to none."""
        del options
        if tool is None or not may_hide(tool.definition):
            return None
        schema = Body(tool.definition).get("inputSchema")
        names = renamed_strings(bytes(schema)) if schema is not None else {}
        return _OriginalNames(names) if names else None


class _OriginalNames:
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        arguments = call.params.fields.get("arguments")
        if arguments is not None:
            try:
                call.params.put("arguments", _original(arguments, self._names, _LEVELS))
            except (msgspec.DecodeError, UnicodeError):
                pass  # the next stage says what is wrong with them
        return await proceed(call)


def _original(value: Raw, names: Mapping[str, str], levels: int) -> Raw:
    first = bytes(memoryview(value)[:1])
    if not levels:
        return value
    if first == b"{":
        fields = decode_fields(value)
        found = {names.get(key, key): _original(one, names, levels - 1) for key, one in fields.items()}
        return Raw(encode_fields(found))
    if first == b"[":
        return Raw(encode_fields([_original(one, names, levels - 1) for one in decode_array(value)]))
    if first == b'"' and (text := names.get(decode_text(value))) is not None:
        return Raw(encode(text))
    return value
