"""The Builtin protocol: a tool that the bridge answers itself."""

from typing import Any, Protocol

from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body

UNTREATED = CallSettings.model_construct()
"""Of tools of which their annotations say it all."""


class Builtin(Protocol):
    """One tool of the bridge."""

    @property
    def definition(self) -> dict[str, Any]:
        """As `tools/list` shows it: name, description, inputSchema, annotations."""
        ...

    @property
    def treatment(self) -> CallSettings:
        """How its calls are treated unless the configuration says otherwise: permission, risk, what it does, time."""
        ...

    async def run(self, call: Call) -> Body:
        """The result of a call (`content`, perhaps `isError`). Arguments were checked against the schema.

        Raises:
            BridgeError: it cannot be done; reported as every failed call is.
        """
        ...
