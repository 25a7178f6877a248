"""The sandbox of a bridge, shared by all that the same settings run, and which programs run outside of it."""

import os
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.base.directories import cache_directory
from mcpbridge.config.schema import Settings
from mcpbridge.sandbox.job import Runner
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.tools.builtin.base_settings import NAMES
from mcpbridge.tools.factory import kind_of

_BUILTIN = ("code-execute", "git-cli", "gh-cli", "gws-cli")
"""Tools of the bridge's own that run programs."""


class Program(Struct, frozen=True):
    """A tool or a server whose programs belong into the sandbox."""

    name: str
    section: Literal["builtin", "tools", "servers"]
    is_apart: bool
    """Its own settings have them run outside of any."""


def programs(settings: Settings) -> Iterator[Program]:
    """Those that are enabled. Tools that judge a program's arguments by a table may run it in none (`never`)."""
    for name in dict.fromkeys(settings.builtin.enable):
        own = getattr(getattr(settings.builtin, NAMES[name], None), "sandbox", None) if name in _BUILTIN else "never"
        if own != "never":
            yield Program(name, "builtin", own == "off")
    for name, tool in settings.tools.items():
        if not tool.disabled and kind_of(tool) == "command":
            yield Program(name, "tools", getattr(tool, "sandbox", None) == "off")
    for name, server in settings.servers.items():
        if not server.disabled and server.sandbox is not None:
            yield Program(name, "servers", is_apart=False)


def outside_of_sandbox(settings: Settings) -> list[str]:
    """Names of the tools and servers whose programs run outside of any sandbox, since the settings say `"off"`."""
    return [one.name for one in programs(settings) if one.is_apart or settings.sandbox.mode == "off"]


class Sandboxes:
    """Makes the sandbox when it is first asked for, and anew when its settings are others."""

    def __init__(self) -> None:
        self._create: tuple[SandboxSettings, Runner] | None = None

    def of(self, settings: Settings) -> Runner:
        """What runs programs by these settings."""
        if self._create is None or self._create[0] != settings.sandbox:
            from mcpbridge.sandbox.runner import Isolation

            self._create = settings.sandbox, Isolation(settings.sandbox, cache=cache_directory(os.environ))
        return self._create[1]

    def status(self, settings: Settings) -> dict[str, Any]:
        """Which one is in use, as far as that was found out, and who runs outside of any (`off`); JSON values."""
        mode = settings.sandbox.mode
        status: dict[str, Any] = {"mode": mode, "off": outside_of_sandbox(settings)}
        known = getattr(self._create[1], "known", None) if self._create is not None and mode != "off" else None
        return {**status, **({"tiers": known.as_json()} if known is not None else {})}
