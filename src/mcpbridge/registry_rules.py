"""What may stand in the registry: tables are read as those of the file are, and what must not be is refused. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mcpbridge.backends.pack_names import pack_name
from mcpbridge.config.check import Checked, check
from mcpbridge.config.schema import Settings
from mcpbridge.errors import ConfigError, nearest
from mcpbridge.model import TOOLS
from mcpbridge.over_http import RegistryProblem, Section, refuse_over_http
from mcpbridge.overlay import Entry, is_local, other_section, section_of
from mcpbridge.private_values import private_texts
from mcpbridge.redaction import Redactor
from mcpbridge.upstream.offer_settings import OfferSettings

__all__ = [
    "noun",
    "owner",
    "plain",
    "read",
    "refuse_clash",
    "refuse_keeping",
    "refuse_local",
    "refuse_switching_on",
    "require",
]


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table as JSON has it.

    Raises:
        RegistryProblem: `invalid`: JSON cannot have it.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(table)))
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise RegistryProblem("invalid", f"the table is no JSON: {type(error).__name__}") from error


def read(base: Settings, section: Section, name: str, table: dict[str, Any], environ: Mapping[str, str]) -> Checked:
    """What a table comes to, variables filled in, as if it stood in the file. What is wrong names no secret.

    Raises:
        ConfigError: it is wrong.
    """
    path = Path(base.source) if base.source else Path("servers.toml").absolute()
    try:
        return check({section: {name: table}}, path, environ, lambda key: None)
    except ConfigError as error:
        told = str(error).replace(f"{path}: ", "")
        for text in private_texts(table):
            told = told.replace(repr(text), "'…'")  # however short
        raise ConfigError(Redactor(private_texts(table))(told)) from None


def require(now: Settings, section: Section, name: str) -> OfferSettings:
    """What is set of a server or tool.

    Raises:
        RegistryProblem: `unknown`.
    """
    known = section_of(now, section)
    if name not in known:
        close = nearest(name, known, limit=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise RegistryProblem("unknown", f"there is no {noun(section)} {name[:100]!r}{hint}")
    return known[name]


def owner(now: Settings, section: Section, name: str, tool: str = "") -> tuple[Section, str, str]:
    """Whose setting it is to switch what a name means; see `Registry.owner`.

    Raises:
        RegistryProblem: `unknown`.
    """
    if tool or name in section_of(now, section):
        return section, name, tool
    head, _, rest = name.partition("/")
    if head == TOOLS and rest in now.tools:
        return "tools", rest, ""
    if rest and head in now.servers:
        return "servers", head, rest
    if rest and head in now.tools:
        return "tools", head, rest
    require(now, section, name)
    return section, name, tool


def refuse_clash(base: Settings, now: Settings, section: Section, name: str) -> None:
    """Refuse a name that something else has.

    Raises:
        RegistryProblem: `exists`.
    """
    other = other_section(section)
    if name in section_of(now, other):
        raise RegistryProblem("exists", f"there is a {noun(other)} {name[:100]!r}: give this one another name")
    if name in map(pack_name, base.packs):
        raise RegistryProblem("exists", f"there is a pack {name[:100]!r}: give this one another name")


def refuse_local(base: Settings, section: Section, name: str, *, removes: bool = False) -> None:
    """Refuse to put something from elsewhere in the place of what the file `base` runs, or reads, on this machine.

    `removes`: it is to be taken out of the file instead.

    Raises:
        RegistryProblem: `forbidden`.
    """
    written = section_of(base, section).get(name)
    if written is not None and is_local(section, written):
        what = f"{name!r} is run on this machine, by its user's configuration"
        other = "give what comes over HTTP another name"
        if removes:
            other = "only who can change that file can take it out of it (`mcpbridge remove`)"
        raise RegistryProblem("forbidden", f"{what}: {other}")


def refuse_switching_on(base: Settings, section: Section, name: str, tool: str) -> None:
    """Refuse to switch on from elsewhere what the user's own file switches off.

    Raises:
        RegistryProblem: `forbidden`.
    """
    written = section_of(base, section).get(name)
    if written is None:
        return
    own = written.tool.get(tool)
    if written.disabled or (tool and own is not None and own.disabled):
        what = "the configuration file switches it off, and only who can change that file can switch it on"
        raise RegistryProblem("forbidden", f"{what} (`mcpbridge enable`)")


def refuse_keeping(base: Settings, entry: Entry) -> None:
    """Refuse what must not come out of a store, which others may be able to write to.

    Raises:
        RegistryProblem: `forbidden`, or `invalid`.
    """
    section, name = entry.section, entry.name
    try:
        if entry.table is not None:
            refuse_over_http(section, entry.table, variables=base.http.api_variables)
            refuse_local(base, section, name)
        if entry.disabled is False or entry.table is not None:
            refuse_switching_on(base, section, name, "")
        for tool, is_off in entry.tools.items():
            if not is_off:
                refuse_switching_on(base, section, name, tool)
    except RegistryProblem as problem:
        if entry.by.startswith("api:") or problem.code != "forbidden":
            raise
        told = f"{name!r} is not kept in the store, which others may write to ({problem}): write it to the file"
        raise RegistryProblem("forbidden", told) from problem


def noun(section: Section) -> str:
    """What one of its members is, for people."""
    return "server" if section == "servers" else "tool"
