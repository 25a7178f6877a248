"""The line that stands above every rewritten result: what it is, what was done to it, how to get the rest.

It is the bridge's word, so nothing that a server sends may look like it: in all that is rewritten, and in every result
that holds such a line, its beginning is spelled otherwise.
"""

import re
from typing import Literal

__all__ = ["RESULT", "URI", "Form", "defused", "frame", "may_hold_frame", "uri_of"]

RESULT = "mcpbridge/result"
"""In `_meta` of a rewritten result: its `handle`, `uri`, `form`, `kind` and `chars`, for programs."""

URI = "mcpbridge://results/"
"""What URIs of kept results begin with; the handle follows."""

Form = Literal["as sent", "minified", "table", "preview", "truncated", "summary", "transformed"]
"""What was done to a result; the first three lose nothing."""

_MARK = "[mcpbridge "
_FORGED = re.compile(r"\[(\s*mcpbridge)\b", re.IGNORECASE)
_FRAME = re.compile(r"\[\s*mcpbridge\s+[a-z2-7]{26}\b", re.IGNORECASE)
_SPELLED_OUT = re.compile(rb"\\u00(?:5b|[46][0-9a-f]|[57][0-9a])", re.IGNORECASE)
"""An escaped `[` or letter, of which nobody needs to escape one."""

_DONE: dict[Form, str] = {
    "as sent": "complete",
    "minified": "complete, minified",
    "table": "complete, as a table",
    "preview": "a preview",
    "truncated": "cut",
    "summary": "summary by a model, may be wrong",
    "transformed": "transformed",
}
_COMPLETE = frozenset[Form](("as sent", "minified", "table"))


def uri_of(handle: str) -> str:
    """The URI of a kept result."""
    return URI + handle


def frame(form: Form, headline: str, chars: int, *, handle: str, recall: str, transforms: bool) -> str:
    """The line. `recall`: what that tool is called; empty: the client has none. `handle` empty: nothing is kept."""
    parts = [f"{_MARK}{handle}" if handle else "[mcpbridge", defused(headline), f"{chars:,} chars", _DONE[form]]
    line = " · ".join(parts)
    if form in _COMPLETE or not handle:
        return f"{line}{'' if form in _COMPLETE else '; the rest was not kept'}]"
    ways = [f"{recall}(handle, path|where|select|find|lines…)"] if recall else []
    ways += ["_transform"] if transforms else []
    return f"{line}; more: {' or '.join(ways)}]" if ways else f"{line}; whole: {uri_of(handle)}]"


def defused(text: str) -> str:
    """The text, in which nothing begins as the bridge's own lines do."""
    return _FORGED.sub(r"(\1", text)


def may_hold_frame(data: bytes) -> bool:
    """Whether bytes of JSON need a closer look for lines like ours; cheap, since every small result is asked."""
    return b"mcpbridge" in data or (b"\\u00" in data and _SPELLED_OUT.search(data) is not None)


def holds_frame(text: str) -> bool:
    """Whether a text has a line that could be taken for ours."""
    return _FRAME.search(text) is not None
