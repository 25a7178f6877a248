"""Characters that a model reads and a person does not see: take them out of a text, show them, or say what they are.

Hidden are zero-width and bidi characters, tags, runs of variation selectors, terminal escapes, control characters, and
what else has no shape. What languages and emoji need stays: joiners between letters of scripts that join and between
emoji, one selector after a character that has variants, marks beside right-to-left letters. Pure, linear in the text.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mcpbridge.base.late_pattern import late


class Hidden(NamedTuple):
    """Some hidden characters in a row."""

    kind: str
    """`zero-width`, `bidi`, `tag`, `variation`, `escape`, `control`, `filler`, `private-use` or `invisible`."""
    start: int
    end: int
    message: str
    """The text that they spell; empty if they spell none."""


_RTL = "\u0590-\u05ff\u0600-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefe"
_JOINING = (
    "\u0600-\u06ff\u0700-\u074f\u0750-\u077f\u07c0-\u07ff\u0840-\u085f\u0860-\u08ff\u0900-\u0dff\u0e80-\u0eff"
    "\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1800-\u180a\u1810-\u18af\ua840-\ua87f\ua8e0-\ua8ff\ua980-\ua9df"
    "\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010ac0-\U00010aff\U00011000-\U000119ff"
)
"""Letters of the scripts in which a joiner, or a non-joiner, changes what is written."""
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935\u2b05-\u2b55"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_VARIANTS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"

_ESCAPE = (
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]?"  # CSI: colours, moving the cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c)?"  # OSC and the like
    r"|\x1b[ -/]{0,8}[0-~]?"
)
_KEPT = (
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"  # the flags of England, Scotland and Wales
    f"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    f"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}\\s]|$)"
    f"|(?<=[{_RTL}])[\u200e\u200f\u061c](?![\u200b-\u200f\u061c])|(?<![\u200b-\u200f\u061c])[\u200e\u200f\u061c](?=[{_RTL}])"
    f"|(?<=[{_EMOJI}])[\ufe0e\ufe0f](?![{_VARIANTS}])|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe02\U000e0100-\U000e01ef](?![{_VARIANTS}])"
    f"|(?<=[\u2200-\u22ff\u2a00-\u2aff])\ufe00(?![{_VARIANTS}])"
    "|(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f](?![\u180b-\u180f])|(?<=[\u1820-\u18aa])\u180e(?=[\u1820-\u18aa])"
    "|\u115f(?=[\u1160-\u11a7])|(?<=[\u1100-\u115e])\u1160"
    "|(?<=[\u2801-\u28ff])\u2800|\u2800(?=[\u2801-\u28ff])"
)
_KINDS = {
    "zero-width": "[\u200b-\u200d\u2060\ufeff\u180e\u034f]+",
    "bidi": "[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\u206a-\u206f]+",
    "tag": "[\U000e0000-\U000e007f]+",
    "variation": f"[{_VARIANTS}\u180b-\u180d\u180f]+",
    "control": "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]+|\r(?!\n)",
    "filler": "[\u115f\u1160\u3164\uffa0\u2800\u00ad\u17b4\u17b5\U0001d159]+",
    "private-use": "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]{2,}",
    "invisible": "[\u2061-\u2065\ufff0-\ufffb\ufdd0-\ufdef\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0080-\U000e00ff\U000e01f0-\U000e0fff\U0001fffe\U0001ffff\ud800-\udfff]+",
}
_MAY_HIDE = late(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U0001fffe\U0001ffff\U000e0000-\U0010ffff]"
)


def may_hide(text: str) -> bool:
    """Whether there is a character that is hidden, or would be at another place. Fast."""
    return not (text.isascii() and text.isprintable()) and _MAY_HIDE.search(text) is not None


def hidden_in(text: str) -> list[Hidden]:
    """What is hidden in a text, in order."""
    return list(_hidden(text)) if may_hide(text) else []


def without_hidden(text: str) -> str:
    """The text without what is hidden in it; the same object if there is nothing. Doing it again changes nothing.

    Unusual ends of lines become usual ones.
    """
    if not may_hide(text):
        return text
    for _ in range(_ROUNDS):  # what stood on both sides of something hidden may be hidden itself, such as a half pair
        cleaned = _replaced(_LINE_ENDS.sub("\n", text), lambda _hidden, _text: "")
        if cleaned == text:
            return text
        text = cleaned
    return _MAY_HIDE.sub("", text)


def with_hidden_shown(text: str) -> str:
    """The text with each hidden character as `‹U+200B›`; the same object if there is none.

    Of terminal escapes what has a shape stays: `‹U+001B›[31m`.
    """
    if not may_hide(text):
        return text
    for _ in range(_ROUNDS):
        shown = _replaced(text, lambda hidden, text: _spelled(text[hidden.start : hidden.end]))
        if shown == text:
            return text
        text = shown
    return _MAY_HIDE.sub(lambda match: _spelled(match[0]), text)


_ROUNDS = 8
_LINE_ENDS = late("\r(?!\n)|[\x0b\x0c\x85\u2028\u2029]")
_MOST_SHOWN = 200


def _spelled(characters: str) -> str:
    shown = "".join(
        one if " " <= one <= "~" else f"‹U+{ord(one):04X}›" for one in characters[:_MOST_SHOWN] if one not in "\t\n"
    )
    return shown if len(characters) <= _MOST_SHOWN else f"{shown}‹{len(characters) - _MOST_SHOWN} more›"


def _replaced(text: str, replacement: Callable[[Hidden, str], str]) -> str:
    parts: list[str] = []
    done = 0
    for one in _hidden(text):
        parts += [text[done : one.start], replacement(one, text)]
        done = one.end
    return "".join([*parts, text[done:]]) if done else text


def _hidden(text: str) -> Iterator[Hidden]:
    for match in _pattern().finditer(text):
        kind = match.lastgroup
        if kind and kind != "kept":
            yield Hidden(kind.replace("_", "-"), match.start(), match.end(), _message(kind, match[0]))


_compiled: list[re.Pattern[str]] = []


def _pattern() -> re.Pattern[str]:
    """What is kept first, so that the rest is hidden. Compiled with the first text that needs it."""
    if not _compiled:
        kinds = "|".join(f"(?P<{kind.replace('-', '_')}>{chars})" for kind, chars in _KINDS.items())
        _compiled.append(re.compile(f"(?P<kept>{_KEPT})|(?P<escape>{_ESCAPE})|{kinds}"))
    return _compiled[0]


def _message(kind: str, characters: str) -> str:
    """What tags spell, one letter each, and variation selectors, one byte each."""
    if kind == "tag":
        return "".join(chr(ord(one) - 0xE0000) for one in characters if 0xE0020 <= ord(one) < 0xE007F)
    if kind == "variation" and len(characters) > 2:
        codes = [ord(one) for one in characters]
        raw = bytes(c - 0xFE00 if c <= 0xFE0F else c - 0xE0100 + 16 for c in codes if c <= 0xFE0F or c >= 0xE0100)
        return raw.decode(errors="replace")
    return ""
