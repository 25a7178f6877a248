"""The definition of a tool, as it is read to be told of: whatever is malformed in it counts as not there."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.routing.schema_reading import as_schema
from mcpbridge.routing.sight import Findable
from mcpbridge.routing.tool_text import ToolText

__all__ = ["Told", "told"]


class Told(Struct, frozen=True):
    """A tool, read."""

    tool: Findable
    text: ToolText
    output: Mapping[str, Any] | None = None
    """Its `outputSchema`; None where there is none that is an object."""

    @property
    def description(self) -> str:
        """What it says of itself; its title, if that is all."""
        return self.text.description or self.text.title


def told(tool: Findable) -> Told:
    """Read the definition that clients get. Never raises."""
    try:
        found: object = msgspec.json.decode(tool.published)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    members = as_schema(found) or {}
    title, description = (_text(members.get(key)) for key in ("title", "description"))
    schema, output = (as_schema(members.get(key)) for key in ("inputSchema", "outputSchema"))
    return Told(tool, ToolText(tool.id, tool.server, tool.name, title, description, schema), output)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
