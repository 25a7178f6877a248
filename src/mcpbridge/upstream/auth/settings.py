"""The `servers.<name>.auth` section: how the bridge gets into one remote server; and the times of signing in."""

import re
from collections.abc import Collection
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


PER_USER = frozenset({"user", "exchange", "id-jag"})
"""Values of `as` with which each user has an account of their own."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_OF_USERS = frozenset(
    {
        *("PATH", "HOME", "SHELL", "ENV", "IFS", "BASH_ENV", "XDG_CONFIG_HOME", "GIT_SSH", "GIT_SSH_COMMAND"),
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH"),
        *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS", "NODE_PATH", "JAVA_TOOL_OPTIONS"),
        *("PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB"),
    }
)
"""Variables that make a program run other code: a user who could set them would command the machine of the bridge."""


_ENTRA = frozenset({"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn"})
"""Hosts of Microsoft Entra: that of the world, and those of its national clouds."""


class AuthSettings(BaseModel):
    """How the bridge signs in to a remote server. Without this section: OAuth, when the server asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    account: Literal["shared", "user", "exchange", "id-jag", "client"] = Field(default="shared", alias="as")
    """Whose account calls are made with. `shared`: one, that of `mcpbridge login`, for everybody. `user`: each user's
    own; who has none is asked to sign in at the first call. `exchange`: each user's own, for which the token that the
    user presented to the bridge is exchanged (RFC 8693). `id-jag`: each user's own, for which the identity provider of
    `[auth.sign_in]` vouches (an identity assertion, ID-JAG). `client`: that of the bridge itself (client
    credentials)."""

    variables: list[str] = []
    """For a `command` or `image` with `as = "user"`: environment variables that each user sets for themselves, such as
    `GITHUB_TOKEN`. Each user then has a process of their own."""

    audience: str | None = Field(default=None, min_length=1)
    """For `as = "exchange"` and `"id-jag"`: the `audience` to ask the provider for. Default: for `exchange` none, for
    `id-jag` the issuer of the server's authorization server; with `id-jag` it needs `issuer`. The address of the server
    is asked for as `resource`."""

    exchange: Literal["rfc8693", "on-behalf-of"] | None = None
    """For `as = "exchange"`: how the provider exchanges tokens. `on-behalf-of`: as Microsoft Entra does; it needs
    `scopes`, such as `api://reports/.default`. Default: `on-behalf-of` at hosts of Entra, otherwise RFC 8693."""

    token_endpoint: str | None = None
    """For `as = "exchange"`: where tokens are exchanged. Default: what the metadata of `issuer` says."""

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
            given = {key: item for key, item in cast("dict[str, object]", value).items() if item != ""}
            if given.get("as") == "client":
                given.setdefault("type", "client-credentials")
            return given
        return value

    @field_validator("scopes")
    @classmethod
    def _single_scopes(cls, value: list[str]) -> list[str]:
        for scope in value:
            if not scope or any(character in ' "\\' or not character.isprintable() for character in scope):
                raise ValueError("each scope is one word; write several as a list")
        return value

    @field_validator("variables")
    @classmethod
    def _names_of_variables(cls, value: list[str]) -> list[str]:
        for name in value:
            if _VARIABLE.fullmatch(name) is None or name in _NOT_OF_USERS:
                raise ValueError(f"{name[:80]!r} is not an environment variable that users may set")
        return value

    @field_validator("token_endpoint")
    @classmethod
    def _https_endpoint(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "https://x")
        is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not (parts.scheme == "https" or is_local) or not parts.hostname:
            raise ValueError("expected an https URL, such as https://login.example.com/token")
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
        self._check_whose()
        return self

    def _check_whose(self) -> None:
        if self.account == "client" and self.type != "client-credentials":
            raise ValueError('`as = "client"` goes with type = "client-credentials"')
        if self.is_per_user and self.type != "oauth":
            raise ValueError(f'`as = "{self.account}"` goes with type = "oauth": the account is that of each user')
        if self.account == "exchange":
            if self.issuer is None and self.token_endpoint is None:
                raise ValueError('`as = "exchange"` needs `issuer` or `token_endpoint`: who exchanges the tokens')
            if self.client_id is None:
                raise ValueError('`as = "exchange"` needs `client_id`: the bridge as your provider knows it')
            self._check_on_behalf_of()
        elif self.token_endpoint or self.exchange:
            what = "token_endpoint" if self.token_endpoint else "exchange"
            raise ValueError(f'`{what}` goes with `as = "exchange"`')
        if self.account == "id-jag" and not (self.client_id and self.client_secret):
            raise ValueError(
                '`as = "id-jag"` needs `client_id` and `client_secret`: the bridge as the authorization server of this '
                "server knows it"
            )
        if self.account == "id-jag" and self.audience and self.issuer is None:
            raise ValueError(
                '`audience` with `as = "id-jag"` needs `issuer`: else the server could name an authorization server '
                "that gets assertions for this audience, and the secret"
            )
        if self.audience and self.account not in ("exchange", "id-jag"):
            raise ValueError('`audience` goes with `as = "exchange"` or `as = "id-jag"`')
        if self.variables and self.account != "user":
            raise ValueError('`variables` go with `as = "user"`: each user sets their own')

    def _check_on_behalf_of(self) -> None:
        if not self.is_on_behalf_of:
            return
        if not self.scopes:
            raise ValueError(
                "Microsoft Entra exchanges tokens for named scopes: set `scopes`, such as "
                '["api://reports/.default"] for all that were consented to'
            )
        if self.audience:
            raise ValueError("Microsoft Entra has no `audience` to exchange for: the scopes name the application")

    @property
    def is_on_behalf_of(self) -> bool:
        """Tokens are exchanged as Microsoft Entra does: without a `resource`, which it refuses (AADSTS9010010)."""
        if self.exchange is not None:
            return self.exchange == "on-behalf-of"
        return (urlsplit(self.token_endpoint or self.issuer or "").hostname or "") in _ENTRA

    def check_server(self, *, has_url: bool, share: str, headers: Collection[str]) -> None:
        """Make sure that this goes with the rest of the server's table.

        Raises:
            ValueError: it does not.
        """
        if not has_url and self != AuthSettings.model_construct():
            if not (self.account == "user" and self.variables):
                raise ValueError(
                    "`auth` goes with `url`; a `command` gets its credentials through `env`, or from each user with "
                    '`auth.as = "user"` and `auth.variables`'
                )
            if self != AuthSettings.model_validate({"as": "user", "variables": self.variables}):
                raise ValueError("a `command` has `auth.as` and `auth.variables`; the rest of `auth` goes with `url`")
        if has_url and self.variables:
            raise ValueError("`auth.variables` go with `command` or `image`: a `url` gets no environment")
        if self.is_per_user:
            if share not in (("user",) if has_url else ("user", "project")):
                raise ValueError(f'`share = "{share}"` does not go with `auth.as = "{self.account}"`: take it out')
            if any(name.lower() == "authorization" for name in headers):
                raise ValueError(
                    f'`headers.Authorization` would be everybody\'s; with `auth.as = "{self.account}"` take it out'
                )

    @property
    def is_per_user(self) -> bool:
        """Each user has an account of their own, and so a connection or process of their own."""
        return self.account in PER_USER
