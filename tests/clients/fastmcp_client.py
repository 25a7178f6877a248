"""FastMCP's client, run in an environment of its own, in each of these modes. Prints a JSON object for each."""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def visit(target: dict[str, Any], mode: str) -> dict[str, Any]:
    """Connect, list, call, read."""
    if "url" in target:
        transport = StreamableHttpTransport(target["url"])
    else:
        transport = StdioTransport(**target, keep_alive=False)
    async with Client(transport, mode=mode) as client:
        tools = await client.list_tools()
        called = await client.call_tool("rich__echo", {"text": "grüße, 世界 🙂"})
        [content] = await client.read_resource("memo://one")
        prompt = await client.get_prompt("rich__greet", {"who": "Ada"})
        return {
            "server": client.server_info.name if client.server_info else None,
            "tools": [tool.name for tool in tools],
            "calls": {"rich__echo": called.content[0].text},
            "resource": content.text,
            "prompt": prompt.messages[0].content.text,
        }


for mode in sys.argv[2:]:
    print(json.dumps(asyncio.run(visit(json.loads(sys.argv[1]), mode))))
