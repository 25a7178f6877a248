"""The `trust` section: what is watched for in a session."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class TrustSettings(BaseModel):
    """The `trust` section: whether a session may read private data, meet untrusted content, and then send freely."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    strict: bool = False
    """`true`: a session that has read private data and untrusted content asks a person before a call that can send
    something out. `labels` of servers and tools say which calls do what."""

    trifecta: Literal["off", "ask", "deny"] | None = None
    """What happens to such a call. `ask`: a person must approve it. `deny`: it is refused. `off`: nothing. Default:
    `ask` with `strict = true`, otherwise `off`."""

    @property
    def watches(self) -> Literal["off", "ask", "deny"]:
        """What happens to a call that would complete the three."""
        return self.trifecta or ("ask" if self.strict else "off")
