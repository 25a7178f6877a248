"""What the control socket answers of management commands: a backend does one, and what came of it is told."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from mcpbridge.bridge import Bridge
from mcpbridge.errors import BridgeError, UnknownName
from mcpbridge.model import TOOLS
from mcpbridge.redaction import Redactor

__all__ = ["answers"]


def answers(
    bridge: Bridge, redact: Redactor
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
        return {"pid": os.getpid(), "result": _masked(result, redact)}

    def told(code: str, error: str) -> dict[str, object]:
        return {"pid": os.getpid(), "code": code, "error": redact(error)}

    return {"command": done}


def _masked(value: object, redact: Redactor) -> object:
    """A JSON value without the secrets in its strings and keys: code of the user may put them anywhere."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {redact(key) if isinstance(key, str) else key: _masked(one, redact) for key, one in members.items()}
    if isinstance(value, list | tuple):
        return [_masked(one, redact) for one in cast("Sequence[object]", value)]
    return value
