"""Documents about calls that wait for a person: `approvals`, `approve` and `deny`."""

from typing import Annotated, TypedDict


class Approvers(TypedDict):
    """Who may approve a call of somebody else's."""

    roles: list[str]
    """Globs on roles."""
    principals: list[str]
    """Globs on principals."""
    four_eyes: bool
    """Whether whoever makes the call may not approve it."""
    operator: bool
    """Whether the operator of the bridge may, too."""


class Approval(TypedDict):
    """A call that waits for a person."""

    id: str
    """What `approve` and `deny` take."""
    server: str
    """The server."""
    tool: str
    """`server/tool`."""
    arguments: str
    """The arguments as people read them."""
    arguments_line: str
    """Their beginning, on one line."""
    arguments_bytes: int
    """Their size."""
    arguments_sha256: str
    """By which equal ones are recognised."""
    reason: str
    """Why a person has to agree."""
    rule: str
    """Which setting asks for it, in words."""
    asked: int
    """How often the same call was made, this time included."""
    approve_by: Approvers | None
    """Who may approve it; null: whoever is at the client, and the operator."""
    requester: str
    """A name of the user; empty: none is known."""
    principal: str
    """The user; empty: the local one."""
    client: str
    """The client."""
    since: float
    """When it began to wait, in seconds since 1970."""
    until: float
    """Until when an answer counts."""
    waiting: bool
    """Whether the call still waits. If not, it passes when it is made again."""
    here: bool
    """Whether it waits in the bridge that says so."""


class LastApproved(TypedDict):
    """The last approved call of a tool."""

    at: float
    """When somebody agreed to it, in seconds since 1970."""
    by: str
    """Who did."""
    client: str
    """The client that made it."""


class ArgumentChange(TypedDict):
    """An argument, or a part of one, that differs from the last approved call."""

    path: str
    """Where, as a JSON pointer."""
    before: str | None
    """The value then, shortened, as JSON; null: it was not there."""
    after: str | None
    """The value now; null: it is not there."""


class WaitingApproval(Approval):
    """A call that waits for a person, and what is new in it."""

    last_approved: LastApproved | None
    """The last approved call of the same tool; null: none is known."""
    changes: list[ArgumentChange] | None
    """What differs from that call, secrets masked; null: there is nothing to compare with."""


class Approvals(TypedDict):
    """The calls that wait for approval."""

    approvals: list[WaitingApproval]
    """The oldest first."""


_Scope = TypedDict(
    "_Scope",
    {"for": Annotated[str | None, "`once`, or `session`: the same answer to the same call; null: denied once."]},
)


class Decided(Approval, _Scope):
    """A call that was answered."""

    decision: str
    """`approve` or `deny`."""
    by: str
    """Who answered."""
