"""The sections `http` and `questions`, and the part of `bridge` that clients see: name, instructions, list lifetime."""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes, Seconds


class TokenSettings(BaseModel):
    """One bearer token for the HTTP server. The token itself is never stored; `mcpbridge token new` makes one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    """Who holds the token. It is shown in logs, and sessions are bound to it."""

    sha256: str
    """SHA-256 of the token, as 64 hexadecimal digits."""

    admin: bool = False
    """Whether its holder may administer the bridge: approve calls, use `/api`. Do not give such a token to a client
    that a model controls: the model could approve its own calls."""

    metrics: bool = False
    """Whether its holder may read `/metrics`. Holders with `admin` always may."""

    console: bool = False
    """Whether its holder may look at the console, without changing anything. Holders with `admin` may change things
    there."""

    tenant: str = Field(default="", max_length=200)
    """The tenant of its calls, whatever the client claims. Default: the tenant that the client claims."""

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9A-Fa-f]{64}", value):
            raise ValueError("expected 64 hexadecimal digits, not the token itself; `mcpbridge token new` prints both")
        return value.lower()


class HttpSettings(BaseModel):
    """The `http` section: the HTTP server of `mcpbridge serve --http`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(default="/mcp", pattern=r"^/[A-Za-z0-9._~/-]*$")
    """The path of the MCP endpoint."""

    sse: bool = True
    """Whether HTTP+SSE of revision 2024-11-05 is served as well, at `/sse`."""

    websocket: bool = True
    """Whether WebSocket clients are served as well, at `/ws`."""

    tokens: list[TokenSettings] = []
    """Who may connect. Empty: only this user, on loopback, with the token in a file that only this user can read."""

    allowed_hosts: list[Annotated[str, Field(min_length=1)]] = []
    """`Host` headers to accept besides the loopback names with the port that is served. Examples: `bridge.example.com`;
    `localhost:9000` for a port that a container publishes."""

    allowed_origins: list[Annotated[str, Field(min_length=1)]] = []
    """`Origin` headers of web pages that may call, such as `https://app.example.com` or `http://localhost:6274`."""

    projects: list[Annotated[str, Field(min_length=1)]] = []
    """Directories in which a client over HTTP, SSE or WebSocket may have its project (its first root). Such a project
    sets `${PROJECT_ROOT}`, and the directory of a program with `share = "project"`. Absolute paths, or with `~`. Empty:
    projects of these clients are ignored."""

    api_variables: list[str] = []
    """Environment variables that servers and tools added over HTTP may refer to."""

    max_body: Bytes = Field(default=4 * 1024**2, ge=1024)
    """Bytes of the largest request that is accepted."""

    max_event: Bytes = 1024**2
    """Bytes of the largest event of a stream. 0: any size. SDK clients refuse events above 1 MiB and lose the stream,
    so a larger answer becomes an error that says so. An answer sent as JSON has no such limit."""

    session_idle: Seconds = Field(default=1800, gt=0)
    """Seconds after which an unused session ends."""

    max_sessions: int = Field(default=10_000, ge=1)
    """Sessions that may be open. A new one replaces the one that was idle the longest."""

    resume_grace: Seconds = 30
    """Seconds for which a stream is kept after its last event, for a client that lost the connection and reconnects."""

    keep_alive: Seconds = Field(default=15, gt=0)
    """Seconds of silence after which a comment is sent on a stream, so that proxies keep it open."""

    @field_validator("projects")
    @classmethod
    def _are_absolute(cls, value: list[str]) -> list[str]:
        directories = [os.path.expanduser(directory) for directory in value]  # noqa: PTH111 - stays as it is if it fails
        for directory in directories:
            if not Path(directory).is_absolute():
                raise ValueError(f"expected absolute paths such as ~/src, not {directory[:80]!r}")
        return directories


class AskingSettings(BaseModel):
    """The `questions` section: what servers ask clients during a call (sampling, elicitation, roots)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout: Seconds = Field(default=600, gt=0)
    """Seconds that a client has to answer. A call of a modern client waits as long."""

    state_key: str | None = Field(default=None, min_length=16)
    """The secret that seals the `requestState` which modern clients hold while they answer. Bridges behind one load
    balancer need the same secret. Default: each bridge makes one at its start."""


INSTRUCTIONS_BUDGET = 2000
"""Characters of all instructions, with excerpts of what the servers say, if the configuration does not say."""

LIST_TTL = 60
"""Seconds that clients may use a listing without asking again, if the configuration does not say."""


class PresentationSettings(BaseModel):
    """The part of the `bridge` section that says how clients see the bridge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="mcpbridge", min_length=1, max_length=64)
    """The server name that clients see."""

    instructions: str | None = None
    """The instructions that clients receive. Default: a sentence that says that names begin with their server."""

    instructions_budget: int = Field(default=INSTRUCTIONS_BUDGET, ge=0)
    """Characters of all instructions: first `instructions` in full, then excerpts of those of the servers. Clients cut
    longer instructions, and often put them into every prompt."""

    list_ttl: Seconds = Field(default=LIST_TTL, ge=0)
    """Seconds for which clients may reuse a listing (`ttlMs`, from revision 2026-07-28 on), unless a server asks for
    less. Clients that listen for changes hear of them at once."""

    extensions: list[str] = []
    """Identifiers of further protocol extensions to pass through. Only extensions that add data work; one that adds
    methods does not."""

    startup_wait: Seconds = 3
    """Seconds for which the first listing waits for servers that are starting."""
