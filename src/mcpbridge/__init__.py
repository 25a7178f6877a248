"""One MCP server in front of all of yours."""

from mcpbridge._version import __version__

__all__ = ["__version__"]
