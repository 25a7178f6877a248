"""How the entries of the registry lie over the settings of the file. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.config.schema import Settings
from mcpbridge.core.source_settings import OfferSettings, ToolSettings
from mcpbridge.engine.registry.format import Entry, Key
from mcpbridge.engine.registry.http_rules import KINDS, Section
from mcpbridge.upstream.settings import ServerSettings


class Overlay(Struct, frozen=True):
    """All entries, those that came last at the end."""

    entries: Mapping[Key, Entry] = {}
    parsed: Mapping[Key, OfferSettings] = {}
    """The settings that the tables of entries stand for."""

    def having(self, entry: Entry, parsed: OfferSettings | None) -> "Overlay":
        """The same with this entry, which lies above the others; without it where it says nothing."""
        entries = {key: one for key, one in self.entries.items() if key != entry.key}
        all_parsed = {key: one for key, one in self.parsed.items() if key != entry.key}
        if not entry.says_nothing:
            entries[entry.key] = entry
        if parsed is not None and entry.table is not None:
            all_parsed[entry.key] = parsed
        return Overlay(entries, all_parsed)

    def over(self, base: Settings) -> Settings:
        """These settings with all entries over them.

        What the file has meanwhile under such a name may have the last word: see `is_hidden`.
        """
        if not self.entries:
            return base
        sections: dict[Section, dict[str, Any]] = {"servers": dict(base.servers), "tools": dict(base.tools)}
        for key, entry in self.entries.items():
            of_section = sections[entry.section]
            if is_hidden(entry, base):
                continue
            if entry.removed:
                of_section.pop(entry.name, None)
            if entry.table is not None and key in self.parsed:
                of_section[entry.name] = _as_strict(self.parsed[key], base.servers.get(entry.name))
            if (settings := of_section.get(entry.name)) is not None:
                of_section[entry.name] = _changed(settings, entry)
        return base.model_copy(update=cast("dict[str, Any]", sections))


NO_OVERLAY = Overlay()


def _as_strict(settings: OfferSettings, written: ServerSettings | None) -> OfferSettings:
    """The settings of a server in the place of one of the file: what the file holds of its changes stays held."""
    if isinstance(settings, ServerSettings) and written is not None and settings.pin is None:
        return settings.model_copy(update={"pin": written.pin})
    return settings


def _changed(settings: OfferSettings, entry: Entry) -> OfferSettings:
    changed: dict[str, Any] = {} if entry.disabled is None else {"disabled": entry.disabled}
    if entry.tools:
        tools = dict(settings.tool)
        for name, is_off in entry.tools.items():
            tools[name] = tools.get(name, ToolSettings()).model_copy(update={"disabled": is_off})
        changed["tool"] = tools
    return settings.model_copy(update=changed) if changed else settings


def is_hidden(entry: Entry, base: Settings) -> bool:
    """It is not in effect, since the file has its name meanwhile.

    In its other section, where two of one name cannot be, or for something that runs here, which nothing that came over
    HTTP may take the place of.
    """
    if entry.name in section_of(base, other_section(entry.section)):
        return True
    written = section_of(base, entry.section).get(entry.name)
    is_from_afar = entry.table is not None and entry.by.startswith("api:")
    return is_from_afar and written is not None and is_local(entry.section, written)


def is_local(section: Section, settings: OfferSettings) -> bool:
    """It runs, or reads, something on this machine; also where that is only not certain."""
    told = settings.model_dump(mode="json", exclude_unset=True, exclude={"unavailable", "project_texts", "written"})
    kinds = [key for key in KINDS[section] if told.get(key) is not None]
    if len(kinds) != 1 or "descriptor" in told:
        return True
    telling = str(told[kinds[0]])
    return telling.startswith("unix:") if kinds[0] == "grpc" else "://" not in telling


def switched(entry: Entry, below: OfferSettings | None, *, on: bool, tool: str = "") -> Entry:
    """The entry with it, or one tool of it, switched.

    What `below` says anyway is not said again, so that the file keeps the last word where nobody differs from it.
    """
    if not tool:
        is_off_below = below is not None and below.disabled
        return replace(entry, disabled=None if is_off_below == (not on) else not on)
    own = below.tool.get(tool) if below is not None else None
    said = {name: is_off for name, is_off in entry.tools.items() if name != tool}
    if (own is not None and own.disabled) == on:
        said[tool] = not on
    return replace(entry, tools=said)


def section_of(settings: Settings, section: Section) -> Mapping[str, OfferSettings]:
    """What the settings have in it, by name."""
    return settings.servers if section == "servers" else settings.tools


def other_section(section: Section) -> Section:
    """The one that is not meant."""
    return "tools" if section == "servers" else "servers"


def entry_status(entry: Entry, base: Settings) -> dict[str, Any]:
    """What was said, over these settings, as JSON values; no table, which may hold secrets."""
    is_written = entry.name in section_of(base, entry.section)
    said = "removed" if entry.removed else "replaced" if entry.table is not None and is_written else "added"
    if entry.table is None and not entry.removed:
        said = "switched"
    return {
        "section": entry.section,
        "name": entry.name,
        "said": said,
        **({"disabled": entry.disabled} if entry.disabled is not None else {}),
        **({"tools": dict(entry.tools)} if entry.tools else {}),
        "by": entry.by,
        "at": entry.at,
        "kept": entry.is_stored,
        **({"hidden": True} if is_hidden(entry, base) else {}),
    }
