"""What the address of the list of calls says: which calls are wanted. Pure.

The address is the whole state of the page, so it can be kept, sent on, and gone back to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from mcpbridge.app.console.guard import Visitor
from mcpbridge.base.units import parse_moment, parse_seconds
from mcpbridge.storage.call_log.format import Outcome
from mcpbridge.storage.call_log.reader import RUNNING, Filter, exactly

FAILURES = ("tool_error", "refused", "failed", "cancelled", "interrupted")
"""Outcomes of calls that did not do what was wanted."""

_ANY_FAILURE = "failures"
OUTCOMES: Mapping[str, str] = {
    "": "any",
    _ANY_FAILURE: "went wrong, in any way",
    "ok": "ok",
    "tool_error": "error of the tool",
    "refused": "refused by the bridge",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupted by the end of the bridge",
    "asked": "asked something back",
    "needed_sign_in": "needed a sign-in first",
}
"""What the box for the outcome offers: its value, and in words."""

_TEXTS = ("server", "tool", "client", "principal", "text", "session", "run", "parent", "method")
"""Parameters that are parts of a `Filter` as they are."""
_MOMENTS = {"since": "since", "until": "until"}
_DURATIONS = {"min": "min_seconds", "max": "max_seconds"}
NAMES = (*_TEXTS, "outcome", *_MOMENTS, *_DURATIONS)
"""All parameters of the filters, as the address has them."""

BOXED = frozenset(
    {"server", "tool", "client", "principal", "text", "outcome", "since", "until", "min", "max", "at_bridge"}
)
"""Those that the form has a box for. The others come from links, and are shown as marks that can be taken off."""

BRIDGE = "at_bridge"
"""The parameter that names one bridge of a fleet. `bridge` is taken: by it a link says which one is to answer."""

LOCAL_USER = "''"
"""How the address names the user who has no name: the one of this machine."""
_LONGEST = 500
_DIGITS = 19
"""More than numbers of records have: such a number fits into what SQLite takes."""


@dataclass(frozen=True, slots=True)
class CallFilters:
    """Which calls are wanted, as the address says it."""

    which: Filter
    given: Mapping[str, Sequence[str]]
    """The parameters that say something, in the order of `NAMES`."""
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """By parameter, why it counts as left out."""

    def value(self, name: str) -> str:
        """What the box of this name holds."""
        return (self.given.get(name) or ("",))[0]

    @property
    def bridge(self) -> str:
        """The only bridge of the fleet whose calls are wanted; empty: all."""
        return "" if BRIDGE in self.problems else self.value(BRIDGE)

    @property
    def marks(self) -> Sequence[tuple[str, str, str]]:
        """What is filtered by without a box: its name, its value, and the query string without it."""
        return [(name, ", ".join(self.given[name]), self.query({name: ()})) for name in self.given if name not in BOXED]

    def query(self, changes: Mapping[str, str | Sequence[str]] | None = None) -> str:
        """The query string, without the `?`, that says the same with these changes; no value: it is left out."""
        given = {**self.given, **(changes or {})}
        return urlencode([(name, value) for name, values in given.items() for value in _several(values) if value])


def read_filters(params: QueryParams, now: float, *, bridges: Sequence[str] = ()) -> CallFilters:
    """The filters of an address. What cannot be understood filters nothing, and is a problem. Never raises.

    `now`: seconds since 1970, what time spans count from. `bridges`: the names of those of the fleet, if there is one.
    """
    given: dict[str, Sequence[str]] = {}
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name in NAMES:
        several = [text for value in params.getlist(name) if (text := str(value).strip())]
        if not several:
            continue
        given[name] = several if name == "outcome" else several[:1]
        try:
            values |= _read(name, given[name], now)
        except ValueError as error:
            problems[name] = str(error)
    if bridges and (bridge := params.get(BRIDGE, "").strip()[:_LONGEST]):
        given[BRIDGE] = [bridge]
        if bridge not in bridges:
            problems[BRIDGE] = f"there is no bridge {bridge!r} in the fleet; there are {', '.join(bridges)}"
    return CallFilters(Filter(**values), given, problems)


def filters_for(visitor: Visitor, params: QueryParams, now: float, *, bridges: Sequence[str] = ()) -> CallFilters:
    """The filters of an address as they count for who asks: whoever sees their own calls alone sees no others."""
    filters = read_filters(params, now, bridges=bridges)
    if visitor.sees_all:
        return filters
    principal = exactly(visitor.principal)
    given = {**filters.given, "principal": [principal]}
    return replace(filters, which=replace(filters.which, principal=principal), given=given)


def number_of(params: Mapping[str, str], name: str) -> int:
    """The number of a record that an address names; 0: none."""
    text = params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def _read(name: str, several: Sequence[str], now: float) -> Mapping[str, Any]:
    text = several[0]
    if max(map(len, several)) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} characters")
    if name == "outcome":
        return {"outcome": _outcomes(several)}
    if name in _MOMENTS:
        return {_MOMENTS[name]: parse_moment(text, now)}
    if name in _DURATIONS:
        return {_DURATIONS[name]: parse_seconds(text)}
    if name == "principal" and text == LOCAL_USER:
        return {"principal": ""}
    return {name: text}


def _outcomes(several: Sequence[str]) -> Sequence[str]:
    wanted = [one for text in several for one in (FAILURES if text == _ANY_FAILURE else (text,))]
    known = {*get_args(Outcome), RUNNING}
    if unknown := [one for one in wanted if one not in known]:
        raise ValueError(f"there is no outcome {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return tuple(dict.fromkeys(wanted))


def _several(values: str | Sequence[str]) -> Sequence[str]:
    return (values,) if isinstance(values, str) else values
