"""A remote agent in this process, by the official SDK; the slow task never ends."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from support.backends.backend_calls import SECRET, made, until
from support.backends.backend_case import BackendCase


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A greeting."""
    pytest.importorskip("a2a")
    from support.backends.agent_peer import agent_peer

    # In a loop of its own: what that leaves behind is not the backend's.
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(agent_peer(token=SECRET)) as agent:
        yield BackendCase(
            made("cook", "agent", directory, agent=agent.url, auth={"type": "bearer", "token": SECRET}),
            "cook",
            {"message": "hello"},
            "you said: hello",
            slow_arguments={"message": "hang"},
            failing_arguments={"message": "fail"},
            begun=lambda: until(agent.hanging.is_set),
            is_over=agent.cancelled.is_set,
            forbidden=(SECRET,),
        )
