"""Counts and durations of calls, in memory, per tool, server and client. They begin anew with the process.

The counting is a few additions on a `Series` that the caller holds; sums, rates and quantiles are made by whoever asks.
Names that clients and servers choose make series, so there is a limit to each; what is beyond counts as `other`. Here
are also the buckets, how a call's outcome is classified, and what each session has called so far (for `pulse`).
"""

import asyncio
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import accumulate

import msgspec
from msgspec import Struct, field

from mcpbridge.base.errors import BridgeError, CallRefused, SignInNeeded, UnknownName, UpstreamAnswered
from mcpbridge.core.model import BRIDGE
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import code_of
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.storage.call_log.format import CallRecord, Outcome

BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds; upper bounds of the buckets, those that the semantic conventions of MCP give. A last one has no bound."""

OTHER = "other"
"""The tool or client of everything beyond a limit."""

_MOST_SERIES = 10_000
_MOST_NAMES = 20
"""Names of errors, and answers to approvals, that one series distinguishes: servers may invent error codes."""
_LONGEST_CLIENT = 64
_CALL = "tools/call"


class Durations:
    """A histogram of seconds."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        """How many fell into each, not cumulated."""
        self.seconds = 0.0
        """The sum."""

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def copy(self) -> "Durations":
        """These, as they are now."""
        copy = Durations()
        copy.buckets, copy.seconds = self.buckets.copy(), self.seconds
        return copy

    def include(self, other: "Durations") -> None:
        """Add those of another."""
        self.buckets = [mine + theirs for mine, theirs in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.buckets)

    def cumulated(self) -> list[int]:
        """How many took at most the bound of each bucket; the last is all of them."""
        return list(accumulate(self.buckets))

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of them stayed below, estimated within a bucket; None when there is none.

        What is beyond the last bound counts as that bound.
        """
        count = self.count
        if not count:
            return None
        rank, below = share * count, 0
        for number, here in enumerate(self.buckets[:-1]):
            if here and below + here >= rank:
                lower = BUCKETS[number - 1] if number else 0.0
                return lower + (BUCKETS[number] - lower) * max(0.0, rank - below) / here
            below += here
        return BUCKETS[-1]

    def summary(self) -> dict[str, float]:
        """Estimated median and 95th percentile, seconds; empty when there is none."""
        told = {name: self.quantile(share) for name, share in (("p50", 0.5), ("p95", 0.95))}
        return {name: round(seconds, 4) for name, seconds in told.items() if seconds is not None}


class Series(Struct, eq=False):
    """What is counted of the calls of one tool (or method, for requests that call no tool) by one client."""

    server: str = ""
    tool: str = ""
    """The tool's id; empty for requests that call none."""
    method: str = ""
    client: str = ""
    """`clientInfo.name`, as declared."""
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    durations: Durations = field(default_factory=Durations)
    """From when the bridge took the call up to its end: waiting, approval and retries included."""
    upstream: Durations = field(default_factory=Durations)
    """What the server took of that, where the call got so far."""
    bytes_in: int = 0
    """Of arguments, as the server got them; of requests that call no tool, of the params."""
    bytes_out: int = 0
    """Of results."""
    retries: int = 0
    cache_hits: int = 0
    coerced: int = 0
    """Calls with arguments that were mended."""
    refused: dict[str, int] = field(default_factory=dict[str, int])
    """Calls that the bridge refused, by class of the refusal."""
    failed: dict[str, int] = field(default_factory=dict[str, int])
    """Calls that failed, by class of the error or the server's error code."""
    approvals: dict[str, int] = field(default_factory=dict[str, int])
    """Calls that a person was asked about, by what came of it."""
    rewritten: dict[str, int] = field(default_factory=dict[str, int])
    """Large results that were rewritten, by the form that they got."""
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    """Of these results, estimated: what `came`, what was `shown` instead, what was `stored`, what was `recalled`."""

    def ended(self, outcome: Outcome, seconds: float, upstream_seconds: float, sent: int, received: int) -> None:
        """Count a call that is over. `sent`, `received`: bytes. On the way of every call."""
        outcomes = self.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        durations = self.durations
        durations.buckets[bisect_left(BUCKETS, seconds)] += 1
        durations.seconds += seconds
        if upstream_seconds:
            durations = self.upstream
            durations.buckets[bisect_left(BUCKETS, upstream_seconds)] += 1
            durations.seconds += upstream_seconds
        self.bytes_in += sent
        self.bytes_out += received

    def went_wrong(self, outcome: Outcome, error: str) -> None:
        """Count why a call was refused or failed."""
        if outcome == "refused":
            _count(self.refused, error)
        elif outcome == "failed":
            _count(self.failed, error)

    def took_note(self, facts: Mapping[str, object]) -> None:
        """Count what stages noted of a call (`Call.note`)."""
        retries = facts.get("retries")
        if isinstance(retries, int):
            self.retries += retries
        if facts.get("cache") in ("hit", "shared"):
            self.cache_hits += 1
        if facts.get("coerced"):
            self.coerced += 1
        approval = facts.get("approval")
        if isinstance(approval, str):
            _count(self.approvals, _ANSWERS.get(approval.partition(" ")[0], "granted"))  # the rest names people

    def rewrote(self, form: str, *, came: int, sent: int, stored: int) -> None:
        """Count a large result that was rewritten. Tokens, the announcement being part of what is shown."""
        _count(self.rewritten, form)
        for name, tokens in (("came", came), ("shown", sent), ("stored", stored)):
            self.tokens[name] = self.tokens.get(name, 0) + tokens

    def recalled(self, tokens: int) -> None:
        """Count what was sent later out of a kept result."""
        self.tokens["recalled"] = self.tokens.get("recalled", 0) + tokens

    def copy(self) -> "Series":
        """What it has counted up to now."""
        return Series(
            self.server,
            self.tool,
            self.method,
            self.client,
            self.outcomes.copy(),
            self.durations.copy(),
            self.upstream.copy(),
            self.bytes_in,
            self.bytes_out,
            self.retries,
            self.cache_hits,
            self.coerced,
            self.refused.copy(),
            self.failed.copy(),
            self.approvals.copy(),
            self.rewritten.copy(),
            self.tokens.copy(),
        )

    @property
    def calls(self) -> int:
        """Calls in all, refused and cancelled ones too."""
        return sum(self.outcomes.values())

    @property
    def errors(self) -> int:
        """Calls that failed, there or on the way, or whose result is an error of the tool."""
        return self.outcomes.get("failed", 0) + self.outcomes.get("tool_error", 0)


_ANSWERS = {"denied": "denied", "nobody": "unanswered"}


def _count(names: dict[str, int], name: str) -> None:
    if name not in names and len(names) >= _MOST_NAMES:
        name = OTHER
    names[name] = names.get(name, 0) + 1


class Total(Series):
    """The sum of several series."""

    def include(self, other: Series) -> None:
        """Add those of another."""
        self.durations.include(other.durations)
        self.upstream.include(other.upstream)
        for mine, theirs in (
            (self.outcomes, other.outcomes),
            (self.refused, other.refused),
            (self.failed, other.failed),
            (self.approvals, other.approvals),
            (self.rewritten, other.rewritten),
            (self.tokens, other.tokens),
        ):
            for name, number in theirs.items():
                mine[name] = mine.get(name, 0) + number
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.retries += other.retries
        self.cache_hits += other.cache_hits
        self.coerced += other.coerced


def total(series: Iterable[Series]) -> Total:
    """Several series as one."""
    whole = Total()
    for one in series:
        whole.include(one)
    return whole


class Metrics:
    """All series of one bridge."""

    def __init__(self, *, max_tools: int = 2000, max_clients: int = 50) -> None:
        """How many tools, and client names, are counted separately."""
        self._max_tools, self._max_clients = max_tools, max_clients
        self._series: dict[tuple[str, str, str, str], Series] = {}
        self._tools: set[str] = set()
        self._clients: set[str] = set()

    def __iter__(self):
        return iter(self._series.values())

    def __len__(self) -> int:
        return len(self._series)

    def series(self, server: str, tool: str, method: str, client: str) -> Series:
        """Where calls of this tool by this client count; made at the first one."""
        client = client[:_LONGEST_CLIENT]
        key = server, tool, method, client
        known = self._series.get(key)
        if known is not None:
            return known
        if tool and not self._admits(tool, self._tools, self._max_tools):
            tool = OTHER
        if client and not self._admits(client, self._clients, self._max_clients):
            client = OTHER
        if len(self._series) >= _MOST_SERIES:
            tool, client = tool and OTHER, OTHER
        key = server, tool, method, client
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = Series(server, tool, method, client)
        return known

    def rewrote(self, server: str, tool: str, client: str, form: str, *, came: int, sent: int, stored: int) -> None:
        """See `Series`; `tool`: its id."""
        self.series(server, tool, _CALL, client).rewrote(form, came=came, sent=sent, stored=stored)

    def recalled(self, server: str, tool: str, client: str, tokens: int) -> None:
        """See `Series`; `tool`: the id of the one that the kept result is of."""
        self.series(server, tool, _CALL, client).recalled(tokens)

    def refused_unplanned(self, client: str, refused: BridgeError) -> None:
        """A call named a tool that there is not, or that is held, and no plan counts it; what failed is not counted.

        Its name is the client's to choose, so it is no name of a series.
        """
        if isinstance(refused, UnknownName | CallRefused):
            series = self.series(BRIDGE, "", _CALL, client)
            series.ended("refused", 0.0, 0.0, 0, 0)
            series.went_wrong("refused", type(refused).__name__)

    def total_calls(self) -> int:
        """How many requests ended so far, of all tools and clients."""
        return sum(sum(series.outcomes.values()) for series in self)

    def of_server(self, server: str) -> Total:
        """Everything of one server."""
        return total(series for series in self if series.server == server)

    def by_tool(self) -> dict[tuple[str, str, str], Total]:
        """Everything by server, tool (or empty) and method, over all clients."""
        found: dict[tuple[str, str, str], Total] = {}
        for series in self:
            key = series.server, series.tool, series.method
            found.setdefault(key, Total(*key)).include(series)
        return found

    def _admits(self, name: str, known: set[str], most: int) -> bool:
        if name in known:
            return True
        if len(known) >= most:
            return False
        known.add(name)
        return True


MOST = 2000
"""Sessions that are remembered; those that were silent for longest go first."""


class SessionCounts(Struct):
    """What one session called."""

    began: float
    """Seconds since 1970 of its first call."""
    calls: int = 0
    errors: int = 0
    """Calls that failed, were refused, or whose tool said so."""
    sent: int = 0
    """Bytes of arguments."""
    received: int = 0
    """Bytes of results, as they went to the client."""
    last_error: str = ""
    """Tool and kind of the last error."""

    @property
    def tokens(self) -> int:
        """An estimate of what calls and results took of the model's context."""
        return estimated_tokens(self.sent + self.received)


class CountsBySession:
    """The tallies of all sessions, by session id."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SessionCounts] = OrderedDict()

    def ended(self, record: CallRecord) -> None:
        """A call has ended."""
        if record.method != "tools/call" or record.outcome == "asked":
            return
        counts = self._known.get(record.session)
        if counts is None:
            if len(self._known) >= MOST:
                self._known.popitem(last=False)
            counts = self._known[record.session] = SessionCounts(record.at)
        self._known.move_to_end(record.session)
        counts.calls += 1
        counts.sent += record.sent
        counts.received += record.received
        if record.outcome not in ("ok", "needed_sign_in"):
            counts.errors += 1
            counts.last_error = f"{record.tool}: {record.error or record.outcome}"

    def of(self, session: str) -> SessionCounts:
        """What a session called; nothing, for one that called nothing yet."""
        return self._known.get(session) or SessionCounts(time.time())


TOOL_ERROR = "tool_error"
"""What a result with `isError` is called where errors are named by class."""

KNOWN_METHODS = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Requests that are counted by name. Clients may send others to a server that is shown alone, of any name."""

_CODES = (-32_999, -32_000)
"""Error codes that are counted separately: those of JSON-RPC, of MCP and around them. Servers may invent any others."""

_WHOLE = 128 * 1024
"""Bytes up to which a result is read for this alone."""


class _Said(msgspec.Struct):
    """The two members of a result that tell how its call ended; the rest is skipped, not kept."""

    is_error: object = msgspec.field(default=False, name="isError")
    kind: object = msgspec.field(default=None, name="resultType")


_decode = msgspec.json.Decoder(_Said).decode


def says_error(result: Body) -> bool:
    """Whether the tool itself says that it failed (`isError`)."""
    return outcome_of_result(result) == "tool_error"


def outcome_of_result(result: Body) -> Outcome:
    """What a result says of its call. On the way of every call."""
    data = result.data
    try:
        if len(data) > _WHOLE:
            return _outcome_of_large(result)
        said = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return "ok"
    if said.is_error is True:
        return "tool_error"
    return "asked" if said.kind == "input_required" else "ok"


def _outcome_of_large(result: Body) -> Outcome:
    """The same by the members alone: others look at these too, and what lies in them is not read again."""
    if bytes(result.get("isError") or b"") == b"true":
        return "tool_error"
    return "asked" if bytes(result.get("resultType") or b"") == b'"input_required"' else "ok"


def outcome_of_error(error: BaseException) -> Outcome:
    """What an error says of its call."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, SignInNeeded):
        return "needed_sign_in"
    return "refused" if isinstance(error, CallRefused) else "failed"


def error_name(error: BaseException) -> str:
    """What an error is called in counts and records: its class, of a server's own error also the code."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, UpstreamAnswered):
        code = code_of(error.error)
        return f"{code}" if _CODES[0] <= code <= _CODES[1] else "other code"
    return type(error).__name__ if isinstance(error, BridgeError) else "InternalError"
