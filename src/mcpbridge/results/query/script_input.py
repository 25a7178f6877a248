"""A document as a script gets it. Pure. The same for `_transform` on a call and on `recall`."""

from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable
from mcpbridge.results.query.terms import without_halves, written

_BEGINS_JSON = frozenset('{["-0123456789tfn')


class Source(Struct, frozen=True):
    """What `JavaScript.evaluate` is given; see there."""

    text: str
    binding: Literal["json", "ndjson", "text"]
    rows: str = ""


def script_input(document: Document) -> Source:
    """`result` is the value of JSON, JSON lines and Python values, and the text of everything else.

    CSV and tables bring their rows as well, as a list of objects. Words around JSON are left out, and so
    are fences: the value is what counts. Of JSON lines an odd one is a text in the list.
    """
    try:
        match document.kind:
            case "json" if _is_all_json(document):
                return Source(document.text, "json")
            case "ndjson" if not any(isinstance(line, str) for line in cast("list[Any]", document.value)):
                return Source(document.text, "ndjson")
            case "json" | "ndjson" | "repr":
                return Source(written(document.value), "json")
            case _:
                rows = written(document.value) if document.is_structured else ""
                return Source(without_halves(document.text), "text", rows)
    except (NotReadable, RecursionError):  # nested too deep to be written
        return Source(without_halves(document.text), "text")


def _is_all_json(document: Document) -> bool:
    """Whether the value came of the whole text: there are no words around it, no fence, and no byte order mark."""
    return not any(document.around) and document.text.lstrip(" \t\r\n")[:1] in _BEGINS_JSON
