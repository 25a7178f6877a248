"""What can be set about calls, and the defaults: the `[calls]` section, and the same keys of a server or a tool.

`core/settings_precedence.py` decides which level wins; the stages of `pipeline/` do what is set here.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.units import RateText, Seconds

Permission = Literal["allow", "require_approval", "deny"]
Risk = Literal["low", "medium", "high"]

CALL_SECONDS, LOCAL_SECONDS, LONGEST_SECONDS = 60.0, 30.0, 600.0
"""Seconds for a call of an upstream's tool, of a local tool, and for any call in all, where nothing is configured."""


class RetrySettings(BaseModel):
    """When a failed call is tried again. Only what certainly, or harmlessly, can be (`docs/explanation/calls.md`)."""

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
