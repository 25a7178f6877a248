"""What `[builtin]` says of every tool. The sections of single ones are loaded where a configuration has `[builtin]`."""

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from mcpbridge.base.suggestions import nearest
from mcpbridge.core.source_settings import ToolSettings

NAMES: dict[str, str] = {
    "web-search": "web_search",
    "http-get": "http_get",
    "crypto-price": "crypto_price",
    "file-read": "files",
    "file-write": "files",
    "file-list": "files",
    "file-search": "files",
    "code-execute": "code_execute",
    "git-cli": "git_cli",
    "gh-cli": "gh_cli",
    "gws-cli": "gws_cli",
    "brief": "",
    "pulse": "",
    "context-status": "",
    "task-complete": "",
    "final-answer": "",
}
"""Every tool that can be enabled, and the key of its section; empty: it has none."""


class BuiltinDefaults(BaseModel):
    """The `builtin` section: the bridge's own tools. Only the enabled ones exist."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enable: list[str] = []
    """Names of the tools to enable: `web-search`, `http-get`, `crypto-price`, `file-read`, `file-write`, `file-list`,
    `file-search`, `code-execute`, `git-cli`, `gh-cli`, `gws-cli`, `brief`, `pulse` (or `context-status`),
    `task-complete`, `final-answer`."""

    tool: dict[str, ToolSettings] = {}
    """Changes to single tools, such as `permission`, by name."""

    def section_of(self, name: str) -> Any:
        """The settings of a tool; None where it has none."""
        key = NAMES.get(name, "")
        return getattr(self, key) if key else None

    @field_validator("enable")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in NAMES:
                close = nearest(name.replace("_", "-"), NAMES, limit=1)
                hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(NAMES)}"
                raise ValueError(f"there is no built-in tool {name[:60]!r}: {hint}")
        return value

    @field_validator("tool")
    @classmethod
    def _of_known(cls, value: dict[str, ToolSettings]) -> dict[str, ToolSettings]:
        known = [*NAMES, "recall", "find_tools", "describe_tools", "call_tool", "run_code"]
        for name in value:
            if name not in known:
                close = nearest(name.replace("_", "-"), known, limit=1)
                hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(known)}"
                raise ValueError(f"there is no built-in tool {name[:60]!r}: {hint}")
        return value
