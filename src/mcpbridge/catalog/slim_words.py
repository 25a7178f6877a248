"""The words in a schema: which descriptions and titles say something, and how much of them stays."""

import re

import msgspec
from msgspec import Raw

from mcpbridge.catalog.slim_keywords import SUFFIXES, SchemaRules
from mcpbridge.catalog.slim_merging import starts
from mcpbridge.catalog.slim_place import Place
from mcpbridge.catalog.slim_text import brief, plain, telling_sentence, tidied
from mcpbridge.wire.frame import Fields, encode

__all__ = ["Wording", "names_of", "text_of", "told_by"]

_VALUES_SHOWN = 40
"""Characters of the values that are named of a long list."""
_LONGEST_MARK = 100
_MARK = re.compile(r"\(\d+ values: .*, …\)\Z", re.DOTALL)

_decode_text = msgspec.json.Decoder(str).decode
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
        if tidy == place.told or (place.name and plain(tidy) == plain(place.name)):
            return None
        short = self._short(tidy, place)
        return value if short == text else Raw(encode(short))

    def _short(self, text: str, place: Place) -> str:
        limit = self._rules.text
        if limit is None:
            return text
        if place.depth == 0 and place.told:
            return ""
        found = _MARK.search(text[-_LONGEST_MARK:])
        mark = found.group() if found else ""
        about = text[: len(text) - len(mark)].rstrip()
        about = telling_sentence(about, limit - len(mark) - bool(mark), place.name, self._tool) if limit else ""
        if about:
            self.texts.append((place.depth, not place.is_required, len(about)))
            about = "" if len(self.texts) - 1 in self._silenced else about
        return f"{about} {mark}".strip()

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
            or tidied(text) == told_by(fields)
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

    def default(self, value: Raw) -> Raw | None:
        """A default, unless it is too long."""
        longest = self._rules.longest_default
        return None if longest is not None and len(value) > longest else value

    def with_fewer_values(self, fields: Fields, place: Place) -> Fields:
        """With a long list of values told by its beginning, where that is shorter."""
        enum, longest = fields.get("enum"), self._rules.longest_enum
        if enum is None or longest is None or len(enum) <= longest or place.is_exact or not starts(enum, b"["):
            return fields
        try:
            values = _decode_names(enum)
        except msgspec.DecodeError:
            return fields  # not texts alone
        mark = f"({len(values)} values: {brief(', '.join(values[:8]), _VALUES_SHOWN).rstrip('…, ')}, …)"
        about = text_of(fields.get("description")) or ""
        room = max(self._rules.text or 0, len(mark)) - len(mark) - 1
        said = f"{brief(about, room)} {mark}" if about and room > 20 else mark
        rest = {name: value for name, value in fields.items() if name != "enum"}
        rest.setdefault("type", Raw(b'"string"'))
        return {**rest, "description": Raw(encode(said))}


def told_by(fields: Fields) -> str:
    """The description of a schema; empty if it has none."""
    return tidied(text_of(fields.get("description")) or "")


def text_of(raw: Raw | None) -> str | None:
    """A string, decoded; None: it is none."""
    return _decode_text(raw) if raw is not None and starts(raw, b'"') else None


def names_of(raw: Raw | None) -> frozenset[str] | None:
    """A list of names, empty if there is none; None: it is no list of names."""
    try:
        return frozenset(_decode_names(raw)) if raw is not None else frozenset()
    except msgspec.DecodeError:
        return None


def _plain_constant(fields: Fields) -> str | None:
    text = text_of(fields.get("const"))
    return None if text is None else plain(text)
