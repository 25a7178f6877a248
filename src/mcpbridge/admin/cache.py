"""What the control socket answers about kept results: what there is, and forgetting it by hand."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from mcpbridge.bridge import Bridge

__all__ = ["answers"]


def answers(bridge: Bridge) -> Mapping[str, Callable[[Mapping[str, object]], dict[str, Any]]]:
    """`cache`: what is kept, and how it served. `clear_cache`: forget it, or what `server` and `tool` name of it."""

    def kept(_: Mapping[str, object]) -> dict[str, Any]:
        return {"pid": os.getpid(), **bridge.cache_status()}

    def clear(request: Mapping[str, object]) -> dict[str, Any]:
        server, tool = (str(request.get(key) or "") for key in ("server", "tool"))
        if server and server not in bridge.settings.servers:
            return {"pid": os.getpid(), "code": "unknown", "error": f"there is no server {server[:40]!r}"}
        return {"pid": os.getpid(), "cleared": bridge.clear_cache(server=server, tool=tool)}

    return {"cache": kept, "clear_cache": clear}
