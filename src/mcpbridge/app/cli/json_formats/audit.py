"""Documents about the audit log: its lines, what was done to them, and the key."""

from typing import Any, Literal, NotRequired, TypedDict


class AuditArguments(TypedDict):
    """The arguments of a call."""

    bytes: int
    """Their size."""
    sha256: str
    """SHA-256 of their canonical form."""
    value: NotRequired[str]
    """Themselves, with secrets masked, if `arguments = "masked"`; the beginning of large ones."""


class AuditResult(TypedDict):
    """The result of a call."""

    bytes: int
    """Its size."""
    tokens: int
    """Its tokens, estimated."""


class AuditLine(TypedDict):
    """A line of the audit log. What has no value is left out."""

    seq: int
    """Its number."""
    prev: str
    """The hash of the line before it."""
    hash: str
    """Its own hash."""
    at: str
    """When it happened."""
    kind: str
    """What happened: `call`, or the name of an event."""
    principal: NotRequired[str]
    """Whose call it was; empty for the local user."""
    user: NotRequired[str]
    """The name of the user, as the identity provider has it."""
    role: NotRequired[str]
    """The first role of the user that opens the tool."""
    client: NotRequired[str]
    """The client's name, as it declared it."""
    client_version: NotRequired[str]
    """Its version, as it declared it."""
    oauth_client: NotRequired[str]
    """The OAuth client that the user's token was issued to."""
    address: NotRequired[str]
    """The IP address of the client, if it came over a network."""
    session: NotRequired[str]
    """The client's session."""
    run: NotRequired[str]
    """The run that the call belongs to."""
    server: NotRequired[str]
    """The server."""
    tool: NotRequired[str]
    """`server/tool`, the prompt's name or the resource's URI."""
    method: NotRequired[str]
    """The method of MCP."""
    outcome: NotRequired[str]
    """How a call went."""
    error: NotRequired[str]
    """Why it failed."""
    rule: NotRequired[str]
    """Which setting decided about it."""
    permission: NotRequired[str]
    """What that said, if not `allow`."""
    approval: NotRequired[str]
    """Who agreed to the call; of lines about approvals, the id of the request."""
    who: NotRequired[str]
    """Who decided."""
    detail: NotRequired[str]
    """More about an event."""
    arguments: NotRequired[AuditArguments]
    """The arguments of the call."""
    result: NotRequired[AuditResult]
    """Its result."""
    seconds: NotRequired[float]
    """How long it took."""
    call: NotRequired[str]
    """The id of the call in the call log."""
    parent: NotRequired[str]
    """The id of the call that made it."""
    facts: NotRequired[dict[str, Any]]
    """What else is known."""
    chain: NotRequired[str]
    """Of the first line of a file: the id of the chain."""
    version: NotRequired[int]
    """Of the first line of a file: the version of the form of lines."""
    missing: NotRequired[dict[str, int]]
    """Of `audit.recovered`: the lines that are gone, `from` and `through`."""
    replaced: NotRequired[dict[str, int]]
    """Of `audit.recovered`: the line that is another than the one that was signed."""
    torn: NotRequired[dict[str, Any]]
    """Of `audit.recovered`: the `bytes` and `sha256` of the half line before it."""
    removed: NotRequired[dict[str, int]]
    """Of `audit.retention`: the lines that were deleted, `from` and `through`."""
    count: NotRequired[int]
    """Of `audit.lost`: how many entries could not be written."""


class AuditFinding(TypedDict):
    """One thing that is not as it was written."""

    what: Literal["changed", "missing", "added", "cut_off", "rewritten", "checkpoint", "unproven"]
    """What was done."""
    detail: str
    """The same in words."""
    first: int
    """The first line that it is about; 0: it is about none."""
    last: int
    """The last one."""
    file: str
    """The file."""
    line: int
    """The line of the file."""


class AuditVerified(TypedDict):
    """What was found out about an audit log."""

    folder: str
    """The folder of the log."""
    intact: bool
    """Nothing was found."""
    files: int
    """Files that were read."""
    lines: int
    """Lines that were read."""
    first: int
    """The number of the first one."""
    last: int
    """The number of the last one."""
    checkpoints: int
    """Checkpoints whose signature is right."""
    signed_through: int
    """The last line that a checkpoint speaks for."""
    signed_at: str
    """When that was signed."""
    findings: list[AuditFinding]
    """What was found."""
    more_findings: int
    """Findings that are left out."""
    notes: list[str]
    """What is no tampering, such as a bridge that was killed."""


class AuditKey(TypedDict):
    """The key that verifies checkpoints."""

    id: str
    """By what checkpoints name it."""
    public_key: str
    """The key, as PEM."""
    file: str
    """Where it is."""


class AuditExport(TypedDict):
    """Where the audit log is sent."""

    to: str
    """The address, or the program."""
    sent: int
    """Lines and checkpoints that were sent."""
    waiting: int
    """Those that wait."""
    lost: int
    """Those that were given up."""
    problem: str
    """Why the last attempt failed; empty if it did not."""


class AuditState(TypedDict):
    """The audit log of a bridge."""

    folder: str
    """The folder of the log."""
    lines: int
    """Lines that this bridge has written."""
    last: int
    """The number of the last one."""
    waiting: int
    """Entries that are not written yet."""
    lost: int
    """Entries that could not be written."""
    exports: list[AuditExport]
    """Where it is sent."""
