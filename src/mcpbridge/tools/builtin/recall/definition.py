"""The definition of `recall`, as models read it. Every token of it is in every conversation."""

from typing import Any


def _as(description: str) -> dict[str, Any]:
    return {"description": description}


_DEFINITION: dict[str, Any] = {
    "name": "recall",
    "title": "Recall kept results",
    "description": (
        "Query kept results by handle: exact rows, sums, lines. Order: path, where, group_by+aggregate or sort, "
        "offset/limit, select. No arguments: lists them. "
        'E.g. {"handle":"…","path":"items","where":"state==\'open\' and comments>3",'
        '"select":"title,user.login","sort":"-comments","limit":5}'
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": _as("or a list"),
            "path": _as("items[].id, ..name"),
            "where": {},
            "select": {},
            "sort": {},
            "offset": {},
            "limit": {},
            "aggregate": _as("count, sum:x, avg:, min:, max:, median:, distinct:"),
            "group_by": {},
            "find": {},
            "regex": {},
            "context": {},
            "lines": _as("100-150, -20"),
            "search": _as("kept results"),
            "list": {},
            "delete": _as("handles"),
        },
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}
"""Read-only, as forgetting takes nothing but a copy. Arguments have no types and no end: they are understood in many
forms, and an error in one is reported with what was probably meant (`arguments.py`)."""

_TRANSFORM = {"_transform": _as("JavaScript on `result`")}

ARGUMENTS: tuple[str, ...] = (*_DEFINITION["inputSchema"]["properties"], *_TRANSFORM)
"""The names of all arguments."""


def definition(*, transforms: bool) -> dict[str, Any]:
    """As `tools/list` shows it; `transforms`: scripts are allowed."""
    schema: dict[str, Any] = _DEFINITION["inputSchema"]
    properties = {**schema["properties"], **(_TRANSFORM if transforms else {})}
    return {**_DEFINITION, "inputSchema": {**schema, "properties": properties}}
