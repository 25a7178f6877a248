"""Which tools a client is listed, and in which form: pure decisions.

Modern lists depend on nothing but the request and the catalog, never on earlier calls (MCP 2026-07-28, Tools,
Capabilities): on who asks, the endpoint's profile, the settings, and what there is. Whatever is not listed can be
called by its name all the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from msgspec import Struct

from mcpbridge.catalog.listing.client_quirks import UNKNOWN, Traits, traits_of
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.catalog.settings import AUTO_TOKENS, ClientExposure, ExposeSettings, Mode
from mcpbridge.catalog.slim.levels import Level
from mcpbridge.core.model import BRIDGE, Tool

Shown = Literal["all", "search"]

UNLISTED = frozenset({"find_tools", "describe_tools", "call_tool"})
"""Names of tools of the bridge that a listing has only where it leaves out others."""

SEARCHING = frozenset(f"{BRIDGE}/{name}" for name in UNLISTED)
"""Ids of the bridge's own tools that are listed where not all others are."""


class Listable(Tool, Protocol):
    """A tool, as far as it is decided whether it is listed."""

    @property
    def has_app(self) -> bool:
        """The tool shows an app (MCP Apps, 2026-01-26), so that clients with a screen want it listed."""
        ...


class Exposure(Struct, frozen=True):
    """All that decides what a client is listed, but the catalog itself."""

    mode: Mode = "all"
    slim: Level = "tidy"
    slim_budget: int = 0
    """Tokens of the list above which the next shorter form is taken; 0: any number."""
    auto_tokens: int = AUTO_TOKENS
    max_tools: int = 0
    """With `auto`: tools that the client takes; 0: any number."""
    pins: tuple[str, ...] = ()
    """Globs on ids."""
    hides: tuple[str, ...] = ()
    """Globs on ids: not listed, unless they are pinned."""
    traits: Traits = UNKNOWN
    scope: Scope | None = None
    """The profile; None: the whole catalog."""
    has_map: bool = True


ALL = Exposure()
"""Everything, in the form in which the catalog has it."""


def exposure_of(
    settings: ExposeSettings,
    client: str,
    scopes: Mapping[str, Scope],
    profile: str = "",
    *,
    is_one_server: bool = False,
    roles: Sequence[str] = (),
    role_profile: str = "",
) -> Exposure:
    """The exposure of the client of this name at the endpoint of this profile (empty: the merged one).

    What is said for its roles (their names, in order) comes first, then for the client, the profile, the defaults.
    `role_profile`: the profile that its roles give it, unless it asked for another. With `auto` a client without a
    name, which is a program, sees all, and so does one that came to the endpoint of a single server: it asked for it.
    """
    own = settings.of(client) or ClientExposure.model_construct()
    by_role = next((settings.roles[role] for role in roles if role in settings.roles), None)
    if by_role is not None:
        own = own.model_copy(update={key: value for key, value in by_role if value is not None})
    profile = "" if is_one_server else profile or role_profile or own.profile or settings.profile or ""
    scope = scopes.get(profile)
    traits = traits_of(client) if client else UNKNOWN
    profile_mode = scope.settings.mode if scope is not None else None
    mode = own.mode or profile_mode or settings.mode or "auto"
    if mode == "auto" and (is_one_server or not client or traits.searches):
        mode = "all"

    def nearest(name: Literal["slim_budget", "auto_tokens", "max_tools"], otherwise: int) -> int:
        value = getattr(own, name)
        value = getattr(settings, name) if value is None else value
        return otherwise if value is None else int(value)

    return Exposure(
        mode=mode,
        slim=own.slim or settings.slim or "tidy",
        slim_budget=nearest("slim_budget", 0),
        auto_tokens=nearest("auto_tokens", AUTO_TOKENS),
        max_tools=nearest("max_tools", traits.max_tools),
        pins=(*settings.pins, *(scope.settings.pins if scope is not None else ())),
        hides=tuple(settings.hide),
        traits=traits,
        scope=scope,
        has_map=settings.map,
    )


def mode_for(exposure: Exposure, tools: int, tokens: int) -> Shown:
    """What `auto` means for a list of so many tools and tokens."""
    if exposure.mode != "auto":
        return exposure.mode
    is_too_many = 0 < exposure.max_tools < tools
    return "search" if is_too_many or tokens > exposure.auto_tokens else "all"


def is_listed(
    tool: Listable, mode: Shown, exposure: Exposure, also: frozenset[str] = frozenset(), *, leaves_out: bool = False
) -> bool:
    """Whether a tool that may be called is listed. `also`: ids that are listed besides.

    `leaves_out`: the list is not whole, also where the mode is `all`: what finds the others is listed then.
    """
    if exposure.scope is not None and not exposure.scope.has(tool):
        return False
    if tool.server == BRIDGE:
        return mode == "search" or leaves_out or tool.id not in SEARCHING or is_pinned(tool.id, exposure.pins)
    if tool.id in also or is_pinned(tool.id, exposure.pins):
        return True
    return (mode == "all" or tool.has_app) and not is_hidden(tool, exposure)


def is_hidden(tool: Listable, exposure: Exposure) -> bool:
    """Whether the settings hide it from lists, whatever the mode is; a search finds it."""
    hides = exposure.hides
    return bool(hides) and tool.server != BRIDGE and is_pinned(tool.id, hides) and not is_pinned(tool.id, exposure.pins)


def is_pinned(id_: str, pins: Iterable[str]) -> bool:
    """Whether one of these globs is about this tool."""
    return any(fnmatchcase(id_, glob) for glob in pins)
