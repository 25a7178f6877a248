"""The sections `http`, `auth` and `questions`, and the part of `bridge` that clients see: name, instructions, lists."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings


class TokenSettings(BaseModel):
    """One bearer token for the HTTP server. The token itself is never stored; `mcpbridge token new` makes one."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

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

    @field_validator("name")
    @classmethod
    def _is_no_person(cls, value: str) -> str:
        if "://" in value or "#" in value:
            raise ValueError("`://` and `#` are for people whom an issuer of `[auth]` vouches for; leave them out")
        return value

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9A-Fa-f]{64}", value):
            raise ValueError("expected 64 hexadecimal digits, not the token itself; `mcpbridge token new` prints both")
        return value.lower()


class HttpTlsSettings(BaseModel):
    """TLS of the HTTP server. Files that change are read anew without a restart."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    cert: str | None = Field(default=None, min_length=1)
    """The file with the certificate and those between it and its root, in PEM format. With it the server speaks TLS
    alone, 1.2 or later."""

    key: str | None = Field(default=None, min_length=1)
    """The file with the private key, in PEM format. Default: it is in the file of `cert`."""

    key_password: str | None = None
    """What the key is encrypted with."""

    @model_validator(mode="after")
    def _has_a_certificate(self) -> Self:
        if self.cert is None and (self.key or self.key_password):
            raise ValueError("a key goes with `cert`, the file with its certificate")
        return self


class HttpSettings(BaseModel):
    """The `http` section: the HTTP server of `mcpbridge serve --http`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

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

    tls: HttpTlsSettings = HttpTlsSettings.model_construct()
    """TLS without a proxy."""

    trusted_proxies: list[str] = []
    """Addresses and networks of proxies whose `X-Forwarded-For` and `-Proto` count (or `Forwarded`, see
    `proxy_headers`), such as `127.0.0.1` or `10.0.0.0/8`. Without it these headers are ignored: anybody can write
    them."""

    proxy_headers: Literal["x-forwarded", "forwarded"] = "x-forwarded"
    """Which headers these proxies set: `X-Forwarded-For`, `-Proto` and `-Host`, or `Forwarded`. The others are ignored:
    a proxy that does not set them passes on what a client wrote there."""

    proxy_sets_host: bool = False
    """Whether these proxies always set the host that a client asked for, in `X-Forwarded-Host`, or in `Forwarded`. Then
    it counts instead of `Host`; both must be allowed. Otherwise let the proxy pass `Host` on."""

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

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        import ipaddress

        for entry in value:
            try:
                ipaddress.ip_network(entry, strict=False)
            except ValueError:
                raise ValueError(f"expected addresses or networks such as 10.0.0.0/8, not {entry[:80]!r}") from None
        return value

    @field_validator("projects")
    @classmethod
    def _are_absolute(cls, value: list[str]) -> list[str]:
        directories = [os.path.expanduser(directory) for directory in value]  # noqa: PTH111 - stays as it is if it fails
        for directory in directories:
            if not Path(directory).is_absolute():
                raise ValueError(f"expected absolute paths such as ~/src, not {directory[:80]!r}")
        return directories


_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
"""RFC 6749, 3.3: a scope is one word."""
SIGNATURES = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
    *("EdDSA", "Ed25519"),
)
"""Algorithms of signatures that can be checked with a public key; no others are known."""


def _public_url(text: str, what: str) -> str:
    """The URL of a provider, or of the bridge itself: https, or http of this machine.

    Raises:
        ValueError: it is another.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username is not None:
        raise ValueError(f"expected {what}, such as https://login.example.com")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("expected https://; http:// is for this machine alone (localhost, 127.0.0.1, [::1])")
    if parts.query or parts.fragment or not text.isascii() or not text.isprintable() or set(text) & set(' "\\<>'):
        raise ValueError("expected a plain URL, without a query and a fragment")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("expected a port from 1 to 65535") from None
    return text


def is_scope(text: str) -> bool:
    """Whether this is one scope, which a header can hold as it is."""
    return _SCOPE.fullmatch(text) is not None


def _one_word_each(scopes: list[str]) -> list[str]:
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            raise ValueError("each scope is one word; write several as a list")
    return scopes


class IntrospectionSettings(BaseModel):
    """How the bridge asks a provider about tokens that say nothing themselves (RFC 7662)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    client_id: str = Field(min_length=1)
    """The id of the bridge at the provider, which lets it ask."""

    client_secret: str = Field(min_length=1)
    """The secret that goes with it, such as `${env:INTROSPECTION_SECRET}`."""

    url: str | None = None
    """Where to ask. Default: the `introspection_endpoint` that the provider names."""

    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    """How the secret is sent."""

    cache: Seconds = Field(default=30, ge=0, le=300)
    """Seconds for which an answer counts. A token that is revoked works for as long."""

    @field_validator("url")
    @classmethod
    def _is_public(cls, value: str | None) -> str | None:
        return None if value is None else _public_url(value, "the URL of the introspection endpoint")


class IssuerSettings(BaseModel):
    """A provider whose tokens let people in."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    issuer: str
    """The provider, exactly as its tokens spell it in `iss`: a slash at the end counts."""

    audience: list[Annotated[str, Field(min_length=1)]] = []
    """Values of `aud` that are accepted besides the address of the bridge. For providers that do not take the address
    of a resource: Entra (`api://…`), Auth0 (an API identifier)."""

    algorithms: list[str] = ["RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"]
    """Algorithms that signatures may use."""

    jwks_uri: str | None = None
    """Where the keys are. Default: where the provider's metadata says (RFC 8414, OpenID Connect Discovery)."""

    require_at_jwt: bool = False
    """Whether a token must say that it is an access token (`typ` `at+jwt`, RFC 9068). Without it, tokens without a type
    count as well if they do not look like ID tokens; many providers issue such."""

    introspection: IntrospectionSettings | None = None
    """How to ask about tokens that are no JWTs. Default: such tokens are refused. One issuer can have it."""

    groups_claim: str = Field(default="groups", min_length=1, max_length=200)
    """The claim that names the groups of a person, for `groups` of roles: `groups`, `roles`, or one within others with
    dots between the names, such as `realm_access.roles`."""

    @field_validator("issuer")
    @classmethod
    def _is_an_issuer(cls, value: str) -> str:
        return _public_url(value, "the issuer of the tokens, as their `iss` spells it")

    @field_validator("jwks_uri")
    @classmethod
    def _is_public(cls, value: str | None) -> str | None:
        return None if value is None else _public_url(value, "the URL of the provider's keys")

    @field_validator("algorithms")
    @classmethod
    def _are_known(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("expected at least one algorithm")
        for name in value:
            if name not in SIGNATURES:
                raise ValueError(f"{name[:20]!r} is no algorithm with a public key; known: {', '.join(SIGNATURES)}")
        return value


class ResourceServerSettings(BaseModel):
    """The `auth` section: whose tokens let people in over HTTP (OAuth 2.1)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    resource: str | None = None
    """The public address of the bridge, as clients have it, such as `https://bridge.example.com/mcp`. Tokens must be
    for it (`aud`). Needed as soon as there is an issuer."""

    issuers: dict[str, IssuerSettings] = {}
    """The providers whose tokens are accepted, by a name of your choice. With one, every request needs a token, and
    `roles` have to say who may use what."""

    sign_in: SignInSettings | None = None
    """Sign people in here, at an identity provider that knows no MCP clients. Then every request needs a token, and
    `roles` are needed, too."""

    scopes: list[str] = []
    """Scopes that a client without a token is to ask for."""

    scopes_supported: list[str] = []
    """Scopes that the metadata of the bridge names. Default: `scopes`."""

    tool_scopes: dict[str, list[str]] = {}
    """Scopes that calls of tools need, by globs on tools (`github/*`): all scopes of all globs that match. `{server}`,
    `{tool}` and `{access}` (`read` or `write`) in a scope stand for those of the tool, such as
    `"*" = ["{server}:{access}"]`. A call with a token that lacks some is answered 403 with all that it needs. Tokens of
    `http.tokens` need none."""

    leeway: Seconds = Field(default=60, ge=0, le=300)
    """Seconds by which the clocks of a provider and of this machine may differ."""

    @field_validator("resource")
    @classmethod
    def _is_public(cls, value: str | None) -> str | None:
        return None if value is None else _public_url(value, "the public URL of the bridge")

    @field_validator("scopes", "scopes_supported")
    @classmethod
    def _are_words(cls, value: list[str]) -> list[str]:
        return _one_word_each(value)

    @field_validator("tool_scopes")
    @classmethod
    def _have_words(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        return {glob: _one_word_each(scopes) for glob, scopes in value.items()}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.is_on and self.resource is None:
            raise ValueError("`resource` is missing: the public address of the bridge, which tokens must be for")
        spellings = [issuer.issuer for issuer in self.issuers.values()]
        if len(set(spellings)) < len(spellings):
            raise ValueError("two of the issuers are the same provider")
        if sum(issuer.introspection is not None for issuer in self.issuers.values()) > 1:
            raise ValueError("one issuer can have `introspection`: an opaque token does not say whom to ask")
        return self

    @property
    def is_on(self) -> bool:
        """Somebody's tokens let people in."""
        return bool(self.issuers) or self.sign_in is not None


class AskingSettings(BaseModel):
    """The `questions` section: what servers ask clients during a call (sampling, elicitation, roots)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    timeout: Seconds = Field(default=600, gt=0)
    """Seconds that a client has to answer. A call of a modern client waits as long."""

    state_key: str | None = Field(default=None, min_length=16)
    """The secret that seals the `requestState` which modern clients hold while they answer. Bridges behind one load
    balancer need the same secret. Default: it follows from `fleet.key`; without a fleet each bridge makes one at its
    start."""


INSTRUCTIONS_BUDGET = 2000
"""Characters of all instructions, with excerpts of what the servers say, if the configuration does not say."""

LIST_TTL = 60
"""Seconds that clients may use a listing without asking again, if the configuration does not say."""


class PresentationSettings(BaseModel):
    """The part of the `bridge` section that says how clients see the bridge."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

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
