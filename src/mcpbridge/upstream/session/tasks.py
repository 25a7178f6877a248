"""Tasks of one legacy server that somebody waits for (2025-11-25, tasks): whose they are.

A task outlives the request that made it. What the server says of it later (a question, its progress, its status) may
come at any time and on any stream, and names the task, or the progress token of the call that made it.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Raw

from mcpbridge.core.jobs import Job, Jobs
from mcpbridge.core.model import Call
from mcpbridge.protocol.jsonrpc import encode

RELATED_TASK = "io.modelcontextprotocol/related-task"
"""The `_meta` key of what belongs to a task."""
_SEARCHED = RELATED_TASK.rsplit("/", maxsplit=1)[-1].encode()
"""The slash before it may be escaped."""

LONGEST = 24 * 3600.0
"""Seconds that a task is known at most; one that lives longer is still served when its client asks for it."""


class _Related(msgspec.Struct):
    task_id: str = msgspec.field(default="", name="taskId")


class _Meta(msgspec.Struct):
    related: _Related | None = msgspec.field(default=None, name=RELATED_TASK)


class _Params(msgspec.Struct):
    meta: _Meta | None = msgspec.field(default=None, name="_meta")
    task_id: str = msgspec.field(default="", name="taskId")
    progress_token: Raw = msgspec.field(default=Raw(), name="progressToken")


_decode = msgspec.json.Decoder(_Params).decode


def related_task(params: bytes | Raw) -> str:
    """The id of the task that a message says it belongs to; empty when it names none."""
    if _SEARCHED not in bytes(params):
        return ""
    parsed = _read(params)
    return parsed.meta.related.task_id if parsed.meta is not None and parsed.meta.related is not None else ""


class Followed(Job):
    """One task that somebody waits for. Its id is the server's."""

    __slots__ = ("call", "on_status")

    def __init__(self, id_: str, call: Call, on_status: Callable[[Raw], None]) -> None:
        super().__init__(id=id_)
        self.call = call
        """The call that made it. Its client is asked what the task wants to know, and hears of its progress."""
        self.on_status = on_status
        """Gets the params of `notifications/tasks/status`."""


class TaskBook:
    """The tasks of one upstream that are followed now. False when there are none."""

    def __init__(self, over: Callable[[Call], None]) -> None:
        """`over` is called with the call of each task that nobody follows any more."""
        self._over = over
        self._tasks = Jobs[Followed]()
        self._left: asyncio.Event | None = None
        """Set when a task is left; made only while somebody waits for that."""

    def __bool__(self) -> bool:
        return bool(self._tasks.all)

    def follow(
        self, id_: str, call: Call, on_status: Callable[[Raw], None] = lambda _: None, *, seconds: float | None = None
    ) -> Followed:
        """From now on what concerns this task goes to the client of `call`; forgotten after so many seconds."""
        if (before := self._tasks.get(id_)) is not None:
            self._tasks.forget(before)
        followed = self._tasks.add(Followed(id_, call, on_status))
        followed.on_expired = partial(self.leave, id_)
        self._tasks.forget_in(followed, min(LONGEST, LONGEST if seconds is None else seconds))
        return followed

    def leave(self, id_: str) -> None:
        """It has ended, or nobody cares any more."""
        followed = self._tasks.get(id_)
        if followed is not None:
            self._tasks.forget(followed)
            self._over(followed.call)
            if self._left is not None:
                self._left.set()
                self._left = None

    async def emptied(self) -> None:
        """Return when none is followed any more. Cancelling is safe."""
        while self:
            left = self._left = self._left or asyncio.Event()
            await left.wait()

    def get(self, id_: str) -> Followed | None:
        """The followed task of this id."""
        return self._tasks.get(id_)

    @property
    def calls(self) -> list[Call]:
        """The calls that made them, oldest first."""
        return [task.call for task in self._tasks.all]

    def blocks(self, owner: object) -> bool:
        """A task of another client is under way, which that client may be asked about at any time."""
        return any(call.client.capabilities and call.client.owner is not owner for call in self.calls)

    def changed(self, params: Raw) -> None:
        """Take a `notifications/tasks/status`."""
        if self and (followed := self._tasks.get(_read(params).task_id)) is not None:
            followed.on_status(params)

    def progressed(self, params: Raw) -> None:
        """Take progress that belongs to no request under way: that of a task names the call that made it."""
        if not self:
            return
        token = bytes(_read(params).progress_token)
        for call in self.calls:
            if call.progress_token and token in (call.progress_token, encode(call.progress_token.decode())):
                call.update("notifications/progress", params)


def _read(params: bytes | Raw) -> _Params:
    try:
        return _decode(params)
    except (msgspec.DecodeError, RecursionError):
        return _Params()
