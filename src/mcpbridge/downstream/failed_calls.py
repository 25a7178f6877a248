"""A tool call that failed, as a result: the model reads what happened and what to do (spec, tools, error handling)."""

from mcpbridge.wire.frame import encode

__all__ = ["ERROR_NAME", "failed_call"]

ERROR_NAME = "mcpbridge/error"
"""In `_meta` of a failed call, or `data` of an error: which of the bridge's own errors it tells of, for programs."""


def failed_call(text: str, name: str, *, modern: bool) -> bytes:
    """The result with this text; `name` is the error's for programs."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    result["_meta"] = {ERROR_NAME: name}
    if modern:
        result["resultType"] = "complete"
    return encode(result)
