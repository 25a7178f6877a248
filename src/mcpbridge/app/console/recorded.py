"""What the call log has recorded, for pages that show a part of it. All of this reads files: call it in a thread."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.base.errors import StoreFailed
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.call_log.reader import Filter
from mcpbridge.storage.call_log.timeline import read_events
from mcpbridge.storage.sqlite.database import may_exist

_EVENTS = 50


def server_events(bridge: Bridge, server: str) -> list[Mapping[str, Any]]:
    """The newest events of a server, newest first; none where nothing is recorded."""
    path = bridge.audit.path
    try:
        if not may_exist(path):
            return []
        return [*reversed(read_events(path, Filter(server=server), limit=_EVENTS, kinds=("server.",)))]
    except StoreFailed:
        return []
