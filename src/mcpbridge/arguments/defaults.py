"""Defaults of a schema for arguments that were left out. Pure.

Which there are is found once for each tool: those of plain `properties`, nested ones too, that are right by their own
schema. A branch of `anyOf`, or what a `$ref` leads to, may not be meant at all; `null` says no more than absence.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from msgspec import Raw, Struct

from mcpbridge.arguments.check import Path, Schema, Uncheckable, compiled, decode_exact
from mcpbridge.arguments.places import is_schema
from mcpbridge.arguments.splicing import Edit, applied
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode, one_line

__all__ = ["Default", "Defaults", "absent", "defaults_of", "filled", "with_defaults"]

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
    """The same with the name, as it stands in an object."""


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
