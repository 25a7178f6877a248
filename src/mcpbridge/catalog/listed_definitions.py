"""A definition as one client gets it: in the form of its revision, with `_transform` where results are rewritten.

What each revision brought is on its page Key Changes; `docs/reference/protocol.md` (For older clients) has it as a
table. This starts from the form for the newest legacy revision and leaves out what the client's revision did not have:
a strict client refuses the whole list over a member that it must not know. `_meta`, members that no
revision defines, and the order of the rest stay as they are.

Tools whose large results are rewritten are listed without `outputSchema`, since a client should check results against
it (MCP 2025-06-18, Tools, Output Schema), and some refuse a result that misses it. Those whose results have been large
say that they take `_transform`, and `recall` is listed where there is something to recall.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Raw

from mcpbridge.catalog.definitions.check import Changes, Definition, Kind
from mcpbridge.catalog.upstream_filter import Item
from mcpbridge.core.call_options import ResultOptions
from mcpbridge.core.model import BRIDGE
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.core.settings_precedence import result_options
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_array, decode_fields, encode, encode_fields
from mcpbridge.protocol.revisions import FIRST_WITH_ANNOTATIONS, FIRST_WITH_ICONS, FIRST_WITH_STRUCTURE, LATEST_LEGACY

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
    described = [decode_fields(argument) for argument in decode_array(arguments)]
    for fields in described:
        fields.pop("title", None)
    return Raw(encode_fields(described))


TRANSFORM_ARGUMENT = "_transform"
"""The argument that calls of every tool may have: a script over the result."""

_DECLARED = {
    "type": "string",
    "description": "JavaScript over the result, bound to `result`, to get only what you need: "
    "result.filter(r => r.open).map(r => r.id)",
}
_UNCHANGED: Changes = {}


class Rewriting:
    """Which tools' results are rewritten, for one snapshot."""

    def __init__(
        self,
        servers: Mapping[str, OfferSettings],
        defaults: ResultSettings | None,
        large: frozenset[str],
        *,
        always_recalls: bool = False,
    ) -> None:
        """`defaults` None: no result is. `large`: ids of tools whose results have been large.

        `always_recalls`: results of tools that are not here may have been kept.
        """
        self._servers, self._defaults, self._large = servers, defaults, large
        self._always_recalls = always_recalls
        self._options: dict[str, ResultOptions] = {}

    def without_needless(self, items: Sequence[tuple[str, Item]]) -> list[tuple[str, Item]]:
        """The tools that there are: without `recall` where no result is ever kept."""
        if self._always_recalls or any(
            server != BRIDGE and self._keeps(server, item.definition.key) for server, item in items
        ):
            return list(items)
        return [(server, item) for server, item in items if server != BRIDGE or item.definition.key != "recall"]

    def changes(self, server: str, definition: Definition) -> Changes:
        """What must change in the definition of a tool."""
        if self._defaults is None or server == BRIDGE:
            return _UNCHANGED
        how = self._options_of(server, definition.key)
        changes: dict[str, bytes | None] = {}
        if how.strategy != "off" and not definition.ui and b'"outputSchema"' in definition.raw:
            changes["outputSchema"] = None
        if how.transforms and f"{server}/{definition.key}" in self._large and not definition.headers:
            schema = _with_transform(definition)
            if schema is not None:
                changes["inputSchema"] = schema
        return changes

    def _keeps(self, server: str, tool: str) -> bool:
        if self._defaults is None:
            return False
        how = self._options_of(server, tool)
        return how.stores and how.strategy != "off"

    def _options_of(self, server: str, tool: str) -> ResultOptions:
        settings = self._servers.get(server)
        own = settings.tool.get(tool) if settings is not None else None
        if own is not None and settings is not None:
            return result_options(own.results, settings.results, self._defaults)
        known = self._options.get(server)
        if known is None:
            known = result_options(settings.results if settings is not None else None, self._defaults)
            self._options[server] = known
        return known


def _with_transform(definition: Definition) -> bytes | None:
    """The input schema that names the argument as well; None where it has one of its own, or marks for headers."""
    if definition.is_marked:
        return None
    raw = definition.changes.get("inputSchema") or decode_fields(definition.raw)["inputSchema"]
    schema = Body(raw)
    properties = schema.inner("properties") or Body()
    if TRANSFORM_ARGUMENT in properties:
        return None
    properties.put(TRANSFORM_ARGUMENT, Raw(encode(_DECLARED)))
    schema.put("properties", properties)
    return bytes(schema.data)
