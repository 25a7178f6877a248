"""HTTP+SSE (revision 2024-11-05) in a fleet: the stream is at one bridge, the messages come in by any (issue 24)."""

import signal
from collections.abc import Generator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client

from support.redis_server import Server
from support.replicas import OTHER_TOKEN, TOKEN, Fleet, fleet, needs_fleet, until

pytestmark = needs_fleet

HEADERS = {"authorization": f"Bearer {TOKEN}"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2) as found:
            yield found
    finally:
        redis.kill()


async def test_a_client_works_whose_messages_go_to_other_bridges_than_its_stream(pair: Fleet) -> None:
    with anyio.fail_after(120):
        async with (
            sse_client(pair.url.replace("/mcp", "/sse"), headers=HEADERS) as (reading, writing),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            listed = await session.list_tools()
            echo = next(tool.name for tool in listed.tools if tool.name.endswith("echo"))
            for number in range(4):
                result = await session.call_tool(echo, {"text": f"number {number}"})
                assert f"number {number}" in str(result)


def test_messages_to_a_stream_of_a_bridge_that_is_gone_are_refused(pair: Fleet) -> None:
    """Nobody can take the stream over. While the lease of its bridge lives, the error says that nothing was sent."""
    first, second = pair.replicas
    with httpx2.Client(trust_env=False, timeout=60) as http:
        with http.stream("GET", f"{first.root}/sse", headers=HEADERS) as stream:
            lines = stream.iter_lines()  # kept: without it the stream ends
            where = next(line[5:].strip() for line in lines if line.startswith("data:"))

            def post(token: str = TOKEN) -> httpx2.Response:
                headers = {"authorization": f"Bearer {token}"}
                return http.post(f"{second.root}{where}", json=PING, headers=headers)

            assert post().status_code == 202
            assert post(OTHER_TOKEN).status_code == 404
            first.kill()
        refused = list[httpx2.Response]()

        def is_over() -> bool:
            refused.append(post())
            return refused[-1].status_code == 404

        until(is_over, "the session is known to be over")
        assert all(one.status_code in (502, 503) for one in refused[:-1]), refused
        assert all("not sent" in one.text or "outcome unknown" in one.text for one in refused[:-1])


def test_a_stream_does_not_keep_a_bridge_from_stopping(pair: Fleet) -> None:
    """Nobody can take it over, so there is nothing to wait for: its client opens another one at once."""
    first, second = pair.replicas
    with httpx2.Client(trust_env=False, timeout=60) as http:
        with http.stream("GET", f"{first.root}/sse", headers=HEADERS) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("data:"))
            first.signal(signal.SIGTERM)
            assert list(lines) is not None  # to its end
        with http.stream("GET", f"{second.root}/sse", headers=HEADERS) as stream:
            assert stream.status_code == 200
