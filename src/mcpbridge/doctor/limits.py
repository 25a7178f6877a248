"""What clients can bear of the list that they would get: how many tools, how long their names. Pure.

What is known of clients stands in `routing/clients.py`; what each would be listed is decided as a running bridge does.
"""

from collections.abc import Iterator, Mapping

from mcpbridge.config.schema import Settings
from mcpbridge.doctor.finding import Finding
from mcpbridge.doctor.offers import few
from mcpbridge.doctor.source import Source
from mcpbridge.routing.clients import TRAITS
from mcpbridge.routing.exposure import exposure_of, mode_for
from mcpbridge.routing.scopes import scopes_of

__all__ = ["about_clients"]


def about_clients(settings: Settings, tools: Mapping[str, int], source: Source) -> Iterator[Finding]:
    """Clients that would not take the list as it is. `tools`: tokens of each by the name that clients see."""
    scopes = scopes_of(settings.profiles, settings.servers)
    tokens = sum(tools.values())
    for traits in TRAITS:
        client = traits.names[0].rstrip("*")
        exposure = exposure_of(settings.expose, client, scopes)
        if mode_for(exposure, len(tools), tokens) != "all" or exposure.scope is not None:
            continue  # it finds tools by searching, or its profile leaves some out
        if 0 < traits.max_tools < len(tools):
            what = f"{client} takes {traits.max_tools} tools, and would be listed {len(tools)}"
            fix = f'Have it search them: [expose.clients."{client}"] mode = "auto".'
            where = source.where("expose")
            yield Finding("too-many-tools", "warn", what, "", where, "It drops the rest without a word.", fix)
        cut = [name for name in tools if 0 < traits.name_length < len(name)]
        if cut:
            what = f"{client} cuts or drops names longer than {traits.name_length} characters: {few(cut)}"
            fix = "Leave `bridge.name_length` at 48."
            yield Finding("name-too-long", "warn", what, "", source.where("bridge", "name_length"), fix=fix)
