"""A JSON-RPC batch (MCP 2025-03-26, basic) is one turn of a model: only a few of its calls run at a time.

So that limits find it as they find every other turn, its calls are given the name of one.
"""

import secrets
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from mcpbridge.wire.body import Body
from mcpbridge.wire.envelope import TURN
from mcpbridge.wire.frame import Frame

__all__ = ["make_one_turn"]


def make_one_turn(frames: Iterable[Frame]) -> None:
    """Name the turn in every call of a tool that names none itself. What cannot be read is left to who refuses it."""
    calls = [frame for frame in frames if frame.method == "tools/call"]
    if len(calls) < 2:
        return
    turn = secrets.token_hex(8)
    for frame in calls:
        try:
            params = Body(frame.params)
            meta = params.inner("_meta")
            if meta is None and "_meta" not in params:
                meta = Body()
            if meta is not None and TURN not in meta:
                meta.put(TURN, turn)
                params.put("_meta", meta)
                frame.params = Raw(params.data)
        except (msgspec.DecodeError, RecursionError):
            continue
