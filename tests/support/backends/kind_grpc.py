"""A method of a gRPC server in this process, found by its reflection; the slow one never answers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from support.backends.backend_calls import SECRET, made, until
from support.backends.backend_case import BackendCase


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """An order by its number."""
    pytest.importorskip("grpc")
    from support.backends.grpc_peer import grpc_peer

    # In a loop of its own: what that leaves behind is not the backend's.
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(grpc_peer()) as peer:
        metadata = {"authorization": f"Bearer {SECRET}"}
        yield BackendCase(
            made("orders", "grpc", directory, grpc=peer.address, service="shop.v1.Orders", metadata=metadata),
            "GetOrder",
            {"id": 7},
            "order 7",
            slow_arguments={},
            slow_tool="Hang",
            failing_arguments={"code": 5, "text": f"no such order, says {SECRET}"},
            failing_tool="Fail",
            begun=lambda: until(peer.hanging.is_set),
            is_over=peer.cancelled.is_set,
            forbidden=(SECRET,),
        )
