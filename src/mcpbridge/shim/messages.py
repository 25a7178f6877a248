"""What the shim has to know of a message: its id and its method. Pure.

What the client says is parsed; it is small, and clients write it in every order. What the bridge says is only looked at
from its first bytes: it may be large, and `wire/frame.py` writes the id first.
"""

import json
import re

__all__ = ["Id", "Kind", "dump", "id_of", "ids_of_answers", "items", "look", "members", "parse"]

Id = str | int | float
"""Of a request. `1` and `"1"` are different ones, in Python too."""

Kind = str
"""`result` or `error` of an answer, `method` of a request."""

_HEAD = re.compile(rb'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|[-+.0-9eE]+),"(result|error|method)":')


def parse(text: bytes) -> object:
    """The value; None if it is no JSON, or none that Python reads."""
    try:
        return json.loads(text.decode(errors="replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None


def members(value: object) -> dict[str, object]:
    """The members of an object; none if it is something else."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - parsed by us


def items(value: object) -> list[object]:
    """The items of an array; none if it is something else."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType] - as above


def dump(value: object) -> bytes:
    """A value as one line of JSON, as `wire/frame.py` writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def id_of(message: dict[str, object], name: str = "id") -> Id | None:
    """The id in a member; None if there is none, or it is none."""
    found = message.get(name)
    return found if isinstance(found, Id) and not isinstance(found, bool) else None


def look(line: bytes) -> tuple[Id, Kind] | None:
    """The id of an answer or a request of the bridge, and which it is. None: it is a notification, or none of ours."""
    found = _HEAD.match(line)
    if found is None:
        return None
    raw = found[1]
    id_ = int(raw) if len(raw) < 1000 and raw.isdigit() else parse(raw)
    return (id_, found[2].decode()) if isinstance(id_, Id) else None


def ids_of_answers(line: bytes) -> list[Id]:
    """Whose answers are in a batch."""
    return [id_ for one in map(members, items(parse(line))) if "method" not in one and (id_ := id_of(one)) is not None]
