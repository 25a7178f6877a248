"""What one bridge of a fleet lets the others know: lists of servers that changed, servers added, and people put out.

Each then looks for itself: it asks its own connection to the server, or the shared store. A bridge that was no member
for a while looks for all of it, since it may not have heard what the others announced. The configuration of a bridge
is never sent; its digest is known to the others, who warn where it differs from theirs.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.config.schema import Settings
from mcpbridge.fleet.fleet import Fleet
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.jsonrpc import encode

if TYPE_CHECKING:
    from mcpbridge.downstream.auth.resource_server import ResourceServer

_REGISTRY = "registry"
_LISTS = "lists/"
_ENDED, _PUT_OUT = "ended/", "put-out/"
"""Whose tokens are of no use any more, and by which client; and who was put out."""
_tokens = msgspec.json.Decoder(tuple[str, str]).decode
_LOOK_EVERY = 1.0
"""Seconds between two looks whether the configuration is another one."""


def configured_alike(settings: Settings) -> Mapping[str, Any]:
    """What is the same for all bridges of a fleet."""
    return settings.model_dump(exclude={"fleet", "daemon", "log", "source"})


@asynccontextmanager
async def sharing_changes(bridge: Bridge, fleet: Fleet, doors: "ResourceServer | None") -> AsyncGenerator[None]:
    """Changes at one of them are known to all meanwhile. `doors`: lets people in by tokens of issuers."""
    announcements, accounts = fleet.announcements, bridge.user_accounts

    def heard(topic: str) -> None:
        if topic == _REGISTRY:
            bridge.registry.read_again()
        elif topic.startswith(_LISTS):
            bridge.pool.lists_changed(topic.removeprefix(_LISTS))
        elif topic.startswith(_ENDED):
            principal, client_id = _tokens(topic.removeprefix(_ENDED))
            if doors is not None:
                doors.ended_elsewhere(principal, client_id)
        elif topic.startswith(_PUT_OUT):
            principal = topic.removeprefix(_PUT_OUT)
            if doors is not None:
                doors.ended_elsewhere(principal)
            accounts.end_visits(principal)
            bridge.server.parking.end_of_user(principal)

    def read_all_again() -> None:
        bridge.registry.read_again()
        bridge.pool.lists_may_have_changed()

    def ended(principal: str, client_id: str) -> None:
        announcements.announce(_ENDED + encode([principal, client_id]).decode(), is_vital=True)

    if doors is not None:
        doors.on_ended_here = ended
    accounts.on_put_out = lambda principal: announcements.announce(_PUT_OUT + principal, is_vital=True)
    announcements.on_heard = heard
    fleet.members.on_back = read_all_again
    bridge.registry.on_kept = lambda: announcements.announce(_REGISTRY)
    bridge.pool.when_lists_change(lambda name: announcements.announce(_LISTS + name))
    tasks = OwnedTasks()
    async with tasks.running():
        tasks.spawn(_compare(bridge, fleet))
        yield


async def _compare(bridge: Bridge, fleet: Fleet) -> None:
    known = bridge.registry.below

    async def compare() -> None:
        nonlocal known
        if (now := bridge.registry.below) is not known:
            known = now
            fleet.configured(configured_alike(now))

    await repeat(_LOOK_EVERY, compare)
