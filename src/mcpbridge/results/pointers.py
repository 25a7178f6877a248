"""JSON pointers (RFC 6901) into a value; pure."""

import re
from typing import Any, cast
from urllib.parse import unquote

__all__ = ["NotThere", "pointed_at"]

_SHOWN = 8
_NUMBER = re.compile(r"-?[0-9]{1,11}")


class NotThere(LookupError):
    """The pointer finds nothing; the message says where it ended, and what is there."""


def pointed_at(value: Any, pointer: str) -> Any:
    """What a pointer finds: the empty one the whole value, `/items/0/body` a member of a member.

    `-1` counts from the end of a list, which the RFC leaves undefined. Percent-encoding is undone where the pointer as
    it is finds nothing, since it stands in the fragment of a URI (section 6).

    Raises:
        NotThere: nothing is there.
    """
    try:
        return _walk(value, pointer)
    except NotThere:
        if "%" not in pointer:
            raise
        return _walk(value, unquote(pointer))


def _walk(value: Any, pointer: str) -> Any:
    if pointer and not pointer.startswith("/"):
        raise NotThere(f"a pointer begins with /, as in #/items/0; this one is #{pointer[:100]}")
    here = ""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            if name not in members:
                raise NotThere(f"no member {name[:100]!r} at #{here}; there are {_some(members)}")
            value = members[name]
        elif isinstance(value, list):
            value = _item(cast("list[Any]", value), name, here)
        else:
            raise NotThere(f"#{here} is neither an object nor a list")
        here += f"/{token}"
    return value


def _item(items: list[Any], name: str, here: str) -> Any:
    number = int(name) if _NUMBER.fullmatch(name) else None
    if number is None or not -len(items) <= number < len(items):
        raise NotThere(f"#{here} is a list of {len(items)}, which has no item {name[:100]!r}")
    return items[number]


def _some(members: dict[str, Any]) -> str:
    shown = [name[:60] for name in list(members)[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else "") or "none"
