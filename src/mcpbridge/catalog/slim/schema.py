"""Makes a JSON Schema smaller: it takes out what tells a model nothing, or more, as `SchemaRules` say. Pure.

One pass looks at keywords only where a schema stands. Names of properties are names, whatever they are; data (`enum`,
`const`, `default`) and unknown keywords pass as the bytes that came.

Nothing is written in another form than the server chose, since clients understand different ones. What was valid stays
valid: constraints are taken out, not added. Where that could turn round (below `not`, `if`, `oneOf`) only what changes
nothing is done. One exception, of arguments alone: where null is the default of a property that may be left out, the
schema no longer says that null may be written out.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Raw

from mcpbridge.catalog.definitions.schemas import HEADER_MARK
from mcpbridge.catalog.slim.levels import SchemaRules
from mcpbridge.catalog.slim.merge import (
    ANNOTATIONS,
    DEFINITIONS,
    DIALECT,
    NOTHING_SAID,
    OLD_DIALECT,
    RULES_OF_OWN,
    SAFE_INTEGERS,
    SENSITIVE_TO_DIALECT,
    TURNS_ROUND,
    UNIONS,
    Place,
    References,
    Target,
    merged,
    named_in,
    only_arm,
    references,
    starts,
    target,
    without_null,
)
from mcpbridge.catalog.slim.text import Wording, names_of, plain, text_of, told_by
from mcpbridge.protocol.jsonrpc import Fields, decode_array, decode_fields, encode_fields

_DEEPEST = 60
"""Schemas within schemas that are looked at; what is deeper stays as it came."""
_MAY_STAND_BESIDE = frozenset({"$ref", "$schema", *ANNOTATIONS})
_Handler = Callable[[str, Raw, Place, Fields], Raw | None]
"""(keyword, its value, where the schema stands, all its keywords) -> what stays of the value; None: nothing."""


class Walk:
    """What is known during one pass. Methods raise msgspec.DecodeError where a part is malformed."""

    def __init__(
        self, raw: bytes, known: References, words: Wording, dropped: frozenset[str], *, is_input: bool
    ) -> None:
        """`raw`: the whole schema; `dropped`: keywords that are left out."""
        self.needed: dict[Target, None] = {}
        """Definitions that what was looked at so far refers to."""
        self.has_company = False
        """Something that checks values stands beside a reference."""
        self.is_final = known.is_none
        """Another pass would find nothing."""
        self.evaluates = b'"unevaluated' in raw
        """Something says what becomes of all that other keywords left open, so these count."""
        self._known, self._words, self._dropped, self._is_input = known, words, dropped, is_input
        self._can_move = not known.is_fixed and HEADER_MARK.encode() not in raw  # marks are found by their path
        self._handlers = self._handling()

    def one(self, raw: Raw, place: Place) -> Raw:
        """A schema as JSON; what is none stays."""
        if not starts(raw, b"{"):
            return raw
        if place.depth > _DEEPEST:
            self._keep(raw)
            return raw
        return Raw(encode_fields(self.schema(decode_fields(raw), place)))

    def schema(self, fields: Fields, place: Place) -> Fields:
        """A schema by its keywords."""
        if self._can_move:
            fields = self._gathered(fields, place)
        kept: Fields = {}
        for keyword, value in fields.items():
            if keyword in self._dropped and (not place.is_exact or keyword in ANNOTATIONS):
                continue
            handler = self._handlers.get(keyword)
            if handler is not None:
                said = handler(keyword, value, place, fields)
            else:
                said = value
                if self._known.definitions:
                    self._keep(value)
            if said is not None and not _says_nothing(keyword, said):
                kept[keyword] = said
        return self._words.with_fewer_values(kept, place)

    def _keep(self, raw: Raw) -> None:
        """What stays as it came needs the definitions that it refers to."""
        self.needed.update(dict.fromkeys(named_in(bytes(raw))))

    # -- what stands elsewhere, or in a union of its own, put in its place

    def _gathered(self, fields: Fields, place: Place) -> Fields:
        while True:
            before = fields
            if place.is_left_out and "default" in fields and bytes(fields["default"]) == b"null":
                fields = without_null(fields)
            if arm := only_arm(fields):
                fields = self._merged(fields, *arm)
            if "$ref" in fields:
                fields = self._resolved(fields)
            if fields is before:
                return fields

    def _resolved(self, fields: Fields) -> Fields:
        aim = _aim(fields["$ref"])
        body = self._known.definitions.get(aim) if aim in self._known.inlined else None
        if aim is None or body is None or not starts(body, b"{"):
            return fields
        inner = decode_fields(body)
        if plain(text_of(inner.get("title")) or "") == plain(aim[1]):
            inner.pop("title", None)
        return self._merged(fields, "$ref", inner)

    def _merged(self, fields: Fields, keyword: str, body: Fields) -> Fields:
        found = merged(fields, keyword, body, outer_wins=self._words.is_short)
        if found is None:
            self.is_final = False  # when one of both got shorter, it may go
            return fields
        return found

    # -- keywords

    def _handling(self) -> Mapping[str, _Handler]:
        """What is done about each keyword. Of those that are not here, the value stays as it came."""
        return {
            "$ref": self._reference,
            "properties": self._properties,
            **dict.fromkeys(("patternProperties", "dependentSchemas", "$defs", "definitions"), self._by_name),
            **dict.fromkeys(("items", "prefixItems", "additionalItems", "unevaluatedItems"), self._items),
            **dict.fromkeys(UNIONS, self._arms),
            **dict.fromkeys(TURNS_ROUND, self._turned),
            **dict.fromkeys(("then", "else", "propertyNames", "contentSchema", "unevaluatedProperties"), self._inner),
            "additionalProperties": self._additional,
            **dict.fromkeys(("minimum", "maximum"), self._bound),
            "description": lambda keyword, value, place, fields: self._words.description(value, place),
            "title": lambda keyword, value, place, fields: self._words.title(value, place, fields),
            "default": lambda keyword, value, place, fields: self._words.default(value),
            "$comment": lambda keyword, value, place, fields: None,
        }

    def _reference(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        self._keep(Raw(b'{"$ref":%b}' % value))
        self.has_company = self.has_company or not fields.keys() <= _MAY_STAND_BESIDE
        return value

    def _properties(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        if not starts(value, b"{"):
            return value
        required = names_of(fields.get("required"))
        may_go = required is not None and self._is_input and not (place.is_exact or place.is_shared)
        may_go = may_go and RULES_OF_OWN.isdisjoint(fields)
        required = required or frozenset()
        found = {
            name: self.one(
                schema, place.property(name, left_out=may_go and name not in required, required=name in required)
            )
            for name, schema in decode_fields(value).items()
        }
        return Raw(encode_fields(found))

    def _by_name(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw | None:
        if not starts(value, b"{"):
            return value
        if keyword in ("$defs", "definitions") and self._known.is_none:
            return None  # not at the top, and nothing refers to anything
        inner = place.inner(shared=keyword == "dependentSchemas")
        return Raw(encode_fields({name: self.one(schema, inner) for name, schema in decode_fields(value).items()}))

    def _items(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        inner = place.inner(told=told_by(fields))
        if starts(value, b"["):
            return Raw(encode_fields([self.one(schema, inner) for schema in decode_array(value)]))
        return self.one(value, inner)

    def _arms(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        if not starts(value, b"["):
            return value
        arms = decode_array(value)
        is_shared = keyword == "allOf" or not fields.keys().isdisjoint(("properties", "required"))
        inner = place.inner(told=told_by(fields), exact=keyword == "oneOf" and len(arms) > 1, shared=is_shared)
        return Raw(encode_fields([self.one(arm, inner) for arm in arms]))

    def _inner(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        return self.one(value, place.inner(shared=True))

    def _turned(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        return self.one(value, place.inner(exact=True))

    def _additional(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw | None:
        if bytes(value) == b"false":
            return value if place.is_exact else None
        found = self.one(value, place.inner())
        return None if bytes(found) in (b"{}", b"true") and not self.evaluates else found

    def _bound(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw | None:
        return None if not place.is_exact and len(value) < 20 and bytes(value) in SAFE_INTEGERS else value


def _aim(raw: Raw) -> Target | None:
    text = text_of(raw)
    return None if text is None else target(text)


def _says_nothing(keyword: str, value: Raw) -> bool:
    return keyword in NOTHING_SAID and len(value) < 20 and bytes(value) in NOTHING_SAID[keyword]


_ROUNDS = 16
"""Passes at most: what was moved into one place may then be moved on."""


def shorter_schema(raw: bytes, rules: SchemaRules, *, tool: str, told: str, is_input: bool) -> bytes:
    """The schema after `rules`; the same object where that is not shorter. Never raises.

    `tool`: the name of the tool; `told`: its description. `is_input`: what it describes are arguments.
    """
    try:
        for _ in range(_ROUNDS):
            found, is_final = _once(raw, rules, tool, told, is_input)
            if len(found) >= len(raw):
                break
            raw = found
            if is_final:
                break
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # of what is malformed in a part that matters, nothing is known
    return raw


def _once(raw: bytes, rules: SchemaRules, tool: str, told: str, is_input: bool) -> tuple[bytes, bool]:
    """One pass, and whether another one would find nothing."""
    fields = decode_fields(raw)
    known = references(raw, fields)
    words = Wording(rules, tool)
    walk = Walk(raw, known, words, rules.dropped, is_input=is_input)
    found = _walked(walk, known, raw, fields, told)
    silenced = _beyond(words.texts, rules.all_texts)
    if silenced:
        walk = Walk(raw, known, Wording(rules, tool, silenced), rules.dropped, is_input=is_input)
        found = _walked(walk, known, raw, fields, told)
    return encode_fields(found), walk.is_final


def _beyond(texts: Sequence[tuple[int, bool, int]], room: int | None) -> frozenset[int]:
    """The descriptions for which there is no room, by their numbers: the deepest, and of these the optional ones."""
    if room is None or sum(length for _, _, length in texts) <= room:
        return frozenset()
    silenced: set[int] = set()
    for number in sorted(range(len(texts)), key=lambda number: (*texts[number][:2], number)):
        room -= texts[number][2]
        if room < 0:
            room += texts[number][2]
            silenced.add(number)
    return frozenset(silenced)


def _walked(walk: Walk, known: References, raw: bytes, fields: Fields, told: str) -> Fields:
    top = {name: value for name, value in fields.items() if name not in DEFINITIONS}
    dialect = top.get("$schema")
    named = bytes(dialect) if dialect is not None else b""
    is_needless = DIALECT.fullmatch(named) and (b"2020-12" in named or not SENSITIVE_TO_DIALECT.search(raw))
    if is_needless:
        del top["$schema"]
    if known.is_none:
        top.pop("$id", None)
    found = walk.schema(top, Place(told=told, is_exact=walk.evaluates))
    definitions = _definitions(walk, known, raw)
    if dialect is not None and is_needless and walk.has_company and OLD_DIALECT.match(named):
        found = {"$schema": dialect, **found}
    return {**found, **definitions}


def _definitions(walk: Walk, known: References, raw: bytes) -> Fields:
    """The definitions that are used, in the groups that they stood in."""
    if not known.definitions:
        return {}
    turns = any(word in raw for word in (b'"oneOf"', b'"not"', b'"if"', b'"contains"'))
    if known.are_kept:
        walk.needed.update(dict.fromkeys(known.definitions))
    done: dict[Target, Raw] = {}
    while waiting := [aim for aim in walk.needed if aim in known.definitions and aim not in done]:
        for aim in waiting:
            place = Place(aim[1], depth=1, is_exact=turns or walk.evaluates)
            done[aim] = walk.one(known.definitions[aim], place)
    groups: Fields = {}
    for group in DEFINITIONS:
        of_group = {aim[1]: done[aim] for aim in known.definitions if aim[0] == group and aim in done}
        if of_group:
            groups[group] = Raw(encode_fields(of_group))
    return groups
