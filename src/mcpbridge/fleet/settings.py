"""The `fleet` section of the configuration."""

import hmac
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_ADDRESS = r"^(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):\d{1,5}$"
_STATES = b"mcpbridge fleet, request states, 1"
_EVERYWHERE = ("0.0.0.0", "[::]")  # noqa: S104 - what must be advertised by another name


class FleetSettings(BaseModel):
    """The `fleet` section: bridges behind one balancer that act as one. It needs a `store` of kind `redis`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    listen: str | None = Field(default=None, pattern=_ADDRESS)
    """Where the other bridges of the fleet reach this one, `HOST:PORT`, such as `0.0.0.0:7946`; port 0 takes any free
    one. Default: there is no fleet. Only bridges with the same `key` get in."""

    advertise: str | None = Field(default=None, pattern=_ADDRESS)
    """The same address as the others see it, such as `10.0.0.5:7946`. Default: `listen`, unless that is every address
    of the machine."""

    key: str | None = Field(default=None, min_length=16, repr=False)
    """A secret that all bridges of the fleet have, such as `${FLEET_KEY}`: `openssl rand -base64 32` makes one. The
    certificates of the link follow from it."""

    @property
    def state_key(self) -> str | None:
        """The secret that seals what clients hold for the bridges; it follows from `key`. None: there is no fleet."""
        return None if self.key is None else hmac.digest(self.key.encode(), _STATES, "sha256").hex()

    name: str = Field(default="", max_length=64)
    """What this bridge is called in `mcpbridge fleet members`. Default: the name of the machine."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.listen is None:
            if self.advertise is not None or self.key is not None or self.name:
                raise ValueError("needs `listen`, the address for the other bridges, such as `0.0.0.0:7946`")
            return self
        if self.key is None:
            raise ValueError("needs `key`, a secret that all bridges of the fleet have, such as `${FLEET_KEY}`")
        if self.advertise is None and self.listen.startswith(_EVERYWHERE):
            raise ValueError("needs `advertise`, an address that the other bridges reach, such as `10.0.0.5:7946`")
        return self
