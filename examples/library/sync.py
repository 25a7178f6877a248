"""Scripts, notebooks, threads: the same without `async`."""

from mcpbridge import ModelRequest, SyncBridge, tool


@tool
def longer(first: str, second: str) -> str:
    """Say which of two texts is longer."""
    return first if len(first) > len(second) else second


async def model(request: ModelRequest) -> dict[str, object]:  # or `OpenAIModel(model="gpt-5")`
    return {"role": "assistant", "content": f"done in round {request.round}"}


def main() -> None:
    config = {"servers": {"time": {"command": ".venv-servers/bin/mcp-server-time"}}}
    with SyncBridge.open(config, tools=[longer]) as bridge:
        print([tool.id for tool in bridge.list_tools(only=["time/*"])])
        print(bridge.call_tool("time/get_current_time", {"timezone": "UTC"}).value["timezone"])
        print(bridge.call(longer.call("tea", "coffee")).value)
        print(bridge.run(model, [{"role": "user", "content": "How long?"}]).outcome.text)


if __name__ == "__main__":
    main()
