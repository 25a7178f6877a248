"""One definition of a tool, prompt, resource or template: can it be listed, and what must change for that?

Definitions are published as the bytes that came. Only what would break clients, or says something that is not true
behind a bridge, is changed, member by member; unknown fields, order, numbers and nulls stay. One that cannot be
listed is refused alone, with the reason: a typed client would refuse the whole list over it, of all servers.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.hidden_json import may_hide, without_hidden_in
from mcpbridge.base.hidden_text import without_hidden
from mcpbridge.catalog.definitions.schemas import (
    HEADER_MARK,
    OPTIONAL_FIELDS,
    Schema,
    fits,
    is_object,
    is_presentable,
    mended,
    mended_keywords,
    without_header_marks,
)
from mcpbridge.core.call_options import NO_HINTS, Hints
from mcpbridge.protocol.apps import app_uris, is_for_apps_only, with_published_uris
from mcpbridge.protocol.jsonrpc import Fields, decode_fields, encode, encode_fields, one_line
from mcpbridge.protocol.sdk import find_invalid_x_mcp_header, x_mcp_header_map

Kind = Literal["tools", "prompts", "resources", "templates"]
"""What a server lists."""

KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")

LARGEST = 256 * 1024
"""Bytes of one definition."""

DEEPEST = 100
"""Levels of nesting in one definition. Clients' parsers stop at 128 (serde) or 200 (pydantic), envelope included."""

Changes = Mapping[str, bytes | None]
"""Top-level member to its new JSON; None to leave it out."""

KEY: Mapping[Kind, str] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
"""The member by which a server knows a definition of this kind."""
_HEADER_MARK_BYTES = HEADER_MARK.encode()
_UNCHANGED: Changes = MappingProxyType({})
_NO_HEADERS: Mapping[tuple[str, ...], str] = MappingProxyType({})


class Definition(Struct, frozen=True, omit_defaults=True, gc=False):
    """A definition that can be listed."""

    kind: Kind
    key: str
    """What identifies it at its server: the name, the URI, or the URI template."""
    name: str
    raw: bytes
    """As the server sent it."""
    changes: Changes = _UNCHANGED
    """For every client."""
    for_legacy: Changes = _UNCHANGED
    """Besides `changes`, for revisions up to 2025-11-25."""
    for_modern: Changes = _UNCHANGED
    """Besides `changes`, for revisions from 2026-07-28."""
    faults: tuple[tuple[str, str], ...] = ()
    """(member, what was wrong with it) of what had to be left out or mended."""
    ui: tuple[str, ...] = ()
    """URIs of the apps that belong to this tool. They need not be listed as resources (MCP Apps 2026-01-26)."""
    headers: Mapping[tuple[str, ...], str] = _NO_HEADERS
    """Path of an argument to the `Mcp-Param-…` token that a modern HTTP server wants it repeated in."""
    is_marked: bool = False
    """Modern clients over HTTP repeat arguments in such headers as well, and what they repeat must be checked."""
    app_only: bool = False
    """The server means this tool for its apps alone, not for models (MCP Apps, `visibility`)."""
    task_support: str = ""
    """`optional` or `required`: the tool may, or must, run as a task (2025-11-25); empty: it does not."""
    hints: Hints = NO_HINTS
    """The annotations of a tool."""


class Unusable(Struct, frozen=True):
    """A definition that cannot be listed. `name` is what could be read of it, or empty."""

    name: str
    reason: str


def check(kind: Kind, raw: bytes, *, over_http: bool = False) -> Definition | Unusable:
    """Read one definition. Never raises, whatever the bytes.

    `over_http`: its server may demand `Mcp-Param-*` headers, so marks for them that cannot be obeyed rule it out.
    """
    if len(raw) > LARGEST:
        return Unusable("", f"larger than {LARGEST // 1024} KiB")
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unusable("", f"not readable by every client: {error}")
    except RecursionError:
        return Unusable("", f"nested deeper than {DEEPEST} levels")
    if not isinstance(value, dict):
        return Unusable("", "not a JSON object")
    members = cast("dict[str, Any]", value)
    key, name = members.get(KEY[kind]), members.get("name")
    known_as = next((text for text in (key, name) if isinstance(text, str)), "")
    if not isinstance(key, str) or not key:
        return Unusable(known_as, f"its {KEY[kind]!r} is missing or no text")
    if _is_too_deep(raw, members):
        return Unusable(known_as, f"nested deeper than {DEEPEST} levels")
    found = _Check(kind, key, raw, members, over_http).run()
    if isinstance(found, Definition) and may_hide(raw):
        return _clean(kind, key, raw, found, over_http=over_http)
    return found


_NOT_READ = frozenset({"_meta", "icons", "uri", "uriTemplate", "name"})
"""Members that no model reads, or by which a server knows its things; names that the catalog replaces."""


def _clean(kind: Kind, key: str, raw: bytes, usable: Definition, *, over_http: bool) -> Definition:
    """The same definition, whose texts have no hidden characters. Never refuses what was usable."""
    fields = decode_fields(raw)
    is_named = kind in ("tools", "prompts")
    cleaned = {
        member: clean
        for member, value in fields.items()
        if (member not in _NOT_READ or (member == "name" and not is_named))
        and (clean := without_hidden_in(bytes(value))) != bytes(value)
    }
    faults = [*usable.faults, *((member, _HIDDEN) for member in cleaned)]
    if is_named and without_hidden(key) != key:
        faults.append(("name", _HIDDEN))
    if not cleaned:
        return replace(usable, faults=tuple(faults))
    tidy = encode_fields({**fields, **{member: Raw(clean) for member, clean in cleaned.items()}})
    again = _Check(kind, key, tidy, msgspec.json.decode(tidy), over_http).run()
    if not isinstance(again, Definition):  # two parameters may have the same name now
        again, cleaned = usable, {member: clean for member, clean in cleaned.items() if member == "description"}
    changes = {**cleaned, **again.changes}
    name = again.name if is_named else without_hidden(again.name)
    return replace(again, raw=raw, name=name, changes=changes, faults=tuple(faults))


_HIDDEN = "hidden characters taken out"


def form_for_legacy(definition: Definition, changes: Changes) -> bytes:
    """What clients of revision 2025-11-25 get, with `changes` over those that it needs anyway.

    Those of older revisions get what `older_form` leaves of it.
    """
    return _changed(definition, {**definition.changes, **definition.for_legacy, **changes})


def form_for_modern(definition: Definition, changes: Changes) -> bytes:
    """What clients of the revisions from 2026-07-28 get, with `changes` over those that it needs anyway."""
    return _changed(definition, {**definition.changes, **definition.for_modern, **changes})


def with_ui_uris(definition: Definition, published: Mapping[str, str]) -> Changes:
    """The change that makes a tool point to its apps by their published URIs; none where they are the same."""
    if all(published.get(uri, uri) == uri for uri in definition.ui):  # so also where there are none
        return _UNCHANGED
    meta = with_published_uris(decode_fields(definition.raw)["_meta"], lambda uri: published.get(uri, uri))
    return _UNCHANGED if meta is None else {"_meta": meta}


class _Check:
    """Collects what must change in one definition."""

    def __init__(self, kind: Kind, key: str, raw: bytes, members: dict[str, Any], over_http: bool) -> None:
        self.kind: Kind = kind
        self.key = key
        self.raw = raw
        self.members = members
        self.over_http = over_http
        self.fields: Fields = {}
        self.changes: dict[str, bytes | None] = {}
        self.for_legacy: dict[str, bytes | None] = {}
        self.for_modern: dict[str, bytes | None] = {}
        self.faults: list[tuple[str, str]] = []
        self.headers: Mapping[tuple[str, ...], str] = _NO_HEADERS

    def run(self) -> Definition | Unusable:
        name = self.members.get("name")
        if not isinstance(name, str):
            # Only resources and templates get here without: they are known by their URI, so that names them too.
            name = self.key
            self._replace("name", encode(name), "missing or no text")
        if self.kind == "tools" and (reason := self._schemas()):
            return Unusable(name, reason)
        for member, shape in OPTIONAL_FIELDS[self.kind].items():
            if member in self.members and not fits(self.members[member], shape):
                self._mend(member, shape)
        if "execution" in self.members:
            self.for_modern["execution"] = None  # 2026-07-28 removed it
        task_support = self._task_support() if self.kind == "tools" else ""
        meta = self.members.get("_meta") if self.kind == "tools" else None
        return Definition(
            kind=self.kind,
            key=self.key,
            name=name,
            raw=self.raw,
            changes=self.changes or _UNCHANGED,
            for_legacy=self.for_legacy or _UNCHANGED,
            for_modern=self.for_modern or _UNCHANGED,
            faults=tuple(self.faults),
            ui=app_uris(meta),
            headers=self.headers if self.over_http else _NO_HEADERS,
            is_marked=bool(self.headers),
            app_only=is_for_apps_only(meta),
            task_support=task_support,
            hints=_hints(self.members) if self.kind == "tools" else NO_HINTS,
        )

    def _task_support(self) -> str:
        """Clients may always call without a task, since the bridge makes one where the tool needs it: say so."""
        execution: object = self.members.get("execution")
        said: object = cast("dict[str, Any]", execution).get("taskSupport") if isinstance(execution, dict) else None
        if said == "required":
            fields = decode_fields(self._raw("execution"))
            self.for_legacy["execution"] = encode_fields({**fields, "taskSupport": Raw(b'"optional"')})
        return said if said in ("optional", "required") else ""

    def _raw(self, member: str) -> Raw:
        if not self.fields:
            self.fields = decode_fields(self.raw)
        return self.fields[member]

    def _replace(self, member: str, by: bytes | None, fault: str) -> None:
        self.changes[member] = by
        if fault:
            self.faults.append((member, fault))

    def _mend(self, member: str, shape: Any) -> None:
        value = self.members[member]
        rest = mended(self._raw(member), value, shape)
        if rest is None:
            self._replace(member, None, "" if value is None else "left out: not what clients expect")
        else:
            self._replace(member, bytes(rest), "parts left out: not what clients expect")

    def _schemas(self) -> str:
        """Mend both schemas. Returns why the tool cannot be listed, or nothing."""
        schema: object = self.members.get("inputSchema")
        if not isinstance(schema, dict):
            return "its inputSchema is missing or no object"
        reason = self._input(cast("Schema", schema))
        if not reason and "outputSchema" in self.members:
            self._output()
        return reason

    def _input(self, schema: Schema) -> str:
        kind: object = schema.get("type")
        if kind != "object" and kind is not None and not (isinstance(kind, list) and "object" in kind):
            return "the type of its inputSchema is not 'object'"
        broken_mark = find_invalid_x_mcp_header(schema) if _HEADER_MARK_BYTES in self.raw else None
        if broken_mark and self.over_http:
            return broken_mark
        if _HEADER_MARK_BYTES in self.raw and not broken_mark:
            self.headers = x_mcp_header_map(schema)
        is_tidy = kind == "object" and is_presentable(schema)
        if not is_tidy or broken_mark:
            raw = self._raw("inputSchema")
            fields = decode_fields(without_header_marks(raw) if broken_mark else raw)
            faults: list[str] = []
            mended_keywords(fields, schema, faults)
            if kind != "object":
                fields["type"] = Raw(b'"object"')  # arguments are an object always, so this says nothing new
            self._replace("inputSchema", encode_fields(fields), "; ".join(faults))
        if self.headers:  # they mean something to modern clients only
            self.for_legacy["inputSchema"] = bytes(without_header_marks(self._published("inputSchema")))
        return ""

    def _published(self, member: str) -> Raw | bytes:
        return self.changes.get(member) or self._raw(member)

    def _output(self) -> None:
        schema = self.members["outputSchema"]
        if not is_object(schema):
            self._replace("outputSchema", None, "" if schema is None else "left out: no object")
            return
        raw = self._raw("outputSchema")
        is_tidy = is_presentable(schema)
        if not is_tidy:
            faults: list[str] = []
            fields = decode_fields(raw)
            mended_keywords(fields, schema, faults)
            raw = Raw(encode_fields(fields))
            self._replace("outputSchema", bytes(raw), "; ".join(faults))
        if schema.get("type") == "object":
            return
        if schema.get("type") is None and is_object(schema.get("properties")):
            self.for_legacy["outputSchema"] = encode_fields({**decode_fields(raw), "type": Raw(b'"object"')})
        else:
            self.for_legacy["outputSchema"] = None  # structured results are objects there, and this one is none


def _hints(members: Mapping[str, Any]) -> Hints:
    """The annotations that decisions may rest on; None for what is missing or no boolean."""
    said: object = members.get("annotations")
    if not isinstance(said, dict):
        return NO_HINTS
    annotations = cast("dict[str, object]", said)
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    return Hints(*(value if isinstance(value := annotations.get(name), bool) else None for name in names))


def _changed(definition: Definition, changes: Changes) -> bytes:
    if not changes:
        return one_line(definition.raw)
    fields = decode_fields(definition.raw)
    for member, value in changes.items():
        if value is None:
            fields.pop(member, None)
        else:
            fields[member] = Raw(value)
    return one_line(encode_fields(fields))


def _is_too_deep(raw: bytes, value: object) -> bool:
    if raw.count(b"{") + raw.count(b"[") <= DEEPEST:
        return False  # nearly all: no need to look
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (
                cast("dict[str, object]", outer).values() if isinstance(outer, dict) else cast("list[object]", outer)
            )
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
