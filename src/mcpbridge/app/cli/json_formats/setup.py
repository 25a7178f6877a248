"""Documents about setting up: servers that are taken over, clients' files, trust, secrets, and tokens."""

from typing import Annotated, NotRequired, TypedDict


class ImportedServer(TypedDict):
    """A server that a client has, and what became of it."""

    client: str
    """The client; empty: the file is of no client."""
    scope: str
    """`user`, `local` or `project`."""
    file: str
    """The file that has it."""
    line: int | None
    """Its line; null if that is not known."""
    server: str
    """Its name there."""
    became: str
    """`new`, `replaced`, `there`, `kept`, `same`, `bridge` or `left-out`."""
    name: str | None
    """Its name in servers.toml; null if it is not taken over."""
    why: str
    """More about it."""
    left_out: list[str]
    """Keys that are not taken over."""
    notes: list[str]
    """What was assumed."""


_Place = TypedDict(
    "_Place",
    {"in": Annotated[str, "Where it is now: `env` (set the variable), `file` (a private one) or `keep` (as it was)."]},
)


class ImportedSecret(_Place):
    """A secret that was found."""

    name: str
    """The variable in its place."""
    servers: list[str]
    """Servers that need it."""
    set: bool
    """Whether the variable is set."""


class ImportProblem(TypedDict):
    """What is wrong with a file."""

    file: str
    """The file."""
    client: str
    """The client; empty: the file is of no client."""
    message: str
    """What is wrong."""
    error: bool
    """Whether the file cannot be read."""


class TakenOver(TypedDict):
    """Servers that are taken over."""

    config: str
    """The file that gets them."""
    written: bool
    """Whether it was written."""
    backup: str | None
    """Where the file before is kept; null if there was none."""
    servers: list[ImportedServer]
    """Each server that was found."""
    secrets: list[ImportedSecret]
    """Each secret that was moved."""
    unset: dict[str, list[str]]
    """Variables to set, with the servers that need them."""


class Import(TakenOver):
    """What an import came to."""

    problems: list[ImportProblem]
    """Files that cannot be read, or have something odd in them."""


class ClientChange(TypedDict):
    """A change of a client's file."""

    client: str
    """The client, as `install` takes it."""
    title: str
    """The client's name."""
    scope: str
    """`user`, `local` or `project`."""
    file: str
    """The file."""
    outcome: str
    """`installed`, `updated`, `unchanged`, `removed`, `restored` or `absent`."""
    changed: bool
    """Whether its text changes."""
    backup: str | None
    """Where the file before is kept."""
    notes: list[str]
    """What to know about it."""
    diff: str
    """The lines that change."""


class ClientChanges(TypedDict):
    """Changes of clients' files."""

    dry_run: bool
    """Whether nothing was done."""
    changes: list[ClientChange]
    """Each file."""
    next: list[str]
    """What to do next."""


class Init(TakenOver):
    """What the set-up came to."""

    changes: list[ClientChange]
    """Each client's file."""
    next: list[str]
    """What to do next."""


class Trusted(TypedDict):
    """A configuration that is trusted now."""

    path: str
    """The file."""
    trusted: bool
    """Always true."""
    files: list[str]
    """All files that the decision is about."""


class Untrusted(TypedDict):
    """A configuration that is not trusted any more."""

    path: str
    """The file."""
    trusted: bool
    """Always false."""
    was_trusted: bool
    """Whether it was trusted before."""


class TrustedFile(TypedDict):
    """A configuration that was trusted."""

    path: str
    """The file."""
    state: str
    """`trusted`, `changed` or `gone`."""
    at: str
    """When it was trusted, as an ISO time."""


class TrustList(TypedDict):
    """What `trust --list` prints: the configurations that were trusted."""

    trusted: list[TrustedFile]
    """Each of them."""


class StoredSecret(TypedDict):
    """A secret that was stored. Its value is not in any document."""

    name: str
    """What it is called: `${secret:NAME}`."""
    replaced: bool
    """Whether there was one of this name."""


class UserAccount(TypedDict):
    """An account of a user at a server, without its tokens or values."""

    server: str
    """The server, by its name in the configuration."""
    kind: str
    """`account`: the user signed in; `variables`: the user set values for a program."""
    issuer: str
    """The authorization server that gave the tokens; empty: values, or the server itself."""
    since: str
    """When it was connected, as an ISO time."""


class UserAccounts(TypedDict):
    """A user, and what the user holds."""

    user: str
    """The name of the token, or ISSUER#SUBJECT; empty: the local user."""
    name: str
    """The e-mail address or user name, as the provider last said; empty: not known."""
    origin: str
    """What lets the user in: `http.tokens`, `auth.sign_in`, `auth.issuers.NAME`, or `local`; empty: nothing does any
    more."""
    last_seen: str | None
    """When the last call that is recorded began, as an ISO time; null: none is."""
    calls: int
    """Calls that are recorded."""
    accounts: list[UserAccount]
    """Each of them, by server."""
    sign_ins: int
    """Programs that the user is signed in with at a running bridge (`[auth.sign_in]`)."""


class UserList(TypedDict):
    """What `users list` prints."""

    users: list[UserAccounts]
    """Everybody who called, has used a quota, has an account at a server, or is signed in, by name."""


class RevokedUser(TypedDict):
    """What `users revoke` did."""

    user: str
    """Who it was."""
    servers: list[str]
    """The servers where there was an account, by name."""
    calls: int
    """Calls that waited for the user, and do so no more."""
    sign_ins: int
    """Programs that the user was signed in with (`[auth.sign_in]`), and is no more."""
    tokens: bool
    """Tokens that an issuer of `[auth]` issued to the user until then are refused."""


class ConnectionsLink(TypedDict):
    """What `connections link` prints."""

    url: str
    """The page, which the link opens once and within a minute, signed in as the user."""


class SetVariable(TypedDict):
    """A value that was kept for a user. It is not in any document."""

    server: str
    """The server that gets it."""
    user: str
    """Whose it is; empty: the local user's."""
    name: str
    """The variable."""


class RotatedKey(TypedDict):
    """What `connections rotate` did."""

    encrypted: int
    """Accounts that are encrypted with the new key."""
    lost: int
    """Files that no key opens. They are left alone."""


class SecretName(TypedDict):
    """A secret, without its value."""

    name: str
    """What it is called."""
    set_at: str
    """When it was set, as an ISO time."""


class SecretList(TypedDict):
    """What `secret list` prints."""

    secrets: list[SecretName]
    """Each of them, by name."""


class DeletedSecret(TypedDict):
    """A secret that was deleted."""

    name: str
    """What it was called."""
    removed: bool
    """Always true."""


class AccessExplained(TypedDict):
    """Whether somebody may call a tool, and what decides."""

    tool: str
    """The tool's id."""
    user: str
    """The principal; empty: the local user."""
    decision: str
    """`allow`, `require_approval`, `deny` (by a rule), `unknown` (roles forbid it), or `insufficient_scope`."""
    rule: str
    """Which role, rule or setting decided."""
    reason: str
    """What the rule gives as its reason; may be empty."""
    roles: list[str]
    """The roles of this user."""
    opened_by: list[str]
    """Those of them that open the tool."""
    denied_by: list[str]
    """Those that deny it."""
    scopes: list[str]
    """The scopes that calls need."""
    missing_scopes: list[str]
    """Those of them that the token lacks."""
    would_open: list[str]
    """Roles that would open the tool, where none of the user's does."""


class RoleTaken(TypedDict):
    """A role that somebody has for a time."""

    user: str
    """The principal."""
    role: str
    """The name of the role."""
    reason: str
    """The reason, which is in the audit log."""
    until: float
    """When it ends; seconds since 1970."""


class Token(TypedDict):
    """A new bearer token."""

    name: str
    """Whose it is."""
    token: str
    """The token. It is shown this once."""
    sha256: str
    """What belongs into the configuration."""
    admin: NotRequired[bool]
    """True if its holder may administer the bridge."""
