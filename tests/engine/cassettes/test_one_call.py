"""A cassette that is made of what is known of one call: a test replays that call."""

from pathlib import Path

import anyio
import pytest

from mcpbridge import Bridge
from mcpbridge.engine.cassettes.one_call import cassette_of_call
from mcpbridge.protocol.revisions import REVISIONS

DEFINITION = b'{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}'


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("transport", [{"command": "no-such-program"}, {"url": "http://127.0.0.1:1/mcp"}])
async def test_it_answers_the_call_in_place_of_the_server(
    revision: str, transport: dict[str, str], tmp_path: Path
) -> None:
    """Issue 20: a call is copied as a cassette."""
    path = tmp_path / "call.jsonl"
    result = b'{"content":[{"type":"text","text":"three\\u2028"}],"isError":false}'
    path.write_bytes(cassette_of_call("sums", revision, "add", DEFINITION, b'{"a": 3}', result))
    with anyio.fail_after(60):
        async with Bridge.open({"servers": {"sums": transport}}, cassette=path, environ={}, remember=False) as bridge:
            assert await bridge.settled(30)
            assert "sums/add" in [tool.id for tool in await bridge.list_tools()]
            answer = await bridge.call_tool("sums/add", {"a": 3})
            assert (answer.text, answer.is_error) == ("three\u2028", False)
            other = await bridge.call_tool("sums/add", {"a": 4})
            assert other.is_error
