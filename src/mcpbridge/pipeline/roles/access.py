"""What a role opens and denies: the rules of one role, and which roles matter for one tool. Pure."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

from msgspec import Struct

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import BRIDGE, BUILTIN, TOOLS, Tool
from mcpbridge.pipeline.permissions.settings import ToolGlobs, globs, names_of
from mcpbridge.pipeline.roles.settings import RoleSettings

KEPT = -1
"""In an audience: it is kept to its roles; see `roles.py`."""

_WILD = frozenset("*?[")
_DOT_SEGMENT = re.compile(r"(?:^|[/\\])\.\.?(?:[/\\?#]|$)")


class ToolAccess(Struct, frozen=True):
    """Which roles open one tool, which deny it, and with which a person must agree; as `Audience` has them."""

    opens: frozenset[int]
    denies: frozenset[int]
    asks: frozenset[int]
    """Of those that open it."""

    def forbids(self, audience: frozenset[int]) -> bool:
        """Whether the tool does not exist for this audience."""
        return KEPT in audience and (self.opens.isdisjoint(audience) or not self.denies.isdisjoint(audience))

    def asks_for(self, audience: frozenset[int]) -> bool:
        """Whether a person must agree to calls of this audience: every role of its that opens the tool says so."""
        opening = self.opens & audience
        return bool(opening) and opening <= self.asks


class Opening:
    """What one role opens and denies."""

    def __init__(self, settings: RoleSettings) -> None:
        self.settings = settings
        self._tools, self._prompts = ToolGlobs(settings.tools), ToolGlobs(settings.prompts)
        self._servers, self._approve = globs(settings.servers), ToolGlobs(settings.approve)
        self._resources, self._deny = _Resources(settings.resources), ToolGlobs(settings.deny)
        self._denied_resources = _Resources(glob for glob in settings.deny if "/" in glob)
        self._named = frozenset(
            server
            for server in (*(glob.partition("/")[0] for glob in settings.tools if "/" in glob), *settings.servers)
            if _WILD.isdisjoint(server)
        )
        parts = [
            glob.partition("/")[0] if "/" in glob else "*"
            for glob in (*settings.tools, *settings.prompts, *settings.resources)
        ]
        self._mentioned = globs([*settings.servers, *parts])
        self._denied_servers = globs(glob.removesuffix("/*") for glob in settings.deny if glob.endswith("/*"))

    def opens_tool(self, tool: Tool, options: CallOptions, *, touches_host: bool) -> bool:
        """Whether it opens this tool. One that touches the machine needs a glob that names its server in full.

        Of the bridge's own tools, those that find, call and recall are open to every role: they do no more than it may.
        """
        if touches_host:
            if tool.server not in self._named:
                return False
        elif tool.server == BRIDGE:
            return bool(self.settings.tools or self.settings.servers)
        if self.settings.read_only and options.effect != "read":
            return False
        return self._servers.fullmatch(tool.server) is not None or self._tools.cover(tool)

    def denies_tool(self, tool: Tool) -> bool:
        """Whether it denies this tool."""
        return self._deny.cover(tool)

    def asks_about(self, tool: Tool) -> bool:
        """Whether a person must agree to calls of this tool."""
        return self._approve.cover(tool)

    def opens_prompt(self, server: str, names: Iterable[str]) -> bool:
        """Whether it opens a prompt that goes by these names."""
        return self._servers.fullmatch(server) is not None or self._prompts.match(server, names)

    def denies_prompt(self, server: str, names: Iterable[str]) -> bool:
        """Whether it denies it."""
        return self._deny.match(server, names)

    def opens_resource(self, server: str, uri: str) -> bool:
        """Whether it opens a resource, or a template, as the server has it."""
        return self._servers.fullmatch(server) is not None or self._resources.open(server, uri)

    def denies_resource(self, server: str, uri: str) -> bool:
        """Whether it denies it."""
        return self._denied_resources.deny(server, uri)

    def mentions(self, server: str) -> bool:
        """Whether it may open something of this server, whatever the server has."""
        return self._mentioned.fullmatch(server) is not None

    def denies_server(self, server: str) -> bool:
        """Whether it denies all that this server may have (`server/*`)."""
        return self._denied_servers.fullmatch(server) is not None


class _Resources:
    """Globs on resources, `server/URI`.

    A URI may be spelled in several ways, and a server may take `public/../secret` for `secret`. So each spelling of
    one that is opened must match, and one spelling of one that is denied is enough; what cannot be judged by its text
    is not opened, and denied.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        parts = [text.partition("/") for text in texts]
        self._globs = [(globs([server]), globs([uri])) for server, _, uri in parts]

    def open(self, server: str, uri: str) -> bool:
        spellings = _spellings(uri) if self._globs else None
        return spellings is not None and all(self._match(server, spelling) for spelling in spellings)

    def deny(self, server: str, uri: str) -> bool:
        if not any(of.fullmatch(server) for of, _ in self._globs):
            return False
        spellings = _spellings(uri)
        return spellings is None or any(self._match(server, spelling) for spelling in spellings)

    def _match(self, server: str, uri: str) -> bool:
        return any(of.fullmatch(server) and one.fullmatch(uri) for of, one in self._globs)


def _spellings(uri: str) -> set[str] | None:
    """A URI as it is and without its percent encoding; None: its text does not say what is meant."""
    plain = unquote(uri)
    if _DOT_SEGMENT.search(plain) or unquote(plain) != plain:
        return None
    return {uri, plain}


def touches_machine(tool: Tool, commands: frozenset[str]) -> bool:
    """Whether a tool of the bridge's own reads or changes the machine that the bridge runs on, or runs code there.

    `commands`: names of the tables of `[tools]` that run commands or code here, and of packs.
    """
    if tool.server == BRIDGE:
        return tool.name == "run_code"
    if tool.server == BUILTIN:
        return tool.name.startswith("file") or tool.name.endswith(("-cli", "_cli")) or tool.name.startswith("code")
    return tool.server in commands or (tool.server == TOOLS and bool(names_of(tool) & commands))
