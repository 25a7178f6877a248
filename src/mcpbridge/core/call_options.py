"""How large results are treated: settings of three levels, of which the nearest wins.

`[servers.NAME.tool.TOOL.results]` comes before `[servers.NAME.results]`, and that before `[results]`. The names that
other programs use for the same things are understood as well.

How the calls of one tool are treated: settings of three levels, of which the nearest wins.

`[servers.NAME.tool.TOOL]` comes before `[servers.NAME]`, and that before `[calls]`. `resolve` puts the levels together
with what is known of the tool itself into one `CallOptions`, from which the tool's plan is compiled. Pure.
"""

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Literal, Self, TypeVar

from msgspec import Struct
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.units import Bytes, Rate, RateText, Seconds
from mcpbridge.protocol.deadlines import Timeouts

Strategy = Literal["preview", "truncate", "summarize", "off"]
"""What becomes of a result that is too large: a lossless rewriting or statistics, its beginning, a model's words about
it, or nothing."""

BUDGET, THRESHOLD, ITEMS = 2000, 4000, 3
"""Characters of a rewritten result; characters up to which none is rewritten; rows that are shown of a list."""
MEDIA_LIMIT = 128 * 1024
"""Bytes of an image, a sound or a blob, as sent (base64)."""


class ResultSettings(BaseModel):
    """What becomes of large results; for all, for a server or for a tool. Left out, the next level decides."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    strategy: Strategy | None = None
    """`preview` (default): as much as fits without loss, else statistics; `truncate`: the beginning; `summarize`: a
    model's summary; `off`: results pass as they came."""

    budget: int | None = Field(
        default=None, ge=400, le=1_000_000, validation_alias=AliasChoices("budget", "max_chars", "maxChars")
    )
    """Characters of what is shown in place of a large result. Default: 2000. Also `max_chars`."""

    threshold: int | None = Field(default=None, ge=0)
    """Characters up to which a result passes as it came. Default: 4000, or `budget` if that is more."""

    preview_items: int | None = Field(
        default=None, ge=0, le=1000, validation_alias=AliasChoices("preview_items", "previewItems")
    )
    """Rows of a list that a preview shows whole, where they fit. Default: 3."""

    auto_store: bool | None = Field(default=None, validation_alias=AliasChoices("auto_store", "autoStore"))
    """Whether the original of a rewritten result is kept, for `recall`. Default: yes."""

    code_transform: bool | None = Field(default=None, validation_alias=AliasChoices("code_transform", "codeTransform"))
    """Whether calls may bring `_transform`, a JavaScript expression over their result. Default: yes."""

    media_limit: Bytes | None = Field(default=None, ge=0)
    """Bytes of an image, a sound or another blob as sent, up to which it passes; a larger one becomes a link to the
    kept original. Default: 128 KiB."""

    image_side: int | None = Field(default=None, ge=0)
    """Pixels of the longer side that a larger image is scaled down to instead, if the extra `images` is installed.
    0 (default): it becomes a link."""


class SummarySettings(BaseModel):
    """Who writes the summaries of `strategy = "summarize"`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Literal["client", "openai", "anthropic"] = "client"
    """`client`: the client's own model, through sampling; `openai`, `anthropic`: a service that speaks that API."""

    url: str | None = None
    """Base address of the service. Left out: the provider's own."""

    model: str | None = None
    """The model's name, as the service knows it. Needed with `openai` and `anthropic`."""

    api_key: str | None = None
    """The service's key, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=60, gt=0)
    """Seconds that a summary may take; then the beginning of the result is shown instead."""

    max_input: int = Field(default=200_000, ge=1000)
    """Characters of a result that are given to the model; of a longer one the beginning and the end."""

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.provider != "client" and not self.model:
            raise ValueError(f'`provider = "{self.provider}"` needs `model`, the name of one of its models')
        return self


class ResultDefaults(ResultSettings, BaseModel):
    """The `results` section: what becomes of large results, and how long the originals are kept."""

    lifetime: Seconds = Field(default=7 * 86400, gt=0)
    """Seconds that a kept result can be recalled after its last use."""

    max_bytes: Bytes = Field(default=512 * 1024**2, ge=1024**2)
    """Bytes of all kept results together, compressed; beyond that those not used for longest go first."""

    summary: SummarySettings = SummarySettings()
    """Who writes summaries."""

    tokenizer: Literal["estimate", "o200k"] = "estimate"
    """How tokens are counted in what is told of savings: `estimate` from the text; `o200k`: with that vocabulary, if
    the extra `tokens` is installed."""


class ResultOptions(Struct, frozen=True):
    """How results of one tool are treated: every setting, resolved."""

    strategy: Strategy = "preview"
    budget: int = BUDGET
    threshold: int = THRESHOLD
    items: int = ITEMS
    stores: bool = True
    transforms: bool = True
    media_limit: int = MEDIA_LIMIT
    image_side: int = 0


def result_options(*levels: ResultSettings | None) -> ResultOptions:
    """What the levels say together, the nearest first."""
    said: dict[str, object] = {}
    for level in levels:
        if level is not None:
            for name in ResultSettings.model_fields:
                if name not in said and (value := getattr(level, name)) is not None:
                    said[name] = value
    budget = said.get("budget", BUDGET)
    assert isinstance(budget, int)
    found = {_RESOLVED.get(name, name): value for name, value in said.items()}
    found.setdefault("threshold", max(THRESHOLD, budget))
    return ResultOptions(**found)  # pyright: ignore[reportArgumentType] - checked by the models


_RESOLVED = {"preview_items": "items", "auto_store": "stores", "code_transform": "transforms"}


Permission = Literal["allow", "require_approval", "deny"]
Risk = Literal["low", "medium", "high"]
Effect = Literal["read", "write", "unknown"]

_T = TypeVar("_T")

CALL_SECONDS, LOCAL_SECONDS, LONGEST_SECONDS = 60.0, 30.0, 600.0
"""Seconds for a call of an upstream's tool, of a local tool, and for any call in all, where nothing is configured."""


class RetrySettings(BaseModel):
    """When a failed call is tried again. Only what certainly, or harmlessly, can be: see `docs/calls.md`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tries: int = Field(default=3, ge=1, le=10)
    """Attempts in all; 1 never tries again."""

    backoff: Seconds = Field(default=0.5, ge=0)
    """Seconds; the bound of the first wait, which doubles with every attempt. The wait is random below it."""

    max_backoff: Seconds = Field(default=10, ge=0)
    """Seconds; the bound never grows beyond this."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        """Take `retry = 3` for so many tries."""
        return {"tries": value} if isinstance(value, int) and not isinstance(value, bool) else value


class CallSettings(BaseModel):
    """What can be set for one tool, for all tools of a server, and for all calls; left out, the next level decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permission: Permission | None = None
    """Whether it may be called: `allow`, `require_approval` (a person is asked each time) or `deny` (nor listed)."""

    risk: Risk | None = None
    """How much harm a call can do, for rules of `permissions`. Left out: told from what the tool does."""

    read_only: bool | None = None
    """Whether it changes nothing. Left out: its `readOnlyHint` if the server is `trusted`, else that is not known. A
    name can tell of a change (`calls.write_names`); that it only reads is not taken from a name."""

    destructive: bool | None = None
    """Whether it may destroy something. Left out: its `destructiveHint` if the server is `trusted`, else its name."""

    idempotent: bool | None = None
    """Whether doing it twice is doing it once. Left out: its `idempotentHint` if the server is `trusted`."""

    arguments: Literal["coerce", "check", "pass"] | None = None
    """What becomes of arguments: checked with harmless slips mended (`coerce`, the default), checked, or passed."""

    inject_defaults: bool | None = None
    """Whether arguments left out get the default of the tool's schema, so that rules see them. Default: yes."""

    call_timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds to wait for the answer to a call; each progress message starts them anew. Default: 60, local tools 30."""

    max_call_timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds for one call in all, whatever its progress. Default: 600."""

    late: Literal["keep", "cancel"] | None = None
    """What becomes of a call whose client gave up waiting: its result is kept for later (default), or it is cancelled.
    A call that a person cancels is always cancelled."""

    retry: RetrySettings | None = None
    """When a failed call is tried again, or a number of tries. Default: never."""

    cache: Seconds | None = Field(default=None, ge=0)
    """Seconds that a result answers the same call again; concurrent identical calls run once. 0 or left out: never.
    For a server or all calls it holds for tools that are known to only read (`read_only`, `trusted`). A tool that
    writes is never cached."""

    cache_scope: Literal["private", "shared"] | None = None
    """Whether kept results are for the principal that called (default) or for everybody."""

    side_effects: Literal["serial", "parallel"] | None = None
    """Whether tools that change something run one at a time for each server and client (default), or side by side."""

    log_content: bool | None = None
    """Whether the call log keeps arguments and results themselves, not only their size and digest. Default: no."""


class CallDefaults(CallSettings, BaseModel):
    """The `calls` section: how calls are treated unless their server or tool says otherwise, and limits over all."""

    late_lifetime: Seconds = Field(default=3600, gt=0)
    """Seconds that the result of a call whose client gave up waiting is kept."""

    batch: int = Field(default=5, ge=1)
    """Calls of one model turn that run at a time; further ones wait, and their results keep their order. A turn is a
    JSON-RPC batch, a list of calls of the library, or calls with the same `_meta["mcpbridge/turn"]`."""

    max_per_client: int = Field(default=0, ge=0)
    """Calls of one client that run at a time; 0: no limit."""

    max_queued: int = Field(default=64, ge=0)
    """Calls that may wait for each of these limits; further ones are refused."""

    rate_limit: RateText | None = None
    """How often one client may call: `30/min`, `5/s`, `100/h`. After a pause so many may come at once, then they come
    evenly. Who is authenticated has one rate for all sessions. Left out: no limit."""

    max_chain: int = Field(default=0, ge=0)
    """Calls that may follow one another in one run; 0: no limit. A run is what `_meta["mcpbridge/run"]` names, else
    everything until a conversation pauses for `chain_pause`."""

    chain_pause: Seconds = Field(default=60, gt=0)
    """Seconds without a call after which a new run begins, where clients name none."""

    max_calls: int = Field(default=0, ge=0)
    """Calls that one conversation may make; 0: no limit."""

    write_names: list[str] = [
        "create_*",
        "delete_*",
        "remove_*",
        "drop_*",
        "destroy_*",
        "send_*",
        "push_*",
        "write_*",
        "update_*",
        "insert_*",
        "upsert_*",
        "set_*",
        "put_*",
        "post_*",
        "add_*",
        "move_*",
        "rename_*",
        "merge_*",
        "publish_*",
        "deploy_*",
        "execute_*",
        "run_*",
        "kill_*",
        "edit_*",
        "upload_*",
        "pay_*",
        "transfer_*",
    ]
    """Globs of names that tell of a side effect, where nothing better is known. `createIssue` and `create-issue` count
    as `create_issue`, here and below."""

    destructive_names: list[str] = ["delete_*", "remove_*", "drop_*", "destroy_*", "kill_*", "truncate_*", "purge_*"]
    """Globs of names that tell of destruction, where nothing better is known."""

    read_names: list[str] = ["get_*", "list_*", "search_*", "find_*", "read_*", "fetch_*", "query_*", "describe_*"]
    """Globs of names that sound like mere reading, where nothing better is known: calls of these tools leave alone what
    is cached of their server. It counts for nothing else (not for rules, risk, retries, nor to be cached), since any
    server can name a tool so."""


class Hints(Struct, frozen=True):
    """What a tool says of itself (spec, tools, annotations); None where it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


NO_HINTS = Hints()
NO_RETRY = RetrySettings(tries=1)
DEFAULT_RESULTS = ResultOptions()


class CallOptions(Struct, frozen=True):
    """How the calls of one tool are treated: every setting, resolved."""

    permission: Permission = "allow"
    risk: Risk = "medium"
    effect: Effect = "unknown"
    """What is known of it: it only reads, it changes something, or neither is known. That it only reads is said by the
    configuration or by a trusted server; a name alone proves nothing."""
    seems_read: bool = False
    """Its name sounds like reading, and nothing speaks against that: enough not to forget what is cached, no more."""
    is_destructive: bool = False
    is_idempotent: bool = False
    """Reading counts."""
    arguments: Literal["coerce", "check", "pass"] = "coerce"
    inject_defaults: bool = True
    timeouts: Timeouts | None = None
    """Its own; None: those of its server."""
    late: Literal["keep", "cancel"] = "keep"
    retry: RetrySettings = NO_RETRY
    cache: float = 0.0
    is_cache_shared: bool = False
    is_serial: bool = False
    """One call at a time for each server and client."""
    max_concurrent: int = 0
    """Calls of this tool at a time; 0: no limit of its own."""
    rate_limit: Rate | None = None
    """How often this tool may be called, by all clients together."""
    server_rate_limit: Rate | None = None
    """The same, of all tools of its server together."""
    log_content: bool = False
    results: ResultOptions = DEFAULT_RESULTS
    """What becomes of large results."""


def resolve(
    name: str,
    hints: Hints,
    *,
    tool: CallSettings | None,
    server: CallSettings | None,
    calls: CallDefaults,
    is_trusted: bool,
    limits: tuple[int, Rate | None, Rate | None] = (0, None, None),
    is_local: bool = False,
    results: ResultOptions = DEFAULT_RESULTS,
) -> CallOptions:
    """The options of one tool. `name`: the server's own; `limits`: its `max_concurrent`, `rate_limit`, the server's."""
    levels = [level for level in (tool, server, calls) if level is not None]
    own = [level for level in (tool, server) if level is not None]

    def nearest(key: str, default: _T) -> _T:
        for level in levels:
            if (value := getattr(level, key)) is not None:
                return value
        return default

    spoken = _spoken(name)
    read_only = _known(nearest("read_only", None), hints.read_only, is_trusted, believed=False)
    effect: Effect = "read" if read_only else "unknown" if read_only is None else "write"
    if read_only is None and (_matches(spoken, calls.write_names) or _matches(spoken, calls.destructive_names)):
        effect = "write"
    destructive = _known(nearest("destructive", None), hints.destructive, is_trusted, believed=True)
    if destructive is None:
        destructive = _matches(spoken, calls.destructive_names)
    destructive = destructive and not read_only
    effect = "write" if destructive else effect
    idempotent = bool(_known(nearest("idempotent", None), hints.idempotent, is_trusted, believed=None))
    guessed: Risk = "high" if destructive else "low" if effect == "read" else "medium"
    idle = nearest("call_timeout", LOCAL_SECONDS if is_local else CALL_SECONDS)
    has_own_time = is_local or any(
        level.call_timeout is not None or level.max_call_timeout is not None for level in own[:1] if level is tool
    )
    return CallOptions(
        permission=nearest("permission", "allow"),
        risk=nearest("risk", guessed),
        effect=effect,
        seems_read=effect == "unknown" and _matches(spoken, calls.read_names),
        is_destructive=destructive,
        is_idempotent=idempotent or (bool(read_only) and nearest("idempotent", default=True)),
        arguments=nearest("arguments", "coerce"),
        inject_defaults=nearest("inject_defaults", default=True),
        timeouts=Timeouts(idle, max(idle, nearest("max_call_timeout", LONGEST_SECONDS))) if has_own_time else None,
        late=nearest("late", "keep"),
        retry=nearest("retry", NO_RETRY),
        cache=_kept_for(effect, tool, nearest("cache", 0.0)),
        is_cache_shared=nearest("cache_scope", "private") == "shared",
        is_serial=effect == "write" and nearest("side_effects", "serial") == "serial",
        max_concurrent=limits[0],
        rate_limit=limits[1],
        server_rate_limit=limits[2],
        log_content=nearest("log_content", default=False),
        results=results,
    )


def _kept_for(effect: Effect, tool: CallSettings | None, seconds: float) -> float:
    """Seconds that results are kept. What writes never; what may write only if that is said of the tool itself."""
    is_meant = effect == "read" or (effect == "unknown" and tool is not None and tool.cache is not None)
    return seconds if is_meant else 0.0


def _known(configured: bool | None, hint: bool | None, is_trusted: bool, *, believed: bool | None) -> bool | None:
    """What is known of one claim. A server that is not trusted is `believed` only what speaks against its tool."""
    if configured is not None:
        return configured
    return hint if is_trusted or (hint is not None and hint is believed) else None


def _matches(spoken: Sequence[str], globs: Sequence[str]) -> bool:
    matches = _pattern(tuple(globs)).fullmatch
    return any(matches(name) for name in spoken)


@lru_cache(maxsize=64)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all. `create` alone counts as `create_*`."""
    either = [*globs, *(glob.removesuffix("_*") for glob in globs)]
    return re.compile("|".join(translate(glob) for glob in dict.fromkeys(either))) if globs else _NOTHING


_NOTHING = re.compile(r"(?!)")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]")
_NAMESPACE = re.compile(r"[./:]")


def _spoken(name: str) -> tuple[str, ...]:
    """`createIssue` and `create-issue` as `create_issue`; of `github.createIssue` also what stands behind the dot."""
    last = _NAMESPACE.split(name)[-1]
    whole = _NEW_WORD.sub("_", name).lower()
    return (whole,) if last == name else (whole, _NEW_WORD.sub("_", last).lower())
