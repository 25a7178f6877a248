"""The whole configuration as one value. Each larger section's model lives beside the code that reads it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.catalog.settings import (
    CodeSettings,
    ExposeSettings,
    ProfileName,
    ProfileSettings,
    RouterSettings,
    SearchSettings,
)
from mcpbridge.catalog.tool_names import Prefix
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.result_settings import ResultDefaults
from mcpbridge.downstream.settings import AskingSettings, HttpSettings
from mcpbridge.pipeline.approvals.settings import ApprovalSettings
from mcpbridge.pipeline.hooks.settings import HookSettings
from mcpbridge.pipeline.observability.settings import ObserveSettings
from mcpbridge.pipeline.permissions.settings import PermissionRule
from mcpbridge.pipeline.stages.cache import CacheSettings
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.storage.settings import CallLogSettings, StoreSettings
from mcpbridge.tools.builtin.base_settings import BuiltinDefaults
from mcpbridge.tools.factory import read_settings
from mcpbridge.tools.settings import BackendSettings
from mcpbridge.upstream.settings import ServerSettings


class BridgeSettings(BaseModel):
    """The `bridge` section: how the bridge presents itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="mcpbridge", min_length=1, max_length=64)
    """The server name that clients see."""

    instructions: str | None = None
    """What clients are told about the whole. Left out: that names begin with the server they come from."""

    instructions_budget: int = Field(default=2000, ge=0)
    """Characters of all instructions: those above come first and whole, then excerpts of what the servers tell.
    Clients cut longer ones, and often put them into every prompt."""

    list_ttl: Seconds = Field(default=60, ge=0)
    """Seconds that clients may use a listing without asking again (`ttlMs`, from revision 2026-07-28 on), if no server
    asks for less. Changes are announced to those who listen."""

    extensions: list[str] = []
    """Identifiers of protocol extensions that may cross the bridge besides those it understands. Only such as are pure
    data work: what brings methods of its own does not."""

    startup_wait: Seconds = 3
    """Seconds that the first listing waits for servers that are still starting."""

    name_length: int = Field(default=48, ge=16, le=128)
    """Characters of the longest tool name; a longer one is cut and gets a hash. Clients add their own prefix."""

    prefix: Prefix = "always"
    """Which tools and prompts are named after their server (`server__tool`): `always`; `on-collision`, only those whose
    name several servers use; or `never`, then such a name gets a hash. Names may change as servers come and go unless
    it is `always`. An endpoint of one server (`/servers/NAME/mcp`) never has prefixes."""

    page_size: int = Field(default=0, ge=0)
    """Entries a page of a listing; 0: all in one."""


class LimitSettings(BaseModel):
    """The `limits` section: what the bridge refuses to carry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_frame: Bytes = Field(default=64 * 1024**2, ge=1024)
    """Bytes of the largest message that is read from a peer."""


class LogSettings(BaseModel):
    """The `log` section. Logs go to standard error: on stdio, standard output belongs to the protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    """The least severe level to write."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object a line; `console`: for people; `auto`: `console` on a terminal, else `json`."""


class DaemonSettings(BaseModel):
    """The `daemon` section: the process in the background that `mcpbridge serve` on stdio shares with all clients."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    idle_exit: Seconds = Field(default=600, ge=0)
    """Seconds without a client after which it ends, if `mcpbridge serve` started it. 0: never."""

    http: str | None = None
    """An address where it serves HTTP as well: `127.0.0.1:8808`."""

    watch: bool = True
    """Whether an edited configuration file takes effect by itself. `mcpbridge reload` does it in any case."""

    warm_up: int = Field(default=2, ge=0)
    """Servers that are started in the background at a time, to see whether they still offer what they did. 0: none."""

    revalidate: Seconds = Field(default=86400, ge=0)
    """Seconds for which it is believed what a `command` offered last, without starting it to look. What has a `url` is
    looked at whenever the daemon starts."""


class HealthSettings(BaseModel):
    """The `health` section: looking by itself whether servers and tools work."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Seconds = Field(default=0, ge=0)
    """Seconds between two looks at every server and backend that runs. What changed is logged, and told by `status`,
    `/api/health` and the metrics. 0: never."""


def read_builtin(value: object) -> object:
    """The section that a table of the configuration stands for, for pydantic; errors are pydantic's."""
    if not isinstance(value, Mapping) or not value:
        return cast("object", value)
    from mcpbridge.tools.builtin.settings import BuiltinSettings

    return BuiltinSettings.model_validate(dict(cast("Mapping[str, Any]", value)))


class Settings(BaseModel):
    """A configuration file, read and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: dict[str, ServerSettings] = {}
    """The upstreams, by name."""

    calls: CallDefaults = CallDefaults()
    """How calls are treated unless their server or tool says otherwise."""

    permissions: list[PermissionRule] = []
    """Who may call what: the first rule that matches a call decides, and if none does, the `permission` of its tool."""

    bridge: BridgeSettings = BridgeSettings()
    """How the bridge presents itself."""

    limits: LimitSettings = LimitSettings()
    """What it refuses to carry."""

    log: LogSettings = LogSettings()
    """What it writes to standard error."""

    http: HttpSettings = HttpSettings()
    """The HTTP front."""

    observe: ObserveSettings = ObserveSettings()
    """What is counted and traced of calls."""

    questions: AskingSettings = AskingSettings()
    """What servers ask of clients meanwhile."""

    approval: ApprovalSettings = ApprovalSettings()
    """Who agrees to calls that a person must agree to."""

    hooks: list[HookSettings] = []
    """Programs and addresses that see calls, and may change, answer or refuse them; in this order."""

    results: ResultDefaults = ResultDefaults()
    """What becomes of large results, and how long the originals are kept."""

    expose: ExposeSettings = ExposeSettings()
    """Which tools clients are listed, and how much of each."""

    profiles: dict[ProfileName, ProfileSettings] = {}
    """Parts of the catalog, by name: at `/p/NAME/mcp`, and by `mcpbridge serve --profile NAME`."""

    search: SearchSettings = SearchSettings()
    """How tools are found."""

    router: RouterSettings = RouterSettings()
    """A model that chooses tools for a request."""

    tools: dict[str, Annotated[SerializeAsAny[BackendSettings], BeforeValidator(read_settings)]] = {}
    """Tools that are not behind an MCP server, by name."""

    spec: list[str] = []
    """Files that describe further tools, in JSON or TOML: what stands in them counts as if it stood in `tools`."""

    packs: list[str] = []
    """Packs of tools: names of installed ones (entry points `mcpbridge.packs`), or `package.module:pack`."""

    builtin: Annotated[SerializeAsAny[BuiltinDefaults], BeforeValidator(read_builtin)] = BuiltinDefaults()
    """Tools of the bridge's own."""

    sandbox: SandboxSettings = SandboxSettings()
    """Where programs run that are not to be trusted."""

    health: HealthSettings = HealthSettings()
    """When it is looked whether servers and tools work."""

    code: CodeSettings = CodeSettings()
    """Programs that call tools."""

    daemon: DaemonSettings = DaemonSettings()
    """The process in the background."""

    cache: CacheSettings = CacheSettings()
    """How much is kept of results of tools with `cache`."""

    store: StoreSettings = StoreSettings()
    """Where it keeps what outlives a call."""

    call_log: CallLogSettings = CallLogSettings()
    """Which calls it writes down."""

    source: str | None = None
    """The path of the file; None when there is none. Set while loading, never by people."""

    @model_validator(mode="after")
    def _profiles_exist(self) -> Self:
        named = [("expose", self.expose.profile)]
        named += [(f"expose.clients.{client}", own.profile) for client, own in self.expose.clients.items()]
        for where, profile in named:
            if profile is not None and profile not in self.profiles:
                known = ", ".join(self.profiles) or "none"
                raise ValueError(f"`{where}.profile` names the profile '{profile}', which is not there; known: {known}")
        return self
