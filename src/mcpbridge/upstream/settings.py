"""The `servers.<name>` sections of the configuration: how to reach one upstream, and what of it to offer."""

import json
from typing import Annotated, Literal, Self, cast

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from mcpbridge.units import Seconds

__all__ = ["NameFilter", "ServerSettings", "ToolSettings"]

_url = TypeAdapter(AnyHttpUrl)
_HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class NameFilter(BaseModel):
    """Which names of one upstream to offer: those that match `include` and not `exclude`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: list[str] = ["*"]
    """Globs on the upstream's own names; one must match. Case counts."""

    exclude: list[str] = []
    """Globs on the upstream's own names; none may match."""


class ToolSettings(BaseModel):
    """What to change about one tool of an upstream."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rename: str | None = Field(default=None, min_length=1, max_length=128)
    """The name to use instead of the upstream's own, still behind the server's prefix."""

    description: str | None = None
    """The description to publish instead of the upstream's own."""

    disabled: bool = False
    """Neither listed nor callable."""


class ServerSettings(BaseModel):
    """One upstream: a `command` that speaks MCP on its standard input and output, or a `url`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: _Text | None = Field(default=None, min_length=1)
    """The program to start."""

    args: list[_Text] = []
    """Its arguments. They show in process lists, so secrets belong into `env`."""

    env: dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Text] = {}
    """Environment variables of the program, over a small safe set (PATH, HOME, LANG, …)."""

    inherit_env: bool | list[str] = False
    """`true`: the program gets the bridge's whole environment; a list: these variables of it as well."""

    cwd: _Text | None = None
    """The program's working directory. A relative one is taken from the directory of the configuration file."""

    url: str | None = None
    """The address of a server that is already running, `http://` or `https://`."""

    headers: dict[_HeaderName, _HeaderValue] = {}
    """HTTP headers of every request to `url`."""

    transport: Literal["stdio", "streamable-http"] | None = None
    """How to speak to it. Left out: `stdio` with a command, `streamable-http` with a URL."""

    era: Literal["auto", "legacy", "modern"] = "auto"
    """Which protocol revisions to try: up to 2025-11-25 (`legacy`), from 2026-07-28 (`modern`), or find out."""

    disabled: bool = False
    """Leave this server out."""

    init_timeout: Seconds = Field(default=30, gt=0)
    """Seconds for the server to start and agree on a protocol revision."""

    call_timeout: Seconds = Field(default=60, gt=0)
    """Seconds to wait for the answer to a call; each progress message starts them anew."""

    max_call_timeout: Seconds = Field(default=600, gt=0)
    """Seconds for one call in all, whatever its progress."""

    ping_interval: Seconds = Field(default=30, ge=0)
    """Seconds of silence, with no call running, after which the server is asked whether it lives. 0: never."""

    max_concurrent: int = Field(default=16, ge=1)
    """Calls that it may have in flight."""

    max_queued: int = Field(default=64, ge=0)
    """Calls that may wait for one of those places; further ones are refused."""

    queue_timeout: Seconds = 10
    """Seconds that a call may wait for its place."""

    tools: NameFilter = NameFilter()
    """Which of its tools to offer."""

    resources: NameFilter = NameFilter()
    """Which of its resources and resource templates to offer, by URI."""

    prompts: NameFilter = NameFilter()
    """Which of its prompts to offer."""

    tool: dict[str, ToolSettings] = {}
    """Changes to single tools, by the upstream's own name."""

    unavailable: str | None = None
    """Why this server cannot be used as configured; set while loading, never by people."""

    @field_validator("env", mode="before")
    @classmethod
    def _numbers_are_text(cls, value: object) -> object:
        """Take `PORT = 3000` and `DEBUG = true` as the text they become anyway."""
        if not isinstance(value, dict):
            return value
        given = cast("dict[object, object]", value)
        return {key: json.dumps(item) if isinstance(item, bool | int | float) else item for key, item in given.items()}

    @field_validator("command")
    @classmethod
    def _program_alone(cls, value: str | None) -> str | None:
        """Refuse `npx -y foo`: the whole would be looked for as one program. A path may have blanks in it."""
        words = (value or "").split()
        if len(words) > 1 and not set(words[0]) & set("/\\"):
            raise ValueError("arguments belong into `args`")
        return value

    @field_validator("transport", mode="before")
    @classmethod
    def _known_transport(cls, value: object) -> object:
        """Say of the transports that will come that they are not there yet, and take other spellings."""
        if value in ("http", "streamable_http", "streamableHttp"):
            return "streamable-http"
        if value in ("sse", "websocket", "ws"):
            raise ValueError(
                f"the transport {value!r} is not supported yet; a server that offers streamable HTTP works"
            )
        return value

    @field_validator("url")
    @classmethod
    def _http_url(cls, value: str | None) -> str | None:
        """Check the URL and keep it as it was written; pydantic would add a slash."""
        if value is None:
            return None
        scheme = value.partition(":")[0].lower()
        if scheme in ("ws", "wss"):
            raise ValueError(
                "the transport 'websocket' is not supported yet; a server that offers streamable HTTP works"
            )
        try:
            url = _url.validate_python(value)
        except ValidationError as error:
            raise ValueError(f"expected a URL such as https://example.com/mcp ({error.errors()[0]['msg']})") from error
        if url.username is not None or url.password is not None:
            raise ValueError("a URL shows in logs: put credentials into `headers`, not into the URL")
        return value

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either `command` (a program to start) or `url` (one that is running)")
        if self.command is None and self.transport == "stdio":
            raise ValueError("the transport 'stdio' needs `command`, not `url`")
        if self.url is None and self.transport == "streamable-http":
            raise ValueError("the transport 'streamable-http' needs `url`, not `command`")
        if self.url is None and self.headers:
            raise ValueError("`headers` go with `url`; a `command` gets its secrets through `env`")
        stray = [key for key in ("args", "env", "cwd", "inherit_env") if self.url and getattr(self, key)]
        if stray:
            raise ValueError(f"`{stray[0]}` goes with `command`, not with `url`")
        return self
