"""The line that stands above every rewritten result: what it is, what was done to it, how to get the rest.

It is the bridge's word, so nothing that a server sends may look like it: in all that is rewritten, and in every result
that holds such a line, its beginning is spelled otherwise (`lookalikes.py` says what that is, `honesty.py` goes over
whole results).
"""

import re
from functools import cache
from typing import Literal

from mcpbridge.results.lookalikes import OTHER_BRACKETS, in_text, mark, plain_mark

__all__ = ["RESULT", "URI", "Form", "defused", "frame", "holds_frame", "may_hold_frame", "uri_of"]

RESULT = "mcpbridge/result"
"""In `_meta` of a rewritten result: its `handle`, `uri`, `form`, `kind` and `chars`, for programs."""

URI = "mcpbridge://results/"
"""What URIs of kept results begin with; the handle follows."""

Form = Literal["as sent", "minified", "table", "preview", "truncated", "summary", "transformed"]
"""What was done to a result; the first three lose nothing."""

_MARK = "[mcpbridge "
_BLANK, _END = r"\s", r"\Z"
"""A text may be continued by the next block."""
_CLOSING = str.maketrans("[]［］﹇﹈", "()()()")
"""A headline stands inside of brackets."""

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
    parts = [f"{_MARK}{handle}" if handle else "[mcpbridge", _on_one_line(headline), f"{chars:,} chars", _DONE[form]]
    line = " · ".join(parts)
    if form in _COMPLETE or not handle:
        return f"{line}{'' if form in _COMPLETE else '; the rest was not kept'}]"
    ways = [f"{recall}(handle, path|where|select|find|lines…)"] if recall else []
    ways += ["_transform"] if transforms else []
    return f"{line}; more: {' or '.join(ways)}]" if ways else f"{line}; whole: {uri_of(handle)}]"


def defused(text: str) -> str:
    """The text, in which nothing begins as the bridge's own lines do."""
    if text.isascii():
        return _plain().sub(r"(\1", text)
    for pattern in _patterns(text):
        text = pattern.sub(r"(\1", text)
    return text


def holds_frame(text: str) -> bool:
    """Whether a text has a line that could be taken for ours."""
    if text.isascii():
        return _plain().search(text) is not None
    return any(pattern.search(text) for pattern in _patterns(text))


def may_hold_frame(data: bytes) -> bool:
    """Whether bytes of JSON need a closer look for lines like ours; cheap, since every small result is asked."""
    if not data.isascii() or (b"\\" in data and b"\\u" in data):
        return True
    return b"mcpbridge" in data.lower()


def _on_one_line(headline: str) -> str:
    """The headline without what cannot be seen, what begins a line, or what could end ours."""
    seen = "".join(char if char.isprintable() else " " for char in headline.translate(_CLOSING))
    return defused(" ".join(seen.split()))


def _patterns(text: str) -> list[re.Pattern[str]]:
    """Those that can match at all. Two, since one that begins with a single character is searched ten times as fast."""
    has_others = any(map(text.__contains__, OTHER_BRACKETS))
    return [_wide(r"\["), _wide(f"[{OTHER_BRACKETS}]")] if has_others else [_wide(r"\[")]


@cache
def _plain() -> re.Pattern[str]:
    return re.compile(rf"\[({plain_mark(_BLANK, _END)})")


@cache
def _wide(start: str) -> re.Pattern[str]:
    return re.compile(f"{start}({mark(in_text, _END)})")
