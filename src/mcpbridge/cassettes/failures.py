"""Errors of the bridge as lines of a cassette, and back again. Pure."""

from typing import Any, cast

from mcpbridge import errors
from mcpbridge.cassettes.entries import Failure
from mcpbridge.errors import BridgeError, UpstreamError

__all__ = ["as_error", "as_failure"]

_SIMPLE = (str, int, float, bool)


def as_failure(error: BridgeError, *, sent: bool = True) -> Failure:
    """What is written down of an error."""
    facts: dict[str, Any] = {name: value for name, value in sorted(vars(error).items()) if isinstance(value, _SIMPLE)}
    facts.pop("tries", None)
    if error.facts:
        facts["facts"] = {name: value for name, value in error.facts.items() if isinstance(value, _SIMPLE)}
    return Failure(type(error).__name__, str(error), facts, sent)


def as_error(failed: Failure, server: str) -> BridgeError:
    """The error that was met. One of a kind that there is not any more says the same as the nearest that there is."""
    found = getattr(errors, failed.kind, None)
    kind = found if isinstance(found, type) and issubclass(found, BridgeError) else UpstreamError
    error = cast("BridgeError", kind.__new__(kind))
    Exception.__init__(error, failed.message)
    vars(error).update(failed.facts)
    if isinstance(error, UpstreamError):
        error.upstream = str(failed.facts.get("upstream", server))
        error.what = str(failed.facts.get("what", failed.message))
    return error
