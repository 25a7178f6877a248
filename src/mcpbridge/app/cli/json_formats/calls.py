"""Documents about calls: what was called and counted, and which results are kept."""

from typing import Any, NotRequired, TypedDict

from mcpbridge.app.cli.json_formats.shared import BridgeAnswer, MissingBridge


class ToolStats(TypedDict):
    """Calls of a tool, or requests of a method that calls none, since the bridge started."""

    server: str
    """The server."""
    tool: str
    """`server/tool`; empty for other methods."""
    method: str
    """The method of MCP."""
    calls: int
    """Calls."""
    errors: int
    """Calls that failed."""
    outcomes: dict[str, int]
    """Calls by how they went."""
    refused: dict[str, int]
    """Refused calls, by the error's name."""
    failed: dict[str, int]
    """Failed calls, by the error's name."""
    approvals: dict[str, int]
    """Answers of people."""
    latency: dict[str, float]
    """Seconds at the percentiles `p50`, `p95` and `p99`, estimated."""
    seconds: float
    """Seconds that the calls took, together."""
    server_seconds: float
    """Seconds of them at the server."""
    bytes_in: int
    """Bytes of arguments."""
    bytes_out: int
    """Bytes of results."""
    tokens_in_estimated: int
    """Tokens of arguments."""
    tokens_out_estimated: int
    """Tokens of results."""
    retries: int
    """Calls that were tried again."""
    cache_hits: int
    """Calls that the cache has answered."""
    coerced: int
    """Calls whose arguments were corrected."""
    rewritten: dict[str, int]
    """Calls whose result was shortened, by the form that it got, such as `preview`."""
    rewritten_tokens_estimated: dict[str, int]
    """Tokens of those results: what `came`, was `shown` and is `stored`."""


class BridgeStats(BridgeAnswer):
    """What one bridge has counted. One that does not answer has `error` and `code`."""

    bridge: NotRequired[str]
    """In a fleet: its name. The process of one that does not answer is 0."""
    tools: NotRequired[list[ToolStats]]
    """The most called first."""


class TokenSums(TypedDict):
    """Tokens of results. All are estimates."""

    calls: int
    """Calls with a result."""
    rewritten: int
    """Calls whose result was shortened."""
    came: int
    """Tokens that servers sent."""
    shown: int
    """Tokens that clients got."""
    stored: int
    """Tokens that are kept."""
    recalled: int
    """Tokens that clients asked for later."""
    saved: int
    """Tokens that clients never got."""
    saved_share: float
    """Their share of what servers sent, from 0 to 1."""


class TokenRow(TokenSums):
    """Tokens of a day, server, tool or client; of these it has the fields that `by` names."""

    day: NotRequired[str]
    """The day (UTC)."""
    server: NotRequired[str]
    """The server."""
    tool: NotRequired[str]
    """`server/tool`."""
    client: NotRequired[str]
    """The client."""


class TokenReport(TypedDict):
    """Tokens of the last days."""

    days: int
    """How many days."""
    by: list[str]
    """What there is a row for: `day`, `server`, `tool`, `client`."""
    estimated: bool
    """Always true: tokens are estimated from texts."""
    rows: list[TokenRow]
    """Each row."""
    total: TokenSums
    """All of them."""


class ListSums(TypedDict):
    """Tokens of lists of tools that sessions of clients got, each list once."""

    lists: int
    """How many lists; 0 where it is about one server, since a list has several."""
    sent: int
    """Tokens of the definitions of all tools that the clients may call, as servers send them."""
    slim: int
    """Tokens of the same, as slimmed."""
    listed: int
    """Tokens of what was listed, with the bridge's own tools."""
    slimming: int
    """What slimming saved: `sent` less `slim`."""
    routing: int
    """What routing saved: `slim` less `listed`."""


class ListRow(ListSums):
    """Tokens of the lists of a client."""

    client: str
    """The client."""
    counted: bool
    """Counted with a vocabulary (`results.tokenizer`); else estimated."""


class ListReport(TypedDict):
    """Tokens of lists."""

    rows: list[ListRow]
    """Each client."""
    estimated: ListSums
    """All that were estimated."""
    counted: ListSums
    """All that were counted."""


class SavedBy(TypedDict):
    """Tokens that one means saved; below 0 if it cost more."""

    estimated: int
    """Estimated tokens."""
    counted: int
    """Counted tokens: those of lists, while `results.tokenizer` counts."""


class Searches(TypedDict):
    """Calls with which models looked for tools."""

    calls: int
    """How many."""
    shown: int
    """Tokens of their answers, estimated."""


class Savings(TypedDict):
    """What was saved in the last days, and by what."""

    days: int
    """How many days."""
    by: list[str]
    """What there is a row of lists for."""
    slimming: SavedBy
    """By shorter definitions."""
    routing: SavedBy
    """By definitions that were not listed, less the answers of searches."""
    previews: SavedBy
    """By results that were shortened."""
    searches: Searches
    """Searches for tools."""
    lists: ListReport
    """Lists of tools."""


class Stats(TypedDict):
    """Calls of running bridges, and tokens of results."""

    bridges: NotRequired[list[BridgeStats]]
    """Each bridge that runs, in a fleet on any machine; not with `--days` or `--by`."""
    together: NotRequired[list[ToolStats]]
    """In a fleet: what the bridges that answer have counted, as one; the most called first."""
    missing: NotRequired[list[MissingBridge]]
    """In a fleet: the bridges that do not answer, so that `together` has nothing of theirs."""
    tokens: TokenReport
    """Tokens of the last days."""
    savings: Savings
    """What was saved in these days: in lists of tools, and in results."""


class KeptResult(TypedDict):
    """A large result that is kept."""

    handle: str
    """What `results show` and `recall` take."""
    at: str
    """When, as an ISO time."""
    tool: str
    """`server/tool`."""
    arguments: str
    """The beginning of the arguments."""
    outcome: str
    """`ok` or `error`."""
    kind: str
    """What it is: `json`, `text` and so on."""
    headline: str
    """A line about it."""
    chars: int
    """Characters of its text."""
    client: str
    """The client that made the call."""


class Results(TypedDict):
    """The results that are kept."""

    results: list[KeptResult]
    """The newest first."""


class ResultShown(KeptResult):
    """A result that is kept, with what was asked for of it."""

    text: NotRequired[str]
    """Its text."""
    result: NotRequired[Any]
    """With `--raw`: the result of the call, as the server sent it."""
    preview: NotRequired[str]
    """With `--preview N`: its preview."""


class ResultsForgotten(TypedDict):
    """The results that are forgotten."""

    forgotten: list[str]
    """Their handles."""


class CachedTool(TypedDict):
    """What the cache has of a tool."""

    tool: str
    """`server/tool`."""
    entries: int
    """Results that are kept."""
    bytes: int
    """Their size."""
    hits: int
    """Calls that it has answered."""
    misses: int
    """Calls that it could not answer."""
    shared: int
    """Calls that got the answer of one that was under way."""


class BridgeCache(BridgeAnswer):
    """The cache of one bridge."""

    entries: int
    """Results that are kept."""
    bytes: int
    """Their size."""
    max_bytes: int
    """The size that they may have."""
    hits: int
    """Calls that it has answered."""
    misses: int
    """Calls that it could not answer."""
    shared: int
    """Calls that got the answer of one that was under way."""
    tools: list[CachedTool]
    """Each tool with `cache`."""


class Cache(TypedDict):
    """The caches of the bridges that run."""

    bridges: list[BridgeCache]
    """Each of them."""


class CacheCleared(TypedDict):
    """What was forgotten."""

    cleared: int
    """How many results."""
