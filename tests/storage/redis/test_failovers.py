"""What bridges share behind Sentinels, when the master dies: nothing comes back or is lost, all heals (issue 24)."""

from collections.abc import Generator

import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.fleet.records import FleetRecords
from mcpbridge.storage.settings import RedisAddress, redis_address
from support.redis_groups import Sentinels
from support.redis_server import needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sentinels]:
    found = Sentinels(tmp_path_factory.mktemp("sentinels"))
    yield found
    found.end()


@pytest.fixture
def group(sentinels: Sentinels) -> Generator[Sentinels]:
    """The same one for all tests: what a test has killed is back after it."""
    yield sentinels
    sentinels.heal()


@pytest.fixture
def address(group: Sentinels) -> RedisAddress:
    return redis_address(group.settings())


async def test_what_could_not_be_used_safely_may_be_used_again(group: Sentinels, address: RedisAddress) -> None:
    """A client that hears `not sent` repeats its answer, which is no second one then."""
    records = FleetRecords(address, "first-use")
    try:
        group.replica.kill()
        with pytest.raises(StoreFailed, match=r"^not sent: [^;]*$"):
            await records.is_first_use(b"seal", 600)
        group.heal()
        assert await records.is_first_use(b"seal", 600)
        assert not await records.is_first_use(b"seal", 600)
        group.master.kill()
        with pytest.raises(StoreFailed, match=r"not sent: .*; if it is refused .*, make the call anew"):
            await records.is_first_use(b"another seal", 600)
        group.fail_over()
    finally:
        await records.close()
