"""Errors of the bridge as lines of a cassette, and back again. Pure."""

from typing import Any, cast

from mcpbridge import errors
from mcpbridge.cassettes.entries import Failure
from mcpbridge.errors import BridgeError, UpstreamError

__all__ = ["as_error", "as_failure"]

_SIMPLE = (str, int, float, bool)

_DEFAULTS: dict[str, dict[str, Any]] = {
    "BadRequest": {"code": -32602, "data": None},
    "RateLimited": {"retry_after": 0.0},
    "UpstreamResting": {"retry_after": 0.0},
    "UpstreamTimeout": {"seconds": 0.0},
    "UpstreamHttpError": {"status": 0, "retry_after": None},
    "SignInNeeded": {"why": "", "by_asking": None},
    "ToolInactive": {"why": ""},
}
"""By kind, what errors of it have that those who handle them look at, and that may be missing in a file."""

_TOLD_ALONE = frozenset({"UpstreamAnswered", "UrlRequired"})
"""Kinds that carry more than a line says."""


def as_failure(error: BridgeError, *, sent: bool = True) -> Failure:
    """What is written down of an error."""
    facts: dict[str, Any] = {name: value for name, value in sorted(vars(error).items()) if isinstance(value, _SIMPLE)}
    facts.pop("tries", None)
    if error.facts:
        facts["facts"] = {name: value for name, value in error.facts.items() if isinstance(value, _SIMPLE)}
    return Failure(type(error).__name__, str(error), facts, sent)


def as_error(failed: Failure, server: str) -> BridgeError:
    """The error that was met. One of a kind that there is not any more says the same as the nearest that there is.

    Whatever the line says, it is an error of the bridge that has what its kind has, and no more than texts and numbers.
    """
    found = None if failed.kind in _TOLD_ALONE else getattr(errors, failed.kind, None)
    kind = found if isinstance(found, type) and issubclass(found, BridgeError) else UpstreamError
    error = cast("BridgeError", kind.__new__(kind))
    Exception.__init__(error, failed.message)
    defaults = {name: value for base in kind.__mro__ for name, value in _DEFAULTS.get(base.__name__, {}).items()}
    facts = {name: fact for name, fact in failed.facts.items() if _fits(kind, name, fact, defaults)}
    vars(error).update({**defaults, **facts})
    if isinstance(error, UpstreamError):
        error.upstream = str(failed.facts.get("upstream", server))
        error.what = str(failed.facts.get("what", failed.message))
    return error


def _fits(kind: type[BridgeError], name: str, fact: object, defaults: dict[str, Any]) -> bool:
    """Whether errors of this kind may have this: nothing takes the place of a method or of what Python keeps there."""
    if name == "facts":
        return isinstance(fact, dict)
    default = defaults.get(name, getattr(kind, name, None))
    if name[:1] == "_" or name == "by_asking" or callable(default) or isinstance(default, property):
        return False
    if name == "retry_after" or isinstance(default, int | float):
        return isinstance(fact, int | float)
    return isinstance(fact, str) if isinstance(default, str) else isinstance(fact, _SIMPLE)
