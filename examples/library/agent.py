"""An agent over two MCP servers and a function: `python examples/library/agent.py "What was committed last?"`."""

import asyncio
import sys

from mcpbridge import Bridge, CallStarted, OpenAIModel, TextDelta, tool

CONFIG = {
    "servers": {
        "time": {"command": ".venv-servers/bin/mcp-server-time"},
        "git": {
            "command": ".venv-servers/bin/mcp-server-git",
            "tools": {"include": ["git_log", "git_show", "git_diff*"]},
        },
    },
}


@tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def main(question: str) -> None:
    async with Bridge.open(CONFIG, tools=[count_words]) as bridge:
        run = bridge.run(OpenAIModel(model="gpt-5"), [{"role": "user", "content": question}])
        async for event in run:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case CallStarted(call=call):
                    print(f"\n[{call.name} {call.arguments}]")
                case _:
                    pass


asyncio.run(main(" ".join(sys.argv[1:])))
