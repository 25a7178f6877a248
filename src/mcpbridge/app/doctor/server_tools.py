"""Problems of the tools that servers list: names that had to change, schemas that do not hold, long texts. Pure."""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.start_servers import Boot
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.core.model import BRIDGE
from mcpbridge.pipeline.validation.schema_check import Uncheckable, compiled, decode_exact

_DESCRIPTION = 4096
"""Characters of a description, and of a server's instructions, that the client with the smallest limit shows."""
_MANY_TOKENS = 25_000
"""Tokens of a server's tools that are an eighth of a large context."""
_SAYS_WHAT = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "not", "if", "$dynamicRef"}


def about_offers(
    snapshot: Snapshot, boots: Mapping[str, Boot], tokens: Mapping[str, int], source: Source
) -> Iterator[Finding]:
    """All of it, server by server; `tokens`: what the tools of each come to."""
    of_server = defaultdict[str, list[ToolRef]](list)
    for ref in snapshot.tools.values():
        if ref.server != BRIDGE:
            of_server[ref.server].append(ref)
    for server, boot in boots.items():
        if not boot.is_ready:
            continue
        where, tools = source.where("servers", server), of_server[server]
        yield from _dropped(snapshot, server, where)
        yield from _renamed(server, tools, where)
        yield from _schemas(server, tools, where)
        yield from _texts(server, tools, boot, where)
        yield from _of_boot(server, boot, tokens.get(server, 0), source)


def few(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many others there are."""
    shown = ", ".join(name[:80] for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _dropped(snapshot: Snapshot, server: str, where: str) -> Iterator[Finding]:
    groups = defaultdict[tuple[str, str, bool], list[str]](list)
    for lost in snapshot.dropped:
        if lost.server == server:
            groups[lost.kind, lost.reason, lost.field is None].append(lost.name or "one without a name")
    for (kind, reason, is_whole), names in groups.items():
        kinds = kind if len(names) > 1 else kind[:-1]
        if is_whole:
            what = f"{len(names)} {kinds} not listed ({few(names)}): {reason}"
            fix = "This is a fault of the server; a newer version may have mended it."
            yield Finding("not-listed", "warn", what, server, where, "Clients would refuse the whole list.", fix)
        else:
            what = f"{len(names)} {kinds} listed with something mended ({few(names)}): {reason}"
            yield Finding("mended", "note", what, server, where)


def _renamed(server: str, tools: Iterable[ToolRef], where: str) -> Iterator[Finding]:
    changed = [f"{ref.name} is {ref.wire}" for ref in tools if ref.wire not in (ref.name, _plain(ref))]
    if changed:
        what = f"{len(changed)} {'tools have' if len(changed) > 1 else 'tool has'} another name: {few(changed)}"
        why = "The plain name is too long, has characters that clients refuse, or is another tool's too."
        fix = 'A better one can be given: [servers.NAME.tool.TOOL] rename = "…".'
        yield Finding("renamed", "note", what, server, where, why, fix)


def _plain(ref: ToolRef) -> str:
    """The name without a cut: the server's and what the configuration calls the tool."""
    return f"{ref.server}__{ref.id.partition('/')[2]}"


def _schemas(server: str, tools: Iterable[ToolRef], where: str) -> Iterator[Finding]:
    broken = dict[str, str]()
    vague, promising = list[str](), list[str]()
    for ref in tools:
        definition = _members(ref.definition)
        schema = _object(definition.get("inputSchema"))
        try:
            compiled(schema)
        except Uncheckable as error:
            broken[ref.name] = str(error)
        if any(not _SAYS_WHAT & _object(one).keys() for one in _object(schema.get("properties")).values()):
            vague.append(ref.name)
        if "outputSchema" in _members(ref.published):
            promising.append(ref.name)
    for reason, count in Tally(broken.values()).items():
        names = [name for name, why in broken.items() if why == reason]
        what = f"the inputSchema of {count} {'tools' if count > 1 else 'tool'} is not valid ({few(names)})"
        yield Finding("schema-not-valid", "warn", what, server, where, reason, "Arguments of it are not checked.")
    if vague:
        what = f"{len(vague)} {'tools' if len(vague) > 1 else 'tool'} with arguments of no type ({few(vague)})"
        yield Finding("arguments-without-type", "note", what, server, where, "Models guess what to send.")
    if promising:
        what = f"{len(promising)} {'tools promise' if len(promising) > 1 else 'tool promises'} an outputSchema"
        why = "Clients that check it (Gemini CLI, the Python SDK) make an error of a result that does not fit."
        yield Finding("output-schema", "note", what, server, where, why)


def _texts(server: str, tools: Sequence[ToolRef], boot: Boot, where: str) -> Iterator[Finding]:
    told = {ref.name: _members(ref.published).get("description") for ref in tools}
    long = [name for name, text in told.items() if isinstance(text, str) and len(text) > _DESCRIPTION]
    silent = [name for name, text in told.items() if not text]
    if long:
        what = f"{len(long)} {'descriptions' if len(long) > 1 else 'description'} over 4,096 characters ({few(long)})"
        fix = "`expose.slim` shortens all of them, `[servers.NAME.tool.TOOL] description` replaces one."
        yield Finding("description-cut", "warn", what, server, where, "Claude Code cuts what is longer.", fix)
    if silent:
        what = f"{len(silent)} {'tools' if len(silent) > 1 else 'tool'} without a description ({few(silent)})"
        yield Finding("description-missing", "note", what, server, where, "Models cannot know what they are for.")
    if len(boot.instructions) > _DESCRIPTION:
        what = f"its instructions have {len(boot.instructions):,} characters"
        yield Finding("instructions-cut", "note", what, server, where, "Claude Code cuts what is over 4,096.")


def _of_boot(server: str, boot: Boot, tokens: int, source: Source) -> Iterator[Finding]:
    where = source.where("servers", server)
    for trouble in boot.troubles:
        yield Finding("list-failed", "warn", f"one of its lists failed: {trouble}", server, where)
    if boot.noise:
        what = f"it writes text to standard output that is no message: {boot.noise[:80]}"
        why = "Standard output belongs to the protocol. The bridge passes over it; clients without one may not."
        yield Finding("stdout-noise", "note", what, server, where, why, "Have it log to standard error.")
    if boot.died_of_probe:
        why = "So every start of it takes twice as long as it could."
        fix = 'Write era = "legacy".'
        what = "it ends when it is asked for the modern era"
        yield Finding("dies-of-probe", "note", what, server, where, why, fix)
    if tokens > _MANY_TOKENS:
        why = "Clients that list all tools pay for it in every conversation."
        fix = 'Leave out what is not needed (`tools.exclude`), or have them searched (`expose.mode = "search"`).'
        what = f"its tools come to {tokens:,} tokens"
        yield Finding("many-tokens", "note", what, server, where, why, fix)


def _members(definition: bytes) -> dict[str, Any]:
    try:
        return _object(decode_exact(definition))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
