"""What clients are told of `recall`. Every token of it stands in every conversation."""

from typing import Any

__all__ = ["ARGUMENTS", "definition"]


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_DEFINITION: dict[str, Any] = {
    "name": "recall",
    "title": "Recall kept results",
    "description": (
        "Query results kept by mcpbridge (handle as shown with a shortened result): exact rows, sums, lines, text. "
        "Applied in order: path, where, group_by+aggregate or sort, offset/limit, select. Without arguments: lists "
        'what is kept. E.g. {"handle":"…","path":"items","where":"state==\'open\' and comments>3",'
        '"select":"title,user.login","sort":"-comments","limit":5}'
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"description": "one or a list"},
            "path": _text("items[0].user, items[].id, ..name"),
            "where": {},
            "select": {"description": "fields, `a.b as c`"},
            "sort": {},
            "offset": {"type": "integer"},
            "limit": {"type": "integer"},
            "aggregate": {"description": "count, sum:x, avg:, min:, max:, median:, distinct:"},
            "group_by": {},
            "find": _text("text to look for"),
            "regex": _text("RE2; groups become fields"),
            "context": {"type": "integer"},
            "lines": {"description": "100-150, -20"},
            "search": _text("finds kept results"),
            "list": {"type": "boolean"},
            "delete": {"description": "handles to forget"},
        },
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}
"""Read-only, as forgetting takes nothing but a copy. What may be a text, a list or an object has no type."""

_TRANSFORM = {"_transform": _text("JavaScript over `result`: what path/where/select leave")}

ARGUMENTS: tuple[str, ...] = (*_DEFINITION["inputSchema"]["properties"], *_TRANSFORM)
"""The names of all arguments."""


def definition(*, transforms: bool) -> dict[str, Any]:
    """As `tools/list` shows it; `transforms`: scripts are allowed."""
    schema: dict[str, Any] = _DEFINITION["inputSchema"]
    properties = {**schema["properties"], **(_TRANSFORM if transforms else {})}
    return {**_DEFINITION, "inputSchema": {**schema, "properties": properties}}
