"""What tests of backends that look for their tools share: making one, waiting for it, calling it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec

from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import Backend, BackendContext
from mcpbridge.tools.factory import make, model_of

SECRET = "s3cret-token"


def made(name: str, kind: str, directory: Path = Path(), **settings: Any) -> Backend:
    """A backend by its settings."""
    around = BackendContext(cast("Any", None), lambda text: text.replace(SECRET, "[redacted]"), directory)
    return make(name, model_of(kind).model_validate(settings), around)


@asynccontextmanager
async def found(backend: Backend, state: str = "ready") -> AsyncGenerator[Callable[[], int]]:
    """It runs and has come to this state. What is given counts how often it told of a change."""
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1

    async with backend.running(changed):
        await until(lambda: backend.condition.state == state)
        yield lambda: changes


async def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that has no event of its own."""
    with anyio.fail_after(seconds):
        while not holds():
            await anyio.sleep(0.01)


def call_of(tool: str, arguments: dict[str, Any], heard: list[dict[str, Any]] | None = None, **more: Any) -> Call:
    """A call of a tool; its progress is put into `heard`."""
    call = Call("tools/call", "shop", tool, Body(encode({"name": tool, "arguments": arguments})), **more)
    if heard is not None:
        call.wants_progress = True
        call.update = lambda method, params: heard.append({"method": method, **msgspec.json.decode(params)})
    return call


async def result(backend: Backend, tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The result of a call."""
    with anyio.fail_after(60):
        return (await backend.run(call_of(tool, arguments, **more))).value()


def text_of(result: dict[str, Any]) -> str:
    """All text of a result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
