"""A tool call that failed, as a result: the model reads what happened and what to do (spec, tools, error handling)."""

from collections.abc import Mapping
from types import MappingProxyType

from mcpbridge.wire.frame import encode

__all__ = ["ERROR_NAME", "NO_FACTS", "failed_call"]

NO_FACTS: Mapping[str, object] = MappingProxyType({})
"""Nothing to tell beside the text."""

ERROR_NAME = "mcpbridge/error"
"""In `_meta` of a failed call, or `data` of an error: which of the bridge's own errors it tells of, for programs."""


def failed_call(text: str, name: str, *, modern: bool, facts: Mapping[str, object] = NO_FACTS) -> bytes:
    """The result with this text; `name` is the error's for programs, `facts` go into `_meta` beside it."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    result["_meta"] = {ERROR_NAME: name, **facts}
    if modern:
        result["resultType"] = "complete"
    return encode(result)
