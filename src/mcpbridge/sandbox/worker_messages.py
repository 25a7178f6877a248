"""What crosses between the bridge and a worker process: a function's name, its arguments, and its result.

All as MessagePack that is read as the types that the function declares: nothing but data comes out of it, whatever the
process has read. Little is imported here, as each process waits for it.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any, ParamSpec, TypeVar, get_type_hints

import msgspec

_OURS = "mcpbridge."

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Request(msgspec.Struct, frozen=True):
    """What a process is asked for."""

    module: str
    name: str
    arguments: dict[str, msgspec.Raw]
    """By the name of the parameter, each as MessagePack."""


def encode_request(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> bytes:
    """The bytes by which a process is asked to call the function."""
    given = signature(function).bind(*args, **kwargs).arguments
    arguments = {name: msgspec.Raw(msgspec.msgpack.encode(value)) for name, value in given.items()}
    return msgspec.msgpack.encode(Request(function.__module__, function.__qualname__, arguments))


def encode_rest(function: Callable[..., object], *args: object, **kwargs: object) -> bytes:
    """The same, of a function whose first argument the process has already."""
    names = list(signature(function).parameters)[1:]
    given = dict(zip(names, args, strict=False)) | kwargs
    arguments = {name: msgspec.Raw(msgspec.msgpack.encode(value)) for name, value in given.items()}
    return msgspec.msgpack.encode(Request(function.__module__, function.__qualname__, arguments))


def run_request(data: bytes, *first: bytes) -> bytes:
    """Call the function that is asked for; returns its result as MessagePack. Runs in the process.

    `first`: what the function gets before the arguments of the request.

    Raises:
        ValueError: it is no function at the top of a module of ours.
    """
    request = msgspec.msgpack.decode(data, type=Request)
    if not request.module.startswith(_OURS) or not request.name.isidentifier():
        raise ValueError("not a function of ours")
    function = getattr(import_module(request.module), request.name)
    if getattr(function, "__module__", "") != request.module:
        raise ValueError("not a function of that module")
    hints = type_hints(function)
    arguments = {name: msgspec.msgpack.decode(value, type=hints[name]) for name, value in request.arguments.items()}
    return msgspec.msgpack.encode(function(*first, **arguments))


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters of a function, and of its result as `return`."""
    return get_type_hints(function)
