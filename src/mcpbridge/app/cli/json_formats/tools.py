"""Documents about tools: what there is, what is found, what a call returned, and what tools cost."""

from typing import Any, Literal, NotRequired, TypedDict

from mcpbridge.app.cli.json_formats.shared import BridgeAnswer


class List(TypedDict):
    """What the servers offer, as clients get it. Only the kinds that were asked for are there."""

    tools: NotRequired[list[dict[str, Any]]]
    """Tools, each as `tools/list` of MCP has it: `name`, `description`, `inputSchema` and more."""
    resources: NotRequired[list[dict[str, Any]]]
    """With `--resources` or `--all`: as `resources/list` has them."""
    resourceTemplates: NotRequired[list[dict[str, Any]]]
    """With `--resources` or `--all`: as `resources/templates/list` has them."""
    prompts: NotRequired[list[dict[str, Any]]]
    """With `--prompts` or `--all`: as `prompts/list` has them."""


class QueriedTool(TypedDict):
    """A tool that a query matches."""

    id: str
    """`server/tool`."""
    name: str
    """The name that clients see."""
    server: str
    """The server; `tools` or `builtin` for a tool that is behind none."""
    type: Literal["tool"]
    """Always `tool`."""
    sub_type: str
    """`mcp`, `builtin`, or the kind of `[tools]` table: `function`, `http`, `openapi` and so on."""
    runtime_type: Literal["local", "remote"]
    """Whether it runs on this machine."""
    protocol_type: str
    """How it is reached: `stdio`, `streamable-http`, `sse`, `websocket`, `http`, `grpc`, `a2a`, `process`, `python`."""
    description: str
    """What it says of itself."""
    tags: list[str]
    """Tags of the configuration."""
    schema: dict[str, Any]
    """`input`, and `output` if it has one: JSON Schema."""
    examples: list[Any]
    """Examples of the configuration."""
    annotations: dict[str, Any]
    """MCP's hints, such as `readOnlyHint`."""


class ListQuery(TypedDict):
    """What `list --query` prints: the tools that match."""

    tools: list[QueriedTool]
    """In order of their ids."""


class OriginalDefinition(TypedDict):
    """A definition as its server sent it, beside what clients are given of it."""

    server: str
    kind: Literal["tools", "prompts", "resources", "templates"]
    name: str
    """What the server calls it: the name, URI or template; empty if it has none that can be read."""
    sent: Any
    """As the server sent it."""
    given: Any
    """As clients get it, before it is shortened for some of them; null: they do not get it."""
    changed: list[str]
    """The members that differ."""
    reasons: list[str]
    """Why it is not given, or what was changed in it, as far as the bridge says so."""


class ListOriginal(TypedDict):
    """What `list --original` prints: all definitions of the servers, in both forms."""

    definitions: list[OriginalDefinition]
    """By server and kind."""


class FoundTool(TypedDict):
    """A tool that a search found."""

    id: str
    """`server/tool`."""
    name: str
    """The name that clients see."""
    score: float
    """How well it fits, from 0 to 1."""
    is_named: bool
    """The query says its name."""
    also: list[str]
    """Ids of tools that do the same, and are left out."""
    signature: NotRequired[str]
    """Name, arguments and description on one line; not with `--detail names`."""
    why: NotRequired[dict[str, Any]]
    """With `--explain`: what made the score; the points of `words`, `vectors` and so on add up to it."""
    description: NotRequired[str]
    """With `--detail schemas`."""
    inputSchema: NotRequired[dict[str, Any] | None]
    """With `--detail schemas`: JSON Schema of the arguments."""


class Search(TypedDict):
    """What a search found."""

    query: str
    """What was searched for."""
    fits: bool
    """Whether any tool seems to do that. If not, the exit code is 5."""
    tools: list[FoundTool]
    """The best first; empty if none fits."""
    nearest: NotRequired[list[FoundTool]]
    """If none fits: the nearest."""


class ScanFinding(TypedDict):
    """A suspicious text of a server."""

    server: str
    kind: str
    """`tool`, `prompt`, `resource` or `instructions`."""
    name: str
    """What the server calls it."""
    rule: str
    """The rule that found it."""
    where: str
    """The member with the text, such as `description`; empty for what is held."""
    text: str
    """The words, shortened; for what is held: how to accept it."""
    verdict: str
    """`ignore`, `warn`, `hold` or `accepted`."""
    unapproved: bool
    """Nobody agreed to it yet, so that an older definition is listed, or none."""


class Scan(TypedDict):
    """What the scanner found."""

    findings: list[ScanFinding]


class LockChange(TypedDict):
    """One difference between `servers.lock` and what a server shows now."""

    server: str
    kind: str
    """`tools`, `prompts`, `resources`, `templates`, or `server` for what it says of itself."""
    name: str
    """What the server calls it; of `server`: `instructions`, `identity`, `command` or `origin`."""
    change: str
    """Its class, such as `text`, `required-parameter-added` or `annotation-weakened`."""
    where: str
    """The member that is different; empty for the whole definition."""
    detail: str
    """What is new, shortened."""


class UnreachedServer(TypedDict):
    """A server that could not be asked."""

    server: str
    reason: str


class MissingText(TypedDict):
    """A definition that was agreed to, whose text is not in `servers.lock.d`."""

    server: str
    kind: str
    """As that of a change."""
    name: str


class LockChanges(TypedDict):
    """What servers change."""

    file: str
    """The lock, or where it would be: `lock-diff` and `lock-approve` go without one, by what was seen first."""
    changes: list[LockChange]
    unreachable: list[UnreachedServer]
    missing: list[MissingText]
    """What was agreed to of which the text was missing; `lock` writes again those that servers still show."""


class LockWritten(LockChanges):
    """What the lock took over, or would take over."""

    written: bool
    """The file was written; without one, what was seen first is what the server shows now."""


class WholeLock(LockWritten):
    """The lock as a whole."""

    unsigned: str
    """Why its signature does not fit it, or why it has to have one; completes "the lock …". Empty: all is fine."""


class LockSigned(TypedDict):
    """A lock that is signed now."""

    file: str
    """The file of the signature."""
    key: str
    """The id of the key."""
    serial: int
    """What goes up with each signature."""
    project: str
    """The project that the lock is signed for."""


class LockVerified(TypedDict):
    """Whether a lock is signed by a trusted key."""

    file: str
    """The lock."""
    trusted: bool
    """A key that is trusted here has signed it."""
    required: bool
    """Some key is trusted here, so that a lock must be signed."""
    reason: str
    """Why it is not trusted; completes "the lock …"."""
    project: str
    """The project that its signature names; empty: it names none."""


class Call(TypedDict):
    """The result of a call."""

    tool: str
    """The tool, as it was typed."""
    ok: bool
    """Whether the call succeeded."""
    result: dict[str, Any]
    """The result of MCP's `tools/call`: `content`, `structuredContent`, `isError`, `_meta`."""


class Read(TypedDict):
    """The contents of a resource: the result of MCP's `resources/read`, with `format` in it."""

    contents: list[dict[str, Any]]
    """Each with `uri`, and `text` or `blob` (Base64)."""
    _meta: NotRequired[dict[str, Any]]
    """What the server says beside it."""


class Cost(TypedDict):
    """Tokens of definitions, in each form."""

    tools: int
    """How many tools."""
    sent: int
    """Tokens as the server sends them."""
    tidy: int
    """Tokens without what says nothing."""
    slim: int
    """Tokens with shorter descriptions."""
    skeleton: int
    """Tokens of names and types alone."""
    signatures: int
    """Tokens as one line a tool."""


class ServerCost(Cost):
    """Tokens of one server."""

    server: str
    """The server."""


class ToolCost(Cost):
    """Tokens of one tool."""

    tool: str
    """`server/tool`."""


class SearchCost(TypedDict):
    """What a client gets that has to search for tools."""

    tools: int
    """Tools in its list."""
    tokens: int
    """Tokens of its list."""


class Tokens(TypedDict):
    """What definitions of tools cost a model's context."""

    tokenizer: str
    """`estimate` or `o200k`: how tokens are counted."""
    servers: list[ServerCost]
    """Each server, the most expensive first."""
    total: Cost
    """All of them."""
    search: SearchCost
    """The list of a client with `expose.mode = "search"`."""
    tools: NotRequired[list[ToolCost]]
    """With `--tools N`: the tools that cost most."""


class Flaw(TypedDict):
    """A line of the file that is no query."""

    line: int
    """Its number."""
    what: str
    """What is wrong with it."""


class Queries(TypedDict):
    """What was asked."""

    count: int
    """Queries."""
    generated: bool
    """They were made of the tools' descriptions."""
    source: str | None
    """The file; null if there is none."""
    left_out: int
    """Queries that could not be asked."""
    flaws: list[Flaw]
    """Lines of the file that are wrong."""


class Confused(TypedDict):
    """Two tools that are taken for one another."""

    tools: list[str]
    """Their ids."""
    times: int
    """How often."""
    of: int
    """Of how many queries."""


class AnswerTokens(TypedDict):
    """Tokens of an answer of `find_tools`."""

    mean: float
    """On average."""
    p95: int
    """95 % of them have at most so many."""
    count: int
    """Answers that were counted."""


class BenchTokens(TypedDict):
    """What a model's context is charged."""

    counted: str
    """`estimate` or `o200k`."""
    listed: str
    """`all` or `search`: what a client gets that nothing is known of."""
    list_all: int
    """Tokens of the list of all tools."""
    list_search: int
    """Tokens of the list with which the others are found."""
    saved_share: float
    """The share that searching saves, from 0 to 1; negative if it costs more."""
    answer: AnswerTokens
    """An answer of `find_tools`."""


class Miss(TypedDict):
    """A query whose tool was not found."""

    line: int | None
    """Its line in the file."""
    query: str
    """What was asked."""
    wanted: list[list[str]]
    """Ids of the right tools."""
    places: list[int | None]
    """At which place each came; null: not at all."""
    first: list[str]
    """Ids of what came first."""
    doubtful: bool
    """The answer says that no tool seems to do that."""


class BenchRouting(TypedDict):
    """How well tools are found. Shares are from 0 to 1."""

    tools: int
    """Tools that can be found."""
    servers: int
    """Servers that have them."""
    queries: Queries
    """What was asked."""
    note: str | None
    """What to know about queries that were generated."""
    limit: int
    """Tools of an answer."""
    recall: dict[str, float]
    """By a number of places: the share of queries whose tool is within them."""
    not_found: float
    """The share of queries whose tool is not found at all."""
    first: dict[str, int]
    """How often what came first: `right`, `sibling`, `same_server`, `other_server`, `doubtful`."""
    confused: list[Confused]
    """Pairs of tools that are taken for one another."""
    tokens: BenchTokens
    """What it costs."""
    misses: NotRequired[list[Miss]]
    """With `--misses`."""


class Managed(BridgeAnswer):
    """What one bridge answered."""

    result: NotRequired[Any]
    """What came of the command."""


class Manage(TypedDict):
    """What came of a management command."""

    ok: bool
    """Whether every bridge has done it."""
    bridges: list[Managed]
    """Each bridge that was asked."""
