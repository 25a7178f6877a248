"""The `roles` of the configuration: who has each role, and what the role opens.

Who has a role is said by selectors over what a checked token says. What it opens is said by globs, as in
`permissions`. Roles say what there is for somebody; `permissions` say what becomes of a call of it.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import RateText, Seconds
from mcpbridge.pipeline.permissions.conditions import LONGEST, Faulty, condition_of
from mcpbridge.pipeline.permissions.settings import or_one, with_lists

_WHO = ("groups", "emails", "scopes", "clients", "issuers", "principals")
_WHAT = ("tools", "servers", "prompts", "resources")
_LISTS = (*_WHO, *_WHAT, "deny", "approve", "quota", "secrets")


class RoleSettings(BaseModel):
    """One role.

    Somebody has it if all its selectors match. Who has several roles may do what any of them opens, and nothing that
    one of them denies. A list of one entry may be written as a single value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """The name of the role: for logs, `permissions` and people."""

    groups: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the groups that the token names. One must match."""

    emails: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the e-mail address (`*@example.com`), in any case of letters. One must match. An address counts only if
    the token says that it is verified (`email_verified`)."""

    scopes: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the scopes of the token. One must match."""

    clients: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the OAuth client that the token was issued to. One must match."""

    issuers: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the issuer of the token, as its `iss` spells it. One must match."""

    principals: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on principals: names in `http.tokens`, and `ISSUER#SUBJECT` for people who sign in. One must match. `*` is
    everybody who is authenticated. The empty name is the local user, whom no glob matches."""

    when: str | None = Field(default=None, max_length=LONGEST)
    """A condition on the claims of the token in the Common Expression Language, such as `claims.department == "R&D"`.
    If it cannot be evaluated, the role opens nothing, and what it denies is denied."""

    tools: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the tools that it opens: ids (`github/get_*`), or names without a server (`get_*`)."""

    servers: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the servers of which it opens everything: tools, prompts and resources."""

    prompts: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the prompts that it opens: `server/name`, or names without a server."""

    resources: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on the resources that it opens: `server/URI`, with the URI as the server has it. A template is listed if a
    glob matches its text."""

    deny: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on tools and prompts (`server/name` or a name), and on resources (`server/URI`), that it denies, whatever
    other roles open."""

    read_only: bool = False
    """Of the tools, it opens only those that are known to change nothing, as `read_only` in `permissions` has it."""

    approve: list[str] = Field(default=[], json_schema_extra=or_one)
    """Globs on those of its tools of which a person must agree to each call. Another role that opens the same tool
    without this does away with it."""

    console: Literal["admin", "view-all", "view"] | None = None
    """What people with this role do in the console, once they signed in at the identity provider: `admin` sees and
    changes everything but what runs on its machine, `view-all` sees everything, with everybody's calls, `view` sees
    their own calls and their own usage. Of several roles, the most counts. Default: nothing of it."""

    profile: str | None = None
    """The profile that those with this role see, unless they ask for another one. Of several roles with one, the first
    counts."""

    secrets: list[str] | None = Field(default=None, json_schema_extra=or_one)
    """Globs on servers whose secrets those with this role may use without seeing them: the placeholders of `redact` are
    turned back in their calls. `[]`: none. Default: those of all servers. Of several roles, each counts."""

    rate_limit: RateText | None = None
    """The most calls in a time for each person, such as `"60/min"`, in place of `calls.rate_limit`. Of several roles
    with one, the most generous counts."""

    max_calls: int | None = Field(default=None, ge=0)
    """The most calls of one conversation, in place of `calls.max_calls`; 0: any number. Of several roles with one, the
    most generous counts."""

    quota: list[str] = Field(default=[], json_schema_extra=or_one)
    """How much its holders may use: `"1000 calls per day"`, `"2M tokens per month"` (also `hour` and `week`, by the
    calendar), or `"200 calls in 24h"` (in any 24 hours). All must have room. Who has several roles with quotas may call
    as long as one of them has room; the call counts for each that has."""

    quota_of: Literal["person", "team"] = "person"
    """Whether each holder has the quota, or all holders of the role have it together."""

    quota_zone: str = "UTC"
    """The time zone in which hours, days, weeks and months begin, such as `Europe/Berlin`."""

    usage: Literal["own", "team", "all"] = "own"
    """Whose usage its holders may see (`GET /api/usage`): their own, that of everybody who called by this role, or
    everybody's. Of several roles, each counts."""

    break_glass: bool = False
    """Nobody has the role by itself. Those whom it is for take it for a time and give a reason, which is recorded:
    `mcpbridge auth break-glass`."""

    break_glass_time: Seconds = Field(default=3600.0, gt=0, le=86400)
    """The longest time for which it can be taken."""

    @model_validator(mode="before")
    @classmethod
    def _from_one(cls, value: object) -> object:
        """Take a single value for a list of one."""
        return with_lists(value, _LISTS)

    @field_validator("quota")
    @classmethod
    def _are_quotas(cls, value: list[str]) -> list[str]:
        if value:
            from mcpbridge.pipeline.roles.quotas import parse_quota  # few bridges have any

            counted = [parse_quota(text).counted for text in value]
            if len(set(counted)) < len(counted):
                raise ValueError("two quotas count the same in the same time; the smaller one is enough")
        return value

    @field_validator("quota_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        if value != "UTC":
            from mcpbridge.pipeline.roles.quotas import zone_of

            zone_of(value)
        return value

    @field_validator("when")
    @classmethod
    def _is_about_claims(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                others = condition_of(value).reads - {"claims"}
            except Faulty as error:
                raise ValueError(f"not a condition: {error}") from error
            if others:
                raise ValueError(
                    f"the condition of a role is about `claims` alone, and this one reads `{min(others)}`; conditions "
                    "on calls belong into `permissions`, where a rule can name the role"
                )
        return value

    @model_validator(mode="after")
    def _says_who_and_what(self) -> Self:
        if self.when is None and not any(getattr(self, selector) for selector in _WHO):
            raise ValueError(
                f"the role '{self.name}' does not say who has it: give one of "
                f"{', '.join(f'`{selector}`' for selector in (*_WHO, 'when'))}; "
                '`principals = ["*"]` is everybody who is authenticated'
            )
        opens = self.console is not None or any(getattr(self, opened) for opened in _WHAT)
        if not self.deny and not opens:
            raise ValueError(
                f"the role '{self.name}' opens nothing and denies nothing: give one of "
                f"{', '.join(f'`{opened}`' for opened in (*_WHAT, 'deny', 'console'))}"
            )
        without_server = [glob for glob in self.resources if "/" not in glob]
        if without_server:
            raise ValueError(f"`resources` of the role '{self.name}': {without_server[0]!r} is not `server/URI`")
        return self
