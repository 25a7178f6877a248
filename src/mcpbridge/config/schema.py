"""The whole configuration as one value: its sections, each declared in `settings.py` of the folder that reads it."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny, model_validator

from mcpbridge.base.settings import LogSettings
from mcpbridge.catalog.settings import (
    CodeSettings,
    ExposeSettings,
    NamingSettings,
    ProfileName,
    ProfileSettings,
    RouterSettings,
    SearchSettings,
)
from mcpbridge.config.console_settings import ConsoleSettings
from mcpbridge.config.daemon_settings import DaemonSettings
from mcpbridge.config.health_settings import HealthSettings
from mcpbridge.config.secrets.settings import SecretsSettings
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.result_settings import ResultDefaults
from mcpbridge.downstream.settings import AskingSettings, HttpSettings, PresentationSettings, ResourceServerSettings
from mcpbridge.fleet.settings import FleetSettings
from mcpbridge.pipeline.approvals.settings import ApprovalSettings
from mcpbridge.pipeline.hooks.settings import HookSettings
from mcpbridge.pipeline.observability.settings import ObserveSettings
from mcpbridge.pipeline.permissions.settings import PermissionRule
from mcpbridge.pipeline.roles.settings import RoleSettings
from mcpbridge.pipeline.settings import CacheSettings
from mcpbridge.pipeline.trifecta.settings import TrustSettings
from mcpbridge.protocol.settings import LimitSettings
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.storage.audit.settings import AuditSettings
from mcpbridge.storage.settings import CallLogSettings, StoreSettings
from mcpbridge.tools.builtin.base_settings import BuiltinDefaults
from mcpbridge.tools.factory import read_settings
from mcpbridge.tools.settings import BackendSettings
from mcpbridge.upstream.accounts.settings import AccountsSettings
from mcpbridge.upstream.settings import PinPolicy, ServerSettings


class BridgeSettings(NamingSettings, PresentationSettings):
    """The `bridge` section: how the bridge presents itself."""


def read_builtin(value: object) -> object:
    """The section that a table of the configuration stands for, for pydantic; errors are pydantic's."""
    if not isinstance(value, Mapping) or not value:
        return cast("object", value)
    from mcpbridge.tools.builtin.settings import BuiltinSettings

    return BuiltinSettings.model_validate(dict(cast("Mapping[str, Any]", value)))


_EXCHANGE_NOTHING = {
    "github": "GitHub exchanges no tokens",
    "google": "Google exchanges no tokens of people (RFC 8693)",
}
"""Presets of `auth.sign_in` whose provider gives nothing for the tokens of people, and why."""
_VOUCH_FOR_NOBODY = _EXCHANGE_NOTHING | {
    "entra": "Microsoft Entra gives no identity assertions (ID-JAG); it exchanges tokens on behalf of users: "
    '`as = "exchange"`',
}
"""The same for identity assertions."""


def _no_roles(provider: str) -> str:
    """Why people may not sign in without roles. `provider`: the preset of `auth.sign_in`; empty: there is none."""
    if provider in ("google", "github"):
        why = f'with `auth.sign_in.provider = "{provider}"` anybody in the world can sign in, so say who may use what'
        return f"`[[roles]]` are missing: {why}"
    return (
        "`[[roles]]` are missing: with `[auth]` people can sign in, and nothing says who may use what. For whoever the "
        'provider lets in, and all servers, put this line on top of the file: roles = [{ name = "everybody", '
        'principals = "*", servers = "*" }]'
    )


class Settings(BaseModel):
    """A configuration file, read and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    servers: dict[str, ServerSettings] = {}
    """The MCP servers, by name."""

    pin: PinPolicy | None = None
    """What becomes of changes of what servers show (tools, prompts, resources, templates, instructions). `off`:
    nothing. `warn`: they are listed, and shown in the log, `mcpbridge status`, `mcpbridge doctor` and the console.
    `hold`: what was agreed to stays listed. Default: `hold` where `servers.lock` is beside the file, else `warn`."""

    pin_ignore: list[str] = []
    """Names of tools, prompts, resources and templates of all servers whose wording may change (globs), or
    `instructions`. Parameters, annotations, and new addresses and commands in the texts still count."""

    accounts: AccountsSettings = AccountsSettings.model_construct()
    """How the accounts of single users at servers are kept (`auth.as = "user"`)."""

    calls: CallDefaults = CallDefaults.model_construct()
    """How calls are treated unless their server or tool says otherwise."""

    trust: TrustSettings = TrustSettings.model_construct()
    """Whether a session may read private data, meet untrusted content, and then send freely."""

    permissions: list[PermissionRule] = []
    """Who may call what: the first rule that matches a call decides, and if none does, the `permission` of its tool."""

    roles: list[RoleSettings] = []
    """Who may do what. Where there are roles, whoever is authenticated sees and calls only what a role of theirs opens.
    The local user sees everything, unless a role names the empty principal."""

    bridge: BridgeSettings = BridgeSettings.model_construct()
    """How the bridge presents itself."""

    limits: LimitSettings = LimitSettings.model_construct()
    """The largest messages that the bridge accepts."""

    log: LogSettings = LogSettings.model_construct()
    """Which log lines the bridge writes to standard error."""

    http: HttpSettings = HttpSettings.model_construct()
    """The HTTP server of the bridge."""

    auth: ResourceServerSettings = ResourceServerSettings.model_construct()
    """Whose tokens let people in over HTTP."""

    observe: ObserveSettings = ObserveSettings.model_construct()
    """Which metrics and traces of calls the bridge collects."""

    questions: AskingSettings = AskingSettings.model_construct()
    """What servers may ask clients during a call (sampling, elicitation, roots)."""

    approval: ApprovalSettings = ApprovalSettings.model_construct()
    """Who approves calls that need approval."""

    hooks: list[HookSettings] = []
    """Programs and addresses that see calls, and may change, answer or refuse them. They run in this order."""

    results: ResultDefaults = ResultDefaults.model_construct()
    """How large results are shortened, and how long the originals are kept."""

    expose: ExposeSettings = ExposeSettings.model_construct()
    """Which tools clients see, and how much of each."""

    profiles: dict[ProfileName, ProfileSettings] = {}
    """Parts of the catalog, by name: at `/p/NAME/mcp`, and by `mcpbridge serve --profile NAME`."""

    search: SearchSettings = SearchSettings.model_construct()
    """How tools are found."""

    router: RouterSettings = RouterSettings.model_construct()
    """A model that chooses tools for a request."""

    tools: dict[str, Annotated[SerializeAsAny[BackendSettings], BeforeValidator(read_settings)]] = {}
    """Tools that are not behind an MCP server, by name."""

    spec: list[str] = []
    """JSON or TOML files that describe further tools. Their content counts as if it were in `tools`."""

    packs: list[str] = []
    """Packs of tools: names of installed ones (entry points `mcpbridge.packs`), or `package.module:pack`."""

    builtin: Annotated[SerializeAsAny[BuiltinDefaults], BeforeValidator(read_builtin)] = (
        BuiltinDefaults.model_construct()
    )
    """The bridge's own tools."""

    sandbox: SandboxSettings = SandboxSettings.model_construct()
    """Where untrusted programs run."""

    health: HealthSettings = HealthSettings.model_construct()
    """When servers and tools are checked."""

    code: CodeSettings = CodeSettings.model_construct()
    """Programs that call tools."""

    daemon: DaemonSettings = DaemonSettings.model_construct()
    """The background process."""

    console: ConsoleSettings = ConsoleSettings.model_construct()
    """The pages for a browser that show what the bridge does."""

    cache: CacheSettings = CacheSettings.model_construct()
    """How many results of tools with `cache` are kept."""

    store: StoreSettings = StoreSettings.model_construct()
    """Where the bridge keeps what must survive a call."""

    fleet: FleetSettings = FleetSettings.model_construct()
    """Bridges behind one balancer that act as one."""

    call_log: CallLogSettings = CallLogSettings.model_construct()
    """Which calls the bridge records."""

    secrets: SecretsSettings = SecretsSettings.model_construct()
    """How values of `${cmd:…}`, `${keyring:…}` and `${secret:…}` are fetched."""

    audit: AuditSettings = AuditSettings.model_construct()
    """A record of calls and decisions that nobody can change unseen."""

    source: str | None = None
    """The path of the file; None when there is none. Set while loading, never by people."""

    @model_validator(mode="after")
    def _fleet_shares_a_store(self) -> Self:
        if self.fleet.listen is not None and self.store.kind != "redis":
            raise ValueError('`fleet.listen` needs `store.kind = "redis"`: bridges of a fleet share a store')
        per_user = [name for name, server in self.servers.items() if server.auth.is_per_user and not server.disabled]
        who = "`auth.sign_in`" if self.auth.sign_in is not None else f"`servers.{per_user[0]}`" if per_user else ""
        if self.fleet.listen is not None and self.accounts.key is None and who:
            raise ValueError(
                f"{who} keeps tokens of people, which all bridges of a fleet have to open: set `accounts.key`, "
                "such as `${ACCOUNTS_KEY}` (`openssl rand -base64 32` makes one)"
            )
        if self.fleet.listen is None and (of := [name for name, one in self.servers.items() if one.share == "fleet"]):
            raise ValueError(f'`servers.{of[0]}.share` is "fleet", but there is no `[fleet]` with `listen`')
        return self

    @model_validator(mode="after")
    def _tokens_can_be_exchanged(self) -> Self:
        """A bridge that gets no tokens of a provider has none to exchange; one that only checks has no ID token."""
        sign_in = self.auth.sign_in
        for name, server in self.servers.items():
            account = server.auth.account
            if account not in ("exchange", "id-jag") or server.disabled:
                continue
            if account == "id-jag" and sign_in is None:
                raise ValueError(
                    f'`servers.{name}.auth.as = "id-jag"` needs the ID token of each user, which the bridge holds only '
                    "where people sign in at the bridge itself: `[auth.sign_in]` is missing"
                )
            if not self.auth.is_on:
                raise ValueError(
                    f'`servers.{name}.auth.as = "exchange"` exchanges the tokens of a provider that people come with, '
                    "and neither `[auth.issuers.NAME]` nor `[auth.sign_in]` names one"
                )
            refusals = _VOUCH_FOR_NOBODY if account == "id-jag" else _EXCHANGE_NOTHING
            if (
                sign_in is not None
                and (why := refusals.get(sign_in.provider))
                and (account == "id-jag" or not self.auth.issuers)
            ):
                raise ValueError(f'`servers.{name}.auth.as = "{account}"` cannot work: {why}')
        return self

    @model_validator(mode="after")
    def _roles_are_for_somebody(self) -> Self:
        """Where people sign in, roles say who may use what, and are not for whoever likes to have them."""
        sign_in = self.auth.sign_in
        if self.auth.is_on and not self.roles:
            raise ValueError(_no_roles(sign_in.provider if sign_in is not None else ""))
        if sign_in is None:
            return self
        for number, role in enumerate(self.roles):
            is_chosen = (role.scopes or role.clients) and not (
                role.groups or role.emails or role.principals or role.when is not None
            )
            if is_chosen:
                raise ValueError(
                    f"`roles.{number}` ({role.name}) is for whoever asks for it: clients choose their scopes and "
                    "register themselves where people sign in at the bridge; add groups, emails, principals or `when`"
                )
            organizations = [group.partition("/")[0] for group in role.groups]
            if sign_in.provider == "github" and any(set(one) & set("*?[") for one in organizations):
                raise ValueError(
                    f"`roles.{number}` ({role.name}) is for organizations that anybody may found: write the names of "
                    "organizations in full"
                )
        return self

    @model_validator(mode="after")
    def _profiles_exist(self) -> Self:
        named = [("expose", self.expose.profile)]
        named += [(f"expose.clients.{client}", own.profile) for client, own in self.expose.clients.items()]
        named += [(f"expose.roles.{role}", own.profile) for role, own in self.expose.roles.items()]
        named += [(f"roles.{number}", role.profile) for number, role in enumerate(self.roles)]
        for where, profile in named:
            if profile is not None and profile not in self.profiles:
                known = ", ".join(self.profiles) or "none"
                raise ValueError(
                    f"`{where}.profile` names the profile '{profile}', which does not exist; known: {known}"
                )
        return self

    @model_validator(mode="after")
    def _approvers_exist(self) -> Self:
        """A rule that names approvers whom nobody can be, or whom nobody asks, would refuse every call."""
        named = [(f"permissions.{number}", rule.approve_by) for number, rule in enumerate(self.permissions)]
        asks = {f"permissions.{number}": rule.ask for number, rule in enumerate(self.permissions)}
        for where, approve_by in named:
            ask, others = asks[where] or [], approve_by or self.approval.approve_by
            if others is None and not {"page", "webhook"}.isdisjoint(ask):
                raise ValueError(f"`{where}.ask`: `page` and `webhook` are for other people, so it needs `approve_by`")
            if others is not None and ask == ["client"]:
                raise ValueError(
                    f"`{where}.ask`: other people approve (`approve_by`), and the client is not asked then"
                )
        names = [role.name for role in self.roles]
        for where, approve_by in [("approval", self.approval.approve_by), *named]:
            if approve_by is None:
                continue
            for glob in approve_by.roles:
                if not any(fnmatchcase(name, glob) for name in names):
                    raise ValueError(
                        f"`{where}.approve_by.roles` names the role '{glob}', which does not exist; known: "
                        f"{', '.join(names) or 'none'}"
                    )
            if "pending" not in self.approval.ask and (where == "approval" or asks[where] is None):
                raise ValueError(
                    f'`{where}.approve_by` needs "pending" in `approval.ask`: a call waits there for other people'
                )
        return self

    @model_validator(mode="after")
    def _roles_exist(self) -> Self:
        names = [role.name for role in self.roles]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two roles of `roles` have the name '{name}'")
        for role in self.expose.roles:
            if role not in names:
                raise ValueError(
                    f"`expose.roles.{role}` is about the role '{role}', which does not exist; known: "
                    f"{', '.join(names) or 'none'}"
                )
        return self
