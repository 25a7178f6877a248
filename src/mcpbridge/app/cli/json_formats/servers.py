"""Documents about servers and bridges: how they are, whether they work, and who is signed in."""

from typing import Any, Literal, NotRequired, TypedDict

from mcpbridge.app.cli.json_formats.audit import AuditState
from mcpbridge.app.cli.json_formats.daemon import Daemon
from mcpbridge.app.cli.json_formats.fleet import FleetPlace
from mcpbridge.app.cli.json_formats.shared import BridgeAnswer, ConfigProblem
from mcpbridge.app.cli.json_formats.usage import QuotaState


class DefinitionChange(TypedDict):
    """One difference between what was agreed to and what a server shows."""

    change: str
    """Its class, as in `mcpbridge lock diff`: `text`, `parameter-added`, `annotation-weakened` and so on."""
    where: str
    """The member, as a path with dots; empty for the whole definition."""
    detail: str
    """What is new, shortened; may be empty."""


class Unapproved(TypedDict):
    """Something that a server shows and nobody agreed to, or does not show any more."""

    text: str
    """All of it in a sentence, for people."""
    kind: str
    """`tools`, `prompts`, `resources`, `templates`, or `server` for what it says of itself."""
    name: str
    """The server's own name for it; empty: nothing of the server was agreed to."""
    effect: str
    """`warned`: clients get it. `held`: they get the old one, and calls pass. `checked`: the same, and calls pass whose
    arguments are right by both definitions. `refused`: the same, and calls are refused. `unlisted`: they do not get
    it."""
    changes: list[DefinitionChange]
    """What is different."""
    approve: str
    """The command that agrees to it."""


class LockState(TypedDict):
    """The file `servers.lock`."""

    file: str
    """Where it is, or would be; empty: there is no configuration file."""
    exists: bool
    """Whether it is there."""
    fault: str
    """Why it is not understood; empty if it is."""


class Egress(TypedDict):
    """What a server with a list of hosts in `sandbox.network` reached, and was refused."""

    connections: int
    """Connections that were made."""
    refused: dict[str, int]
    """Refused attempts by `HOST:PORT`, or by the name alone where only that was asked for."""


class Server(TypedDict):
    """How a server is. One that is switched off has `name`, `state` and `reason` alone."""

    name: str
    """Its name in the configuration."""
    state: str
    """`ready`, `idle` (the next call starts it), `starting`, `retrying`, `failed`, `disabled` and so on."""
    reason: str
    """Why it is not ready, and what the bridge does about it; empty if it is ready."""
    cause: NotRequired[str]
    """What is wrong with it, without what the bridge does about it."""
    transport: NotRequired[str]
    """`stdio`, `streamable-http`, `sse` or `websocket`."""
    era: NotRequired[str]
    """`modern` or `legacy`: the kind of MCP that it speaks; empty if that is not known."""
    protocol: NotRequired[str]
    """The revision of MCP; empty if that is not known."""
    tools: NotRequired[int]
    """Tools that it offers."""
    resources: NotRequired[int]
    """Resources that it offers."""
    templates: NotRequired[int]
    """Resource templates that it offers."""
    prompts: NotRequired[int]
    """Prompts that it offers."""
    running: NotRequired[int]
    """Calls that are under way."""
    calls: NotRequired[int]
    """Calls since the bridge started, if calls are counted (`observe.metrics`)."""
    errors: NotRequired[int]
    """How many of them failed."""
    latency: NotRequired[dict[str, float]]
    """Seconds at the percentiles `p50`, `p95` and `p99`, estimated; empty before the first call."""
    restarts: NotRequired[int]
    """How often it was started again."""
    uptime_s: NotRequired[float]
    """Seconds since it became ready, if it is."""
    breaker: NotRequired[str]
    """The circuit breaker: `closed` (calls pass), `open` (they are refused) or `half-open`."""
    braked: NotRequired[str]
    """What it sends so much of that the bridge reads it with pauses; empty: nothing."""
    questions_refused: NotRequired[int]
    """Questions of it that were put to nobody, since `may_ask` or `question_rate` does not allow them."""
    sandbox: NotRequired[str]
    """The sandbox that its program runs in."""
    egress: NotRequired[Egress]
    """What it reached and was refused, if it has a list of hosts and was started."""
    pid: NotRequired[int | None]
    """The process of its program; null if none runs."""
    stderr: NotRequired[list[str]]
    """The last lines that its program wrote to standard error."""
    instances: NotRequired[int]
    """Sessions with it, for kinds of clients."""
    pin: NotRequired[str]
    """What becomes of changes of what it shows: `off`, `warn` or `hold`."""
    unapproved: NotRequired[list[Unapproved]]
    """What it shows and nobody agreed to."""


class Backend(TypedDict):
    """A table of `[tools]`, or a pack."""

    name: str
    """Its name."""
    kind: str
    """`function`, `http`, `openapi`, `grpc`, `command`, `agent`, `pack` and so on."""
    state: str
    """`ready`, `starting` or `failed`."""
    reason: str
    """Why it failed; else empty."""
    tools: int
    """Tools that it has."""
    pin: NotRequired[str]
    """What becomes of changes of its definitions, where these come from another machine: `off`, `warn` or `hold`."""
    unapproved: NotRequired[list[Unapproved]]
    """What it shows and nobody agreed to."""


class Inactive(TypedDict):
    """A built-in tool that is enabled and cannot work."""

    name: str
    """Its name."""
    reason: str
    """What it lacks."""


class Checkup(TypedDict):
    """What a check found."""

    name: str
    """The server, table or tool."""
    kind: str
    """`server`, `backend`, `builtin`, `tool`; `switched off`; `unknown` if nothing has that name."""
    ok: bool
    """Whether it works."""
    detail: str
    """What was found."""
    seconds: NotRequired[float]
    """How long the check took."""
    at: NotRequired[str]
    """When, as an ISO time."""


class Added(TypedDict):
    """A server or tool that was added or switched while the bridge runs."""

    section: str
    """`servers` or `tools`."""
    name: str
    """Its name."""
    said: str
    """`added`, `replaced`, `removed` or `switched`."""
    disabled: NotRequired[bool]
    """Whether it was switched off."""
    tools: NotRequired[dict[str, bool]]
    """Its tools that were switched, and whether off."""
    by: str
    """Who did it."""
    at: str
    """When, as an ISO time."""
    kept: bool
    """Whether it outlives the bridge."""
    hidden: NotRequired[bool]
    """It has no effect, since the configuration file has this name."""


class Dropped(TypedDict):
    """What a server offers and clients do not see, or not in full."""

    server: str
    """The server."""
    kind: str
    """`tools`, `resources`, `templates` or `prompts`."""
    name: str
    """Its name."""
    reason: str
    """Why."""


class CallLogState(TypedDict):
    """What the call log keeps."""

    calls: str
    """Which calls are recorded: `all`, as many as cost little (`history`), or none (`off`)."""
    content: bool
    """With arguments and results, where no `log_content` says otherwise."""
    file: str
    """The file; empty if nothing is recorded."""


class TakenRole(TypedDict):
    """A role that somebody has taken for a time (`auth break-glass`)."""

    user: str
    """Who has it; empty: the local user. It counts only if the role is for them."""
    role: str
    """The role."""
    reason: str
    """Why, as it was given."""
    by: str
    """Who entered it."""
    since: str
    """When, as an ISO time."""
    until: str
    """When it ends, as an ISO time."""


class Bridge(BridgeAnswer):
    """A running bridge. One that does not answer has `pid`, `error` and `code` alone."""

    name: NotRequired[str]
    """`bridge.name` of the configuration."""
    version: NotRequired[str]
    """Its release."""
    uptime_s: NotRequired[float]
    """Seconds since it started."""
    config: NotRequired[str | None]
    """The configuration file; null if it has none."""
    clients: NotRequired[int]
    """Clients that are connected."""
    servers: NotRequired[list[Server]]
    """Its servers, by name."""
    backends: NotRequired[list[Backend]]
    """Tables of `[tools]`, and packs."""
    builtin: NotRequired[list[str]]
    """Built-in tools that are enabled."""
    inactive: NotRequired[list[Inactive]]
    """Those of them that cannot work."""
    sandbox: NotRequired[dict[str, Any]]
    """`mode`, what runs outside of any sandbox (`off`), and what was tried (`tiers`)."""
    health: NotRequired[list[Checkup]]
    """What the last checks found."""
    added: NotRequired[list[Added]]
    """What was added or switched while it runs."""
    dropped: NotRequired[list[Dropped]]
    """Definitions that were left out."""
    warnings: NotRequired[list[str]]
    """Settings that match no tool."""
    needs_restart: NotRequired[list[str]]
    """Keys of the configuration that take effect after a restart."""
    call_log: NotRequired[CallLogState]
    """What is recorded of calls, and where."""
    lock: NotRequired[LockState]
    """The `servers.lock` that is in effect."""
    audit: NotRequired[AuditState | None]
    """Its audit log; null if it has none."""
    quotas: NotRequired[QuotaState | None]
    """How the quotas of roles are; null if no role has one."""
    break_glass: NotRequired[list[TakenRole]]
    """Roles that people have taken for a time and have still, the oldest first."""
    storage_problems: NotRequired[list[str]]
    """Why something that should be kept may be lost."""
    config_error: NotRequired[ConfigProblem | None]
    """Why the configuration file is not in effect as it is now; null if it is."""
    front: NotRequired[str]
    """How clients connect: `stdio`, `daemon`, or the URL."""
    token_file: NotRequired[str]
    """The file with the token that HTTP clients send."""
    daemon: NotRequired[Daemon]
    """What a daemon says besides."""
    fleet: NotRequired[FleetPlace]
    """Its place in its fleet; not there if it belongs to none."""


class Status(TypedDict):
    """The bridges of this user that run."""

    bridges: list[Bridge]
    """Each of them; empty if none runs (exit code 4)."""


class Check(TypedDict):
    """Whether the configuration, its servers and its tools work."""

    config: str
    """The configuration file."""
    ok: bool
    """Whether everything works."""
    servers: list[Server]
    """Each server that is not switched off."""
    tools: list[Checkup]
    """Each table of `[tools]` and each pack."""
    inactive: list[Inactive]
    """Built-in tools that cannot work."""
    warnings: list[str]
    """Settings that match nothing."""


class CheckNames(TypedDict):
    """What `check NAME…` prints: whether what was named works."""

    config: str
    """The configuration file."""
    ok: bool
    """Whether all of it works."""
    checks: list[Checkup]
    """Each name that was given."""


class Login(TypedDict):
    """A sign-in."""

    server: str
    """The server."""
    issuer: str
    """The authorization server; empty: the server itself."""
    scope: str
    """The rights that were granted."""
    expires_at: float | None
    """When the token expires, in seconds since 1970; null if that is not known."""


class Logout(TypedDict):
    """The end of a sign-in."""

    server: str
    """The server."""
    was_signed_in: bool
    """Whether anybody was signed in."""
    revoked: bool
    """Whether the authorization server has revoked the token."""


class Finding(TypedDict):
    """Something to know."""

    code: str
    """Which finding; it stays the same from release to release."""
    level: Literal["ok", "note", "warn", "fail"]
    """How bad it is."""
    what: str
    """What was found, on one line."""
    server: NotRequired[str]
    """The server, or the tool (`tools/weather`), that it is about."""
    where: NotRequired[str]
    """File and line, or another place."""
    why: NotRequired[str]
    """Why it matters."""
    fix: NotRequired[str]
    """What to do about it."""
    about: NotRequired[str]
    """If it is about no server: `configuration`, `clients`, `daemon`, `machine`."""
    edit: NotRequired[str]
    """What `doctor --fix` would change."""


class DoctorServer(TypedDict):
    """How a server is."""

    name: str
    """Its name."""
    ok: bool
    """Whether it works."""
    state: NotRequired[str]
    """What is wrong with it."""
    transport: str
    """`stdio`, `streamable-http`, `sse` or `websocket`."""
    era: str
    """`modern` or `legacy`; empty if that is not known."""
    protocol: str
    """The revision of MCP; empty if that is not known."""
    answered_ms: int | None
    """Milliseconds until it answered; null if that is not known."""
    listed_ms: int | None
    """Milliseconds until it had listed what it offers."""
    tokens: int | None
    """What its tools cost a model's context."""
    memory: int | None
    """Bytes of memory of its processes."""
    tools: int
    """Tools that it offers."""
    prompts: int
    """Prompts that it offers."""
    resources: int
    """Resources that it offers."""
    templates: int
    """Resource templates that it offers."""
    stderr: NotRequired[list[str]]
    """If it failed: the last lines that it wrote to standard error."""
    findings: list[Finding]
    """What was found about it."""


class DoctorTool(TypedDict):
    """How a tool is that is behind no server."""

    name: str
    """Its name."""
    kind: str
    """The kind of `[tools]` table; `builtin` for one of the bridge's own."""
    ok: bool
    """Whether it works."""
    detail: str
    """What was found."""
    findings: list[Finding]
    """What was found about it."""


class Machine(TypedDict):
    """The machine, and what is installed on it."""

    mcpbridge: str
    """The release of mcpbridge."""
    python: str
    """The version of Python, and its program."""
    system: str
    """The operating system."""
    extras: dict[str, bool]
    """Extras of the package, and whether each is installed."""
    launchers: dict[str, str]
    """Programs that start servers, with their versions; empty: not on the PATH."""
    sandbox: dict[str, str]
    """What the system offers to confine programs."""
    confined: dict[str, str]
    """What code of others runs in."""
    directories: dict[str, str]
    """Where files are kept."""


class Fix(TypedDict):
    """What became of a change that `--fix` made."""

    server: str
    """The server."""
    code: str
    """The finding."""
    edits: list[str]
    """What was changed."""
    kept: bool
    """Whether the change stays."""
    ok: bool
    """Whether the server works now."""
    why: str
    """Why the change does not stay."""


class Doctor(TypedDict):
    """What the doctor found."""

    config: str
    """The configuration file."""
    ok: bool
    """Whether every server and every tool works."""
    level: Literal["ok", "note", "warn", "fail"]
    """The worst finding."""
    started: bool
    """Whether servers were started; false with `--no-start`."""
    servers: list[DoctorServer]
    """Each server."""
    tools: list[DoctorTool]
    """Each tool that is behind no server."""
    findings: list[Finding]
    """What is about no server in particular."""
    machine: Machine
    """The machine."""
    daemon: dict[str, Any] | None
    """What the daemon of this configuration says of itself, as in [status/1](#status1); null if none runs."""
    fixes: NotRequired[list[Fix]]
    """With `--fix`: what was changed."""
