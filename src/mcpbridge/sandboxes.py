"""The sandbox of one bridge: one for all that the same settings have run."""

import os
from typing import Any

from mcpbridge.config.schema import Settings
from mcpbridge.places import cache_directory
from mcpbridge.sandbox.job import Runner
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.standing import outside_of_sandbox

__all__ = ["Sandboxes"]


class Sandboxes:
    """Makes it when it is first asked for, and anew when its settings are others."""

    def __init__(self) -> None:
        self._made: tuple[SandboxSettings, Runner] | None = None

    def of(self, settings: Settings) -> Runner:
        """What runs programs by these settings."""
        if self._made is None or self._made[0] != settings.sandbox:
            from mcpbridge.sandbox.isolation import Isolation

            self._made = settings.sandbox, Isolation(settings.sandbox, cache=cache_directory(os.environ))
        return self._made[1]

    def standing(self, settings: Settings) -> dict[str, Any]:
        """Which one is in use, as far as that was found out, and who runs outside of any (`off`); JSON values."""
        mode = settings.sandbox.mode
        standing: dict[str, Any] = {"mode": mode, "off": outside_of_sandbox(settings)}
        known = getattr(self._made[1], "known", None) if self._made is not None and mode != "off" else None
        return {**standing, **({"tiers": known.as_json()} if known is not None else {})}
