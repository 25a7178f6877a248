"""What can be set about calls, and the defaults: the `[calls]` section, and the same keys of a server or a tool.

`core/settings_precedence.py` decides which level wins; the stages of `pipeline/` do what is set here.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.units import RateText, Seconds
from mcpbridge.protocol.deadlines import Timeouts

Permission = Literal["allow", "require_approval", "deny"]
Risk = Literal["low", "medium", "high"]
Label = Literal["private", "untrusted", "sends"]
"""What a call touches: private data, text that strangers wrote, or a way out."""
Labels = frozenset[Label]

CALL_SECONDS, LOCAL_SECONDS, LONGEST_SECONDS = 60.0, 30.0, 600.0
"""Seconds for a call of an upstream's tool, of a local tool, and for any call in all, where nothing is configured."""


def call_deadlines(idle: float, longest: float | None) -> Timeouts:
    """The deadlines of a call, from `call_timeout` and `max_call_timeout`. The longer of the two bounds it in all."""
    return Timeouts(idle, max(idle, LONGEST_SECONDS if longest is None else longest))


class RetrySettings(BaseModel):
    """When a failed call is tried again. A call that may have had an effect is not: see `docs/explanation/calls.md`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    tries: int = Field(default=3, ge=1, le=10)
    """Attempts in all. 1: no retry."""

    backoff: Seconds = Field(default=0.5, ge=0)
    """Seconds; upper bound of the first wait. It doubles with every attempt. The actual wait is random below it."""

    max_backoff: Seconds = Field(default=10, ge=0)
    """Seconds; the upper bound stops growing here."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        """Take `retry = 3` for so many tries."""
        return {"tries": value} if isinstance(value, int) and not isinstance(value, bool) else value


class CallSettings(BaseModel):
    """Settings of calls: for one tool, for all tools of a server, or for all calls.

    A key that is left out takes its value from the next level.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    permission: Permission | None = None
    """`allow`: the tool may be called. `require_approval`: a person is asked each time. `deny`: it can be neither
    called nor listed."""

    risk: Risk | None = None
    """How much harm a call can do, for rules in `permissions`. Default: derived from what the tool does."""

    read_only: bool | None = None
    """Whether the tool changes nothing. Default: its `readOnlyHint` if the server is `trusted`, otherwise unknown. A
    name can show that a tool changes something (`calls.write_names`), but never that it only reads."""

    destructive: bool | None = None
    """Whether the tool may destroy something. Default: its `destructiveHint` if the server is `trusted`, otherwise its
    name decides."""

    idempotent: bool | None = None
    """Whether a second identical call has no further effect. Default: its `idempotentHint` if the server is
    `trusted`."""

    arguments: Literal["coerce", "check", "pass"] | None = None
    """What happens to arguments. `coerce` (default): harmless mistakes are corrected, then the arguments are validated.
    `check`: only validated. `pass`: neither."""

    inject_defaults: bool | None = None
    """Whether missing arguments get the default of the tool's schema, so that rules see them. Default: yes."""

    call_timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds to wait for the answer to a call. Each progress message starts the time again. Default: 60; 30 for local
    tools."""

    max_call_timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds for one call in all, whatever progress it reports. Default: 600."""

    late: Literal["keep", "cancel"] | None = None
    """What happens to a call whose client stopped waiting. `keep` (default): it continues, and its result is kept for
    later. `cancel`: it is cancelled. A call that a person cancels is always cancelled."""

    retry: RetrySettings | None = None
    """When a failed call is tried again: a table, or a number of tries. Default: never."""

    cache: Seconds | None = Field(default=None, ge=0)
    """Seconds for which a result answers the same call again. Identical calls at the same time run once. Default: 0,
    never. Set for a server or for all calls, it applies only to tools known to be read-only (`read_only`, `trusted`). A
    tool that writes is never cached."""

    cache_scope: Literal["private", "shared"] | None = None
    """Who gets a cached result. `private` (default): the principal whose call produced it. `shared`: everybody."""

    side_effects: Literal["serial", "parallel"] | None = None
    """Whether tools that change something run one at a time for each server and client (`serial`, default) or
    concurrently (`parallel`)."""

    labels: list[Label] | None = None
    """What calls do, for `trust.strict`: `private` (they read private data), `untrusted` (they bring in what strangers
    wrote), `sends` (they can send something out). `[]`: nothing of that. Default: what is known of the server; of
    others, tools that read have the first two and all others the last."""

    redact: list[Literal["secrets", "pii"]] | None = None
    """What a model does not get to see of results, resources and prompts: `secrets`, `pii` (mail addresses, and numbers
    of phones, accounts, cards and citizens). Placeholders take their place; a model may pass these to tools of the same
    server. Default: none."""

    redact_arguments: list[Literal["secrets", "pii"]] | None = None
    """What a tool or prompt does not get in its arguments: `secrets`, `pii`. It gets placeholders instead. Values that
    came from its server stay, if `redact` is set as well: models have only placeholders of these. Default: none."""

    log_content: bool | None = None
    """Whether the call log keeps the arguments and results, not only their size and digest. Default: yes in the history
    of a user's own daemon (or `serve` on stdio), for that user's calls; no for `serve --http`, for users who come with
    a token of their own, with `call_log.enabled = true`, and with `store.key`."""


class CallDefaults(CallSettings, BaseModel):
    """The `calls` section: how calls are treated unless their server or tool says otherwise, and overall limits."""

    late_lifetime: Seconds = Field(default=3600, gt=0)
    """Seconds for which the result of a call is kept after its client stopped waiting."""

    batch: int = Field(default=5, ge=1)
    """Calls of one model turn that run at a time. Further ones wait; results keep the order of the calls. A turn is a
    JSON-RPC batch, a list of calls of the library, or calls with the same `_meta["mcpbridge/turn"]`."""

    max_per_client: int = Field(default=0, ge=0)
    """Calls of one client that run at a time. 0: no limit."""

    max_queued: int = Field(default=64, ge=0)
    """Calls that may wait for each of these limits. Further ones are refused."""

    rate_limit: RateText | None = None
    """How often one client may call: `30/min`, `5/s`, `100/h`. After a pause that many calls may come at once, then
    evenly. An authenticated client has one rate for all its sessions. Default: no limit."""

    max_chain: int = Field(default=0, ge=0)
    """Consecutive calls in one run. 0: no limit. `_meta["mcpbridge/run"]` names a run; without it, a run ends when the
    conversation pauses for `chain_pause`."""

    chain_pause: Seconds = Field(default=60, gt=0)
    """Seconds without a call after which a new run begins, for clients that do not name runs."""

    max_calls: int = Field(default=0, ge=0)
    """Calls that one conversation may make. 0: no limit."""

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
    """Globs on names of tools that change something, used when nothing better is known. `createIssue` and
    `create-issue` count as `create_issue`, here and below."""

    destructive_names: list[str] = ["delete_*", "remove_*", "drop_*", "destroy_*", "kill_*", "truncate_*", "purge_*"]
    """Globs on names of tools that destroy something, used when nothing better is known."""

    read_names: list[str] = ["get_*", "list_*", "search_*", "find_*", "read_*", "fetch_*", "query_*", "describe_*"]
    """Globs on names of tools that seem to read only, used when nothing better is known. Their calls do not clear the
    cached results of their server. The names have no other effect (on rules, risk, retries or caching), since any
    server can choose such a name."""
