"""What one bridge of a fleet lets the others know: lists of servers that changed, and servers added at run time.

Each then looks for itself: it asks its own connection to the server, or the shared store. The configuration of a bridge
is never sent; its digest is known to the others, who warn where it differs from theirs.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.config.schema import Settings
from mcpbridge.fleet.fleet import Fleet
from mcpbridge.library.bridge import Bridge

_REGISTRY = "registry"
_LISTS = "lists/"
_LOOK_EVERY = 1.0
"""Seconds between two looks whether the configuration is another one."""


def configured_alike(settings: Settings) -> Mapping[str, Any]:
    """What is the same for all bridges of a fleet."""
    return settings.model_dump(exclude={"fleet", "daemon", "log", "source"})


@asynccontextmanager
async def sharing_changes(bridge: Bridge, fleet: Fleet) -> AsyncGenerator[None]:
    """Changes at one of them are known to all meanwhile."""
    announcements = fleet.announcements

    def heard(topic: str) -> None:
        if topic == _REGISTRY:
            tasks.spawn(bridge.registry.load_again())
        elif topic.startswith(_LISTS):
            bridge.pool.lists_changed(topic.removeprefix(_LISTS))

    announcements.on_heard = heard
    bridge.registry.on_kept = lambda: announcements.announce(_REGISTRY)
    bridge.pool.when_lists_change(lambda name: announcements.announce(_LISTS + name))
    tasks = OwnedTasks()
    async with tasks.running():
        tasks.spawn(_compare(bridge, fleet))
        yield


async def _compare(bridge: Bridge, fleet: Fleet) -> None:
    known = bridge.registry.below
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        if (now := bridge.registry.below) is not known:
            known = now
            fleet.configured(configured_alike(now))
