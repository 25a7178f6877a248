"""Words the values that a JSON schema allows: `str`, `int(1..50)`, `{id: int, tags?: str[]}`, `"open"|"closed"`.

A detail says how much of a tool a signature shows, from most to least. Formats, bounds, patterns and descriptions are
added as far as it says. What is left out is marked: with `…` where it would be, or, for conditions that have no
place of their own, by `Types.is_untold`. A definition that is used more than once is written once, as `Filter{…}`, and
then named.
"""

from collections.abc import Sequence

from msgspec import Struct

from mcpbridge.catalog.signatures.schema import (
    NOTES,
    Member,
    Schema,
    SchemaReader,
    as_range,
    as_schema,
    is_identifier,
    items_of,
    literal,
    pattern,
)
from mcpbridge.catalog.signatures.short_text import adds_to, clean, cut


class Detail(Struct, frozen=True):
    """How much is shown. What is not is marked."""

    depth: int = 2
    """Levels of objects within parameters that are spelled out."""
    members: int = 12
    """Members of one object, and alternatives of one value."""
    literals: int = 90
    """Characters of the values of one enum, and twice those of a default."""
    is_exact: bool = False
    """Lengths, patterns and the like are shown too."""
    texts: int = 0
    """Characters of a member's description; 0: none is shown."""
    room: int = 1200
    """Characters altogether, about; what comes after is left out."""


class Form(Struct, frozen=True):
    """How much of a tool is shown on one line."""

    description: int
    """Characters of the description; 0: none is shown."""
    optional: int = 0
    """Optional parameters that are named."""
    detail: Detail | None = None
    """What of parameters; None: nothing."""
    sentences: int = 20


FORMS: tuple[Form, ...] = (
    Form(200, 16, Detail(depth=2, members=12, literals=90, room=900)),
    Form(120, 8, Detail(depth=1, members=8, literals=60, room=400)),
    Form(90, 4, Detail(depth=0, members=5, literals=32, room=240)),
    Form(70, 0, Detail(depth=0, members=4, literals=24, room=160)),
    Form(70, sentences=1),
    Form(30, sentences=1),
    Form(0),
)
"""From the longest to the shortest. The first is that of the level `brief`."""

NAMES = Form(120, sentences=1)
"""The level `names`."""


_NAME = 100
_NEEDED = 8
_FORMAT, _EXAMPLE = 30, 60
"""Characters of a format, and of one example."""
_OF_WIDTH = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in ("", 8, 16, 32, 64)) | {"double"}
"""Formats that add nothing to the type."""

_CONDITIONS = (
    "not if then else dependentRequired dependentSchemas dependencies propertyNames contains minContains maxContains"
    " minProperties maxProperties contentSchema $dynamicRef $recursiveRef"
)
UNTOLD = frozenset(_CONDITIONS.split())
"""Conditions that no type shows."""

Notes = tuple[list[str], bool]
"""Notes on a type, and whether they are all that there is to note."""


def notes_of(kind: object, schema: Schema, *, is_exact: bool) -> Notes:
    """The notes on a value of this type. Without `is_exact` only those that callers trip over: formats and numbers."""
    if kind in ("integer", "number"):
        text, is_whole = as_range(schema, "minimum", "maximum")
        step = schema.get("multipleOf")
        exact = [f"step {literal(step, 12)}"] if step not in (None, 1) else []
        return _with([text] if text else [], exact, is_exact=is_exact, is_whole=is_whole)
    if kind == "array":
        text, is_whole = as_range(schema, "minItems", "maxItems")
        exact = [f"len {text}"] if text else []
        exact += ["unique"] if schema.get("uniqueItems") is True else []
        return _with([], exact, is_exact=is_exact, is_whole=is_whole)
    if kind != "string":
        return [], True
    said = [clean(schema.get(key), _NAME) for key in ("format", "contentEncoding", "contentMediaType")]
    text, is_whole = as_range(schema, "minLength", "maxLength")
    exact = [f"len {text}"] if text else []
    regex = schema.get("pattern")
    exact += [pattern(regex)] if regex is not None else []
    formats = [cut(one, _FORMAT) for one in said if one and one not in _OF_WIDTH]
    return _with(formats, exact, is_exact=is_exact, is_whole=is_whole)


def description_line(member: Member, room: int) -> str:
    """What is said of a member, on one line of about `room` characters; what is cut ends with `…`."""
    schema = as_schema(member.schema)
    if schema is None:
        return ""
    text = clean(schema.get("description") or schema.get("title"), room + 1)
    said = cut(text, room) if adds_to(text, member.name) else ""
    shown = [text for one in items_of(schema.get("examples"))[:3] if (text := literal(one, _EXAMPLE))]
    examples = f"(e.g. {', '.join(shown)})" if shown else ""
    deprecated = "deprecated" if schema.get("deprecated") is True else ""
    return " ".join(part for part in (deprecated, said, examples) if part).replace("*/", "* /")


def says_more(member: Member) -> bool:
    """Whether anything is said of a member that its name and type do not say."""
    schema = as_schema(member.schema)
    if schema is None:
        return False
    return (
        bool(schema.get("examples"))
        or schema.get("deprecated") is True
        or adds_to(schema.get("description"), member.name)
    )


def needs_of(schema: Schema, most: int) -> tuple[str, bool]:
    """Of which members an object needs one or another, `one of: id|name+owner`; and whether that is all."""
    told, is_whole = "", UNTOLD.isdisjoint(schema)
    for keyword, words in (("anyOf", "any of"), ("oneOf", "one of")):
        options = items_of(schema.get(keyword))
        needed = [_needed(option) for option in options[:most]]
        if options and not told and all(needed) and len(options) == len(needed):
            told = f"{words}: {'|'.join(needed)}"
        else:
            is_whole = is_whole and not schema.get(keyword)
    return told, is_whole


def _needed(option: object) -> str:
    """The members that one of several alternatives needs; empty if it says anything else."""
    schema = as_schema(option)
    names = items_of(schema.get("required")) if schema is not None and set(schema) <= {"required", *NOTES} else []
    plain = [name for name in names if isinstance(name, str) and is_identifier(name)]
    return "+".join(plain) if len(plain) == len(names) <= _NEEDED else ""


def _with(notes: list[str], exact: list[str], *, is_exact: bool, is_whole: bool) -> Notes:
    """Notes that are always told, and those that are told only where all are; an empty one could not be written."""
    told = [note for note in exact if note] if is_exact else []
    return notes + told, is_whole and len(told) == len(exact)


_LEVELS = 24
_SHORT = 24
"""Characters of a definition that is written each time it is used rather than named."""
_KINDS = 8
"""Types that one list of types may have."""

_NAMED = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
_BASE = frozenset(("properties", "required", "items", "prefixItems", "enum", "const", "pattern"))
"""What says more of a value than alternatives beside it do."""
_OF_OBJECTS = ("properties", "required", "patternProperties")
_IMPLIED = (
    ("object", ("properties", "additionalProperties", "patternProperties")),
    ("array", ("items", "prefixItems", "minItems", "maxItems", "uniqueItems")),
    ("string", ("format", "pattern", "minLength", "maxLength", "contentEncoding")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)


class Types:
    """The types within one schema, written one after the other."""

    def __init__(self, root: object, detail: Detail) -> None:
        self.reader = SchemaReader(root)
        self.is_cut = False
        """Something was left out, where a `…` stands."""
        self._has_omissions = False
        self._detail = detail
        self._left, self._level = detail.room, 0

    @property
    def has_omissions(self) -> bool:
        """Something was left out that has no mark."""
        return self._has_omissions or self.reader.is_incomplete

    @property
    def is_full(self) -> bool:
        """There is no room for more."""
        return self._left <= 0

    def of(self, schema: object, depth: int = 0) -> str:
        """The type that a schema says; `any` for all values. `depth`: levels of objects around it."""
        return "|".join(self._alternatives(schema, depth))

    def member(self, member: Member, depth: int = 0) -> str:
        """A member with type, default and, if it is within another, description: `state?: "open"|"closed"="open"`."""
        name = member.name if is_identifier(member.name) else literal(cut(member.name, _NAME), 8 * _NAME) or "…"
        self._left -= len(name)
        alternatives = self._alternatives(member.schema, depth)
        default = self._default(member.schema)
        if not member.is_required and default == "null" and len(alternatives) > 1:
            alternatives = [one for one in alternatives if one != "null"]  # the same as leaving it out
        kind = "|".join(alternatives)
        text = f"{name}{'' if member.is_required else '?'}{'' if kind == 'any' else f': {kind}'}"
        if default and default != "null":
            text += f"={default}"
        said = self.text_of(member) if depth else ""
        if not self._detail.texts and not self._has_omissions:
            self._has_omissions = says_more(member)
        return f"{text} /*{said}*/" if said else text

    def text_of(self, member: Member) -> str:
        """What is said of a member, on one line; empty: nothing, or nothing is to be shown."""
        if not self._detail.texts:
            return ""
        said = description_line(member, min(self._detail.texts, max(self._left, 20)))
        self.is_cut = self.is_cut or "…" in said
        return self._counted(said)

    def rest_of(self, schema: Schema) -> str | None:
        """The type of members that have no name of their own; None if nothing is said of them."""
        self._note_omission(bool(schema.get("patternProperties")))
        rest = as_schema(schema.get("additionalProperties"))
        return self.of(rest, 1) if rest else None

    def needs_of(self, schema: Schema) -> str:
        """Which members an object needs one or another of: `one of: id|name+owner`; other conditions are untold."""
        told, is_whole = needs_of(schema, self._detail.members)
        self._note_omission(not is_whole)
        return self._counted(told)

    def more(self, count: int) -> str:
        """The mark for members that are left out."""
        self.is_cut = True
        return f"…+{count}"

    # -- one value

    def _alternatives(self, schema: object, depth: int) -> list[str]:
        """The types that a value may have; at least one."""
        if self.is_full or self._level > _LEVELS or not self.reader.may_go_on():
            return self._cut()
        self._level += 1
        self.reader.refs.opened(schema)
        try:
            found = list(dict.fromkeys(self._kinds(schema, depth)))
        finally:
            self._level -= 1
            name = self.reader.refs.closed(schema)
        if name:  # it leads back to itself
            self.reader.refs.define(schema)
            found = [_named(name, found)]
        if "any" in found:
            self._note_omission(self.is_cut and len(found) > 1)  # the mark may go with what goes here
            return ["any"]
        if "null" in found[:-1]:
            found = [*(one for one in found if one != "null"), "null"]
        return found

    def _kinds(self, value: object, depth: int) -> list[str]:
        if isinstance(value, bool):
            return ["any" if value else "never"]
        schema = as_schema(value)
        if schema is None:
            return self._cut()
        self._note_omission(not UNTOLD.isdisjoint(schema))
        if "$ref" in schema:
            return self._referred(schema, depth)
        if "const" in schema:
            return [self._literal(schema["const"], self._detail.literals)]
        if values := items_of(schema.get("enum")):
            return self._literals(values)
        if parts := items_of(schema.get("allOf")):
            is_alias = len(parts) == 1 and all(key == "allOf" or key in NOTES for key in schema)
            return self._alternatives(parts[0] if is_alias else self.reader.merged(schema, parts, "allOf"), depth)
        for keyword in ("anyOf", "oneOf"):
            if options := items_of(schema.get(keyword)):
                return self._any_of(schema, keyword, options, depth)
        return self._typed(schema, depth)

    def _referred(self, schema: Schema, depth: int) -> list[str]:
        self._note_omission(any(key != "$ref" and key not in NOTES and not key.startswith("x-") for key in schema))
        ref, refs = schema["$ref"], self.reader.refs
        target = refs.target(ref)
        if target is None:
            return self._cut()
        name, is_defined = refs.name(ref, target)
        if is_defined:
            return [self._counted(name)]
        found = self._alternatives(target, depth)
        if refs.is_defined(target) or not refs.is_shared(ref) or found == ["{…}"] or len("|".join(found)) <= _SHORT:
            return found
        refs.define(target)
        return [_named(name, found)]

    def _any_of(self, schema: Schema, keyword: str, options: Sequence[object], depth: int) -> list[str]:
        base = {key: value for key, value in schema.items() if key != keyword}
        if not _BASE.isdisjoint(base) or "anyOf" in base or "oneOf" in base:
            self._has_omissions = True  # conditions on top of what the base says
            return self._alternatives(base, depth)
        found: list[str] = []
        for count, option in enumerate(options):
            if count >= self._detail.members or self.is_full:
                return [*found, *self._cut()]
            one = as_schema(option)
            if one is not None and "type" in base and not {"type", "$ref", "enum", "const"} & one.keys():
                found += self._alternatives({**one, "type": base["type"]}, depth)
            else:
                found += self._alternatives(option, depth)
        return found

    def _typed(self, schema: Schema, depth: int) -> list[str]:
        kind: object = schema.get("type")
        if kind is None:
            kind = next((name for name, keys in _IMPLIED if any(key in schema for key in keys)), None)
            return ["any"] if kind is None else self._kind(kind, schema, depth)
        kinds = items_of(kind)
        if not kinds:
            return self._kind(kind, schema, depth)
        found = [text for one in kinds[:_KINDS] for text in self._kind(one, schema, depth)]
        return [*found, *(self._cut() if len(kinds) > _KINDS else [])]

    def _kind(self, kind: object, schema: Schema, depth: int) -> list[str]:
        if kind == "object":
            return [self._object(schema, depth)]
        if kind == "array":
            return [self._array(schema, depth)]
        if (inner := as_schema(kind)) is not None:  # seen in the wild: a schema for a type
            self._has_omissions = True
            return self._alternatives(inner, depth)
        if not isinstance(kind, str) or not is_identifier(kind):
            return self._cut()
        return [self._noted(_NAMED.get(kind, kind), kind, schema)]

    # -- values of one type

    def _object(self, schema: Schema, depth: int) -> str:
        if depth >= self._detail.depth and any(schema.get(key) for key in _OF_OBJECTS):
            return f"{{{self._cut()[0]}}}"
        members, total = self.reader.members_of(schema, self._detail.members)
        rest = self.rest_of(schema)
        if not members and rest is None:
            return self._counted("object")
        told: list[str] = []
        for member in members:
            if self.is_full:
                break
            told.append(self.member(member, depth + 1))
        if len(told) < total:
            told.append(self.more(total - len(told)))
        if rest is not None:
            told.append(f"[str]: {rest}")
        return f"{{{', '.join(told)}}}"

    def _array(self, schema: Schema, depth: int) -> str:
        first, items = schema.get("prefixItems"), schema.get("items")
        if isinstance(items, list):
            first, items = schema.get("items"), schema.get("additionalItems")
        if kinds := items_of(first):
            told = [self.of(one, depth) for one in kinds[: self._detail.members]]
            if len(kinds) > len(told) or as_schema(items):
                told += self._cut()
            return f"[{', '.join(told)}]"
        found = self._alternatives(items, depth) if as_schema(items) else []
        kind = "|".join(found)
        text = f"({kind})[]" if len(found) > 1 else f"{kind}[]" if kind not in ("", "any") else "list"
        self._left += len(kind)  # it was counted when it was told
        return self._noted(text, "array", schema)

    def _noted(self, text: str, kind: object, schema: Schema) -> str:
        """A type, and in brackets what is noted of it."""
        notes, is_whole = notes_of(kind, schema, is_exact=self._detail.is_exact)
        self._note_omission(not is_whole)
        return self._counted(f"{text}({', '.join(notes)})" if notes else text)

    def _counted(self, text: str) -> str:
        self._left -= len(text)
        return text

    # -- literal values, and marks

    def _literals(self, values: Sequence[object]) -> list[str]:
        found: list[str] = []
        room = self._detail.literals
        for value in values:
            text = self._literal(value, self._detail.literals)
            room -= len(text) + 1
            if found and (room < 0 or self.is_full):
                return [*found, *self._cut()]
            found.append(text)
        return found

    def _literal(self, value: object, room: int) -> str:
        text = literal(value, room)
        self._left -= len(text)
        return text or self._cut()[0]

    def _default(self, value: object) -> str:
        """The default as it is written; empty: there is none."""
        schema = as_schema(value)
        if schema is None or "default" not in schema:
            return ""
        default = schema["default"]
        return "null" if default is None else self._literal(default, self._detail.literals // 2)

    def _cut(self) -> list[str]:
        self.is_cut = True
        self._left -= 1
        return ["…"]

    def _note_omission(self, is_so: bool) -> None:
        self._has_omissions = self._has_omissions or is_so


def _named(name: str, kinds: Sequence[str]) -> str:
    """A type with a name by which it is called from then on."""
    text = "|".join(kinds)
    return f"{name}{text}" if text.startswith("{") and len(kinds) == 1 else f"{name}{{{text}}}"
