"""What the scanner finds in the definitions of a running catalog: for `mcpbridge scan`, the doctor and the console."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from mcpbridge.app.doctor.finding import Finding
from mcpbridge.catalog.definitions.scanner.rules import RULES
from mcpbridge.catalog.definitions.scanner.scan import OTHER_RULES, scan
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.tool_names import names_of_others
from mcpbridge.catalog.upstream_filter import HELD, advice, not_accepted
from mcpbridge.core.model import OWN
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.library.bridge import Bridge

INSTRUCTIONS = "instructions"
"""What `accept_findings` calls the instructions of a server."""

Verdict = Literal["ignore", "warn", "hold", "accepted"]


class Suspicious(Struct, frozen=True):
    """A suspicious text of a server."""

    server: str
    kind: str
    """`tool`, `prompt`, `resource` or `instructions`."""
    name: str
    """The server's own."""
    rule: str
    where: str
    text: str
    verdict: Verdict
    unapproved: bool = False
    """Nobody agreed to it yet, so that an older definition is listed, or none."""


def suspicious_texts(
    snapshot: Snapshot, servers: Mapping[str, OfferSettings], instructions: Mapping[str, str], server: str = ""
) -> Iterator[Suspicious]:
    """All of it, server by server. What is held already has no definition here: it comes with its rules alone."""
    of_server: dict[str, set[str]] = {}
    for ref in snapshot.tools.values():
        if ref.server not in OWN:
            of_server.setdefault(ref.server, set()).add(ref.name)
    refs = [
        *(("tool", ref.server, ref.name, ref.definition) for ref in snapshot.tools.values()),
        *(("prompt", ref.server, ref.name, ref.definition) for ref in snapshot.prompts.values()),
        *(("resource", ref.server, ref.uri, ref.definition) for ref in snapshot.resources.values()),
    ]
    others = names_of_others({**dict.fromkeys((owner for _, owner, _, _ in refs), ()), **of_server})
    for kind, owner, name, definition in refs:
        if owner in OWN or (server and owner != server):
            continue
        yield from _of_definition(servers.get(owner), owner, kind, name, definition, others[owner])
    for owner, text in instructions.items():
        if not server or owner == server:
            settings = servers.get(owner)
            findings = scan({"instructions": text}, others.get(owner, ()))
            open_ones = not_accepted(INSTRUCTIONS, findings, settings.accept_findings if settings is not None else ())
            for one in findings:
                verdict = _warned(settings) if one in open_ones else "accepted"
                yield Suspicious(owner, "instructions", "", one.rule, one.where, one.text, verdict)
    for lost in snapshot.dropped:
        if lost.reason.startswith(HELD) and (not server or lost.server == server):
            for rule in lost.reason[len(HELD) + 2 :].partition(";")[0].split(", "):
                yield Suspicious(lost.server, lost.kind[:-1], lost.name, rule, "", lost.reason, "hold")


def texts_of(bridge: Bridge, server: str = "") -> list[Suspicious]:
    """All of it in a running bridge, or of this server alone. What was scanned before is not scanned again."""
    said = {name: one.instructions for name, one in bridge.pool.upstreams.items()}
    listed = list(suspicious_texts(bridge.catalog.snapshot, bridge.settings.servers, said, server))
    return [*listed, *_unapproved(bridge, server)]


_KINDS = {"tools": ("tool", "name"), "prompts": ("prompt", "name"), "resources": ("resource", "uri")}
"""By list: what its entries are called here, and where they have their names."""


def _unapproved(bridge: Bridge, server: str) -> Iterator[Suspicious]:
    """What is found in definitions that are not listed, since nobody agreed to them: whoever is to, reads it first."""
    others = names_of_others(
        {
            name: {ref.name for ref in bridge.catalog.snapshot.tools.values() if ref.server == name}
            for name in bridge.settings.servers
        }
    )
    for owner, settings in bridge.settings.servers.items():
        if server and owner != server:
            continue
        for kind, definitions in bridge.pins.replaced(owner).items():
            word, key = _KINDS.get(kind, ("", ""))
            for definition in definitions if word else ():
                name = str(msgspec.json.decode(definition).get(key, ""))
                of_others = others.get(owner, ())
                yield from _of_definition(settings, owner, word, name, definition, of_others, unapproved=True)


def _of_definition(
    settings: OfferSettings | None,
    server: str,
    kind: str,
    name: str,
    definition: bytes,
    others: Collection[str],
    *,
    unapproved: bool = False,
) -> Iterator[Suspicious]:
    findings = scan(definition, others)
    open_ones = not_accepted(name, findings, settings.accept_findings if settings is not None else ())
    for one in findings:
        verdict = _verdict(settings) if one in open_ones else "accepted"
        yield Suspicious(server, kind, name, one.rule, one.where, one.text, verdict, unapproved)


def what_rule_finds(rule: str) -> str:
    """A sentence about a rule; empty for one that there is not."""
    return RULES[rule].about if rule in RULES else OTHER_RULES.get(rule, "")


RULES_PAGE = "docs/how-to/find-poisoned-tools.md#the-rules"
"""Where the rules are described."""


def _verdict(settings: OfferSettings | None) -> Verdict:
    trust = settings.text_trust if settings is not None else "normal"
    return "ignore" if trust == "high" else "warn" if trust == "normal" else "hold"


def _warned(settings: OfferSettings | None) -> Verdict:
    """Instructions are not held, since a server works without them being read."""
    return "ignore" if settings is not None and settings.text_trust == "high" else "warn"


def about_texts(texts: Iterator[Suspicious], where: str) -> Iterator[Finding]:
    """The same for the doctor: one finding a server and rule."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in texts:
        if one.verdict in ("warn", "hold"):
            groups.setdefault((one.server, one.rule), []).append(one.name or one.kind)
    for (server, rule), names in groups.items():
        shown = ", ".join(dict.fromkeys(name[:80] for name in names[:3]))
        what = f"suspicious text ({rule}) in {shown}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        why = "A description is an instruction to the model."
        yield Finding("suspicious-text", "warn", what, server, where, why, advice(server, names[0]))
