"""Take hidden characters out of the strings of a JSON text; all else stays the bytes it was. Pure.

Keys are strings too. `renamed_strings` says which strings became others, so that what comes back can be turned into
what was sent.
"""

import json
import re
from collections.abc import Callable

from mcpbridge.base.hidden_text import without_hidden

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ESCAPED = re.compile(rb"\\[ubfr]|\x7f")


def may_hide(raw: bytes) -> bool:
    """Whether a string of this JSON text may have hidden characters. Fast."""
    return not raw.isascii() or _ESCAPED.search(raw) is not None


def without_hidden_in(raw: bytes, clean: Callable[[str], str] = without_hidden) -> bytes:
    """The JSON text without hidden characters in its strings; the same object if there are none."""
    if not may_hide(raw):
        return raw
    changed = _STRING.sub(lambda match: _cleaned(match[0], clean), raw)
    return raw if changed == raw else changed


def renamed_strings(raw: bytes) -> dict[str, str]:
    """Each string of the JSON text that changed, after and before. One that others are called anyway is left out."""
    if not may_hide(raw):
        return {}
    every = {text for match in _STRING.findall(raw) if (text := _decoded(match)) is not None}
    return {after: text for text in sorted(every) if (after := without_hidden(text)) != text and after not in every}


def _cleaned(token: bytes, clean: Callable[[str], str]) -> bytes:
    if not may_hide(token) or (text := _decoded(token)) is None:
        return token
    after = clean(text)
    return token if after is text or after == text else json.dumps(after, ensure_ascii=False).encode()


def _decoded(token: bytes) -> str | None:
    try:
        decoded: object = json.loads(token, strict=False)
    except (ValueError, UnicodeDecodeError):
        return None
    return decoded if isinstance(decoded, str) else None
