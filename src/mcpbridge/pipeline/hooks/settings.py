"""The `hooks` sections of the configuration: programs and addresses that see calls, and may change or refuse them."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Seconds
from mcpbridge.pipeline.permissions.settings import or_one

HookEvent = Literal["tool_call.before", "tool_call.after"]
HookFailure = Literal["open", "closed"]

_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
_HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]


class HookSettings(BaseModel):
    """One of the `hooks`: a program (`command`) or an address (`url`) that receives an event of each call as JSON.

    Hooks run in the order of the file; each sees what the earlier ones changed. See `docs/explanation/calls.md` for the
    event.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    event: HookEvent
    """When the hook runs. Before a call: it may change the arguments, answer the call itself, or refuse it. After a
    call: it sees the result or the error, and may replace the result."""

    name: str | None = Field(default=None, min_length=1, max_length=64)
    """Its name in messages. Default: `hook` and its number in the file."""

    tools: list[str] = Field(default=["*"], json_schema_extra=or_one)
    """Globs on the tools whose calls it sees: ids (`github/delete_*`), or names without a server (`delete_*`). A
    renamed tool matches by its old and its new name."""

    servers: list[str] = Field(default=["*"], json_schema_extra=or_one)
    """Globs on the servers whose calls it sees. Both this and `tools` must match."""

    command: list[_Text] | None = Field(default=None, min_length=1)
    """The program and its arguments, run without a shell in the directory of the configuration file. It reads the event
    from standard input and writes its answer to standard output."""

    env: dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Text] = {}
    """Environment variables of the program, in addition to a small safe set (PATH, HOME, LANG, …)."""

    url: str | None = None
    """The address that receives the event as a POST and answers in the body. Status 204 or an empty body lets the call
    pass."""

    headers: dict[_HeaderName, _HeaderValue] = {}
    """HTTP headers of the request to `url`."""

    timeout: Seconds = Field(default=5, gt=0)
    """Seconds to wait for its answer. A program that takes longer is killed, with all processes that it started."""

    failure: HookFailure | None = None
    """What happens to the call when the hook fails (it crashes, is late, or answers nonsense). `open`: the call goes
    on. `closed`: it is refused. Default: `closed` before a call, `open` after it."""

    content: bool = True
    """Whether the hook receives the arguments and the result. `false`: it learns only who calls which tool."""

    @property
    def is_closed(self) -> bool:
        """A call does not pass when it fails."""
        return (self.failure or ("closed" if self.event == "tool_call.before" else "open")) == "closed"

    @field_validator("tools", "servers", mode="before")
    @classmethod
    def _from_one(cls, value: object) -> object:
        """Take one glob for a list of it, as `permissions` do."""
        return [value] if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _checked_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good:
            raise ValueError("expected a URL such as https://example.com/hook")
        if "@" in parts.netloc:  # pyright: ignore[reportPossiblyUnboundVariable] - a good one was split
            raise ValueError("a URL shows in logs: put credentials into `headers`, not into the URL")
        return value

    @model_validator(mode="after")
    def _one_way_to_run_it(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a hook has either `command` (a program to run) or `url` (an address to ask)")
        if self.command is not None and not self.command[0]:
            raise ValueError("`command` names no program")
        if self.url is None and self.headers:
            raise ValueError("`headers` go with `url`; a `command` gets its secrets through `env`")
        if self.url is not None and self.env:
            raise ValueError("`env` goes with `command`, not with `url`")
        return self
