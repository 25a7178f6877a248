"""The `tools.<name>` sections with `grpc`: methods of a gRPC server as tools."""

import base64
import binascii
import re
from functools import cached_property
from ipaddress import ip_address
from typing import Annotated, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes
from mcpbridge.tools.settings import BackendSettings, take_timeout

_Path = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
_WAYS = "unix|unix-abstract|vsock|xds|dns|ipv4|ipv6|passthrough|google-c2p"
"""Words before a colon that gRPC reads as ways to a server, and not as hosts."""
_TARGET = re.compile(
    r"(?:unix:(?P<path>/.*)|(?:dns:///)?(?:\[(?P<six>[0-9a-fA-F:.]+)\]|"
    rf"(?P<host>(?!(?:{_WAYS}):)[^\s:/\[\]@]+)):\d{{1,5}})"
)
_KEY = re.compile(r"[0-9a-z_.-]+")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


class GrpcTls(BaseModel):
    """The `tls` table: which certificates to trust, and which one to present.

    The files are PEM. A relative path starts at the directory of the configuration file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    ca: _Path | None = None
    """Certificates to trust instead of those of the system."""

    cert: _Path | None = None
    """The client certificate, with its chain."""

    key: _Path | None = None
    """Its private key."""

    server_name: str | None = None
    """The name in the server's certificate, if it differs from that of `grpc`."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("`cert` and `key` go together: the client certificate and its private key")
        return self


class GrpcSettings(BackendSettings, BaseModel):
    """Methods of one gRPC server. Their types come from the server (reflection), or from `descriptor`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    grpc: str
    """The address of the server: `host:port`, or `unix:/path`."""

    service: str | None = None
    """The service to offer, with its package: `shop.v1.Orders`. Default: all services of the server."""

    method: str | None = None
    """The only method to offer, as a tool with the name of this table. Default: all methods, each a tool with its own
    name."""

    include: list[str] = ["*"]
    """Globs on `package.Service/Method`. A method must match one of them. Case counts."""

    exclude: list[str] = []
    """Globs on `package.Service/Method`. A method must match none of them."""

    descriptor: _Path | None = None
    """A file with the types, for a server without reflection: `protoc --include_imports --descriptor_set_out=FILE`.
    With `--include_source_info` comments become descriptions."""

    metadata: dict[str, str] = {}
    """Metadata of every call, such as `authorization`. Values of keys that end with `-bin` are base64."""

    tls: bool | GrpcTls | None = None
    """`true`, or a table of certificates: with TLS. `false`: without encryption. Default: TLS, except to this machine
    (`localhost`, `127.0.0.1`, `unix:`)."""

    max_message: Bytes = Field(default=16 * 1024**2, ge=1024)
    """Bytes of the largest message in either direction, and of all messages of a stream together."""

    max_messages: int = Field(default=1000, ge=1)
    """The most messages of a stream in a result. After that the stream is cancelled."""

    @field_validator("grpc")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if _TARGET.fullmatch(value) is None:
            hint = " (`tls` switches TLS on or off, not the address)" if "://" in value else ""
            raise ValueError(f"expected `host:port` or `unix:/path`, such as localhost:50051{hint}")
        return value

    @field_validator("service")
    @classmethod
    def _is_service(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"\.?[\w.]+", value) is None:
            raise ValueError("expected a service with its package, such as shop.v1.Orders")
        return value and value.removeprefix(".")

    @field_validator("metadata")
    @classmethod
    def _is_metadata(cls, value: dict[str, str]) -> dict[str, str]:
        named = {key.lower(): text for key, text in value.items()}
        for key, text in named.items():
            if _KEY.fullmatch(key) is None or key.startswith("grpc-"):
                raise ValueError(f"`{key}` cannot be a key of metadata: letters, digits, `-`, `_`, `.`, and no `grpc-`")
            if key.endswith("-bin"):
                try:
                    base64.b64decode(text, validate=True)
                except binascii.Error as error:
                    raise ValueError(f"the value of `{key}` must be base64, as its key ends with `-bin`") from error
            elif _PRINTABLE.fullmatch(text) is None:
                raise ValueError(f"the value of `{key}` may have printable ASCII only (others: a `-bin` key, base64)")
        return named

    @model_validator(mode="before")
    @classmethod
    def _usual_names(cls, value: object) -> object:
        """Take `timeout` for `call_timeout`, and `method = "shop.v1.Orders/Get"` for `service` and `method`."""
        if not isinstance(value, dict):
            return value
        given = dict(cast("dict[str, object]", value))
        take_timeout(given)
        method = given.get("method")
        if isinstance(method, str) and "/" in method:
            service, _, name = method.removeprefix("/").rpartition("/")
            if given.get("service") not in (None, service):
                raise ValueError("`method` names another service than `service`: write the method's own name alone")
            return {**given, "service": service, "method": name}
        return given

    @model_validator(mode="after")
    def _belong(self) -> Self:
        if self.method is not None and self.service is None:
            raise ValueError('`method` needs its `service`, or write both: method = "shop.v1.Orders/Get"')
        if self.method is not None and (self.include != ["*"] or self.exclude):
            raise ValueError("`include` and `exclude` choose among methods, and `method` names the one: take one out")
        if self.method is None and (self.input_schema is not None or self.output_schema is not None):
            raise ValueError("`input_schema` and `output_schema` are those of one tool: they need `method`")
        return self

    @cached_property
    def encrypted(self) -> bool:
        """Whether the connection is to use TLS."""
        return self.tls is not False if self.tls is not None else not self.is_here

    @cached_property
    def is_here(self) -> bool:
        """The server is on this machine."""
        found = _TARGET.fullmatch(self.grpc)
        assert found is not None
        if found["path"]:
            return True
        host = found["six"] or found["host"]
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost" or host.lower().endswith(".localhost")
