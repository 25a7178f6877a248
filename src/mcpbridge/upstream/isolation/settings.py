"""The `sandbox` table of a server: what its program may reach and use."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from mcpbridge.sandbox.settings import SandboxOverrides

BY_PACKAGE = "auto"
"""The value of `profile` for the one that is known for the server's package."""


class ServerSandbox(SandboxOverrides):
    """The `sandbox` table of a server. A key that is left out takes its value from `[sandbox]`.

    A job is the program of the server with all that it starts. `timeout`, `disk` and `output` do not apply to it.
    """

    profile: str | None = None
    """What a well-known server needs, by the name of its profile; `"auto"`: the one for its package. The other keys of
    the table add files to it, and replace its `network`. `sandbox = "profile"` is short for `{ profile = "auto" }`."""

    network: Literal["none", "open"] | tuple[str, ...] | None = None
    """What the program can reach. `"none"`: nothing. `"open"`: all that the machine reaches, its own services included.
    A list of `HOST:PORT`: these alone, through a proxy of the bridge; `*.example.com:443` stands for all names below
    one. Default: what `allow_network` says, an older name of it."""

    install_network: Literal["none", "open"] | tuple[str, ...] | None = None
    """What `npx` and `uvx` reach while they install their package, before a server without an open network starts: a
    list as in `network`, or `"open"`. `"none"`: nothing is installed. Default: the package registries that the
    environment names, else npm's and Python's."""

    cpus: int | None = Field(default=None, ge=1)
    """Processors that the program may use at a time. Default: all of the bridge's."""

    @field_validator("network", "install_network")
    @classmethod
    def _is_a_list_of_hosts(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if isinstance(value, tuple):
            from mcpbridge.sandbox.egress.rules import Rules  # few servers have such a list

            Rules(value)
        return value

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The list of what it can reach; None: there is no list."""
        return self.network if isinstance(self.network, tuple) else None

    @model_validator(mode="after")
    def _has_one_network(self) -> Self:
        if self.network is not None and self.allow_network is not None:
            raise ValueError("`network` and `allow_network` say the same: take out `allow_network`")
        return self
