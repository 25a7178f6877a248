"""Where the configuration names tools: what `catalog/unmatched.py` compares with what there is. Pure."""

from collections.abc import Iterator, Mapping

from mcpbridge.catalog.unmatched import UnmatchedNames
from mcpbridge.config.schema import Settings
from mcpbridge.doctor.boot import Boot
from mcpbridge.doctor.finding import Finding
from mcpbridge.generation import selectors_of

__all__ = ["about_unmatched"]


def about_unmatched(settings: Settings, boots: Mapping[str, Boot]) -> Iterator[Finding]:
    """Rules, hooks, profiles and tables of tools that match nothing of what the servers list."""
    names = UnmatchedNames(selectors_of(settings), settings.servers)
    for boot in boots.values():
        if boot.is_ready:
            names.listed(boot.server, boot.lists.get("tools", ()))
    for unmatched in names.found():
        fix = "Correct the name, or take it out."
        yield Finding("matches-nothing", "warn", str(unmatched), "", settings.source or "", "It has no effect.", fix)
