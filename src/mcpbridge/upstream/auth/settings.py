"""The `servers.<name>.auth` section: how the bridge gets into one remote server; and the times of signing in."""

from typing import Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SIGN_IN_SECONDS = 300.0
"""For a person to sign in."""
RENEW_EARLY = 60.0
"""Seconds before its end that a token is renewed; at most half of its life."""
RENEW_AGAIN = 30.0
"""Seconds until a renewal that failed for a passing reason is tried again."""
LOCK_SECONDS = 60.0
"""To wait for another process that renews the same token."""
STEP_UPS, STEP_UP_WINDOW = 3, 600.0
"""Times in so many seconds that a person is asked for more rights."""


class AuthSettings(BaseModel):
    """How the bridge signs in to a remote server. Without this section: OAuth, when the server asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["oauth", "client-credentials", "none"] = "oauth"
    """`oauth`: a person signs in when the server asks for it; `client-credentials`: the bridge signs in by itself with
    `client_id` and a secret or key; `none`: never. A configured `Authorization` header means `none`."""

    client_id: str | None = Field(default=None, min_length=1)
    """The id of the bridge if you registered it by hand. Default: the bridge registers itself."""

    client_secret: str | None = Field(default=None, min_length=1)
    """The secret that goes with `client_id`."""

    token_endpoint_auth_method: Literal["none", "client_secret_basic", "client_secret_post"] | None = None
    """How the bridge sends the secret. Default: `client_secret_basic` with a secret, otherwise `none`."""

    private_key: str | None = Field(default=None, min_length=1)
    """A private key (PEM) that replaces the secret, for `client-credentials`; such as `${file:key.pem}`."""

    client_metadata_url: str | None = None
    """The https address of a document that describes this bridge as a client. It serves as the client id where the
    server allows that."""

    issuer: str | None = None
    """The only authorization server to use, by its issuer URL. Default: the one that the server named first.
    Credentials that you registered by hand are never sent to another one."""

    scopes: list[str] = []
    """The scopes to request. Default: those that the server asks for."""

    redirect_uri: str | None = None
    """The registered redirect address, `http://localhost:PORT/PATH`. Without a port: any port."""

    interactive: bool | None = None
    """Whether the bridge opens the browser by itself when a server asks for a sign-in. Default: only a bridge on stdio
    does; elsewhere `mcpbridge login` does."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """Take `auth = "oauth"`, as other programs write it, and an empty `${VAR:-}` as left out."""
        if isinstance(value, str):
            return {"type": value}
        if isinstance(value, dict):
            return {key: item for key, item in cast("dict[str, object]", value).items() if item != ""}
        return value

    @field_validator("scopes")
    @classmethod
    def _single_scopes(cls, value: list[str]) -> list[str]:
        for scope in value:
            if not scope or any(character in ' "\\' or not character.isprintable() for character in scope):
                raise ValueError("each scope is one word; write several as a list")
        return value

    @field_validator("client_metadata_url")
    @classmethod
    def _https_document(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "https://x/y")
        if parts.scheme != "https" or parts.path in ("", "/"):
            raise ValueError("expected an https URL with a path, such as https://example.com/mcpbridge.json")
        return value

    @field_validator("issuer")
    @classmethod
    def _http_issuer(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError("expected the URL of an authorization server, such as https://auth.example.com")
        return value

    @field_validator("redirect_uri")
    @classmethod
    def _loopback_redirect(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://localhost")
        if parts.scheme != "http" or parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError(
                "expected http://localhost, http://127.0.0.1 or http://[::1], with port and path or without"
            )
        if parts.query or parts.fragment:
            raise ValueError("a redirect address has neither query nor fragment here")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.client_id is None and (self.client_secret or self.private_key or self.token_endpoint_auth_method):
            raise ValueError("a secret or key goes with `client_id`")
        if self.token_endpoint_auth_method == "none" and self.client_secret:  # noqa: S105 - the name of a method
            raise ValueError("`token_endpoint_auth_method` is `none`, and yet there is a `client_secret`")
        if self.token_endpoint_auth_method not in (None, "none") and not self.client_secret:
            raise ValueError(f"`{self.token_endpoint_auth_method}` needs `client_secret`")
        if self.type == "client-credentials" and bool(self.client_secret) == bool(self.private_key):
            raise ValueError("`client-credentials` needs `client_id` and either `client_secret` or `private_key`")
        if self.private_key and self.type != "client-credentials":
            raise ValueError('`private_key` goes with type = "client-credentials"')
        return self
