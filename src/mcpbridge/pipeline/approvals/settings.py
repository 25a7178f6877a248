"""The `approval` section of the configuration: who is asked, how long, and how long a yes holds."""

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Seconds
from mcpbridge.pipeline.permissions.settings import ApproveBySettings

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class WebhookSettings(BaseModel):
    """The `approval.webhook` section: where the bridge reports calls that wait for other people."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    url: str
    """The address that gets a POST for each such call: `https://`, or `http://` on this machine. The whole of it is a
    secret, such as `"${SLACK_WEBHOOK_URL}"`."""

    secret: str | None = Field(default=None, min_length=16)
    """What signs each message, so that the receiver can verify it (Standard Webhooks, `webhook-signature`): a text, or
    `whsec_` and base64. Default: messages are not signed."""

    format: Literal["slack", "json"] = "slack"
    """`slack`: text and blocks, as incoming webhooks of Slack and many others take them. `json`: the facts alone."""

    arguments: bool | None = None
    """Whether the message shows the beginning of the arguments. Secrets in it are masked. Default: it does, except for
    tools with `log_content = false`. `true`: for these as well."""

    timeout: Seconds = Field(default=10, gt=0, le=60)
    """Seconds that one try may take. There are four, within a minute. The call waits for none of them."""

    @field_validator("secret", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        """Take an empty `${VAR:-}` for no secret."""
        return None if value == "" else value

    @field_validator("url")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        if "${" in value:  # a reference that was not read yet
            return value
        try:
            parts = urlsplit(value)
            is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        except ValueError:
            is_safe = False
        if not is_safe or re.match(r"https?://[^/?#@\s]+([/?#]\S*)?\Z", value) is None:
            raise ValueError("expected an https:// address without a user name (http:// is for this machine alone)")
        return value


class ApprovalSettings(BaseModel):
    """The `approval` section: how people approve calls whose permission is `require_approval`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    ask: list[Literal["client", "pending"]] = ["client", "pending"]
    """Who is asked, in this order; if one cannot be asked, the next one is. `client`: the person at the client, if it
    shows forms. `pending`: the call waits for `mcpbridge approve` or the HTTP API. Empty: nobody, so such calls are
    refused."""

    approve_by: ApproveBySettings | None = None
    """Who may approve calls, where the rule that asks for it does not say: other people, by role or name. Default:
    whoever sits at the client, and the operator of the bridge."""

    webhook: WebhookSettings | None = None
    """Where calls are reported that wait for other people (`approve_by`). Default: nowhere."""

    timeout: Seconds = Field(default=300, gt=0)
    """Seconds that a person has to answer. No answer means no."""

    grant_lifetime: Seconds = Field(default=600, gt=0)
    """Seconds for which a call can still be approved after it stopped waiting, and then seconds for which the same call
    passes once without a new question."""

    session_lifetime: Seconds = Field(default=8 * 3600, gt=0)
    """Seconds for which an approval for the session is valid, for the same call in the same session."""

    max_pending: int = Field(default=64, ge=1)
    """Calls of one principal that may wait for approval. Further ones are refused."""
