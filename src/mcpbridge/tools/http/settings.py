"""The settings of an HTTP request as a tool: `[tools.weather] endpoint = "https://api.example.com/v1/{city}"`.

The `auth` table is shared with OpenAPI and A2A tools.
"""

from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes
from mcpbridge.tools.http.request import places_in, url_mistake
from mcpbridge.tools.settings import BackendSettings, take_timeout
from mcpbridge.upstream.settings import TlsSettings

HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
_Secret = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]


class BearerToken(BaseModel):
    """A token in the header `Authorization`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    type: Literal["bearer"]
    """`bearer`."""

    token: _Secret
    """The token; `${VAR}` keeps it out of the file."""


class BasicAuth(BaseModel):
    """A name and a password in the header `Authorization`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    type: Literal["basic"]
    """`basic`."""

    username: Annotated[str, Field(pattern=r"^[^:\x00-\x1f\x7f]*$")]
    """The user name. It cannot contain a colon."""

    password: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
    """The password; `${VAR}` keeps it out of the file."""


class ApiKey(BaseModel):
    """A key in a header, in the query or in a cookie."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    type: Literal["api_key"]
    """`api_key`."""

    key: _Secret
    """The key; `${VAR}` keeps it out of the file."""

    header: HeaderName | None = None
    """The name of the header, if the key goes into a header."""

    query: Annotated[str, Field(min_length=1)] | None = None
    """The name of the query parameter, if the key goes into the query."""

    cookie: HeaderName | None = None
    """The name of the cookie, if the key goes into a cookie."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if sum(place is not None for place in (self.header, self.query, self.cookie)) != 1:
            raise ValueError("a key goes into one of `header`, `query` and `cookie`: name one of them")
        return self


class ClientCredentials(BaseModel):
    """A token that is fetched with the credentials of a program (OAuth 2.0, client credentials)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    type: Literal["oauth2"]
    """`oauth2`."""

    token_url: str
    """The address that issues tokens. It is never taken from an API document, which could send the credentials
    anywhere."""

    client_id: Annotated[str, Field(min_length=1)]
    """The client id."""

    client_secret: Annotated[str, Field(min_length=1)]
    """The client secret; `${VAR}` keeps it out of the file."""

    scope: str = ""
    """The scopes to request, separated by blanks. Default: none."""

    audience: str = ""
    """The audience of the token, if the authorization server needs it. Default: none."""

    @field_validator("token_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if mistake := url_mistake(value) or ("no placeholders here" if places_in(value) else ""):
            raise ValueError(mistake)
        return value


HttpAuth = Annotated[BearerToken | BasicAuth | ApiKey | ClientCredentials, Field(discriminator="type")]
"""How requests show who they are from."""


_FRAMING = {"host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "trailer"}
"""Headers that say where a request ends or goes: not for people to set."""


class HttpReach(BackendSettings, BaseModel):
    """Settings that all tools based on HTTP requests share."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    headers: dict[HeaderName, HeaderValue] = {}
    """Headers of every request. Use `${VAR}` for secrets."""

    auth: HttpAuth | None = None
    """How requests authenticate: a table with the `type` `bearer`, `basic`, `api_key` or `oauth2`."""

    tls: TlsSettings = TlsSettings.model_construct()
    """Which certificates to trust and to present, for `https://`."""

    proxy: str | None = None
    """The proxy: `http://user:password@host:port`, `https://…` or `socks5://…`. Default: what `HTTPS_PROXY`,
    `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say, but never a proxy for addresses of this machine."""

    max_response: Bytes = Field(default=10 * 1024**2, ge=1024)
    """Bytes of one answer, unpacked. A larger one is an error."""

    @model_validator(mode="before")
    @classmethod
    def _usual_names(cls, value: object) -> object:
        """Take `timeout` for `call_timeout`, and `backoff_s` for `backoff`, as specs of tools have them."""
        if not isinstance(value, dict):
            return value
        given = dict(cast("dict[str, Any]", value))
        take_timeout(given)
        retry = given.get("retry")
        if isinstance(retry, dict) and "backoff_s" in retry:
            table = dict(cast("dict[str, Any]", retry))
            if "backoff" in table:
                raise ValueError("`backoff_s` and `backoff` are the same: take one of them out")
            table["backoff"] = table.pop("backoff_s")
            given["retry"] = table
        return given

    @field_validator("headers")
    @classmethod
    def _not_of_the_connection(cls, value: dict[str, str]) -> dict[str, str]:
        if wrong := next((name for name in value if name.lower() in _FRAMING - {"host"}), None):
            raise ValueError(f"`{wrong}` is a header of the connection, which the bridge sets itself")
        return value


class HttpToolSettings(HttpReach, BaseModel):
    """An HTTP request as a tool. `{name}` in `endpoint`, `params`, `headers` and `body` is replaced by an argument."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    endpoint: str
    """The address, such as `https://api.example.com/v1/{city}`. In its path and query `{name}` is replaced by an
    argument, which always stays one path segment or one value. `{name?}` in the query is an optional argument."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "GET"
    """The method of the request."""

    params: dict[str, Any] | None = None
    """The query: names, with texts, numbers or lists. Default for `GET`, `HEAD`, `DELETE` and `OPTIONS`: all arguments
    that are used nowhere else."""

    body: dict[str, Any] | list[Any] | str | None = None
    """The body: JSON with `{name}` for arguments, as a table or as JSON text. `"{name}"` alone becomes the argument
    itself, of any type. It is sent as a form if `headers` say so. Default for `POST`, `PUT` and `PATCH`: all arguments
    that are used nowhere else."""

    input_mapping: str | dict[str, str] | None = None
    """JSONPaths (RFC 9535) over the arguments: one path, or a table of names and paths. What they find replaces the
    arguments in all settings above. Default: the arguments unchanged."""

    output_mapping: str | dict[str, str] | None = None
    """JSONPaths over the JSON of the answer: one path, or a table of names and paths. Default: the whole answer."""

    health: str | None = None
    """An address, or a path on the same host, that answers with a status below 400 when the service works. Default: any
    answer of the host counts."""

    @field_validator("method", mode="before")
    @classmethod
    def _in_capitals(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if mistake := url_mistake(value):
            raise ValueError(mistake)
        return value

    @field_validator("health")
    @classmethod
    def _is_place(cls, value: str | None) -> str | None:
        if value is None or (value.startswith("/") and not value.startswith("//") and not places_in(value)):
            return value
        if mistake := url_mistake(value) or ("nobody fills placeholders here" if places_in(value) else ""):
            raise ValueError(mistake)
        return value

    @field_validator("body")
    @classmethod
    def _is_json(cls, value: object) -> object:
        """A text of JSON stands for its value."""
        if not isinstance(value, str):
            return value
        import msgspec

        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f'no JSON: {error}; a place for an argument needs quotes: "{{name}}"') from error

    @field_validator("input_mapping", "output_mapping")
    @classmethod
    def _are_paths(cls, value: str | dict[str, str] | None) -> str | dict[str, str] | None:
        if value is not None:
            from mcpbridge.tools.json_mapping import check_paths

            check_paths(value)
        return value

    @property
    def template(self) -> tuple[Any, ...]:
        """Everything that has places for arguments."""
        return self.endpoint, self.params, dict(self.headers), self.body

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise ValueError(f'`body` is not sent with `method = "{self.method}"`')
        named = places_in(self.template)
        known: set[str] | None = None
        where = "`input_mapping` has no such name"
        if isinstance(self.input_mapping, dict):
            known = set(self.input_mapping)
        elif self.input_mapping is None and self.input_schema is not None:
            properties = self.input_schema.get("properties")
            known = set(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else None
            where = "`input_schema` has no such property"
        if wrong := next((name for name in named if known is not None and name not in known), None):
            raise ValueError(f"`{{{wrong}}}` is the place of an argument, but {where}")
        return self
