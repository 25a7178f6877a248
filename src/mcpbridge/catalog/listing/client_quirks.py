"""What is known of clients by the name they give themselves: the one table of their quirks.

Facts, measured or from their documentation; `[expose.clients]` of the configuration comes before all of it. A name
proves nothing, so nothing here permits or forbids.
"""

from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct


class Traits(Struct, frozen=True):
    """How one kind of client treats lists of tools."""

    names: tuple[str, ...] = ()
    """Globs on `clientInfo.name`, in lower case."""
    title: str = ""
    """What people call it."""
    naming: str = ""
    """What its model sees of a name, with `{server}` and `{tool}` in it; empty: that is not known."""
    searches: bool = False
    """It keeps long lists from its model by itself and finds tools in them, so the whole list costs nothing."""
    max_tools: int = 0
    """Tools that it takes, of all its servers together; 0: no limit is known."""
    name_length: int = 0
    """Characters of the longest tool name that arrives whole, behind what the client puts in front; 0: 48 are safe."""
    description_length: int = 0
    """Characters at which it cuts descriptions; 0: no limit is known."""
    loads_marked: bool = False
    """It defers tools, but for those with `_meta["anthropic/alwaysLoad"]`."""
    result_length: int = 0
    """Characters of a result that it shows if `_meta["anthropic/maxResultSizeChars"]` of the tool says so; 0: fixed."""


UNKNOWN = Traits()
"""A client that nothing is known of."""

TRAITS = (
    # Names are mcp__SERVER__TOOL, at most 128 characters; longer ones are dropped without a word.
    Traits(
        ("claude-code", "claude-code/*"),
        "Claude Code",
        "mcp__{server}__{tool}",
        searches=True,
        name_length=128 - len("mcp__mcpbridge__"),
        description_length=4096,
        loads_marked=True,
        result_length=500_000,
    ),
    # Chooses connectors' tools itself; a name behind the server's has 64 characters in older API revisions.
    Traits(("claude-ai", "claude desktop*"), "Claude Desktop"),
    # mcp__SERVER is a namespace of its own; the sum is at most 128, longer names are cut and get a hash.
    Traits(("codex-mcp-client", "codex*"), "Codex", "mcp__{server}__{tool}", name_length=128 - len("mcp__mcpbridge__")),
    # mcp_SERVER_TOOL, 63 characters, cut in the middle; names that are then the same overwrite each other.
    Traits(
        ("gemini-cli*", "gemini-cli-mcp-client*"),
        "Gemini CLI",
        "mcp_{server}_{tool}",
        name_length=63 - len("mcp_mcpbridge_"),
    ),
    # Server and tool together have 60 characters; 80 tools, and since January 2026 definitions in files.
    Traits(("cursor*",), "Cursor", max_tools=80, name_length=60 - len("mcpbridge") - 1),
    # mcp_SERVER_TOOL, 64 characters; 128 tools a request.
    Traits(
        ("visual studio code*", "vscode*"),
        "VS Code",
        "mcp_{server}_{tool}",
        max_tools=128,
        name_length=64 - len("mcp_mcpbridge_"),
    ),
    Traits(("windsurf*", "cascade*"), "Windsurf", max_tools=100),
    # SERVER__TOOL, 64 characters; longer ones get a hash.
    Traits(("cline*", "roo*"), "Cline, Roo Code", "{server}__{tool}", name_length=64 - len("mcpbridge__")),
    # TOOL_mcp_SERVER, 64 characters.
    Traits(("@librechat*", "librechat*"), "LibreChat", "{tool}_mcp_{server}", name_length=64 - len("_mcp_mcpbridge")),
    # People and programs that look at everything.
    Traits(("mcp-inspector*", "inspector-client*", "modelcontextprotocol/inspector*"), "MCP Inspector", searches=True),
)
"""First match counts. How these behaved, or were documented, in November 2026: `docs/explanation/routing.md`."""


@lru_cache(maxsize=256)
def traits_of(client: str) -> Traits:
    """What is known of the client of this name."""
    name = client.casefold()
    return next((traits for traits in TRAITS if any(fnmatchcase(name, glob) for glob in traits.names)), UNKNOWN)
