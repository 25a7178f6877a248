"""The documents about who used what, and what is used of quotas."""

from typing import NotRequired, TypedDict

from mcpbridge.app.cli.json_formats.shared import MissingBridge


class UsageSums(TypedDict):
    """Sums of calls. Tokens are estimates."""

    calls: int
    """Calls."""
    failures: int
    """Those that failed, or whose result is an error."""
    needed_sign_in: int
    """Those for which nobody signed in to the server: nothing was done there."""
    refused: int
    """Those that the bridge refused."""
    cancelled: int
    """Those that were given up."""
    tokens_in: int
    """Tokens of arguments."""
    tokens_out: int
    """Tokens of results, as clients got them."""
    tokens_saved: int
    """Tokens by which results were shortened."""
    seconds: float
    """Seconds that the calls took, together."""
    cost: NotRequired[float]
    """With `--price`: dollars of the tokens of results."""


class UsageRow(UsageSums):
    """Calls of one group; of these it has the fields that `by` names."""

    user: NotRequired[str]
    """The user; empty for the local one."""
    name: NotRequired[str]
    """With `user`: the name of the user, as the identity provider has it."""
    server: NotRequired[str]
    """The server."""
    tool: NotRequired[str]
    """`server/tool`, or the method of what is no call of a tool."""
    client: NotRequired[str]
    """The client, as it names itself."""
    team: NotRequired[str]
    """The role that opened the tool; empty for who is kept to no role."""
    role: NotRequired[str]
    """The same."""
    day: NotRequired[str]
    """The day (UTC)."""


class UsageOfBridge(UsageSums):
    """What one bridge of a fleet has recorded."""

    bridge: str
    """Its name; the names of several if they write one file."""
    recorded_since: NotRequired[str]
    """When the oldest call began that is still in its call log, if that is later than `since`."""
    not_recorded: int
    """Calls of that time that it only counted."""


class Usage(TypedDict):
    """Who used what."""

    by: list[str]
    """What there is a row for: `user`, `server`, `tool`, `client`, `team`, `role`, `day`."""
    since: str
    """When the time of the report begins, as an ISO time."""
    until: NotRequired[str]
    """When it ends, if not now."""
    recorded_since: NotRequired[str]
    """When the oldest call began that is still in the call log, if that is later."""
    not_recorded: int
    """Calls of that time that were only counted."""
    rows: list[UsageRow]
    """Each group, the one with the most calls first."""
    total: UsageSums
    """All of them."""
    bridges: NotRequired[list[UsageOfBridge]]
    """In a fleet: each bridge that answers; the rest of the document is what these have together."""
    missing: NotRequired[list[MissingBridge]]
    """In a fleet: the bridges that do not answer, so that nothing of theirs is in it."""


class UsedQuota(TypedDict):
    """What is used of one quota."""

    role: str
    """The role that has it."""
    user: NotRequired[str]
    """Whose use it is, empty for the local user; missing where the whole team has the quota."""
    quota: str
    """The quota, such as `1000 calls per day`."""
    unit: str
    """`calls` or `tokens`."""
    used: int
    """What is used of it now."""
    limit: int
    """What there is of it."""
    share: float
    """The part that is used; 1 is all."""
    resets: str
    """When there is room again for all of it, as an ISO time."""


class QuotaState(TypedDict):
    """How the quotas of a running bridge are."""

    used_up: int
    """How many are used up, each person's counted by itself."""
    most_used: list[UsedQuota]
    """The ten of which most is used, that first."""


class UsedQuotas(TypedDict):
    """What is used of the quotas of roles."""

    quotas: list[UsedQuota]
    """Each quota, and whoever has used something of it; the one that is used most first."""
