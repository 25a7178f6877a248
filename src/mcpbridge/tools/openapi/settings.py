"""The settings of an API that describes itself: `[tools.petstore] openapi = "https://example.com/openapi.json"`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes
from mcpbridge.tools.http.request import places_in, url_mistake
from mcpbridge.tools.http.settings import HeaderName, HeaderValue, HttpReach


class OperationFilter(BaseModel):
    """Selects operations. An operation is selected if it matches one glob of every list that is given."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    tags: list[str] = []
    """Globs on its tags. One must match."""

    operations: list[str] = []
    """Globs on its `operationId`."""

    paths: list[str] = []
    """Globs on its path, as the document writes it: `/pets/*`. A `*` also matches slashes."""

    methods: list[Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]] = []
    """Its HTTP method."""

    @field_validator("methods", mode="before")
    @classmethod
    def _in_capitals(cls, value: object) -> object:
        return [str(one).upper() for one in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - pydantic looks at it next

    @property
    def is_empty(self) -> bool:
        """It says nothing."""
        return not (self.tags or self.operations or self.paths or self.methods)


class OpenApiSettings(HttpReach, BaseModel):
    """The operations of an OpenAPI document (3.0 or 3.1, JSON or YAML) as tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    openapi: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
    """The document: a file, relative to the directory of the configuration file, or an address."""

    base_url: str | None = None
    """The base address of requests, instead of the one in the document. Required if a fetched document names another
    host than its own: otherwise whoever can change the document could obtain the credentials."""

    server_variables: dict[str, str] = {}
    """Values for the variables of the document's server address."""

    include: OperationFilter = OperationFilter.model_construct()
    """Operations that are offered. Default: all."""

    exclude: OperationFilter = OperationFilter.model_construct()
    """Operations that are not offered."""

    deprecated: bool = False
    """Whether operations that the document marks as deprecated are offered."""

    output_schemas: bool = True
    """Whether tools have an output schema. Rules that services often break (required members, formats, limits) are left
    out of it, and a tool whose service answers differently loses it."""

    document_headers: dict[HeaderName, HeaderValue] | None = None
    """Headers of the request for the document. Default: `headers` and `auth`, if the document is on the host of the
    API."""

    max_document: Bytes = Field(default=32 * 1024**2, ge=1024)
    """Bytes of the document."""

    health: str | None = None
    """An address, or a path on the host of the API, that answers with a status below 400 when the service works.
    Default: any answer of the host counts."""

    @field_validator("base_url", "health", "openapi")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is None or "://" not in value:
            return value
        if mistake := url_mistake(value) or ("no placeholders here" if places_in(value) else ""):
            raise ValueError(mistake)
        return value

    @field_validator("base_url")
    @classmethod
    def _is_whole(cls, value: str | None) -> str | None:
        if value is not None and ("://" not in value or "?" in value):
            raise ValueError("expected an address without a query, such as https://api.example.com/v1")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "OpenApiSettings":
        for name in ("input_schema", "output_schema"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is for single tools; here the document says it")
        return self

    @property
    def is_fetched(self) -> bool:
        """The document is at an address, not in a file."""
        return "://" in self.openapi
