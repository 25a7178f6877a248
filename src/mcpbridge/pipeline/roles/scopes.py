"""Which scopes a token needs for calls of a tool. Pure.

Roles say what somebody may do; scopes say what a person lets a client do in their name. So a tool that a role opens is
listed whatever the token's scopes are, and a call without them is answered with all that it needs (RFC 6750, 3.1).
"""

from collections.abc import Mapping, Sequence

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import BRIDGE, Tool
from mcpbridge.pipeline.permissions.settings import ToolGlobs


class ToolScopes:
    """The scopes of all tools."""

    def __init__(self, table: Mapping[str, Sequence[str]]) -> None:
        """`table`: scopes by globs on tools.

        In a scope `{server}`, `{tool}` and `{access}` stand for those of the tool; the last is `read` or `write`.
        """
        self._rules = [(ToolGlobs([glob]), glob.partition("/")[0], tuple(scopes)) for glob, scopes in table.items()]

    def needed(self, tool: Tool, options: CallOptions) -> frozenset[str]:
        """The scopes for this tool: those of every glob that matches it.

        The bridge's own tools, which find and call others, need none unless a glob writes out `mcpbridge/`.
        """
        access = "read" if options.effect == "read" else "write"
        found: set[str] = set()
        for globs, server, scopes in self._rules:
            if globs.cover(tool) and (tool.server != BRIDGE or server == BRIDGE):
                found |= {
                    scope.replace("{server}", tool.server).replace("{tool}", tool.name).replace("{access}", access)
                    for scope in scopes
                }
        return frozenset(found)
