"""What a server says of a task, in either dialect; pure.

Revision 2025-11-25 wraps the new task (`task: {taskId, ttl, pollInterval}`) and keeps its outcome for `tasks/result`;
the extension of 2026-07-28 is flat (`taskId`, `ttlMs`, `pollIntervalMs`) and has outcome and questions in the task.
"""

from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.errors import UpstreamGarbled
from mcpbridge.wire.body import Body

__all__ = ["COMPLETED", "FAILED", "INPUT_REQUIRED", "TaskState", "is_task", "made_task", "read_task"]

WORKING, INPUT_REQUIRED = "working", "input_required"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
ENDED = frozenset({COMPLETED, FAILED, CANCELLED})
"""States that a task stays in."""
_STATES = ENDED | {WORKING, INPUT_REQUIRED}

_TASK = b'"task"'


class TaskState(msgspec.Struct, frozen=True):
    """One look at a task."""

    id: str = msgspec.field(name="taskId")
    status: str
    message: Any = msgspec.field(default=None, name="statusMessage")
    ttl: Any = None
    ttl_ms: Any = msgspec.field(default=None, name="ttlMs")
    poll: Any = msgspec.field(default=None, name="pollInterval")
    poll_ms: Any = msgspec.field(default=None, name="pollIntervalMs")
    result: Raw = Raw()
    """The final result, where the dialect has it here."""
    error: Raw = Raw()
    """The JSON-RPC error that it failed with, where the dialect has it here."""

    @property
    def text(self) -> str:
        """What the server says of it for people; often nothing."""
        return self.message if isinstance(self.message, str) else ""

    @property
    def has_ended(self) -> bool:
        """It stays as it is."""
        return self.status in ENDED

    @property
    def seconds_to_live(self) -> float | None:
        """Since it was made; None: as long as the server likes."""
        return _seconds(self.ttl_ms if self.ttl_ms is not None else self.ttl)

    @property
    def seconds_between_looks(self) -> float | None:
        """As the server wants it; None when it does not say."""
        return _seconds(self.poll_ms if self.poll_ms is not None else self.poll)


_decode = msgspec.json.Decoder(TaskState).decode


def is_task(result: Body) -> bool:
    """Whether a modern result is a task in place of a result. A search through the bytes first."""
    return _TASK in bytes(result.data) and bytes(result.get("resultType") or b"") == _TASK


def made_task(result: Body) -> Body | None:
    """The task that a legacy result tells of (`CreateTaskResult`); None when it is an ordinary result."""
    return result.inner("task") if _TASK in bytes(result.data) and "content" not in result else None


def read_task(server: str, task: Body) -> TaskState:
    """What is said of a task.

    Raises:
        UpstreamGarbled: it is no task.
    """
    try:
        state = _decode(task.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UpstreamGarbled(server, f"what it says of a task cannot be read: {error}") from error
    if state.status not in _STATES:
        raise UpstreamGarbled(server, f"its task has the unknown status {state.status[:40]!r}")
    return state


def _seconds(milliseconds: object) -> float | None:
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    return max(0.0, milliseconds / 1000)
