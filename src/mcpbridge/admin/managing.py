"""What the control socket answers of management commands: a backend does one, and what came of it is told."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from mcpbridge.bridge import Bridge
from mcpbridge.errors import BridgeError, UnknownName
from mcpbridge.model import TOOLS
from mcpbridge.redaction import masked

__all__ = ["answers"]


def answers(
    bridge: Bridge, redact: Callable[[str], str]
) -> Mapping[str, Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]]:
    """`command`: the backend `name` does the management command `command` with the object `data`.

    What is said has its `result`, or an `error` with a `code`: `invalid`, `unknown`, `timeout`, `failed`.
    """

    async def done(request: Mapping[str, object]) -> dict[str, object]:
        name = str(request.get("name") or "").removeprefix(f"{TOOLS}/")
        data = request.get("data")
        if not isinstance(data, dict):
            return told("invalid", "`data` has to be an object")
        command = str(request.get("command") or "")
        try:
            result = await bridge.command(name, command, cast("dict[str, object]", data))
        except UnknownName as error:
            return told("unknown", error.told())
        except BridgeError as error:
            return told("timeout" if isinstance(error, TimeoutError) else "failed", str(error))
        return {"pid": os.getpid(), "result": masked(result, redact)}

    def told(code: str, error: str) -> dict[str, object]:
        return {"pid": os.getpid(), "code": code, "error": redact(error)}

    return {"command": done}
