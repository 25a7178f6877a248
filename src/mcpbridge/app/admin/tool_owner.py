"""Whose the tool of `mcpbridge call` is, going by its name, so that only what it needs is started. Pure.

The bridge still resolves the name by its table; here it is only found out what has to be there for that.
"""

from collections.abc import Iterable

from msgspec import Struct

from mcpbridge.app.cli.failures import fail
from mcpbridge.app.exit_codes import TOOL_ERROR
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.tool_names import RESERVED
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BRIDGE, BUILTIN, OWN, TOOLS
from mcpbridge.tools.builtin.base_settings import NAMES
from mcpbridge.tools.settings import pack_name

_SEPARATORS = ("/", ".", "__")
"""What can be between a server's name and a tool's."""

OVER_ALL = frozenset({"find_tools", "describe_tools", "call_tool", "run_code"})
"""Tools of the bridge that are about the tools of servers."""

_WITHOUT_CODE = ("command", "endpoint", "openapi", "grpc")
"""Keys of tables in `[tools]` whose tools call no others."""


class Owner(Struct, frozen=True):
    """What a call needs."""

    servers: list[str] | None = None
    """The servers to start; None: all, since it could be any of them, or any may be called."""
    is_own: bool = False
    """The tool is the bridge's own or of `[tools]`: servers may be called by it, and need not be waited for."""


def owner_of(settings: Settings, name: str) -> Owner:
    """Whose the tool `name` may be.

    1. The bridge's own, and built-in ones: they need no servers, unless they are about the tools of all.
    2. Tables of `[tools]` and packs: those that run code of people may call servers, the others need none.
    3. A server whose name is before it; several where one's name begins with another's.
    4. A name with a slash, and no server is called so: there is no such tool.
    5. Any server's.

    Raises:
        CommandFailed: there is no server of this name.
    """
    head, slash, rest = name.partition("/")
    plain = rest if slash and head in OWN else name
    if (bare := _after(name, (BRIDGE,)) or name) in RESERVED or bare != name:
        return Owner(None if bare in OVER_ALL else [], is_own=bare not in OVER_ALL)
    if _after(name, (BUILTIN,)) or plain in (*settings.builtin.enable, *(NAMES if head == BUILTIN else ())):
        return Owner([], is_own=True)
    table = plain if plain in settings.tools else _longest(name, settings.tools)
    if table in settings.tools:
        has_code = not any(getattr(settings.tools[table], key, None) for key in _WITHOUT_CODE)
        return Owner(None if has_code else [], is_own=True)
    if _longest(name, map(pack_name, settings.packs)):
        return Owner(None, is_own=True)
    likely = [server for server in settings.servers if _after(name, (server,))]
    if likely:
        return Owner(likely)
    if slash and head:
        known = [*settings.servers, *settings.tools, *map(pack_name, settings.packs), TOOLS, BUILTIN, BRIDGE]
        close = nearest(head, known, limit=1)
        hint = f"Did you mean `{close[0]}/{rest}`?" if close else f"There are: {', '.join(known[:-3]) or 'none'}."
        fail(TOOL_ERROR, f"no server is called {head[:80]!r}", hint)
    return Owner()


def _after(name: str, owners: Iterable[str]) -> str:
    """What stands behind the name of one of these and a separator; empty: none does."""
    for owner in owners:
        for separator in _SEPARATORS:
            if name.startswith(owner + separator):
                return name.removeprefix(owner + separator)
    return ""


def _longest(name: str, owners: Iterable[str]) -> str:
    """The longest of these names that stands before a separator in `name`; empty: none does."""
    return max((owner for owner in owners if _after(name, (owner,))), key=len, default="")
