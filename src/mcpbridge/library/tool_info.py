"""A tool as programs see it in a list."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.catalog.snapshot import ToolRef

__all__ = ["ToolInfo", "info_of"]


class ToolInfo(Struct, frozen=True):
    """One tool of the catalog. Every way of naming it (`id` or `name`) can be called."""

    id: str
    """`server/tool`: what people write in configurations and rules. A tool of the program itself is `tools/NAME`."""
    name: str
    """What clients and models see: `server__tool`, letters, digits, `_` and `-`."""
    server: str
    """Name of the server, or of the backend; `tools` for single tools, `builtin`, `mcpbridge` for the bridge's own."""
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of the arguments, as it is listed: shorter than the server's own where that is configured."""
    output_schema: Mapping[str, Any] | None
    """JSON Schema of the structured result; None: it promises none."""
    annotations: Mapping[str, Any]
    """What it says of itself: `readOnlyHint`, `destructiveHint`, …"""
    definition: Mapping[str, Any]
    """All of it as `tools/list` shows it."""


def info_of(ref: ToolRef, definition: bytes | None = None) -> ToolInfo:
    """A tool of the catalog. `definition`: as it is listed where that is not as in the catalog."""
    listed: dict[str, Any] = msgspec.json.decode(definition or ref.published_modern)
    return ToolInfo(
        ref.id,
        ref.wire,
        ref.server,
        str(listed.get("description") or ""),
        listed.get("inputSchema") or {"type": "object"},
        listed.get("outputSchema"),
        listed.get("annotations") or {},
        listed,
    )
