"""Mend harmless slips in arguments where the schema leaves no doubt what was meant, and fill in defaults. Pure.

Only what is wrong is touched: the faults that the check found lead to the places, and each kind of fault has few
mendings. What comes out must be right as a whole; else nothing is mended and the call is refused for what it was.
A mending that could be meant in two ways is none: `"a,b"` for a list of strings, `1` for a boolean.

Which defaults there are is found once for each tool: those of plain `properties`, nested ones too, that are right by
their own schema. A branch of `anyOf`, or what a `$ref` leads to, may not be meant at all; `null` says no more than
absence.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.late_pattern import late
from mcpbridge.pipeline.validation.json_text import Edit, applied, at
from mcpbridge.pipeline.validation.schema_check import Check, Fault, Path, Schema, Uncheckable, compiled, decode_exact
from mcpbridge.pipeline.validation.schema_paths import (
    declared,
    governing,
    has_patterns,
    is_schema,
    kind_of,
    owner,
    printed,
    spelled,
)
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode, one_line

ROUNDS = 8
"""Mendings within mended values, such as a wrong number in an object that came as a string."""

MAX_MEMBERS = 200
"""Members of an object whose names are compared with the declared ones."""

_INTEGER = late(r"-?(0|[1-9]\d{0,99})", re.ASCII)
_NUMBER = late(r"-?(0|[1-9]\d{0,99})(\.\d{1,99})?([eE][+-]?\d{1,3})?", re.ASCII)
_PLAIN_NUMBER = late(rb"-?\d{1,40}(\.\d{1,40})?")
_SEPARATORS = late(r"[_\-\s]+")
_OF_SEVERAL = late(r"[,;|\n]")


class Slip(Struct, frozen=True):
    """One thing that was mended."""

    path: Path
    what: str
    """`renamed`, `converted`, `parsed`, `wrapped`, `respelled` or `dropped`."""
    before: str
    """What it was, short: a small value itself, of any other the kind."""
    after: str
    kinds: tuple[str, str]
    """The same without any value."""

    def to_json(self) -> dict[str, str]:
        """For the client, in `_meta`."""
        return {"path": spelled(self.path), "what": self.what, "from": self.before, "to": self.after}

    def noted(self) -> dict[str, str]:
        """For observers, who keep no values."""
        return {"path": spelled(self.path), "what": self.what, "from": self.kinds[0], "to": self.kinds[1]}


UNWRAPPED = Slip((), "parsed", "a string", "an object", ("a string", "an object"))
"""The arguments themselves came as a string with JSON in it."""


class Mended(Struct, frozen=True):
    """Arguments that are right now."""

    raw: Raw
    slips: tuple[Slip, ...]


class _Mending(Struct, frozen=True):
    edit: Edit
    what: str


def mended(
    check: Check, raw: bytes | Raw, is_right: Callable[[Any], bool], faults: Sequence[Fault] | None = None
) -> Mended | None:
    """The arguments without their slips; None when that does not make them right (what `is_right` says).

    `faults`: theirs, if somebody has asked before.
    """
    text, slips = Raw(raw), list[Slip]()
    for number in range(ROUNDS):
        value = decode_exact(text)
        found = check.faults(value, len(text)) if number or faults is None else faults
        mendings = _apart(_mendings(check, found, value, text))
        if not mendings:
            return None
        slips += [_slip(mending, value) for mending in mendings]
        text = applied(text, [mending.edit for mending in mendings])
        if is_right(decode_exact(text)):
            return Mended(text, tuple(slips))
    return None


def left_over(check: Check, raw: bytes | Raw, faults: list[Fault]) -> tuple[list[Fault], Any]:
    """The faults that no mending removes, and the arguments in which they are: mended as far as that goes.

    For arguments that `mended` gives up, which is as long as one such fault is left.
    """
    text, left = Raw(raw), faults
    for _ in range(ROUNDS):
        mendings = _apart(_mendings(check, left, decode_exact(text), text))
        if not mendings:
            break
        further = applied(text, [mending.edit for mending in mendings])
        after = check.faults(decode_exact(further), len(further))
        if not after:  # right by the schema, but not with the defaults
            break
        text, left = further, after
    return left, decode_exact(text)


def object_within(raw: bytes | Raw) -> Raw | None:
    """The object that a JSON string holds as text; None when it is no string, or holds something else."""
    try:
        text = msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, RecursionError):
        return None
    inner = _parsed(text, dict)
    return Raw(inner) if inner is not None else None


def _mendings(check: Check, faults: Iterable[Fault], value: Any, raw: Raw) -> Iterator[_Mending]:
    """What would mend each fault, if anything. Several faults may come to the same."""
    for fault in faults:
        found = _value_at(value, fault.path)
        if found is None and fault.path and isinstance(fault.path[-1], str):
            yield _Mending(Edit(fault.path), "dropped")
        elif fault.branches:
            yield from _of_branches(check, fault, value, raw)
        elif fault.keyword == "type":
            yield from _of_type(check, fault, found, raw)
        elif fault.keyword in ("enum", "const"):
            yield from _of_options(fault, found)
        elif isinstance(found, dict):
            yield from _of_names(check, fault, cast("dict[str, Any]", found))


def _of_branches(check: Check, fault: Fault, value: Any, raw: Raw) -> Iterator[_Mending]:
    """The mending of the one alternative that can be meant."""
    if fault.facts["count"] > len(fault.branches):
        return
    ways: dict[tuple[Edit, ...], list[_Mending]] = {}
    for branch in fault.branches:
        mendings = _apart(_mendings(check, branch, value, raw))
        mendable = {mending.edit.path for mending in mendings}
        if mendings and all(_is_among(one, mendable) for one in branch):
            ways.setdefault(tuple(mending.edit for mending in mendings), mendings)
    plain = [way for way in ways.values() if all(mending.what != "wrapped" for mending in way)]
    left = plain or list(ways.values())  # a value of its own is nearer than a list of it
    if len(left) > 1:
        left = [way for way in left if _settles(check, fault, way, raw)]
    if len(left) == 1:
        yield from left[0]


def _is_among(fault: Fault, paths: set[Path]) -> bool:
    """Whether something is mended at the place of a fault, or a member of it."""
    return any(path[: len(fault.path)] == fault.path for path in paths)


def _settles(check: Check, fault: Fault, way: Sequence[_Mending], raw: Raw) -> bool:
    """Whether the alternatives fit after these mendings."""
    text = applied(raw, [mending.edit for mending in way])
    left = check.faults(decode_exact(text), len(text))
    return all(one.path[: len(fault.path)] != fault.path for one in left)


def _of_type(check: Check, fault: Fault, value: Any, raw: Raw) -> Iterator[_Mending]:
    types = set[str](fault.facts.get("types", ()))
    due = types - {"null"}
    if isinstance(value, str):
        texts = {text for kind in types if (text := _read_as(kind, value)) is not None}
        if len(texts) == 1:
            text = texts.pop()
            yield _Mending(Edit(fault.path, text), "parsed" if text[:1] in b"{[" else "converted")
            return
    elif isinstance(value, bool):
        pass
    elif not isinstance(value, list | dict) and due == {"string"}:
        digits = at(raw, fault.path)
        if _PLAIN_NUMBER.fullmatch(digits):
            yield _Mending(Edit(fault.path, b'"%b"' % digits), "converted")
        return
    if due == {"array"} and _is_one(value) and owner(check.schema, fault.place).get("items"):
        yield _Mending(Edit(fault.path, b"[%b]" % at(raw, fault.path)), "wrapped")


def _read_as(kind: str, text: str) -> bytes | None:
    """What a string holds, if that is a value of this type."""
    if kind == "integer":
        return text.encode() if _INTEGER.fullmatch(text) else None
    if kind == "number":
        return text.encode() if _NUMBER.fullmatch(text) else None
    if kind == "boolean":
        return text.lower().encode() if text.lower() in ("true", "false") else None
    if kind == "null":
        return b"null" if text == "null" else None
    if kind in ("object", "array"):
        return _parsed(text, dict if kind == "object" else list)
    return None


def _parsed(text: str, kind: type) -> bytes | None:
    raw = one_line(text.strip().encode())
    if raw[:1] not in (b"{", b"["):
        return None
    try:
        return raw if isinstance(decode_exact(raw), kind) else None
    except (ValueError, RecursionError):
        return None


def _is_one(value: Any) -> bool:
    """Whether it may stand for a list of one: several things in one string may not, nor nothing."""
    if isinstance(value, str):
        return bool(value.strip()) and not _OF_SEVERAL.search(value) and not value.lstrip().startswith("[")
    return value is not None


def _of_options(fault: Fault, value: Any) -> Iterator[_Mending]:
    options: list[Any] = fault.facts.get("options", [fault.facts.get("expected_value")])
    if isinstance(value, str):
        meant = [one for one in options if isinstance(one, str) and one.casefold() == value.casefold()]
        what = "respelled"
        if not meant:
            meant = [one for one in options if isinstance(one, int | float) and encode(one) == value.lower().encode()]
            what = "converted"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        meant, what = [one for one in options if isinstance(one, str) and one.encode() == encode(value)], "converted"
    else:
        return
    if len(meant) == 1:
        yield _Mending(Edit(fault.path, encode(meant[0])), what)


def _of_names(check: Check, fault: Fault, members: dict[str, Any]) -> Iterator[_Mending]:
    """A member under a name that is a declared one but for case and separators."""
    if "property" in fault.facts:
        wanted = _like(fault.facts["property"])
    elif fault.keyword in ("additionalProperties", "unevaluatedProperties"):
        wanted = None
    else:
        return
    place = governing(check.schema, fault.place)
    names = declared(check.schema, place)
    if has_patterns(check.schema, place) or len(members) > MAX_MEMBERS:
        return
    strangers: dict[str, list[str]] = {}
    for name in members:
        if name not in names:
            strangers.setdefault(_like(name), []).append(name)
    unexpected = set[str](fault.facts.get("unexpected", ()))
    for like, sources in strangers.items():
        targets = [name for name in names if name not in members and _like(name) == like]
        is_meant = like == wanted if wanted is not None else sources[0] in unexpected
        if is_meant and len(sources) == len(targets) == 1:
            yield _Mending(Edit((*fault.path, sources[0]), name=targets[0]), "renamed")


def _like(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def _apart(mendings: Iterable[_Mending]) -> list[_Mending]:
    """The first of each place, and none inside another: that waits for the next round."""
    kept: dict[Path, _Mending] = {}
    for mending in mendings:
        kept.setdefault(mending.edit.path, mending)
    paths = kept.keys()
    return [mending for path, mending in kept.items() if not any(path[:length] in paths for length in range(len(path)))]


def _value_at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _slip(mending: _Mending, value: Any) -> Slip:
    edit = mending.edit
    before = _value_at(value, edit.path)
    if edit.name is not None:
        names = spelled((edit.path[-1],)), spelled((edit.name,))
        return Slip(edit.path, mending.what, *names, names)
    after = None if edit.raw is None else decode_exact(edit.raw)
    kinds = kind_of(before), "left out" if edit.raw is None else kind_of(after)
    if edit.raw is None:
        return Slip(edit.path, mending.what, *kinds, kinds)
    return Slip(edit.path, mending.what, printed(before, edit.path), printed(after, edit.path), kinds)


MAX_DEFAULTS, MAX_BYTES = 200, 128 << 10
"""Defaults of one tool, and bytes of its schema: each default is checked when the tool is first called."""

_SHARED = ("$schema", "$defs", "definitions")


class Default(Struct, frozen=True):
    """What one member is when it is left out."""

    name: str
    value: Any
    raw: bytes
    """The value as the schema spells it."""
    member: bytes
    """The same with the name, as it is in an object."""


class Defaults(Struct, frozen=True):
    """The defaults of one object."""

    own: tuple[Default, ...]
    inner: tuple[tuple[str, "Defaults"], ...] = ()
    """Of its members that are objects."""


Missing = tuple[Path, dict[str, Any], Default]
"""An absent member: where its object is, that object, and the default."""


def defaults_of(raw: bytes | Raw, root: Schema, levels: int = 0) -> Defaults | None:
    """The defaults of a schema, which is `root` and came as `raw`; None when it has none, or too many to look at each.

    `levels`: how deep a default may be, as for `compiled`.
    """
    text = bytes(raw)
    if not 0 < text.count(b'"default"') <= MAX_DEFAULTS or len(text) > MAX_BYTES:
        return None
    shared = {key: root[key] for key in _SHARED if key in root}
    return _defaults_of(Body(raw), lambda schema, value: _is_right(schema, value, shared, levels))


def absent(defaults: Defaults, value: dict[str, Any], path: Path = ()) -> Iterator[Missing]:
    """Members that have a default and are not there; not those of objects that are not there either."""
    for default in defaults.own:
        if default.name not in value:
            yield path, value, default
    for name, inner in defaults.inner:
        member = value.get(name)
        if isinstance(member, dict):
            yield from absent(inner, cast("dict[str, Any]", member), (*path, name))


def filled(missing: list[Missing]) -> None:
    """Put the defaults into the values themselves."""
    for _, value, default in missing:
        value[default.name] = default.value


def with_defaults(raw: bytes | Raw, missing: list[Missing]) -> Raw:
    """The text with these members added, each at the end of its object."""
    top = [default for path, _, default in missing if not path]
    inner = [Edit((*path, default.name), default.raw) for path, _, default in missing if path]
    if inner:
        raw = applied(raw, inner)
    if not top:
        return Raw(raw)
    members = b",".join([default.member for default in top])
    begun = bytes(raw).rstrip()[:-1].rstrip()
    return Raw(b"%b%b%b}" % (begun, b"" if begun == b"{" else b",", members))


def _defaults_of(schema: Body, is_right: Callable[[Schema, Any], bool]) -> Defaults | None:
    properties = schema.inner("properties")
    if properties is None:
        return None
    own, inner = list[Default](), list[tuple[str, Defaults]]()
    for name, raw in properties.fields.items():
        member = properties.inner(name)
        if member is None or b'"default"' not in bytes(raw):
            continue
        text = member.get("default")
        if text is not None and bytes(text) != b"null":
            value, of_member = decode_exact(text), decode_exact(raw)
            if is_schema(of_member) and is_right(of_member, value):
                spelled = one_line(bytes(text))
                own.append(Default(name, value, spelled, b"%b:%b" % (encode(name), spelled)))
        if "$ref" not in member and (deeper := _defaults_of(member, is_right)) is not None:
            inner.append((name, deeper))
    return Defaults(tuple(own), tuple(inner)) if own or inner else None


def _is_right(schema: Schema, value: Any, shared: Schema, levels: int) -> bool:
    try:
        return compiled({**shared, **schema}, levels).is_valid(value)
    except (Uncheckable, ValueError, RecursionError):
        return False
