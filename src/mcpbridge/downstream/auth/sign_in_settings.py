"""The section `auth.sign_in`: the bridge signs people in itself, at an identity provider that knows no MCP clients."""

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Seconds

Preset = Literal["oidc", "okta", "entra", "google", "keycloak", "github"]

_FIXED = {"google": "https://accounts.google.com", "github": "https://github.com"}
"""Providers that there is one of."""
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")


class SignInClientSettings(BaseModel):
    """A client that is known beforehand: it neither registers nor has a document."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(default="", max_length=100)
    """What people read on the page that asks them. Default: its id."""

    sha256: str | None = None
    """SHA-256 of its secret, as 64 hexadecimal digits. Default: it has none, and PKCE alone protects it."""

    redirect_uris: list[Annotated[str, Field(min_length=1)]] = []
    """Where people are sent back to. The port of a loopback address may differ (RFC 8252)."""

    assertions: bool = False
    """Whether it may exchange identity assertions of an enterprise (ID-JAG) for tokens. It needs `sha256` then."""

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and not _DIGEST.fullmatch(value):
            raise ValueError("expected 64 hexadecimal digits, not the secret itself; `mcpbridge token new` prints both")
        return None if value is None else value.lower()

    @model_validator(mode="after")
    def _is_of_use(self) -> Self:
        if self.assertions and self.sha256 is None:
            raise ValueError("`assertions` needs `sha256`: only a client with a secret may exchange them")
        if not self.redirect_uris and not self.assertions:
            raise ValueError("`redirect_uris` is missing: where are people sent back to?")
        return self


class SignInSettings(BaseModel):
    """The `auth.sign_in` section. With it, clients that know nothing of the identity provider sign people in."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    provider: Preset = "oidc"
    """Which provider it is. `oidc` is any that speaks OpenID Connect."""

    issuer: str | None = None
    """The provider's own address, exactly as its ID tokens spell it in `iss`. `google` and `github` need none."""

    client_id: str = Field(min_length=1)
    """The id of the bridge at the provider."""

    client_secret: str | None = None
    """The secret that goes with it, such as `${env:OIDC_SECRET}`. Default: none, for a public client."""

    scopes: list[Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")]] = []
    """Scopes that the bridge asks the provider for. Default: what the preset needs (`openid profile email`)."""

    groups_claim: str = Field(default="groups", min_length=1, max_length=200)
    """The claim that names the groups of a person, for `groups` of roles; a claim within others is named with dots."""

    registration: bool = True
    """Whether clients may register themselves (RFC 7591), as Claude Code, Codex, Cursor and VS Code do."""

    documents: bool = True
    """Whether a client may be named by the URL of its metadata document (client ID metadata documents)."""

    clients: dict[str, SignInClientSettings] = {}
    """Clients that are known beforehand, by their ids."""

    token_lifetime: Seconds = Field(default=3600, ge=60, le=86400)
    """Seconds that an access token works. When it is renewed, the provider is asked whether the person still may."""

    session_lifetime: Seconds = Field(default=30 * 86400, ge=300, le=365 * 86400)
    """Seconds without a renewal after which a person has to sign in again."""

    @field_validator("issuer")
    @classmethod
    def _is_public(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"https://[^/]|http://(localhost|127\.0\.0\.1|\[::1\])[:/]?", value):
            raise ValueError("expected the https:// address of the provider (http:// is for this machine alone)")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.issuer is None and self.provider not in _FIXED:
            raise ValueError(f"`issuer` is missing: the address of the provider {self.provider!r}")
        return self

    @property
    def provider_issuer(self) -> str:
        """The provider."""
        return self.issuer or _FIXED[self.provider]
