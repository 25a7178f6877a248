"""Documents about a fleet: its bridges, how they are, and what a command changed of one."""

from typing import NotRequired, TypedDict


class FleetMember(TypedDict):
    """A bridge of the fleet."""

    name: str
    """`fleet.name`, or the name of its machine."""
    id: str
    """Another one after each start."""
    address: str
    """Where the others reach it."""
    version: str
    """Its release."""
    since: str
    """When it started, as an ISO time."""
    draining: bool
    """Whether it takes nothing new."""
    same_settings: bool
    """Whether its configuration is that of the bridge that answers."""
    is_this: bool
    """Whether it is the bridge that answers."""


class IncompatibleMember(TypedDict):
    """A bridge with the same store and prefix that is no member, since its version keeps records in another form."""

    name: str
    """`fleet.name`, or the name of its machine; empty: it cannot be read."""
    id: str
    """Another one after each start; empty: it cannot be read."""
    version: str
    """Its release; empty: it cannot be read."""
    format: int
    """The number of that form; 0: it cannot be read."""


class FleetMembers(TypedDict):
    """The bridges of the fleet."""

    members: list[FleetMember]
    """Each of them, the oldest first."""
    incompatible: list[IncompatibleMember]
    """Bridges that are none, since they are of a version that shares nothing with this one."""
    problem: str
    """Why the shared records cannot be reached, so that this is who was there last; empty: they can."""


class FleetReport(FleetMember):
    """How a bridge of the fleet is. One that does not answer has `error` instead of what follows."""

    error: NotRequired[str]
    """Why it does not answer."""
    sessions: NotRequired[int]
    """Sessions of the eras before 2026-07-28 that it has."""
    busy_sessions: NotRequired[int]
    """Those of them that have a request or a stream."""
    calls: NotRequired[int]
    """Calls under way that it answers itself."""
    passing_on: NotRequired[int]
    """Requests that it has passed on to other bridges, which answer them now."""
    is_draining: NotRequired[bool]
    """As `draining`, by its own words."""
    has_lease: NotRequired[bool]
    """Whether it surely is a member."""
    lease_age: NotRequired[float]
    """Seconds since its lease was renewed."""
    is_settling: NotRequired[bool]
    """The records were away for all a moment ago: for some seconds no bridge takes a session of another."""
    store: NotRequired[str]
    """Why it cannot reach the shared records; empty: it can."""
    store_failures: NotRequired[int]
    """Times that its lease could not be renewed."""
    storage_problems: NotRequired[list[str]]
    """Why something that it should keep may be lost."""
    links: NotRequired[list[str]]
    """Ids of the bridges that it has a connection to."""
    unreachable: NotRequired[dict[str, str]]
    """Why it could not reach others the last time, by their ids."""
    forwarded: NotRequired[dict[str, int]]
    """Requests that it passed to others, by outcome: `answered`, `moved`, `left`, `not_sent`, `unknown`."""
    taken_over: NotRequired[int]
    """Sessions of others that it took over."""
    handed_on: NotRequired[int]
    """Sessions that it left to others."""


class FleetTogether(TypedDict):
    """What the bridges that answer have together."""

    members: int
    """Bridges of the fleet."""
    silent: int
    """Those that do not answer (exit code 4)."""
    draining: int
    """Those that take nothing new."""
    same_settings: bool
    """Whether all have one configuration."""
    sessions: int
    """Sessions."""
    busy_sessions: int
    """Those of them that have a request or a stream."""
    calls: int
    """Calls under way, each at the bridge that answers it."""
    passing_on: int
    """Requests under way that came to another bridge than the one that answers them."""
    forwarded: dict[str, int]
    """Requests that were passed to another bridge, by outcome."""
    taken_over: int
    """Sessions that were taken over."""
    handed_on: int
    """Sessions that were left to others."""
    store_failures: int
    """Times that a lease could not be renewed."""


class FleetStatus(TypedDict):
    """How the fleet is."""

    members: list[FleetReport]
    """Each bridge, the oldest first."""
    together: FleetTogether
    """All of them."""
    incompatible: list[IncompatibleMember]
    """Bridges that are none, since they are of a version that shares nothing with this one."""
    problem: str
    """Why the shared records cannot be reached; empty: they can."""


class FleetDrained(TypedDict):
    """A bridge that takes nothing new, or does so again."""

    name: str
    """Its name."""
    id: str
    """Its id."""
    draining: bool
    """Whether it takes nothing new."""
    is_empty: bool
    """Whether it has handed on all sessions, and has no call under way. If not within `--wait`, the exit code is 7."""


class FleetPlace(TypedDict):
    """A bridge's place in its fleet."""

    name: str
    """What it is called there."""
    id: str
    """Its id."""
    members: int
    """Bridges of the fleet."""
    draining: bool
    """Whether it takes nothing new."""
    problem: str
    """Why it cannot reach the shared records; empty: it can."""
    bridges: list[FleetMember]
    """All bridges of the fleet, the oldest first."""
