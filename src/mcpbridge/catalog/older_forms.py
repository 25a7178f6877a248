"""A definition as clients of an older revision must get it; pure.

What each revision brought is on its page Key Changes; `docs/protocol.md` (For older clients) has it as a table. Starts
from the form for the newest legacy revision and leaves out what the client's revision did not have: a strict client
refuses the whole list over a member that it must not know. `_meta`, members that no revision defines, and the order of
what stays are nobody's business here.
"""

from collections.abc import Mapping
from functools import cache

from msgspec import Raw

from mcpbridge.catalog.definitions import Kind
from mcpbridge.wire.frame import decode_batch, decode_fields, encode_fields
from mcpbridge.wire.revisions import FIRST_WITH_ANNOTATIONS, FIRST_WITH_ICONS, FIRST_WITH_STRUCTURE, LATEST_LEGACY

__all__ = ["older_form"]

_EVERYWHERE: Mapping[str, str] = {"icons": FIRST_WITH_ICONS, "title": FIRST_WITH_STRUCTURE}
_SINCE: Mapping[Kind, Mapping[str, str]] = {
    "tools": _EVERYWHERE
    | {
        "execution": FIRST_WITH_ICONS,
        "outputSchema": FIRST_WITH_STRUCTURE,
        "annotations": FIRST_WITH_ANNOTATIONS,  # those of resources are of the first revision
    },
    "prompts": _EVERYWHERE,
    "resources": _EVERYWHERE,
    "templates": _EVERYWHERE,
}
"""Member to the first revision that has it."""


def older_form(kind: Kind, published: bytes, revision: str) -> bytes:
    """What a legacy client of `revision` gets of a definition; `published` is its form for the newest of them."""
    if revision >= LATEST_LEGACY:
        return published
    unknown = _unknown(kind, revision)
    for quoted in unknown.values():  # a search is far cheaper than a parse, and most definitions have none of them
        if quoted in published:
            break
    else:
        return published
    fields = decode_fields(published)
    for member in unknown:
        fields.pop(member, None)
    if kind == "prompts" and "title" in unknown and "arguments" in fields:
        fields["arguments"] = _without_titles(fields["arguments"])
    return encode_fields(fields)


@cache
def _unknown(kind: Kind, revision: str) -> Mapping[str, bytes]:
    """The members that the revision does not have, and how their names look in JSON."""
    return {member: b'"%b"' % member.encode() for member, since in _SINCE[kind].items() if revision < since}


def _without_titles(arguments: Raw) -> Raw:
    if bytes(memoryview(arguments)[:1]) != b"[":
        return arguments
    described = [decode_fields(argument) for argument in decode_batch(arguments)]
    for fields in described:
        fields.pop("title", None)
    return Raw(encode_fields(described))
