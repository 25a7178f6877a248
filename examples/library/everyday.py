"""What programs do with a bridge: open it, find tools, call them, add and remove them, hear what happens."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpbridge import Bridge, ConfigError, RequestFailed

TIME = {"command": ".venv-servers/bin/mcp-server-time"}


async def open_it() -> None:
    file = Path(__file__).parent / "servers.toml"
    async with Bridge.open(file, remember=False, project=".", environ={"GH_TOKEN": "none"}) as bridge:
        print([server["name"] for server in bridge.status()["servers"]])
    Bridge.open({"mcpServers": {"time": TIME}})  # as it stands in any client's file; the path of one will do as well
    try:
        Bridge.open({"servers": {"time": {"comand": "uvx"}}})
    except ConfigError as wrong:
        print(wrong)


def orders() -> list[dict[str, Any]]:
    """List all orders."""
    return [{"id": number, "total": number % 97, "note": "as usual"} for number in range(2000)]


async def call_it(bridge: Bridge) -> None:
    for tool in await bridge.list_tools("convert a time between zones", limit=3):
        print(tool.id, tool.name, list(tool.input_schema["properties"]))

    asked = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}
    result = await bridge.call_tool("time/convert_time", asked, run="r1", user="ann")
    print(result.value["time_difference"])

    failed = await bridge.call_tool("time/convert_time", {**asked, "source_timezone": "Mars"})
    print(failed.is_error, failed.text)  # what a model reads; `failed.value` raises CallFailed
    try:
        await bridge.call_tool("time/convert_tim", asked)
    except RequestFailed as unknown:
        print(unknown)

    large = await bridge.call_tool("orders")
    print(len(large.text) < 4000, bool(large.handle))
    dear = await bridge.recall(large.handle, where="total > 95", select="id", sort="-id", limit=3)
    print(dear.text.splitlines()[0])
    print(len((await bridge.call_tool("orders", whole=True)).value["result"]))

    async with asyncio.timeout(10):  # cancels the call, at its server too
        await bridge.call_tool("time/get_current_time", {"timezone": "UTC"})


async def change_it(bridge: Bridge) -> None:
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"hello {name}"

    await bridge.add_tool(greet)
    print((await bridge.call_tool("greet", {"name": "Ann"})).text)
    await bridge.remove_tool("greet")
    await bridge.add_server("clock", TIME)
    print((await bridge.call_tool("clock/get_current_time", {"timezone": "UTC"})).is_error)
    await bridge.remove_server("clock")


async def be_a_client(bridge: Bridge) -> None:
    async with bridge.client(user="ann") as client:  # or `Client("http://127.0.0.1:8808", token=TOKEN)`: a daemon's
        listed = await client.list_tools(query="which time is it somewhere")
        print("time__get_current_time" in [tool.name for tool in listed.tools])
        called = await client.call_tool("time__get_current_time", {"timezone": "UTC"}, run="r1", whole=True)
        print(called.is_error)


async def fill_in(question: dict[str, Any]) -> Mapping[str, Any] | None:
    wanted = question["requestedSchema"]["properties"]
    return {"name": "Ann"} if "name" in wanted else None  # nobody answers


async def main() -> None:
    await open_it()
    config = {"servers": {"time": TIME}}
    async with Bridge.open(config, tools=[orders], on_elicitation=fill_in) as bridge:
        heard = bridge.events()
        await call_it(bridge)
        await change_it(bridge)
        await be_a_client(bridge)
    names = [event.tool async for event in heard if event.name == "call.finished"]  # it ends with the bridge
    print(len(names), names[0])


if __name__ == "__main__":
    asyncio.run(main())
