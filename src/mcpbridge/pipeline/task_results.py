"""Which results are tasks in place of a result. `task_polling.py` follows those."""

from mcpbridge.protocol.body import SEARCHED, Body

_TASK = b'"task"'


def is_task(result: Body) -> bool:
    """Whether a modern result is a task in place of a result. A small one is searched first."""
    if (len(result.data) < SEARCHED and _TASK not in bytes(result.data)) or not result.is_object:
        return False
    return bytes(result.get("resultType") or b"") == _TASK


def created_task(result: Body) -> Body | None:
    """The task that a legacy result announces (`CreateTaskResult`); None when it is an ordinary result."""
    return result.inner("task") if _TASK in bytes(result.data) and "content" not in result else None
