"""What model packages return, as plain JSON values; and the calls in it, with their arguments read. Pure.

Official packages hand out objects of their own. They are recognised by what they can do (`model_dump`), so that none
of the packages is imported here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.arguments.check import decode_exact
from mcpbridge.arguments.doubles import refuse_doubles
from mcpbridge.errors import ArgumentsRefused, BridgeError

__all__ = ["Message", "Wanted", "blocks_of", "items_of", "listed", "nested", "plain", "read_arguments", "text_in"]

Message = dict[str, Any]
"""A message, or a whole response, of any format."""


class Wanted(Struct, frozen=True):
    """A call as a model wrote it."""

    name: str
    """As the format has it."""
    arguments: object
    """JSON text, or an object."""
    id: str = ""
    """Empty: the format gave it none."""


def plain(value: Any) -> Any:
    """The value with all objects of packages in it as JSON values, fields that are not set left out."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, Sequence):
        return [plain(one) for one in cast("Sequence[Any]", value)]
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    return value


def nested(value: object) -> Message:
    """An object as it is; empty when the value is none."""
    return cast("Message", value) if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """A list as it is; empty when the value is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def items_of(value: object) -> list[Message]:
    """The objects in a list."""
    return [one for one in listed(value) if isinstance(one, dict)]


def blocks_of(message: object) -> list[Message]:
    """The content blocks of a message; text alone is one block."""
    content: object = nested(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [cast("Message", content)] if isinstance(content, dict) else items_of(content)


def text_in(blocks: Sequence[Message], *kinds: str) -> str:
    """The texts of the blocks of these types, joined."""
    return "".join(str(block.get("text") or "") for block in blocks if block.get("type") in kinds)


def read_arguments(wanted: Wanted) -> tuple[dict[str, Any], str]:
    """The arguments of a call; and, where they cannot be read, why, for the model. Numbers stay exact."""
    raw = wanted.arguments
    if isinstance(raw, dict):
        return cast("dict[str, Any]", raw), ""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}, ""
    if not isinstance(raw, str):
        return {}, _problem(wanted, f"they are {_kind_of(raw)}, not a JSON object")
    encoded = raw.encode("utf-8", "replace")
    try:
        value = decode_exact(encoded)
        if not isinstance(value, dict):
            return {}, _problem(wanted, f"they are {_kind_of(value)}, not a JSON object")
        refuse_doubles(wanted.name, encoded)
    except ArgumentsRefused as error:
        return {}, error.told()
    except BridgeError as error:  # pragma: no cover - whatever else the check of names may say is for the model too
        return {}, error.told()
    except RecursionError:
        return {}, _problem(wanted, "they are nested too deeply")
    except (msgspec.DecodeError, ValueError) as error:
        return {}, _problem(wanted, f"they are no JSON: {error}")
    return cast("dict[str, Any]", value), ""


def _problem(wanted: Wanted, why: str) -> str:
    return (
        f"The arguments of {wanted.name} cannot be read: {why}. Nothing was called. Call it again with one JSON "
        "object, complete and with every string closed."
    )


def _kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    return "a string" if isinstance(value, str) else "a list" if isinstance(value, list) else "a number"
