"""The fields of a form for the arguments of a tool, as its input schema says. Pure.

Objects, lists, numbers, texts, choices and truth values get controls of their own; what no control fits (alternatives,
tuples, maps, recursion) gets a box for JSON. Schemas come from servers and may be anything: what is looked at of them
is bounded, and nothing in them runs in the page (no `pattern` gets there: browsers would match it). Values are put in
and read in `arguments_form.py`; whether they fit the schema is decided by the bridge, as for every call.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.catalog.signatures.schema import References

Kind = Literal["text", "line", "integer", "number", "choice", "object", "list", "json"]
"""`text` may have several lines, `line` not. `choice` also stands for truth values."""

ROOT = "a"
"""The name of the whole form. The parts of a field are numbered: names of arguments may be any text."""

_FIELDS = 200
"""Controls of a form. A schema with more has no form: there is the box for JSON."""
_DEPTH = 5
_CHOICES = 500
_LABEL, _HINT = 200, 300
_REFERENCES = 20
_LONG = 100
"""Characters from which on a text may have several lines."""
_LINES = frozenset({"date", "date-time", "time", "email", "uri", "url", "uuid", "ipv4", "ipv6", "hostname"})
"""Formats of texts that have one line."""
_ABOUT = ("title", "description", "default")

Schema = Mapping[str, Any]
_NOTHING: Schema = {}


class Unset(Struct, frozen=True):
    """There is no value."""


UNSET = Unset()


class Choice(Struct, frozen=True):
    """One value of a choice."""

    value: str
    """As JSON."""
    label: str


class Field(Struct, frozen=True):
    """One argument, or a part of one."""

    name: str
    """The name of its control; those of its parts begin with it."""
    kind: Kind
    key: str | None = None
    """The name of the argument; None for the item of a list, and for the form itself."""
    label: str = ""
    description: str = ""
    hint: str = ""
    """What else the schema asks for, in a few words."""
    is_required: bool = False
    is_nullable: bool = False
    default: Any = UNSET
    least: int = 0
    """Of a list: items that it has at least."""
    choices: tuple[Choice, ...] = ()
    fields: tuple["Field", ...] = ()
    """The members of an object, or the items that a list has so far."""
    item: "Field | None" = None
    """One more item of a list; its names begin with `item_name`, which stands for that of the list and a number."""
    value: str = ""
    """What the control holds."""
    problem: str = ""
    """What is wrong with that."""

    @property
    def item_name(self) -> str:
        """The name of the item that is to be copied."""
        return self.item.name if self.item is not None else ""


def fields_of(schema: Schema) -> Field | None:
    """The form for a schema, as an object without values; None: it has too many arguments for one."""
    maker = _Maker(schema)
    form = maker.field(ROOT, schema, None, is_required=True, depth=0)
    return form if form.kind == "object" and maker.count <= _FIELDS else None


class _Maker:
    """Makes the fields of one form."""

    def __init__(self, root: Schema) -> None:
        self._references = References(root)
        self.count = 0

    def field(self, name: str, schema: object, key: str | None, *, is_required: bool, depth: int) -> Field:
        """One field, with its parts."""
        self.count += 1
        plain, is_nullable = self._plain(schema)
        title = plain.get("title")
        field = Field(
            name,
            "json",
            key,
            key or (title[:_LABEL] if isinstance(title, str) else ""),
            _text(plain.get("description")),
            _hint(plain, is_nullable=is_nullable),
            is_required,
            is_nullable,
            plain.get("default", UNSET),
        )
        kind = self._kind(plain, depth)
        if kind == "object":
            return replace(field, kind=kind, fields=tuple(self._members(name, plain, depth)))
        if kind == "list":
            one = self.field(f"{name}.[{depth}]", plain.get("items"), None, is_required=True, depth=depth + 1)
            return replace(field, kind=kind, item=one, least=_number(plain.get("minItems")))
        if kind == "choice":
            return replace(field, kind=kind, choices=tuple(_choices(plain)))
        return replace(field, kind=kind)

    def _members(self, name: str, schema: Schema, depth: int) -> Iterator[Field]:
        needed = schema.get("required")
        required: Sequence[object] = cast("Sequence[object]", needed) if isinstance(needed, list) else ()
        members = sorted(_mapping(schema.get("properties")).items(), key=lambda one: one[0] not in required)
        for number, (key, inner) in enumerate(members):
            if self.count > _FIELDS:
                return
            yield self.field(f"{name}.{number}", inner, key, is_required=key in required, depth=depth + 1)

    def _kind(self, schema: Schema, depth: int) -> Kind:
        if "enum" in schema or "const" in schema:
            return "choice" if 0 < len(list(_choices(schema))) <= _CHOICES else "json"
        kind = schema.get("type")
        if kind == "boolean":
            return "choice"
        if kind in ("integer", "number"):
            return kind
        if kind == "string":
            longest = schema.get("maxLength")
            is_short = isinstance(longest, int) and longest < _LONG
            return "line" if is_short or schema.get("format") in _LINES else "text"
        if depth >= _DEPTH:
            return "json"
        has_members = bool(_mapping(schema.get("properties")))
        if depth == 0 or (has_members and kind in ("object", None)):
            return "object"
        if kind == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
            return "list"
        return "json"

    def _plain(self, schema: object) -> tuple[Schema, bool]:
        """A schema without references and alternatives, as far as a control can do without; and whether null fits."""
        found, is_nullable = _mapping(schema), False
        for _ in range(_REFERENCES):
            kinds = found.get("type")
            if isinstance(kinds, list):
                several = [kind for kind in cast("list[object]", kinds) if kind != "null"]
                is_nullable = is_nullable or "null" in kinds
                rest = {key: value for key, value in found.items() if key != "type"}
                found = {**rest, "type": several[0]} if len(several) == 1 else _only_about(rest)
                continue
            if "$ref" in found:
                beside = {key: value for key, value in found.items() if key != "$ref"}
                found = {**_mapping(self._references.target(found["$ref"])), **beside}
                continue
            key = next((key for key in ("anyOf", "oneOf", "allOf") if isinstance(found.get(key), list)), None)
            if key is None:
                return found, is_nullable
            beside = {name: value for name, value in found.items() if name != key}
            options = [_mapping(one) for one in cast("list[object]", found[key])]
            others = [one for one in options if one.get("type") != "null" or key == "allOf"]
            is_nullable = is_nullable or len(others) < len(options)
            if len(others) == 1:
                found = {**others[0], **beside}
            elif key != "allOf" and others and (values := _constants(others)) is not None:
                found = {**beside, "enum": [value for value, _ in values], "enumNames": [text for _, text in values]}
            elif key == "oneOf" or key == "anyOf":
                found = beside if beside.get("properties") else _only_about(beside)
            else:
                found = _only_about(beside)
        return _only_about(found), is_nullable


def _only_about(schema: Schema) -> Schema:
    """What is left of a schema that no control fits."""
    return {key: schema[key] for key in _ABOUT if key in schema}


def _constants(options: Sequence[Schema]) -> list[tuple[object, str]] | None:
    """The values and labels of alternatives that are all constants; None: they are not."""
    found: list[tuple[object, str]] = []
    for one in options:
        if "const" in one:
            found.append((one["const"], _text(one.get("title"))))
        elif isinstance(values := one.get("enum"), list):
            found += [(value, "") for value in cast("list[object]", values)]
        else:
            return None
    return found


def _choices(schema: Schema) -> Iterator[Choice]:
    given = [schema["const"]] if "const" in schema else schema.get("enum", [True, False])
    values = cast("list[object]", given) if isinstance(given, list) else []
    named = schema.get("enumNames")
    names = cast("list[object]", named) if isinstance(named, list) else []
    for number, value in enumerate(values[: _CHOICES + 1]):
        label = _text(names[number]) if number < len(names) else ""
        label = label or (value if isinstance(value, str) and value else as_json(value))
        yield Choice(as_json(value), label[:_LABEL])


_LIMITS = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("exclusiveMinimum", "more than {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("format", "{}"),
    ("pattern", "matches {}"),
)


def _hint(schema: Schema, *, is_nullable: bool) -> str:
    values = [(text, schema.get(key)) for key, text in _LIMITS]
    said = [
        text.format(str(value)[:_LABEL])
        for text, value in values
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    return ", ".join([*said, *(["may be null"] if is_nullable else [])])[:_HINT]


def as_json(value: object) -> str:
    """A value as JSON on one line."""
    return _encode(value).decode()


_encode = msgspec.json.Encoder(decimal_format="number").encode


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else _NOTHING
