"""Clients come by way of the shipped balancers, nginx and HAProxy, to three real bridges (issue 24)."""

from collections.abc import Generator

import pytest

from support.fleet_checker.clean_clients import balanced, clean_clients
from support.proxies import BALANCERS, Front
from support.redis_server import Server
from support.replicas import needs_fleet

pytestmark = needs_fleet


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, Front]]:
    directory = tmp_path_factory.mktemp("fleet")
    redis = Server(directory / "redis").start()
    try:
        with balanced(directory, redis) as found:
            yield found
    finally:
        redis.kill()


@pytest.mark.parametrize("name", BALANCERS)
async def test_clients_are_clean_though_each_request_goes_to_another_bridge(
    name: str, fronts: dict[str, Front]
) -> None:
    """15 of 15 initialize, list, call and delete; `make fleet-clients` does so with 1,000."""
    front = fronts[name]
    assert await clean_clients(f"{front.origin}/mcp", 15, front.tls) == []


async def test_a_client_that_is_not_clean_is_named(fronts: dict[str, Front]) -> None:
    front = fronts["nginx"]
    [wrong] = await clean_clients(f"{front.origin}/nowhere", 1, front.tls)
    assert wrong.startswith("client 0: AssertionError")
