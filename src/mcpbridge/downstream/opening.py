"""How a client begins: the handshake of legacy sessions, `server/discover` of modern ones."""

import msgspec
import structlog
from msgspec import Raw

from mcpbridge.downstream.asking import ClientRequests, LegacyAsker
from mcpbridge.downstream.channel import Client, Notify
from mcpbridge.downstream.handling import Handler
from mcpbridge.downstream.introduction import Introduction
from mcpbridge.interaction import NOTHING, Profile
from mcpbridge.upstream.pool import Pool
from mcpbridge.wire.frame import Frame, encode
from mcpbridge.wire.revisions import LEGACY, MODERN, negotiate

__all__ = ["Identity", "Opening"]

log = structlog.get_logger("mcpbridge.server")


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

    def __init__(self, identity: Identity, pool: Pool, server_info: bytes, *, asking_seconds: float) -> None:
        """`server_info`: name and version, encoded. `asking_seconds`: how long a client may take for an answer."""
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
        self._pool.expect(client.profile, client.view)
        capabilities = self._introduction.capabilities(client.version, client.view)
        client.runs_tasks = "tasks" in capabilities
        log.info("client initialized", client=str(params.client_info.get("name"))[:100], revision=client.version)
        return encode(
            {
                "protocolVersion": client.version,
                "capabilities": capabilities,
                "serverInfo": Raw(self._server_info),
                "instructions": self._introduction.instructions(client.view),
            }
        )

    async def _discover(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        self._pool.expect(client.profile, client.view)
        return encode(
            {
                "resultType": "complete",
                "supportedVersions": [*MODERN, *reversed(LEGACY)],
                "capabilities": self._introduction.capabilities(client.version, client.view),
                "instructions": self._introduction.instructions(client.view),
                "ttlMs": self._identity.list_ttl_ms,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": Raw(self._server_info)},
            }
        )
