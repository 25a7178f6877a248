"""How tools are named, paged, listed and found: `expose`, `profiles`, `search`, `router`, `code`, part of `bridge`."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.units import Seconds
from mcpbridge.catalog.slim.levels import Level
from mcpbridge.catalog.tool_names import NAME_LENGTH, SHORTEST_NAME_LENGTH, Prefix

Mode = Literal["auto", "all", "search"]
"""Which tools a client is listed: `all` of them; a few with which it finds the others (`search`); or what suits it."""

ProfileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""Part of paths and command lines."""

_Glob = Annotated[str, Field(min_length=1)]


class NamingSettings(BaseModel):
    """The part of the `bridge` section that says how tools are named and how long a page of a listing is."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name_length: int = Field(default=NAME_LENGTH, ge=SHORTEST_NAME_LENGTH, le=128)
    """Characters of the longest tool name that clients see. A longer name is cut and ends with a hash. Clients add a
    prefix of their own, so leave room."""

    prefix: Prefix = "always"
    """Which tools and prompts carry the name of their server as a prefix (`server__tool`). `always`: all of them.
    `on-collision`: only those whose name several servers use. `never`: none; a name that several servers use gets a
    hash. Except with `always`, names may change as servers come and go. An endpoint of one server (`/servers/NAME/mcp`)
    has no prefixes. A tool with the name of one of the bridge's own tools always has its prefix."""

    page_size: int = Field(default=0, ge=0)
    """Entries on one page of a listing. 0: all on one page."""


AUTO_TOKENS = 8_000
"""Tokens of a list from which a client that cannot search it gets `search`, if the configuration does not say."""


class ClientExposure(BaseModel):
    """What the clients with certain names (`clientInfo.name`) see."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    mode: Mode | None = None
    """What a client sees. `all`: every tool. `search`: only the tools that find and call other tools, and the pinned
    ones. `auto`: whichever suits the client."""

    slim: Level | None = None
    """How much of each definition a client sees, from most to least: `off`, `tidy`, `slim`, `skeleton`,
    `signatures`."""

    slim_budget: int | None = Field(default=None, ge=0)
    """Tokens of the whole list. A longer list is shown in the next shorter form, down to `signatures`. 0: no limit."""

    auto_tokens: int | None = Field(default=None, ge=0)
    """With `auto`: tokens of the list from which on a client that cannot search by itself gets `search`."""

    max_tools: int | None = Field(default=None, ge=1)
    """With `auto`: the most tools that the client accepts. With more tools it gets `search`."""

    profile: str | None = None
    """The profile for these clients, unless they ask for another one."""


class ExposeSettings(ClientExposure, BaseModel):
    """The `expose` section: which tools clients see, and how much of each."""

    pins: list[_Glob] = []
    """Globs on tools (`server/tool`) that are always listed."""

    hide: list[_Glob] = []
    """Globs on tools (`server/tool`) that are not listed, unless they are pinned. A search finds them, and they can be
    called; so this saves tokens and forbids nothing."""

    activate: bool = False
    """Whether a tool that a search found stays listed for the rest of the session. Only for clients up to revision
    2025-11-25."""

    map: bool = True
    """Whether the description of `find_tools` lists what kinds of tools there are."""

    clients: dict[_Glob, ClientExposure] = {}
    """Other settings for some clients, by globs on their name (`clientInfo.name`); case does not count. The first match
    decides."""

    roles: dict[str, ClientExposure] = {}
    """Other settings for those with a role, by its name (`roles`). They come before those for clients. Of several roles
    of somebody the first in `roles` decides."""

    @property
    def mildest(self) -> Literal["off", "tidy"]:
        """The form from which all others are made: definitions are tidied once, if nobody wants them as sent."""
        levels = (self.slim, *(own.slim for own in (*self.clients.values(), *self.roles.values())))
        return "off" if "off" in levels else "tidy"

    def of(self, client: str) -> ClientExposure | None:
        """The settings for the client of this name; None: it has none of its own."""
        name = client.casefold()
        for glob, settings in self.clients.items():
            if fnmatchcase(name, glob.casefold()):
                return settings
        return None


class ProfileSettings(BaseModel):
    """A part of the catalog under a name: `[profiles.coding]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    servers: list[_Glob] = []
    """Globs on servers. Their tools, prompts and resources belong to the profile."""

    tools: list[_Glob] = []
    """Globs on tools (`server/tool`) that belong to the profile. Together with `servers`: only the matching tools of
    those servers."""

    exclude: list[_Glob] = []
    """Globs on tools that do not belong to the profile."""

    tags: list[_Glob] = []
    """Tags. Servers and tools that have one of them belong to the profile as well."""

    pins: list[_Glob] = []
    """Globs on tools that are always listed, in addition to `expose.pins`."""

    mode: Mode | None = None
    """As in `expose`, and before it."""

    description: str = ""
    """What the profile is for. Clients receive this text."""

    @model_validator(mode="after")
    def _is_something(self) -> "ProfileSettings":
        if not (self.servers or self.tools or self.tags):
            raise ValueError('nothing belongs to it: give `servers`, `tools` or `tags` (`servers = ["*"]` for all)')
        return self


class EmbedderSettings(BaseModel):
    """The `search.embedder` table: a model that helps to find tools by meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["none", "local", "http"] = "none"
    """`local`: the model of the extra `embed`; `http`: a service that answers as OpenAI's `/embeddings` does."""

    url: str | None = None
    """With `http`: the base address of the service, such as `http://localhost:11434/v1`."""

    model: str | None = None
    """With `http`: the name of the model. With `local`: the directory or file of another model."""

    api_key: str | None = None
    """With `http`: the key of the service, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=2, gt=0)
    """Seconds to wait for the vector of a query. After that the search uses words alone."""

    weight: float = Field(default=0.4, ge=0, le=1)
    """The share of the model in the score, from 0 to 1. Words have the rest."""

    @model_validator(mode="after")
    def _names_a_service(self) -> "EmbedderSettings":
        if self.kind == "http" and not (self.url and self.model):
            raise ValueError('`kind = "http"` needs `url`, the address of the service, and `model`, the model\'s name')
        return self


class SearchSettings(BaseModel):
    """The `search` section: how tools are found."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    limit: int = Field(default=8, ge=1, le=50)
    """Tools in the answer of a search that does not say how many it wants."""

    tokens: int = Field(default=500, ge=100)
    """Approximate number of tokens in an answer of `find_tools`."""

    embedder: EmbedderSettings = EmbedderSettings.model_construct()
    """A model that helps to find tools by meaning."""

    feedback: bool = False
    """Whether a tool that the same user called with success after a similar search ranks a little higher."""


class RouterSettings(BaseModel):
    """The `router` section: a model that chooses the tools for a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    provider: Literal["none", "client", "openai", "anthropic"] = "none"
    """Who chooses. `client`: the model of the client, through sampling. `openai`, `anthropic`: a service with that
    API."""

    url: str | None = None
    """The base address of the service. Default: that of the provider."""

    model: str | None = None
    """The name of the model. Required with `openai` and `anthropic`."""

    api_key: str | None = None
    """The key of the service, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=10, gt=0)
    """Seconds to wait for the model. After that the ranker chooses."""

    max_tools: int = Field(default=8, ge=1, le=64)
    """The most tools that the model may choose."""

    min_tools: int = Field(default=0, ge=0)
    """The fewest tools that the model must choose. If it chooses fewer, the ranker chooses."""

    temperature: float | None = Field(default=0, ge=0, le=2)
    """The sampling temperature of the model."""

    max_index: int = Field(default=400, ge=10)
    """The most tools that the model sees. Of more tools it sees those that rank first."""

    @model_validator(mode="after")
    def _names_a_model(self) -> "RouterSettings":
        if self.provider in ("openai", "anthropic") and not self.model:
            raise ValueError(f'`provider = "{self.provider}"` needs `model`, the name of one of its models')
        if self.min_tools > self.max_tools:
            raise ValueError(f"`min_tools` ({self.min_tools}) is more than `max_tools` ({self.max_tools})")
        return self


class CodeSettings(BaseModel):
    """The `code` section: the tool `run_code`, which runs programs that call tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enabled: bool = False
    """Whether `run_code` exists. It needs the extra `code`."""

    timeout: Seconds = Field(default=30, gt=0)
    """Seconds of computing for a program. Waiting for tools does not count."""

    total_timeout: Seconds = Field(default=300, gt=0)
    """Seconds for a program in all. Waiting for tools counts, waiting for people does not."""

    max_memory: int = Field(default=100, ge=8, le=4096)
    """MiB of memory for a program."""

    max_calls: int = Field(default=100, ge=1)
    """Tool calls that a program may make."""

    max_parallel: int = Field(default=8, ge=1)
    """Tool calls that a program may have in flight."""
