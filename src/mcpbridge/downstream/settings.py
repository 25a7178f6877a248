"""The sections `http` and `questions`, and the part of `bridge` that clients see: name, instructions, list lifetime."""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes, Seconds


class TokenSettings(BaseModel):
    """One bearer token that opens the HTTP front. The token itself is never stored; `mcpbridge token new` makes one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    """Who holds it: shown in logs, and what sessions are bound to."""

    sha256: str
    """SHA-256 of the token, as 64 hexadecimal digits."""

    admin: bool = False
    """Whether its holder may administer the bridge: approve calls, use `/api`. A client that a model drives should not
    have such a token, or the model could approve its own calls."""

    metrics: bool = False
    """Whether its holder may read `/metrics`, as those who administer may."""

    tenant: str = Field(default="", max_length=200)
    """The tenant that its calls are for, whatever the client says of itself. Left out: what the client says."""

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9A-Fa-f]{64}", value):
            raise ValueError("expected 64 hexadecimal digits, not the token itself; `mcpbridge token new` prints both")
        return value.lower()


class HttpSettings(BaseModel):
    """The `http` section: the HTTP front of `mcpbridge serve --http`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(default="/mcp", pattern=r"^/[A-Za-z0-9._~/-]*$")
    """Where MCP is served."""

    sse: bool = True
    """Serve HTTP+SSE of revision 2024-11-05 as well, at `/sse`."""

    websocket: bool = True
    """Serve WebSocket clients as well, at `/ws`."""

    tokens: list[TokenSettings] = []
    """Who may enter. Empty: this user, by the token in a file of theirs, and on loopback only."""

    allowed_hosts: list[Annotated[str, Field(min_length=1)]] = []
    """`Host` headers to accept besides the loopback names with the port that is served: `bridge.example.com`, or with
    the port that a container publishes: `localhost:9000`."""

    allowed_origins: list[Annotated[str, Field(min_length=1)]] = []
    """`Origin` headers of web pages that may call, such as `https://app.example.com` or `http://localhost:6274`."""

    projects: list[Annotated[str, Field(min_length=1)]] = []
    """Directories below which the project counts that a client over HTTP, SSE or WebSocket tells (its first root): for
    `${PROJECT_ROOT}`, and for where a program with `share = "project"` is started. Empty: none counts. Absolute, or
    with `~`."""

    api_variables: list[str] = []
    """Environment variables that servers and tools may refer to which are added over HTTP."""

    max_body: Bytes = Field(default=4 * 1024**2, ge=1024)
    """Bytes of the largest request that is read."""

    max_event: Bytes = 1024**2
    """Bytes of the largest event of a stream; 0: any size. SDK clients refuse more than 1 MiB and lose the stream, so a
    larger answer becomes an error that says so. An answer that comes as JSON has no such limit."""

    session_idle: Seconds = Field(default=1800, gt=0)
    """Seconds after which a session that nobody uses ends."""

    max_sessions: int = Field(default=10_000, ge=1)
    """Sessions at a time; the longest idle one makes room for a new one."""

    resume_grace: Seconds = 30
    """Seconds that a stream is kept after its last event, for a client that lost it and comes back."""

    keep_alive: Seconds = Field(default=15, gt=0)
    """Seconds of silence after which a stream carries a comment, so that no proxy takes it for dead."""

    @field_validator("projects")
    @classmethod
    def _are_absolute(cls, value: list[str]) -> list[str]:
        directories = [os.path.expanduser(directory) for directory in value]  # noqa: PTH111 - stays as it is if it fails
        for directory in directories:
            if not Path(directory).is_absolute():
                raise ValueError(f"expected absolute paths such as ~/src, not {directory[:80]!r}")
        return directories


class AskingSettings(BaseModel):
    """The `questions` section: sampling, elicitation and roots, which servers ask of clients during a call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout: Seconds = Field(default=600, gt=0)
    """Seconds that a client has to answer; a call of a modern client is kept for so long."""

    state_key: str | None = Field(default=None, min_length=16)
    """Secret text that seals what modern clients keep meanwhile (`requestState`). Bridges behind one load balancer
    need the same; left out, each makes its own when it starts."""


INSTRUCTIONS_BUDGET = 2000
"""Characters of all instructions, with excerpts of what the servers tell, if the configuration does not say."""

LIST_TTL = 60
"""Seconds that clients may use a listing without asking again, if the configuration does not say."""


class PresentationSettings(BaseModel):
    """The part of the `bridge` section that says how the bridge presents itself to clients."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="mcpbridge", min_length=1, max_length=64)
    """The server name that clients see."""

    instructions: str | None = None
    """What clients are told about the whole. Left out: that names begin with the server they come from."""

    instructions_budget: int = Field(default=INSTRUCTIONS_BUDGET, ge=0)
    """Characters of all instructions: those above come first and whole, then excerpts of what the servers tell.
    Clients cut longer ones, and often put them into every prompt."""

    list_ttl: Seconds = Field(default=LIST_TTL, ge=0)
    """Seconds that clients may use a listing without asking again (`ttlMs`, from revision 2026-07-28 on), if no server
    asks for less. Changes are announced to those who listen."""

    extensions: list[str] = []
    """Identifiers of protocol extensions that may cross the bridge besides those it understands. Only such as are pure
    data work: what brings methods of its own does not."""

    startup_wait: Seconds = 3
    """Seconds that the first listing waits for servers that are still starting."""
