"""The `tools.<name>` sections of the configuration: what all kinds of backends have in common.

The name of a pack is here too, since `packs.py` loads more.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.core.source_settings import OfferSettings


class BackendSettings(OfferSettings, BaseModel):
    """One backend. Each kind, in `tools/<kind>/settings.py`, has a key of its own that identifies it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    description: str | None = None
    """What the tool does, for models. Default: what the backend provides, such as a docstring."""

    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments. Default: what the backend provides, otherwise any object."""

    output_schema: dict[str, Any] | None = None
    """JSON Schema of the structured result. A result that does not match is an error. Default: none."""

    annotations: dict[str, Any] = {}
    """Annotations of the tool (`readOnlyHint`, `destructiveHint`, `openWorldHint`, …)."""

    examples: list[Any] = []
    """Example calls, for searches: arguments, or texts."""

    max_concurrent: int = Field(default=16, ge=1)
    """Calls of each of its tools that may be in flight."""

    trusted: bool = True
    """Whether to believe the annotations of its tools (`readOnlyHint`, …). Default: yes, since the tools are yours."""

    unavailable: str | None = None
    """Why this cannot be used as configured; set while loading, never by people."""


def take_timeout(table: dict[str, Any]) -> None:
    """Take `timeout` or `timeout_s`, as specs of tools have it, for `call_timeout`.

    Raises:
        ValueError: the table has both.
    """
    for name in ("timeout", "timeout_s"):
        if name in table:
            if "call_timeout" in table:
                raise ValueError(f"`{name}` and `call_timeout` are the same: take one of them out")
            table["call_timeout"] = table.pop(name)


def pack_name(reference: str) -> str:
    """The name of the server that they count as, by what the configuration calls the pack.

    Of `pkg.weather:pack` it is `weather`, of the entry point `weather` too.
    """
    module, colon, attribute = reference.partition(":")
    last = attribute.rpartition(".")[2]
    return module.rpartition(".")[2] if last.lower() in ("pack", "") and colon else last or module
