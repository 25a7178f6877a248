"""The `auth` table of tools that are HTTP requests: how these show who they are from."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.backends.http_templates import places_in, url_mistake

__all__ = ["ApiKey", "BasicAuth", "BearerToken", "ClientCredentials", "HeaderName", "HeaderValue", "HttpAuth"]

HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
_Secret = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]


class BearerToken(BaseModel):
    """A token in the header `Authorization`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["bearer"]
    """`bearer`."""

    token: _Secret
    """The token; `${VAR}` keeps it out of the file."""


class BasicAuth(BaseModel):
    """A name and a password in the header `Authorization`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["basic"]
    """`basic`."""

    username: Annotated[str, Field(pattern=r"^[^:\x00-\x1f\x7f]*$")]
    """The name; it has no colon."""

    password: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
    """The password; `${VAR}` keeps it out of the file."""


class ApiKey(BaseModel):
    """A key in a header, in the query or in a cookie."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["api_key"]
    """`api_key`."""

    key: _Secret
    """The key; `${VAR}` keeps it out of the file."""

    header: HeaderName | None = None
    """The header that it stands in."""

    query: Annotated[str, Field(min_length=1)] | None = None
    """The query parameter that it stands in."""

    cookie: HeaderName | None = None
    """The cookie that it stands in."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if sum(place is not None for place in (self.header, self.query, self.cookie)) != 1:
            raise ValueError("a key stands in one of `header`, `query` and `cookie`: name one of them")
        return self


class ClientCredentials(BaseModel):
    """A token that is fetched with the credentials of a program (OAuth 2.0, client credentials)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["oauth2"]
    """`oauth2`."""

    token_url: str
    """Where tokens are fetched. It is never taken from a document, which could send the credentials anywhere."""

    client_id: Annotated[str, Field(min_length=1)]
    """Whose credentials they are."""

    client_secret: Annotated[str, Field(min_length=1)]
    """The secret; `${VAR}` keeps it out of the file."""

    scope: str = ""
    """The rights to ask for, with blanks between them. Left out: none in particular."""

    audience: str = ""
    """Whom the token is for, where the authorization server wants to know. Left out: it does not."""

    @field_validator("token_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if mistake := url_mistake(value) or ("no placeholders here" if places_in(value) else ""):
            raise ValueError(mistake)
        return value


HttpAuth = Annotated[BearerToken | BasicAuth | ApiKey | ClientCredentials, Field(discriminator="type")]
"""How requests show who they are from."""
