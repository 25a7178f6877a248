"""FastMCP's client, run in an environment of its own: lists, then calls. Prints the results as one JSON list.

The arguments are a URL, an era, and a list of [tool, arguments] as JSON.
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


print(json.dumps(asyncio.run(results(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
