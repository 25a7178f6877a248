"""Makes the descriptions and titles in a definition shorter. Pure, linear, never raises.

Needless blanks go, and a text is cut where a reader stumbles least: at the end of a sentence or a word. Descriptions
that say nothing are left out. A text that was shortened once is not changed again.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec import Raw

from mcpbridge.base.late_pattern import late
from mcpbridge.catalog.slim.levels import SHORTEST_SENTENCE, SchemaRules
from mcpbridge.catalog.slim.merge import SUFFIXES, Place, starts
from mcpbridge.protocol.jsonrpc import Fields, decode_text, encode

_UNTIDY = late(r"^\s|\s$|[^\S\n]\n|\n[^\S\n]|\n\n\n|\r")
_BLANK_LINES = late(r"\n{3,}")
_SENTENCE_END = late(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)(?<!\bapprox)(?<!\b[A-Z])[.!?][\"')\]]*(?=\s)|[。！？]"
)
"""Not after an abbreviation, nor within a number or a name, since a blank follows."""
_PARAGRAPH_END = late(r"\n\s*\n|\n(?=\s*(?:[-*•#<]|\d+[.)]|\w+:\s*\n))")
"""A blank line, or a line that begins a list, a heading, a tag or a section such as `Args:`."""
_HEADING = late(r"\s*(?:#[^\n]*|<[^<>\n]{1,40}>|\w+:)\s*\n")
"""A first line that only says what comes: a heading, an opening tag, `Description:`."""
_DUTY = late(r"\A\s*(?:optional|required)[.:]\s*|\s*[(\[](?:optional|required)[)\]][.:,;]?", re.IGNORECASE)
_SEPARATORS = late(r"[\W_]+")
_WORD = late(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*|[0-9]+")
_LONGEST_NAME = 200
"""Characters of what is looked at word by word."""
_SAY_NOTHING = (
    "a all an and any are as at be by can for from given has have if in into is it its of on only optional or provided"
    " set should specified specify that the their these this to used using via want what when where whether which will"
    " with you your"
)
_FEW_WORDS = frozenset(word.removesuffix("s") for word in _SAY_NOTHING.split())


def tidied(text: str) -> str:
    """The text without trailing blanks, blank lines in a row, and what all lines but the first are indented by."""
    if not _UNTIDY.search(text):
        return text
    first, *rest = [line.rstrip() for line in text.strip().replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    indents = [line[: len(line) - len(line.lstrip())] for line in rest if line]
    least, most = min(indents, default=""), max(indents, default="")  # what these two begin with, all do
    margin = next((at for at, one in enumerate(least) if most[at : at + 1] != one), len(least))
    return _BLANK_LINES.sub("\n\n", "\n".join([first, *(line[margin:] for line in rest)]))


def brief(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters: as many whole sentences as fit, and then `…`."""
    looked_at = text[: 4 * limit]  # so one of megabytes costs no more than a long one
    line = " ".join(looked_at.split())
    if len(line) <= limit and len(looked_at) == len(text):
        return line
    ends = [end.end() for end in _SENTENCE_END.finditer(line, SHORTEST_SENTENCE, max(limit - 1, 0))]
    return _ended(line[: ends[-1]]) if ends else _cut(line, limit)


def first_sentence(text: str, limit: int) -> str:
    """The first sentence on one line, cut if it is longer than `limit` characters."""
    return brief(_parted(text[: 8 * limit])[0], limit)


def telling_sentence(text: str, limit: int, *names: str) -> str:
    """The first sentence with a word that these names do not have, on one line; `…` if there is more. May be empty.

    "(optional)" and the like is left out, since the schema says what is required.
    """
    rest = _without_duty(text[: 8 * limit])
    while rest:
        sentence, rest = _parted(rest)
        if not _repeats(sentence, names):
            has_more = bool(rest) or len(text) > 8 * limit
            return _ended(sentence) if has_more and len(sentence) < limit else brief(sentence, limit)
    return ""


def cap_description(text: str, limit: int) -> str:
    """The text with at most `limit` characters, counted as JavaScript does: one beyond U+FFFF counts twice.

    Line breaks stay. If it is cut, at the end of a paragraph, sentence or word, it ends in `…`.
    """
    limit = max(limit, 0)
    units = text[:limit].encode("utf-16-le", "surrogatepass")
    if len(text) <= limit and len(units) <= 2 * limit:
        return text
    window = units[: 2 * limit].decode("utf-16-le", "surrogatepass")
    if "\ud800" <= window[-1:] <= "\udbff":  # the first half of a character that stood on the border
        window = window[:-1]
    paragraph = window.rfind("\n\n", len(window) * 3 // 4, max(len(window) - 1, 0))
    if paragraph > 0:
        return window[: paragraph + 2] + "…"
    ends = [end.end() for end in _SENTENCE_END.finditer(window, len(window) * 3 // 4, max(len(window) - 1, 0))]
    return window[: min(ends[-1], len(window) - 2)] + " …" if ends else _cut(window, len(window))


def plain(name: str) -> str:
    """What names have in common that differ in their spelling only: `repoPath`, `repo_path` and "Repo Path"."""
    return _plain(name) if len(name) <= _LONGEST_NAME else name


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


@lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower().removesuffix("s") for word in _WORD.findall(text)) - {""}  # of "'s"


def _cut(text: str, limit: int) -> str:
    if limit < 2:
        return "…"[:limit]
    end = text.rfind(" ", limit // 2, limit)
    return text[: end if end > 0 else limit - 1].rstrip(" \n,;:-(") + "…"


def _repeats(text: str, names: Sequence[str]) -> bool:
    """Whether a description has no word that these names do not have ("The ID of the issue", of `issue_id`).

    Words that say nothing by themselves do not count; a text that is not written with Latin letters says something.
    """
    text = text.rstrip("…")
    if not text.isascii() or len(text) > _LONGEST_NAME:
        return False
    known = frozenset[str]().union(*(_words(name[:_LONGEST_NAME]) for name in names))
    return _words(text) <= known | _FEW_WORDS


def _parted(text: str) -> tuple[str, str]:
    """The first sentence on one line, and what follows it."""
    text = text.strip()
    while (heading := _HEADING.match(text)) and heading.end() < len(text):
        text = text[heading.end() :].lstrip()
    paragraph = _PARAGRAPH_END.search(text)
    end = _SENTENCE_END.search(text, SHORTEST_SENTENCE, paragraph.start() + 1 if paragraph else len(text))
    here = end.end() if end else paragraph.start() if paragraph else len(text)
    return " ".join(text[:here].split()), text[here:].strip()


def _without_duty(text: str) -> str:
    before = ""
    while text != before:
        before, text = text, _DUTY.sub("", text)
    return text


def _ended(sentence: str) -> str:
    return sentence.rstrip(".").rstrip() + "…"


_decode_names = msgspec.json.Decoder(list[str]).decode


class Wording:
    """What becomes of words during one pass over a schema."""

    def __init__(self, rules: SchemaRules, tool: str, silenced: frozenset[int] = frozenset()) -> None:
        """`silenced`: which descriptions to leave out, by their place in `texts` of a pass before."""
        self.texts: list[tuple[int, bool, int]] = []
        """(how deep, whether it is optional, characters) of each description that is left."""
        self._rules, self._tool, self._silenced = rules, tool, silenced

    @property
    def is_short(self) -> bool:
        """Words may be lost."""
        return self._rules.text is not None

    def description(self, value: Raw, place: Place) -> Raw | None:
        """What stays of a description; None: nothing."""
        text = text_of(value)
        if text is None:
            return value
        tidy = tidied(text)
        if tidy == place.outer_text or (place.name and plain(tidy) == plain(place.name)):
            return None
        short = self._short(tidy, place)
        return value if short == text else Raw(encode(short))

    def _short(self, text: str, place: Place) -> str:
        limit = self._rules.text
        if limit is None:
            return text
        if place.depth == 0 and place.outer_text:
            return ""
        short = telling_sentence(text, limit, place.name, self._tool) if limit else ""
        if not short:
            return ""
        self.texts.append((place.depth, not place.is_required, len(short)))
        return "" if len(self.texts) - 1 in self._silenced else short

    def title(self, value: Raw, place: Place, fields: Fields) -> Raw | None:
        """What stays of the title of a schema with these keywords; None: nothing."""
        text = text_of(value)
        if text is None:
            return value
        known = plain(text)
        if place.depth == 0:
            return None if self._rules.text is not None or self._repeats_tool(known) else value
        if (
            (place.name and known == plain(place.name))
            or tidied(text) == description_of(fields)
            or known == _plain_constant(fields)
        ):
            return None
        limit = self._rules.text
        if limit is None:
            return value
        return None if limit == 0 or "description" in fields else Raw(encode(brief(text, limit)))

    def _repeats_tool(self, title: str) -> bool:
        for suffix in SUFFIXES:
            title = title.removesuffix(suffix)
        return plain(self._tool).endswith(title)

    def default(self, value: Raw, place: Place) -> Raw | None:
        """A default, unless it is too long, or null where the argument may be left out anyway."""
        if place.is_optional_argument and bytes(value) == b"null":
            return None
        longest = self._rules.longest_default
        return None if longest is not None and len(value) > longest else value


def description_of(fields: Fields) -> str:
    """The description of a schema; empty if it has none."""
    return tidied(text_of(fields.get("description")) or "")


def text_of(raw: Raw | None) -> str | None:
    """A string, decoded; None: it is none."""
    return decode_text(raw) if raw is not None and starts(raw, b'"') else None


def names_of(raw: Raw | None) -> frozenset[str] | None:
    """A list of names, empty if there is none; None: it is no list of names."""
    try:
        return frozenset(_decode_names(raw)) if raw is not None else frozenset()
    except msgspec.DecodeError:
        return None


def _plain_constant(fields: Fields) -> str | None:
    text = text_of(fields.get("const"))
    return None if text is None else plain(text)
