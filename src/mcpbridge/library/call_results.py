"""The result of a call as MCP has it, made into what programs get.

Servers say in a result what they like: what has not the shape that MCP gives it counts as not said.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from mcpbridge.results.frame import RESULT
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall

__all__ = ["failed", "meta_of", "result_of"]


def result_of(
    raw: Mapping[str, Any],
    call: ToolCall[Any, Any] | None = None,
    *,
    artifacts: Sequence[Any] = (),
    paused: PausedCall | None = None,
) -> CallResult[Any]:
    """What came of a call. `raw`: the result object; `artifacts`, `paused`: what its `_meta` led to."""
    meta, content = meta_of(raw), raw.get("content")
    kept = meta.get(RESULT)
    handle = str(cast("Mapping[str, Any]", kept).get("handle", "")) if isinstance(kept, dict) else ""
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return CallResult(
        content=tuple(cast("Mapping[str, Any]", block) for block in blocks if isinstance(block, dict)),
        structured=raw.get("structuredContent"),
        is_error=raw.get("isError") is True,
        artifacts=tuple(artifacts),
        meta=meta,
        call=call,
        paused=paused,
        handle=handle,
        raw=raw,
    )


def meta_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` of a result."""
    meta = raw.get("_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, dict) else {}


def failed(text: str, call: ToolCall[Any, Any] | None = None) -> CallResult[Any]:
    """The result of a call that was not made, or of which nothing came."""
    raw = msgspec.to_builtins({"content": [{"type": "text", "text": text}], "isError": True})
    return result_of(raw, call)
