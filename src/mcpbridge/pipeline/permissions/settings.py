"""The `permissions` of the configuration: rules about who may call what; the first one that matches decides.

Also which tools a glob is about, the same for the configuration, programs and commands. A glob without a slash is about
names, `server/name` about both. A tool that the configuration renames goes by either name, so that who renames a tool
takes no rule and no hook off it. Case counts.
"""

import re
from collections.abc import Collection, Iterable
from fnmatch import translate
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Seconds
from mcpbridge.core.call_settings import Permission, Risk
from mcpbridge.core.model import ApproveBy, Tool
from mcpbridge.pipeline.permissions.conditions import LONGEST, Faulty, condition_of

_LISTS = ("tools", "servers", "risk", "clients", "principals", "roles", "ask")


def or_one(schema: dict[str, Any]) -> None:
    """The JSON schema of a setting that may also be a single value of its list; for editors."""
    if "anyOf" in schema:  # a list that may be left out
        schema["anyOf"].insert(1, next(one["items"] for one in schema["anyOf"] if "items" in one))
        return
    kinds = {"type": schema.pop("type"), "items": schema.pop("items")}
    schema["anyOf"] = [kinds, kinds["items"]]


def with_lists(value: object, lists: Collection[str]) -> object:
    """What is written for a model, in which a single text in place of one of these lists is a list of one."""
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    return {key: [one] if key in lists and isinstance(one, str) else one for key, one in members.items()}


class ApproveBySettings(BaseModel):
    """Who may approve calls, in place of whoever sits at the client that makes them."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    roles: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on roles (`name` in `roles`). Whoever has one of them may approve."""

    principals: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on principals: names in `http.tokens`, and `ISSUER#SUBJECT` for people who sign in. They may approve, too.
    No glob matches the local user."""

    four_eyes: bool = True
    """Whether whoever makes a call may not approve it."""

    operator: bool = False
    """Whether the operator of the bridge may approve, too: with `mcpbridge approve` or `mcpbridge ui` on its machine,
    or as the program that it runs in."""

    timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds that they have to answer; no answer means no. Default: `approval.timeout`."""

    @model_validator(mode="before")
    @classmethod
    def _from_one(cls, value: object) -> object:
        """Take a single value for a list of one."""
        return with_lists(value, ("roles", "principals"))

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if not (self.roles or self.principals or self.operator):
            raise ValueError("nobody may approve: give `roles` or `principals`, or set `operator = true`")
        return self

    @property
    def value(self) -> ApproveBy:
        """The same, for a call."""
        return ApproveBy(tuple(self.roles), tuple(self.principals), self.four_eyes, self.operator, self.timeout)


class PermissionRule(BaseModel):
    """One rule.

    It matches a call if all its selectors do. A selector that is left out matches every call. A list of one entry may
    be written as a single value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    permission: Permission
    """What happens to the calls that match: `allow`, `require_approval` (a person is asked each time) or `deny`. A tool
    whose every call is denied is not listed."""

    reason: str = Field(default="", max_length=500)
    """The reason. The client sees it with a refusal, and the person who approves sees it with the question."""

    approve_by: ApproveBySettings | None = None
    """Who may approve the calls, with `permission = "require_approval"`: other people, by role or name. Whoever sits at
    the client is not asked then. Default: `approval.approve_by`."""

    ask: list[Literal["client", "pending", "cli", "console", "page", "api", "webhook"]] | None = Field(
        default=None, min_length=1, json_schema_extra=or_one
    )
    """Where people are asked about the calls, with `permission = "require_approval"`, and where alone they may answer:
    `client` (a form), `cli` (`mcpbridge approve` and `mcpbridge ui`), `console`, `page` (`/approvals`), `api`,
    `webhook` (a message whose link leads to the page). `pending` is all of these but `client`. If the first cannot be
    asked, the next one is. `page` and `webhook` need `approve_by`. Default: `approval.ask`."""

    tools: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on tools: ids (`github/delete_*`), or names without a server (`delete_*`). One must match. A renamed tool
    matches by its old and its new name."""

    servers: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on names of servers. One must match."""

    risk: list[Risk] = Field(default=[], json_schema_extra=or_one)
    """`low`, `medium`, `high`: how much harm a call can do. Where `risk` of a tool is not set, it is derived from what
    the tool does."""

    read_only: bool | None = None
    """`true`: the tool is known to change nothing, by its `read_only` or by annotations of a `trusted` server (a name
    such as `get_…` proves nothing). `false`: all other tools, including those of which it is unknown."""

    side_effects: bool | None = None
    """`true`: the tool is known to change something. `false`: all other tools, including those of which it is
    unknown."""

    destructive: bool | None = None
    """Whether the tool may destroy something."""

    idempotent: bool | None = None
    """Whether a second identical call has no further effect."""

    clients: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the names of clients (`clientInfo.name`). One must match. A client can choose any name, so this rule
    does not keep out a hostile one; `principals` does."""

    principals: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on names in `http.tokens`. One must match. A client on standard input has the empty name."""

    roles: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the roles of whoever calls (`name` in `roles`). One must match."""

    when: str | None = Field(default=None, max_length=LONGEST)
    """A condition on the call in the Common Expression Language, such as `args.amount > 100`. It can use `args`,
    `tool`, `client`, `context` and `claims`. The client itself supplies `context`, so a condition on it does not keep
    out a hostile client. Only `client.principal` and `claims` are proven, and `context.tenant` if the client's token
    has a `tenant`. `claims` is what the token of a person says; of others it is empty. If the condition cannot be
    evaluated, `deny` and `require_approval` match and `allow` does not."""

    @model_validator(mode="before")
    @classmethod
    def _from_one(cls, value: object) -> object:
        """Take a single value for a list of one."""
        return with_lists(value, _LISTS)

    @field_validator("when")
    @classmethod
    def _can_be_evaluated(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                condition_of(value)
            except Faulty as error:
                raise ValueError(f"not a condition: {error}") from error
        return value

    @model_validator(mode="after")
    def _approves_what_needs_it(self) -> Self:
        if self.approve_by is not None and self.permission != "require_approval":
            raise ValueError(f'`approve_by` needs `permission = "require_approval"`, not {self.permission!r}')
        if self.ask is not None and self.permission != "require_approval":
            raise ValueError(f'`ask` needs `permission = "require_approval"`, not {self.permission!r}')
        return self


class ToolGlobs:
    """Globs, of which one must match. Without any, nothing does."""

    def __init__(self, texts: Iterable[str]) -> None:
        texts = list(texts)
        with_server = [text.partition("/") for text in texts if "/" in text]
        self._ids = [(globs([server]), globs([name])) for server, _, name in with_server]
        self._names = globs(text for text in texts if "/" not in text)

    def cover(self, tool: Tool) -> bool:
        """Whether they are about this tool."""
        return self.match(tool.server, names_of(tool))

    def match(self, server: str, names: Iterable[str]) -> bool:
        """The same, for a tool of this server that goes by these names."""
        names = list(names)
        if any(map(self._names.fullmatch, names)):
            return True
        # Server and name each by its own part: a slash inside a name must not make it another server's.
        return any(of.fullmatch(server) and any(map(name.fullmatch, names)) for of, name in self._ids)


def names_of(tool: Tool) -> frozenset[str]:
    """The server's own name of a tool, and the one that the configuration gives it."""
    return frozenset((tool.name, tool.id.removeprefix(f"{tool.server}/")))


def globs(texts: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all, for whole names; where there are none it matches nothing."""
    patterns = [translate(text) for text in texts]
    return re.compile("|".join(patterns)) if patterns else _NOTHING


_NOTHING = re.compile(r"(?!)")
