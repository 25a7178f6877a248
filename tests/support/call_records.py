"""Records for tests of the call log, and a log that is written at once."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcpbridge.core.recording import new_uid
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.settings import CallLogSettings

NOW = 1_800_000_000.0


def record(number: int = 0, **changes: Any) -> CallRecord:
    """A call that began `number` seconds after `NOW`."""
    at = NOW + number
    told: dict[str, Any] = {
        "at": at,
        "seconds": 0.01,
        "method": "tools/call",
        "server": "files",
        "tool": "files/read",
        "client": "ear",
        "principal": "",
        "session": "s1",
        "run": "",
        "outcome": "ok",
        "error": "",
        "arguments": b'{"path":"a.txt"}',
        "result": b'{"content":[]}',
        "keeps_content": True,
        "uid": new_uid(at),
        **changes,
    }
    return CallRecord(**told)


@asynccontextmanager
async def writing(
    path: Path, redact: Callable[[str], str] = str, *, now: float = NOW, **keys: Any
) -> AsyncGenerator[CallLog]:
    """A log; what it was given is in the file afterwards."""
    log = CallLog(lambda: path, CallLogSettings(**keys), redact=redact, clock=lambda: now)
    try:
        yield log
    finally:
        with anyio.fail_after(30):
            await log.close()
