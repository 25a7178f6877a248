"""The bridge in a program: the servers of a file, one function beside them, one way to find and to call."""

import asyncio

from mcpbridge import Bridge


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper() + "!"


async def main() -> None:
    async with Bridge.open("servers.toml", tools=[shout]) as bridge:
        for tool in await bridge.list_tools("what time is it in Tokyo?", limit=3):
            print(tool.id, tool.description)
        result = await bridge.call_tool("time/get_current_time", {"timezone": "Asia/Tokyo"})
        print((await bridge.call_tool("shout", {"text": result.value["timezone"]})).text)


asyncio.run(main())
