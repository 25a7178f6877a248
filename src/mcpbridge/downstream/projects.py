"""Telling the servers which project a client works in, before it asks what they offer.

A server that needs `${PROJECT_ROOT}` lists nothing until there is a project. What is known of the client is told at
once; a client that has to be asked for its roots is asked only where a server waits for them.
"""

from mcpbridge.downstream.asking import LegacyAsker
from mcpbridge.downstream.channel import Client, Notify
from mcpbridge.upstream.pool import Pool

__all__ = ["expect", "tell_project"]


def expect(pool: Pool, client: Client) -> None:
    """A client came: what waits for one like it is opened."""
    pool.expect(client.profile, client.view, project=client.known_project, principal=client.principal)


async def tell_project(pool: Pool, client: Client, notify: Notify) -> None:
    """Return when every server that the client sees knows of its project, if it has one."""
    if client.modern:
        if client.profile or client.known_project:
            expect(pool, client)
    elif client.asked is not None and pool.wants_project(client.view):
        await LegacyAsker(client, client.asked, notify).project()
        expect(pool, client)
