"""The `limits` section of the configuration: how large a message of a peer may be."""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Bytes

LARGEST_FRAME = 64 * 1024**2
"""Bytes of the largest message that is read from a peer, if the configuration does not say."""


class LimitSettings(BaseModel):
    """The `limits` section: the largest messages that the bridge accepts."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    max_frame: Bytes = Field(default=LARGEST_FRAME, ge=1024)
    """Bytes of the largest message that is accepted from a client or a server."""
