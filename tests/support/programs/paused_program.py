"""A program with a tool that waits for a person: run as `paused_program.py STORE call|answer ID`, and then killed.

It prints one line when it has come to where it is to be killed.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcpbridge.config.schema import Settings
from mcpbridge.core.context import CallContext
from mcpbridge.core.tool_calls_and_results import PAUSED, PausedCall, ToolCall
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.bridge import Bridge
from mcpbridge.tools.human_in_the_loop.functions import Pause
from mcpbridge.tools.human_in_the_loop.human import HumanBackend
from mcpbridge.tools.human_in_the_loop.settings import PausingSettings

__all__ = ["opened", "tools"]


def release(version: str) -> Pause:
    """Release a version, once somebody agrees."""
    return Pause(f"Release {version}?", schema={"type": "string"})


async def decided(response: str, call: PausedCall, context: CallContext) -> str:
    if response == "hang":
        print("answering", flush=True)
        await asyncio.Event().wait()
    told: Any = call.arguments["version"], response, context.run, context.tenant, context.session.id
    return " ".join(told)


def tools() -> dict[str, ProgramTool]:
    """What the program offers, made anew."""
    return {"release": ProgramTool(HumanBackend.of(release, decided), PausingSettings())}


def opened(store: Path) -> Bridge:
    """The program's bridge."""
    return Bridge(Settings.model_validate({"store": {"path": str(store)}}), tools=tools())


async def main(store: Path, what: str, id_: str = "") -> None:
    async with opened(store) as bridge:
        if what == "call":
            call: ToolCall[Any, Any] = ToolCall("tools/release", {"version": "1.2"}, "call_7")
            result = await bridge.call(call, run="run-1", tenant="acme")
            (session,) = {session.id for session in bridge._context.pauses.sessions.values()}
            print(result.meta[PAUSED]["id"], session, flush=True)
            await asyncio.Event().wait()
        await bridge.resume(id_, "hang")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
