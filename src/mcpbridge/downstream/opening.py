"""How a client begins: the handshake of legacy sessions, `server/discover` of modern ones."""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from mcpbridge.downstream.asking import ClientRequests, LegacyAsker
from mcpbridge.downstream.channel import Client, Notify
from mcpbridge.downstream.handling import Handler
from mcpbridge.downstream.introduction import Introduction
from mcpbridge.downstream.projects import expect
from mcpbridge.interaction import NOTHING, Profile
from mcpbridge.logs import get_logger
from mcpbridge.routing.exposing import Exposing
from mcpbridge.upstream.pool import Pool
from mcpbridge.wire.frame import Frame, encode
from mcpbridge.wire.revisions import LEGACY, MODERN, negotiate

__all__ = ["Identity", "Opening"]

log = get_logger("mcpbridge.server")


class Identity(msgspec.Struct, frozen=True):
    """How the bridge presents itself."""

    name: str
    version: str
    instructions: str
    instructions_budget: int = 2000
    """Characters, with the excerpts of what the servers tell."""
    list_ttl_ms: int = 60_000
    """Milliseconds that modern clients may go without asking again."""
    extensions: frozenset[str] = frozenset()
    """Extensions that may cross besides those the bridge understands."""


class _InitializeParams(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object] = {}
    client_info: dict[str, object] = {}


_decode_initialize = msgspec.json.Decoder(_InitializeParams).decode


class Opening:
    """Handlers of the requests that open."""

    def __init__(
        self, identity: Identity, pool: Pool, server_info: bytes, *, asking_seconds: float, exposing: Exposing
    ) -> None:
        """`server_info`: name and version, encoded. `asking_seconds`: how long a client may take for an answer.

        `exposing`: who is listed what.
        """
        self._exposing = exposing
        self._identity, self._pool, self._server_info, self._seconds = identity, pool, server_info, asking_seconds
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
        client.info, client.capabilities = params.client_info, params.capabilities
        client.profile = Profile.declared(params.capabilities, client.version)
        if client.asked is not None:
            client.asked.end()  # it begins anew: what it was asked before gets no answer
        client.asked = ClientRequests(self._seconds, client.push)
        client.bystander = LegacyAsker(client, client.asked, client.push) if client.profile is NOTHING else None
        expect(self._pool, client)
        capabilities = self._introduction.capabilities(client.version, self._shown(client))
        client.runs_tasks = "tasks" in capabilities
        log.info("client initialized", client=str(params.client_info.get("name"))[:100], revision=client.version)
        return encode(
            {
                "protocolVersion": client.version,
                "capabilities": capabilities,
                "serverInfo": Raw(self._server_info),
                "instructions": self._instructions(client),
            }
        )

    async def _discover(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        expect(self._pool, client)
        return encode(
            {
                "resultType": "complete",
                "supportedVersions": [*MODERN, *reversed(LEGACY)],
                "capabilities": self._introduction.capabilities(client.version, self._shown(client)),
                "instructions": self._instructions(client),
                "ttlMs": self._identity.list_ttl_ms,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": Raw(self._server_info)},
            }
        )

    def _shown(self, client: Client) -> Callable[[str], bool]:
        """Which servers this client sees something of."""
        if client.view:
            return client.view.__eq__
        scope = self._exposing.of(client.name, client.view, client.profile_name).scope
        return scope.may_have_server if scope is not None else lambda _: True

    def _instructions(self, client: Client) -> str:
        if client.view:
            return self._introduction.of_server(client.view)
        exposure = self._exposing.of(client.name, client.view, client.profile_name)
        more = [exposure.scope.settings.description] if exposure.scope is not None else []
        more += [_ABOUT_SEARCH] if exposure.mode != "all" else []
        return self._introduction.instructions(self._shown(client), " ".join(filter(None, more)))


_ABOUT_SEARCH = (
    "If there is a tool find_tools, most tools are not listed: it finds them by what is to be done, "
    "and call_tool calls them."
)
