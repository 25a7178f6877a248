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
"""Stands in paths and on command lines."""

_Glob = Annotated[str, Field(min_length=1)]


class NamingSettings(BaseModel):
    """The part of the `bridge` section that says how tools are named and how long a page of a listing is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name_length: int = Field(default=NAME_LENGTH, ge=SHORTEST_NAME_LENGTH, le=128)
    """Characters of the longest tool name; a longer one is cut and gets a hash. Clients add their own prefix."""

    prefix: Prefix = "always"
    """Which tools and prompts are named after their server (`server__tool`): `always`; `on-collision`, only those whose
    name several servers use; or `never`, then such a name gets a hash. Names may change as servers come and go unless
    it is `always`. An endpoint of one server (`/servers/NAME/mcp`) has no prefixes. A tool that is called like
    one of the bridge's own has its prefix everywhere."""

    page_size: int = Field(default=0, ge=0)
    """Entries a page of a listing; 0: all in one."""


AUTO_TOKENS = 8_000
"""Tokens of a list from which a client that cannot search it gets `search`, if the configuration does not say."""


class ClientExposure(BaseModel):
    """What some clients are listed, by the name they give themselves (`clientInfo.name`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode | None = None
    """`all` tools, only those to find others with and the pinned ones (`search`), or what suits the client (`auto`)."""

    slim: Level | None = None
    """How short definitions are: `off`, `tidy`, `slim`, `skeleton` or `signatures`."""

    slim_budget: int | None = Field(default=None, ge=0)
    """Tokens of the whole list above which the next shorter form is taken, down to `signatures`. 0: any number."""

    auto_tokens: int | None = Field(default=None, ge=0)
    """With `auto`: tokens of the list from which a client that cannot search by itself gets `search`."""

    max_tools: int | None = Field(default=None, ge=1)
    """With `auto`: tools that the client takes; of more it gets `search`."""

    profile: str | None = None
    """The profile that they get where they do not ask for one."""


class ExposeSettings(ClientExposure, BaseModel):
    """The `expose` section: which tools clients are listed, and how much of each."""

    pins: list[_Glob] = []
    """Globs on tools (`server/tool`) that are listed in any case."""

    activate: bool = False
    """Whether tools that a search found are listed from then on, in that session. Only for clients up to 2025-11-25."""

    map: bool = True
    """Whether the description of `find_tools` tells what kinds of tools there are."""

    clients: dict[_Glob, ClientExposure] = {}
    """Other settings for some clients, by globs on the name they give themselves, in any case; the first counts."""

    @property
    def mildest(self) -> Literal["off", "tidy"]:
        """The form from which all others are made: definitions are tidied once, if nobody wants them as sent."""
        return "off" if "off" in (self.slim, *(own.slim for own in self.clients.values())) else "tidy"

    def of(self, client: str) -> ClientExposure | None:
        """The settings for the client of this name; None: it has none of its own."""
        name = client.casefold()
        for glob, settings in self.clients.items():
            if fnmatchcase(name, glob.casefold()):
                return settings
        return None


class ProfileSettings(BaseModel):
    """A part of the catalog under a name: `[profiles.coding]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: list[_Glob] = []
    """Globs on servers whose tools, prompts and resources belong to it."""

    tools: list[_Glob] = []
    """Globs on tools (`server/tool`) that belong to it; with `servers`, only those of these servers' that match."""

    exclude: list[_Glob] = []
    """Globs on tools that do not."""

    tags: list[_Glob] = []
    """Tags of servers or tools that belong to it as well."""

    pins: list[_Glob] = []
    """Globs on tools that are listed in any case, beside those of `expose.pins`."""

    mode: Mode | None = None
    """As in `expose`; what is said here comes first."""

    description: str = ""
    """What it is for; clients are told."""

    @model_validator(mode="after")
    def _is_something(self) -> "ProfileSettings":
        if not (self.servers or self.tools or self.tags):
            raise ValueError('nothing belongs to it: give `servers`, `tools` or `tags` (`servers = ["*"]` for all)')
        return self


class EmbedderSettings(BaseModel):
    """The `search.embedder` table: a model that helps to find tools by meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "local", "http"] = "none"
    """`local`: the model of the extra `embed`; `http`: a service that answers as OpenAI's `/embeddings` does."""

    url: str | None = None
    """With `http`: base address of the service, such as `http://localhost:11434/v1`."""

    model: str | None = None
    """With `http`: the model's name. With `local`: another directory or file of a model."""

    api_key: str | None = None
    """With `http`: the service's key, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=2, gt=0)
    """Seconds that the vector of a query may take; then tools are found without it."""

    weight: float = Field(default=0.4, ge=0, le=1)
    """Its share in the score; the rest is that of words."""

    @model_validator(mode="after")
    def _names_a_service(self) -> "EmbedderSettings":
        if self.kind == "http" and not (self.url and self.model):
            raise ValueError('`kind = "http"` needs `url`, the address of the service, and `model`, the model\'s name')
        return self


class SearchSettings(BaseModel):
    """The `search` section: how tools are found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=8, ge=1, le=50)
    """Tools that a search answers with, if it does not say how many."""

    tokens: int = Field(default=500, ge=100)
    """Tokens of an answer of `find_tools`, about."""

    embedder: EmbedderSettings = EmbedderSettings()
    """A model that helps to find tools by meaning."""

    feedback: bool = False
    """Whether tools that were called with success after a search come a little earlier next time, for the same user."""


class RouterSettings(BaseModel):
    """The `router` section: a model that chooses tools for a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Literal["none", "client", "openai", "anthropic"] = "none"
    """`client`: the client's own model, through sampling; `openai`, `anthropic`: a service that speaks that API."""

    url: str | None = None
    """Base address of the service. Left out: the provider's own."""

    model: str | None = None
    """The model's name, as the service knows it. Needed with `openai` and `anthropic`."""

    api_key: str | None = None
    """The service's key, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=10, gt=0)
    """Seconds that a choice may take; then the ranker chooses."""

    max_tools: int = Field(default=8, ge=1, le=64)
    """Tools that it chooses at most."""

    min_tools: int = Field(default=0, ge=0)
    """Tools that it must choose, or the ranker does."""

    temperature: float | None = Field(default=0, ge=0, le=2)
    """How freely it chooses."""

    max_index: int = Field(default=400, ge=10)
    """Tools that it is told of; of more those that the ranker puts first."""

    @model_validator(mode="after")
    def _names_a_model(self) -> "RouterSettings":
        if self.provider in ("openai", "anthropic") and not self.model:
            raise ValueError(f'`provider = "{self.provider}"` needs `model`, the name of one of its models')
        if self.min_tools > self.max_tools:
            raise ValueError(f"`min_tools` ({self.min_tools}) is more than `max_tools` ({self.max_tools})")
        return self


class CodeSettings(BaseModel):
    """The `code` section: one tool `run_code`, for programs that call tools."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    """Whether there is `run_code`. It needs the extra `code`."""

    timeout: Seconds = Field(default=30, gt=0)
    """Seconds that a program may compute; waiting for tools does not count."""

    total_timeout: Seconds = Field(default=300, gt=0)
    """Seconds that it may take altogether, waiting for tools included, but not for people."""

    max_memory: int = Field(default=100, ge=8, le=4096)
    """MiB that it may use."""

    max_calls: int = Field(default=100, ge=1)
    """Calls of tools that it may make."""

    max_parallel: int = Field(default=8, ge=1)
    """Calls that it may have under way at a time."""
