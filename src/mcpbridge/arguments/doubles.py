"""Arguments in which a member is named twice: what is decided about one must not be sent as the other. Pure.

JSON does not say which of the two counts, and servers differ. Who decides by arguments sees the last, so such
arguments are refused wherever somebody decides. No client means to send any.
"""

import json

from msgspec import Raw

from mcpbridge.arguments.showing import spelled
from mcpbridge.errors import ArgumentsRefused

__all__ = ["refuse_doubles"]


class _NamedTwice(Exception):
    """An object with two members of one name, which is its message."""


def refuse_doubles(tool: str, arguments: bytes | Raw | None) -> None:
    """Raise ArgumentsRefused if some object in the arguments of a call, at any depth, names a member twice.

    The same for what is nested too deeply to be looked at. Costs 1 to 2 µs for usual arguments.
    """
    if arguments is None:
        return
    try:
        _look(bytes(arguments).decode("utf-8", "surrogateescape"))
    except _NamedTwice as double:
        what = f"`{spelled((str(double),))}` is named twice, and servers differ in which of the two counts"
    except (ValueError, RecursionError):
        what = "they cannot be read"
    else:
        return
    raise ArgumentsRefused(f"{tool} was not called, for its arguments decide whether it may be: {what}")


def _members(pairs: list[tuple[str, object]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        for name, _ in pairs:
            if name not in names:
                raise _NamedTwice(name)
            names.remove(name)


# Numbers stay text: they may be of any size. Text may hold whatever the front let pass.
_look = json.JSONDecoder(object_pairs_hook=_members, parse_int=str, parse_float=str, strict=False).decode
