"""FastMCP's client, run in an environment of its own: lists, then calls. Prints the results as JSON, by era.

The arguments are a URL, and lists of eras and of [tool, arguments] as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client


async def results(url: str, mode: str, calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What the calls gave; raises where the client does not accept it."""
    async with Client(url, mode=mode) as client:
        await client.list_tools()
        given = [await client.call_tool(name, arguments) for name, arguments in calls]
    return [{"text": result.content[0].text, "structured": result.structured_content} for result in given]


url, eras, calls = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
print(json.dumps({era: asyncio.run(results(url, era, calls)) for era in eras}))
