"""The plain form of a message or error: without what belongs to one hop, one session or one moment. Pure.

Ids, progress tokens, the envelope of the modern era, trace context and keys for bridges are new each time a message is
sent, so they are left out. What a server mints (ids of tasks, states of paused calls) is replaced by an alias that
follows from its request.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base import errors
from mcpbridge.base.errors import BridgeError, UpstreamError
from mcpbridge.engine.cassettes.format import OPENING, Failure
from mcpbridge.engine.cassettes.masking import MINTED
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT
from mcpbridge.protocol.meta import OWN, PREFIX

NOT_KEPT = frozenset({"ping", "subscriptions/listen", "tasks/cancel", "logging/setLevel"}) | {
    *("resources/subscribe", "resources/unsubscribe")
}
"""Requests that are not written down: nothing of what a program sees depends on their answers."""

_OF_ONE_HOP = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
_LASTING = frozenset({PREFIX + "related-task"})
_OF_THE_CALLER = frozenset({"content", "structuredContent", "contents", "messages", "arguments"})
"""What is in these is data, whatever its members are called."""


def of_request(method: str, params: bytes | Raw) -> Raw:
    """The params of a request, as they are written down and compared."""
    if method in OPENING:
        return Raw(EMPTY_OBJECT)  # the bridge's own version, and what its clients happen to be able to do
    return _without_hop(params)


def of_step(params: bytes | Raw) -> Raw:
    """The params of a notification, or of a request of the server."""
    body = Body(_without_hop(params))
    body.drop("progressToken")
    return Raw(bytes(body.data))


def _without_hop(params: bytes | Raw) -> Raw:
    if not bytes(params):
        return Raw(EMPTY_OBJECT)
    body = Body(params)
    try:
        meta = body.inner("_meta")
        if meta is not None:
            for name in [name for name in meta.fields if _is_volatile(name)]:
                meta.drop(name)
            if meta.fields:
                body.put("_meta", meta)
            else:
                body.drop("_meta")
    except (msgspec.DecodeError, RecursionError):
        return Raw(bytes(params))
    return Raw(bytes(body.data))


def _is_volatile(name: str) -> bool:
    return name in _OF_ONE_HOP or name.startswith(OWN) or (name.startswith(PREFIX) and name not in _LASTING)


def token_of(params: bytes | Raw) -> Raw:
    """What progress of a request is to name, as it is there; empty: nobody wants to hear of any."""
    meta = Body(params).inner("_meta") if bytes(params) else None
    return meta.fields.get("progressToken", Raw()) if meta is not None else Raw()


def minted_in(data: bytes | Raw) -> list[tuple[str, str]]:
    """What the server named anew in some JSON of its: the kind, and the name as it came."""
    if not any(f'"{name}"'.encode() in bytes(data) for name in MINTED):
        return []
    try:
        return list(_minted(msgspec.json.decode(data)))
    except (msgspec.DecodeError, RecursionError):
        return []


def _minted(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, item in cast("Mapping[str, Any]", value).items():
            if name in MINTED and isinstance(item, str) and item:
                yield MINTED[name], item
            elif name not in _OF_THE_CALLER:
                yield from _minted(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _minted(item)


def alias(kind: str, key: tuple[str, str, bytes], number: int) -> str:
    """What a minted name is called: by the request that it came of, and how many it and its equals brought before."""
    server, method, params = key
    digest = sha256(b"\0".join((server.encode(), method.encode(), params))).hexdigest()[:10]
    return f"{kind}-{digest}" + (f"-{number}" if number > 1 else "")


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
