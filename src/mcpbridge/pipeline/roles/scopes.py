"""Which scopes a token needs for calls of a tool. Pure.

Roles say what somebody may do; scopes say what a person lets a client do in their name. So a tool that a role opens is
listed whatever the token's scopes are, and a call without them is answered with all that it needs (RFC 6750, 3.1).
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import BRIDGE, Tool
from mcpbridge.pipeline.permissions.settings import ToolGlobs

_PLAIN = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"
"""Of punctuation, what may be in a scope (RFC 6749, 3.3) and is no escape."""


def _word(name: str) -> str:
    """A name as a part of a scope. A server may call its tools anything, and scopes are in headers of answers."""
    return quote(name, safe=_PLAIN)


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
                name, server_name = _word(tool.name), _word(tool.server)
                found |= {
                    scope.replace("{server}", server_name).replace("{tool}", name).replace("{access}", access)
                    for scope in scopes
                }
        return frozenset(found)
