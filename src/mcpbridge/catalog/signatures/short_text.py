"""Texts of servers on one line: without what cannot be seen, and cut at the end of a sentence or a word.

Pure. Only as much of a text is read as could be shown, so that megabytes cost nothing.
"""

import re

from mcpbridge.catalog.words import stems_of

_LOOKED_AT = 4000
"""Characters of a text of which a part is shown."""

_WHITE = re.compile(r"\s+")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.) (?![a-z])|(?<=[。！？])(?!$)")
_BEGINS = re.compile(r"(?:[-*•#>|]|[0-9]{1,2}[.)])\s|<[a-z]|[A-Z][A-Za-z ]{1,20}:$")
"""Lines that do not continue the sentence of the line before."""
SECTION = re.compile(
    r"(?:args|arguments|parameters|params|returns|raises)\b[^:.]{0,24}:"
    r"|(?:when|how) to use\b[^:.]{0,24}:"
    r"|(?:return|examples?|usage|notes?|inputs?|outputs?|response)\b[^:.]{0,10}:",
    re.IGNORECASE,
)
"""The beginning of what a description says of parameters and the like, after what the tool does."""
_WRAPPED = 50
"""Characters from which a line may have been broken where the sentence continues."""
_MARKUP = "#*_`>|•- "
_MOST_ADDED = 400
"""Characters of a text of which it is asked whether it adds something; longer ones do."""


def clean(text: object, length: int = _LOOKED_AT) -> str:
    """A text on one line, of so many characters at most; of anything else, nothing."""
    if not isinstance(text, str):
        return ""
    text = text[:length]
    if not text.isprintable():
        text = "".join([char if char.isprintable() else " " for char in text])
    return _WHITE.sub(" ", text).strip()


def cut(text: str, room: int) -> str:
    """The beginning of a text, with `…` for the rest, of at most `room` characters."""
    if len(text) <= room:
        return text
    start = text[: max(room - 1, 0)]
    if not text[len(start)].isspace():
        head, blank, _ = start.rpartition(" ")
        start = head if blank and len(head) * 2 >= len(start) else start
    return f"{start.rstrip(' .,;:-–—(')}…"


def gist(text: object, room: int, *, most: int = 20) -> tuple[str, bool]:
    """The first sentences that fit into `room` characters, and whether that is all; at least the start of one.

    What is left out is marked at the end.
    """
    if not isinstance(text, str) or room <= 0:
        return "", not isinstance(text, str) or not text
    told: list[str] = []
    used, is_all = 0, len(text) <= _LOOKED_AT
    for sentence in sentences(text):
        is_next = used + len(sentence) <= room and len(told) < most and not SECTION.match(sentence)
        if told and not is_next:
            is_all = False
            break
        told.append(sentence)
        used += len(sentence) + 1
    found = " ".join([*(_ended(sentence) for sentence in told[:-1]), *told[-1:]])
    if len(found) > room:
        return cut(found, room), False
    return (found.removesuffix("."), True) if is_all else (f"{found.rstrip(' .,;:-')}…", False)


def paragraphs(text: object, length: int) -> tuple[list[str], bool]:
    """The lines of a text, in at most `length` characters, and whether that is all. Of empty lines none is left."""
    if not isinstance(text, str):
        return [], True
    lines = [line for raw in text[:length].splitlines() if (line := clean(raw, length))]
    is_all = len(text) <= length
    if not is_all and lines:
        lines[-1] += "…"
    return lines, is_all


def adds_to(text: object, *names: str) -> bool:
    """Whether a text says more than these names do: "The repository owner" adds nothing to `repository_owner`."""
    if not isinstance(text, str) or not text:
        return False
    if len(text) > _MOST_ADDED:
        return True
    known = {stem for name in names for stem in stems_of(name)}
    return not known.issuperset(stems_of(text))


def _ended(sentence: str) -> str:
    return sentence if sentence[-1] in ".!?:;,。！？" else f"{sentence};"


def sentences(text: str) -> list[str]:
    """The sentences of the beginning of a text, each on one line and without the marks of lists and headings."""
    blocks: list[str] = []
    is_new = True
    for raw in text[:_LOOKED_AT].splitlines():
        line = clean(raw)
        if not line:
            is_new = True
        else:
            if is_new or _BEGINS.match(line):
                blocks.append(line)
            else:
                blocks[-1] += f" {line}"
            is_new = line.endswith(":") or (len(line) < _WRAPPED and not line.endswith(","))
    found = [sentence for block in blocks for sentence in _SENTENCE.split(block)]
    return [bare for sentence in found if (bare := sentence.strip(_MARKUP if sentence[:1] in "#*_>|•-" else " "))]
