"""What a run of the checker was like: a line while it runs, and a table and a document at its end (issue 24)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from support.fleet_checker.claims import Claim
from support.fleet_checker.history import Request

if TYPE_CHECKING:
    from support.fleet_checker.run import Run

_CALLS = {
    "c": "plain calls",
    "q": "with a question",
    "m": "with a question, in rounds",
    "p": "with progress",
    "s": "of what is subscribed to",
    "a": "that wait for approval",
    "b": "with a budget",
    "r": "with a rate",
    "h": "held at a disruption",
    "f": "of the fleet's one process",
    "k": "equal, at all bridges",
}
"""By the first letter of their ids."""
_ENOUGH = 0.95
"""The part of what is offered that counts as all: disruptions cost some calls."""
_OUTCOMES = ("answered", "refused", "not sent", "unknown", "hung", "wrong")


def progress_line(run: "Run", since: float) -> str:
    """What has happened, and how long the calls took that have ended since then."""
    everything = run.everything()
    counts = Counter(one.outcome for one in everything)
    words = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES if counts[outcome])
    middle, slow = _times(one for one in run.requests if one.ended >= since)
    done = ", ".join(f"{kind} {count}" for kind, count in Counter(one.kind for one in run.disruptions).items())
    return f"{run.now():5.0f} s: {words}; plain calls p50 {middle} ms, p99 {slow} ms; {done or 'nothing done yet'}"


def table(run: "Run", claims: Sequence[Claim]) -> str:
    """Calls by kind and outcome, disruptions, and claims."""
    lines = [f"{'calls':28}" + "".join(f"{outcome:>9}" for outcome in _OUTCOMES) + f"{'p50 ms':>9}{'p99 ms':>9}"]
    for name, own in _by_kind(run).items():
        counts = Counter(one.outcome for one in own)
        cells = [*(counts[outcome] for outcome in _OUTCOMES), *_times(own)]
        lines.append(f"{name:28}" + "".join(f"{cell:>9}" for cell in cells))
    lines += ["", "disruptions", *(str(one) for one in sorted(run.disruptions, key=lambda one: one.began))]
    lines += ["", "claims", *(f"  {one}" for one in claims)]
    if run.pace.rate:
        lines += ["", load_line(run)]
    return "\n".join(lines)


def load_line(run: "Run") -> str:
    """What the plain clients offered, and what the fleet carried."""
    offered, made, carried = rates(run)
    is_less = carried < _ENOUGH * run.pace.rate
    less = f"; LESS than the {run.pace.rate:g} calls/s that it was to carry" if is_less else ""
    return f"plain calls/s: {offered:.1f} offered, {made:.1f} made, {carried:.1f} answered{less}"


def rates(run: "Run") -> tuple[float, float, float]:
    """Plain calls a second that were due, that were made, and that were answered, while things were done."""
    own = [one for one in run.requests if one.began <= run.ending_at]
    seconds = run.ending_at or float("inf")
    answered = sum(1 for one in own if one.outcome == "answered")
    return (len(own) + run.pace.left_out) / seconds, len(own) / seconds, answered / seconds


def document(run: "Run", claims: Sequence[Claim], seed: int) -> dict[str, Any]:
    """The same as JSON, with the faults. Times are seconds since the start, those of calls milliseconds."""
    calls = dict[str, Any]()
    for name, own in _by_kind(run).items():
        middle, slow = _times(own)
        counts = Counter(one.outcome for one in own)
        calls[name] = {**{outcome: counts[outcome] for outcome in _OUTCOMES}, "p50": middle, "p99": slow}
    return {
        "seed": seed,
        "seconds": round(run.seconds, 1),
        "partitions": run.net is not None,
        "calls": calls,
        "disruptions": [
            {"kind": one.kind, "parts": one.parts, "whom": one.whom, "began": one.began, "ended": one.ended}
            for one in sorted(run.disruptions, key=lambda one: one.began)
        ],
        "longest_delay": run.delays.longest(0, float("inf")),
        "rates": dict(zip(("offered", "made", "answered"), rates(run), strict=True)),
        "claims": {one.what: {"looked_at": one.looked_at, "faults": list(one.faults)} for one in claims},
    }


def _by_kind(run: "Run") -> dict[str, list[Request]]:
    found = defaultdict[str, list[Request]](list)
    for one in run.everything():
        found[one.id[0]].append(one)
    return {name: found[letter] for letter, name in _CALLS.items() if found[letter]}


def _times(requests: Iterable[Request]) -> tuple[float, float]:
    """Median and 99th percentile of answered ones, in milliseconds."""
    own = [1000 * (one.ended - one.began) for one in requests if one.outcome == "answered"]
    if len(own) < 2:
        return (round(own[0], 1), round(own[0], 1)) if own else (0.0, 0.0)
    cuts = quantiles(own, n=100)
    return round(cuts[49], 1), round(cuts[98], 1)
