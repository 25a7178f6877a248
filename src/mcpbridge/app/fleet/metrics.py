"""What `/metrics` has of a fleet, as this bridge sees it. Each serves its own; sums are for who collects them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpbridge.app.admin.prometheus import Page, labels

if TYPE_CHECKING:  # loaded where there is a fleet
    from mcpbridge.fleet.fleet import Fleet


class FleetNumbers(Struct, frozen=True):
    """The numbers at one moment."""

    name: str
    id: str
    members: int
    draining: int
    """Members that take nothing new, this one perhaps among them."""
    other_settings: int
    """Members with another configuration than this one."""
    is_draining: bool
    has_lease: bool
    lease_age: float
    sessions: int
    links: int
    unreachable: int
    """Members that could not be reached the last time."""
    forwarded: Mapping[str, int]
    taken_over: int
    handed_on: int
    store_failures: int
    bounds: tuple[float, ...]
    """Upper bounds of the buckets of round trips, seconds."""
    round_trips: list[int]
    """Cumulated, the last is all of them."""
    round_trip_seconds: float


def numbers_of(fleet: "Fleet") -> FleetNumbers:
    """What there is now."""
    from mcpbridge.fleet.counts import ROUND_TRIPS

    members, counts, report = fleet.members, fleet.orders.counts, fleet.orders.report()
    everyone, me = members.all(), members.me
    return FleetNumbers(
        name=me.name,
        id=me.id,
        members=len(everyone),
        draining=sum(1 for one in everyone if one.is_draining),
        other_settings=sum(1 for one in everyone if one.settings != me.settings),
        is_draining=me.is_draining,
        has_lease=members.has_lease,
        lease_age=members.lease_age,
        sessions=report.sessions,
        links=len(report.links),
        unreachable=len(report.unreachable),
        forwarded=report.forwarded,
        taken_over=report.taken_over,
        handed_on=report.handed_on,
        store_failures=report.store_failures,
        bounds=ROUND_TRIPS,
        round_trips=counts.round_trips(),
        round_trip_seconds=counts.round_trip_seconds,
    )


def add_fleet(page: Page, numbers: FleetNumbers) -> None:
    """Write them."""
    named = labels(["replica", "member"], [numbers.name, numbers.id])
    page.gauges("mcpbridge_fleet_info", "The bridge's name and id in its fleet.", [(named, 1)])
    for name, text, value in _GAUGES:
        page.gauges(f"mcpbridge_fleet_{name}", text, [("", value(numbers))])
    page.counters(
        "mcpbridge_fleet_forwarded_requests",
        "Requests that were passed to another bridge of the fleet, by outcome.",
        [(labels(["outcome"], [name]), count) for name, count in numbers.forwarded.items()],
    )
    for name, text, count in _COUNTERS:
        page.counters(f"mcpbridge_fleet_{name}", text, [("", count(numbers))])
    bounds = [*map(str, numbers.bounds), "+Inf"]
    page.histograms(
        "mcpbridge_fleet_link_round_trip_seconds",
        "Seconds that other bridges of the fleet took to answer a question that takes no time.",
        bounds,
        [("", numbers.round_trips, numbers.round_trip_seconds)],
    )


_GAUGES: tuple[tuple[str, str, Callable[[FleetNumbers], float]], ...] = (
    ("members", "Bridges of the fleet, as this one knows them.", lambda one: one.members),
    ("draining_members", "Those of them that take nothing new.", lambda one: one.draining),
    (
        "differing_members",
        "Those of them whose configuration is not that of this bridge.",
        lambda one: one.other_settings,
    ),
    ("draining", "1 while this bridge takes nothing new.", lambda one: int(one.is_draining)),
    ("lease_held", "1 if this bridge surely is a member now.", lambda one: int(one.has_lease)),
    ("lease_age_seconds", "Seconds since the lease was renewed; it ends after 3.", lambda one: round(one.lease_age, 3)),
    ("sessions", "Sessions that this bridge has.", lambda one: one.sessions),
    ("links", "Bridges of the fleet that there is a connection to.", lambda one: one.links),
    ("unreachable_members", "Bridges of the fleet that could not be reached.", lambda one: one.unreachable),
)

_COUNTERS: tuple[tuple[str, str, Callable[[FleetNumbers], int]], ...] = (
    ("sessions_taken_over", "Sessions of other bridges that this one took over.", lambda one: one.taken_over),
    ("sessions_handed_on", "Sessions of this bridge that it left to others.", lambda one: one.handed_on),
    (
        "store_failures",
        "Times that the lease could not be renewed in the shared records.",
        lambda one: one.store_failures,
    ),
)
