"""The `approval` section of the configuration: who is asked, how long, and how long a yes holds."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds


class ApprovalSettings(BaseModel):
    """The `approval` section: how people agree to calls whose permission is `require_approval`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ask: list[Literal["client", "pending"]] = ["client", "pending"]
    """Who is asked, in this order; the next one where the one before cannot be. `client`: whoever sits at the client,
    if it shows forms. `pending`: the call waits for `mcpbridge approve` or the HTTP API. Empty: nobody, so such calls
    are refused."""

    timeout: Seconds = Field(default=300, gt=0)
    """Seconds that a person has to answer. Silence is a no."""

    grant_lifetime: Seconds = Field(default=600, gt=0)
    """Seconds after the call gave up waiting in which it can still be approved; and then that long in which the same
    call passes once without being asked for again."""

    session_lifetime: Seconds = Field(default=8 * 3600, gt=0)
    """Seconds that a yes for the session holds at most, for the same call in the same session."""

    max_pending: int = Field(default=64, ge=1)
    """Calls of one principal that may wait for an answer at a time; further ones are refused."""
