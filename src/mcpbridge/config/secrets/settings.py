"""The `secrets` section: how values of `${cmd:…}`, `${keyring:…}` and `${secret:…}` are fetched, and how often.

It is read before all others, since it says how the values of the others are fetched: no `${…}` may be in it.
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds


class SecretsSettings(BaseModel):
    """The `secrets` section: values that come from commands, keyrings and the store of `mcpbridge secret`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    refresh: Seconds = Field(default=3600, ge=0)
    """Seconds after which a running bridge fetches such a value again. If it is another one, the servers that have it
    are started or connected to anew. 0: only on `mcpbridge reload`, or when a server refuses the old one (HTTP 401)."""

    timeout: Seconds = Field(default=30, gt=0)
    """Seconds that a command or a keyring may take. After that the value counts as missing."""
