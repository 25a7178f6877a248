"""The `approval` section of the configuration: who is asked, how long, and how long a yes holds."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds


class ApprovalSettings(BaseModel):
    """The `approval` section: how people approve calls whose permission is `require_approval`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ask: list[Literal["client", "pending"]] = ["client", "pending"]
    """Who is asked, in this order; if one cannot be asked, the next one is. `client`: the person at the client, if it
    shows forms. `pending`: the call waits for `mcpbridge approve` or the HTTP API. Empty: nobody, so such calls are
    refused."""

    timeout: Seconds = Field(default=300, gt=0)
    """Seconds that a person has to answer. No answer means no."""

    grant_lifetime: Seconds = Field(default=600, gt=0)
    """Seconds for which a call can still be approved after it stopped waiting, and then seconds for which the same call
    passes once without a new question."""

    session_lifetime: Seconds = Field(default=8 * 3600, gt=0)
    """Seconds for which an approval for the session is valid, for the same call in the same session."""

    max_pending: int = Field(default=64, ge=1)
    """Calls of one principal that may wait for approval. Further ones are refused."""
