"""How a client begins: `initialize`, `server/discover`, and the wording of instructions.

Legacy sessions send `initialize`, modern clients `server/discover`. Capabilities are those of everything that may
ever be behind the bridge, since servers come and go. Each is declared to the revisions that have it. `compose` makes
the instructions: the bridge's own, and within a budget an excerpt of each server's. Clients cut long instructions,
and often put the whole into every prompt.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from mcpbridge.base.hidden_text import without_hidden
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.listing.tool_lists import Exposing
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import ClientRequests, LegacyElicitor
from mcpbridge.downstream.handler import Handler
from mcpbridge.downstream.notifications.from_upstreams import expect
from mcpbridge.downstream.settings import INSTRUCTIONS_BUDGET, LIST_TTL
from mcpbridge.protocol.extensions import TASKS, declared_to_clients, extensions_of
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.revisions import (
    FIRST_WITH_ANNOTATIONS,
    FIRST_WITH_STRUCTURE,
    LATEST_LEGACY,
    LEGACY,
    MODERN,
    is_modern,
    negotiate,
)
from mcpbridge.upstream.pool import Pool

LEAST_EXCERPT = 80
"""Characters; a shorter excerpt would say nothing and is left out."""


class Introduction:
    """Says to each client what is behind the bridge now."""

    def __init__(self, pool: Pool, own: str, budget: int, extensions: frozenset[str] = frozenset()) -> None:
        """What the bridge says besides what the servers say.

        `own`: the bridge's own instructions. `budget`: characters of all instructions together. `extensions`:
        identifiers that may cross besides those that the bridge understands.
        """
        self._pool, self._own, self._budget, self._extensions = pool, own, budget, extensions

    def of_server(self, view: str) -> str:
        """For clients of one server: its own, whole."""
        upstream = self._pool.upstreams.get(view)
        return without_hidden(upstream.instructions) if upstream is not None else ""

    def instructions(self, shows: Callable[[str], bool], more: str = "") -> str:
        """For clients of several servers, those that `shows` names. `more`: what the bridge says to this client."""
        said = {
            name: without_hidden(upstream.instructions)
            for name, upstream in self._pool.upstreams.items()
            if shows(name)
        }
        return compose(" ".join(part for part in (self._own, more) if part), said, self._budget)

    def capabilities(self, version: str, shows: Callable[[str], bool]) -> dict[str, object]:
        """The capabilities to declare to a client of this revision that sees these servers."""
        declared: dict[str, object] = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        if version >= FIRST_WITH_ANNOTATIONS:
            declared["completions"] = {}
        upstreams = [one for name, one in sorted(self._pool.upstreams.items()) if shows(name)]
        extensions = declared_to_clients((extensions_of(one.capabilities) for one in upstreams), self._extensions)
        if version == LATEST_LEGACY and any(one.runs_tasks for one in upstreams):
            declared["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        if is_modern(version) and any(one.modern and TASKS in extensions_of(one.capabilities) for one in upstreams):
            extensions[TASKS] = {}
        if extensions and version >= FIRST_WITH_STRUCTURE:  # MCP Apps came with clients of these revisions
            declared["extensions"] = extensions
        return declared


def compose(own: str, servers: Mapping[str, str], budget: int) -> str:
    """The bridge's own instructions and an excerpt of each server's, by name, in at most `budget` characters.

    The same servers give the same text: clients cache prompts by prefix. What a server says is quoted line by line,
    so that none can speak for another or for the bridge. The bridge's own are whole, whatever the budget.
    """
    quoted = {name: _quoted(text) for name, text in sorted(servers.items()) if text.strip()}
    excerpts = _shared_out(quoted, budget - len(own))
    return "\n\n".join([own, *excerpts] if own else excerpts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def _shared_out(texts: Mapping[str, str], room: int) -> list[str]:
    """Equal shares for all; what a short text does not need goes to the longer ones."""
    headings = {name: f"Server `{name}`:\n" for name in texts}
    shown: dict[str, str] = {}
    for place, name in enumerate(sorted(texts, key=lambda name: (len(headings[name]) + len(texts[name]), name))):
        share = room // (len(texts) - place) - len(headings[name]) - len("\n\n")
        text = texts[name] if len(texts[name]) <= share else _cut(texts[name], share)
        if text:
            shown[name] = headings[name] + text
            room -= len(shown[name]) + len("\n\n")
    return [shown[name] for name in texts if name in shown]


def _cut(text: str, length: int) -> str:
    """The beginning of a text, up to the last whole word; empty when that would tell nothing."""
    if length < LEAST_EXCERPT:
        return ""
    head = text[: length - 1]
    cut = max(head.rfind(" "), head.rfind("\n"))
    return f"{head[:cut].rstrip() if cut > length // 2 else head}…"


log = get_logger("mcpbridge.server")


class Identity(msgspec.Struct, frozen=True):
    """How the bridge presents itself."""

    name: str
    version: str
    instructions: str
    instructions_budget: int = INSTRUCTIONS_BUDGET
    """Characters, with the excerpts of what the servers say."""
    list_ttl_ms: int = LIST_TTL * 1000
    """Milliseconds that modern clients may go without asking again."""
    extensions: frozenset[str] = frozenset()
    """Extensions that may cross besides those the bridge understands."""


class _InitializeParams(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object] = {}
    client_info: dict[str, object] = {}


_decode_initialize = msgspec.json.Decoder(_InitializeParams).decode


class Handshake:
    """Handlers of the requests that open."""

    def __init__(
        self,
        identity: Identity,
        catalog: Catalog,
        pool: Pool,
        server_info: bytes,
        exposing: Exposing,
        *,
        seconds: float,
    ) -> None:
        """`server_info`: name and version, encoded. `exposing`: who is listed what.

        `seconds`: how long a client may take for an answer.
        """
        self._exposing, self._catalog = exposing, catalog
        self._identity, self._pool, self._server_info, self._seconds = identity, pool, server_info, seconds
        self._introduction = Introduction(
            pool, identity.instructions, identity.instructions_budget, identity.extensions
        )

    @property
    def legacy(self) -> dict[str, Handler]:
        """By method, for legacy sessions."""
        return {"initialize": self._initialize}

    @property
    def modern(self) -> dict[str, Handler]:
        """By method, for modern clients."""
        return {"server/discover": self._discover}

    async def _initialize(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        params = _decode_initialize(frame.params)
        if params.protocol_version in MODERN:
            log.info("client offers a modern revision in a handshake; answering with the newest legacy one")
        client.version = negotiate(params.protocol_version)
        client.introduce(params.client_info)
        client.declared_capabilities = params.capabilities
        client.capabilities = ClientCapabilities.declared(params.capabilities, client.version)
        if client.requests is not None:
            client.requests.end()  # it begins anew: what it was asked before gets no answer
        client.requests = ClientRequests(self._seconds, client.push)
        client.bystander = (
            LegacyElicitor(client, client.requests, client.push) if client.capabilities is NO_CAPABILITIES else None
        )
        expect(self._pool, client)
        capabilities = self._capabilities(client)
        client.runs_tasks = "tasks" in capabilities
        log.info("client initialized", client=str(params.client_info.get("name"))[:100], revision=client.version)
        return self._initialized(client, capabilities)

    async def _discover(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        expect(self._pool, client)
        return self._discovered(client, self._capabilities(client))

    def answer_now(self, client: Client) -> tuple[str, bytes]:
        """The request with which such a client opens, and what it would be answered now. Changes nothing."""
        if client.modern:
            return "server/discover", self._discovered(client, self._capabilities(client))
        return "initialize", self._initialized(client, self._capabilities(client))

    def _capabilities(self, client: Client) -> dict[str, object]:
        return self._introduction.capabilities(client.version, self._visible_servers(client))

    def _initialized(self, client: Client, capabilities: dict[str, object]) -> bytes:
        return encode(
            {
                "protocolVersion": client.version,
                "capabilities": capabilities,
                "serverInfo": Raw(self._server_info),
                "instructions": self._instructions(client),
            }
        )

    def _discovered(self, client: Client, capabilities: dict[str, object]) -> bytes:
        return encode(
            {
                "resultType": "complete",
                "supportedVersions": [*MODERN, *reversed(LEGACY)],
                "capabilities": capabilities,
                "instructions": self._instructions(client),
                "ttlMs": self._identity.list_ttl_ms,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": Raw(self._server_info)},
            }
        )

    def _visible_servers(self, client: Client) -> Callable[[str], bool]:
        """Which servers this client sees something of."""
        shows = self._shown_to(client, lambda snapshot: snapshot.shows)
        if client.view:
            return lambda server: server == client.view and shows(server)
        scope = self._exposing.of_client(client).scope
        return shows if scope is None else lambda server: scope.may_have_server(server) and shows(server)

    def _shown_to(self, client: Client, by: Callable[[Snapshot], Callable[[str], bool]]) -> Callable[[str], bool]:
        """Which servers the roles of this client let it know of, `by` the catalog that it sees."""
        return by(self._catalog.seen_by(client)) if self._catalog.has_roles else lambda _: True

    def _instructions(self, client: Client) -> str:
        # What a server says of itself may be about any of its tools.
        shows_all = self._shown_to(client, lambda snapshot: snapshot.shows_all_of)
        if client.view:
            return self._introduction.of_server(client.view) if shows_all(client.view) else ""
        exposure = self._exposing.of_client(client)
        more = [exposure.scope.settings.description] if exposure.scope is not None else []
        more += [_ABOUT_SEARCH] if exposure.mode != "all" else []
        shows = self._visible_servers(client)
        return self._introduction.instructions(
            lambda server: shows(server) and shows_all(server), " ".join(filter(None, more))
        )


_ABOUT_SEARCH = (
    "If there is a tool find_tools, most tools are not listed: it finds them by what is to be done, "
    "and call_tool calls them."
)
