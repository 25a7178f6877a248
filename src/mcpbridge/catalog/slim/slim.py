"""Makes the definitions of tools shorter, since each costs a model's context.

How much each level leaves is decided in `levels.py`, how a schema gets smaller in `schema.py`, a text in `text.py`. All
is done to what would be listed; what a call is checked against stays the definition as the server sent it. No
definition gets longer, and doing it again changes nothing.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.catalog.definitions.check import Changes
from mcpbridge.catalog.definitions.schemas import HEADER_MARK
from mcpbridge.catalog.slim.levels import (
    DESCRIPTION_LENGTH,
    LARGEST_SCHEMA,
    LEVELS,
    RULES,
    SENTENCE_LENGTH,
    SIGNATURE_LENGTH,
    Level,
)
from mcpbridge.catalog.slim.schema import shorter_schema
from mcpbridge.catalog.slim.text import brief, first_sentence, tidied
from mcpbridge.protocol.jsonrpc import Fields, decode_fields, decode_text, encode, encode_fields
from mcpbridge.results.token_count import Counter, estimated_tokens_of

Signature = Callable[[str, Mapping[str, Any]], str]
"""One line that says how a tool is called, of its name and its parsed inputSchema."""

_ANY_ARGUMENTS = b'{"type":"object"}'
_MARK = HEADER_MARK.encode()


def slimmed(definition: bytes, level: Level, signature: Signature | None = None) -> bytes:
    """A tool's definition as it is listed at this level; the same object where nothing gets shorter. Never raises.

    `signature`: how `signatures` says it; without one that level is `skeleton`.
    """
    if level == "off":
        return definition
    try:
        fields = decode_fields(definition)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return definition
    changes = slim_changes(fields, level, signature)
    if not changes:
        return definition
    for member, value in changes.items():
        if value is None:
            fields.pop(member, None)
        else:
            fields[member] = Raw(value)
    found = encode_fields(fields)
    return found if len(found) < len(definition) else definition


def slim_changes(fields: Fields, level: Level, signature: Signature | None = None) -> Changes:
    """What must change in a definition, given by its members, to be listed at this level. Never raises."""
    if level == "off":
        return {}
    name, sent = _text(fields.get("name")), _text(fields.get("description"))
    about = tidied(sent)
    changes: dict[str, bytes | None] = {}
    for member, is_input in (("inputSchema", True), ("outputSchema", False)):
        schema = bytes(fields.get(member, b""))
        if schema[:1] == b"{" and len(schema) <= LARGEST_SCHEMA:
            short = shorter_schema(schema, RULES[level], tool=name, about=about, is_input=is_input)
            if len(short) < len(schema):
                changes[member] = short
    is_signed = bytes(fields.get("inputSchema", b"")) == _ANY_ARGUMENTS and _is_called(name, about)
    text = _description(about, level, is_signed=is_signed)
    if text != sent and len(said := encode(text)) < len(fields["description"]):
        changes["description"] = said if text else None
    if level == "signatures":
        if "outputSchema" in fields:
            changes["outputSchema"] = None
        if signature is not None and name:  # a line without a name would not be known again as a signature
            changes.update(_signed(fields, changes, name, text, signature))
    return changes


def fitting(
    definitions: Collection[bytes],
    level: Level,
    budget: int,
    *,
    signature: Signature | None = None,
    count: Counter = estimated_tokens_of,
) -> Level:
    """The first level, from `level` on, at which all these tools take at most `budget` tokens; the last if none does.

    `budget` 0: any number. Slow: count a long list once, not on the way of a call.
    """
    if not budget:
        return level
    for candidate in LEVELS[LEVELS.index(level) :]:
        if sum(count(visible(slimmed(definition, candidate, signature))) for definition in definitions) <= budget:
            return candidate
    return LEVELS[-1]


def visible(definition: bytes) -> str:
    """What clients show a model of a tool: name, description and inputSchema, as compact JSON."""
    try:
        fields = decode_fields(definition)
        shown = {member: fields[member] for member in ("name", "description", "inputSchema") if member in fields}
        return msgspec.json.format(encode_fields(shown), indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return definition.decode(errors="replace")


def _description(about: str, level: Level, *, is_signed: bool) -> str:
    """What is left of a description. `is_signed`: its first line is a signature."""
    if level == "tidy":
        return about
    if level == "slim":
        return brief(about, DESCRIPTION_LENGTH)
    line, _, rest = about.partition("\n")
    if level == "signatures" and is_signed and len(line) <= SIGNATURE_LENGTH:
        return f"{line}\n{first_sentence(rest, SENTENCE_LENGTH)}".rstrip()
    return first_sentence(about, SENTENCE_LENGTH)


def _is_called(name: str, about: str) -> bool:
    """Whether a description begins as signatures do."""
    return bool(name) and about.startswith((f"{name}(", f'"{name}"('))


def _signed(fields: Fields, changes: Changes, name: str, text: str, signature: Signature) -> Changes:
    """The changes to a tool whose signature stands for it; none where that is no shorter, or says less.

    Whether it is shorter is asked of the shorter schema's, so that the answer is the same for that one.
    """
    listed = {**fields, **changes}
    before = b"".join(bytes(listed.get(member) or b"") for member in ("description", "inputSchema"))
    found: Changes = {}
    for schema in (bytes(listed.get("inputSchema") or b""), bytes(fields.get("inputSchema", b""))):
        arguments = _arguments(schema)
        line = " ".join(signature(name, arguments).split()) if arguments else ""
        said = encode(f"{line}\n{text}".rstrip())
        after = said + _ANY_ARGUMENTS
        if not 0 < len(line) <= SIGNATURE_LENGTH or len(after) >= len(before) or _tokens(after) >= _tokens(before):
            break
        found = {"description": said, "inputSchema": _ANY_ARGUMENTS}
    return found


def _arguments(schema: bytes) -> dict[str, Any]:
    """An inputSchema that a signature can tell; empty if it is none, or says by itself that there are no arguments."""
    if len(schema) > LARGEST_SCHEMA or _MARK in schema:
        return {}  # clients repeat arguments in headers as the schema says
    try:
        parsed: object = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    arguments = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    properties = arguments.get("properties")
    return arguments if isinstance(properties, dict) and properties else {}


def _tokens(raw: bytes) -> int:
    return estimated_tokens_of(raw.decode(errors="replace"))


def _text(raw: Raw | None) -> str:
    """A string, decoded; empty if it is none."""
    try:
        return decode_text(raw) if raw is not None else ""
    except (msgspec.DecodeError, UnicodeError):
        return ""
