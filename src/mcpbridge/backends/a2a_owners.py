"""Whose the tasks and conversations with an agent are.

The agent knows the bridge alone, by one credential. So the bridge remembers for whom each was begun, and lets nobody
else go on with it.
"""

from collections import OrderedDict
from collections.abc import Iterator

__all__ = ["Owners"]

MOST = 10_000
"""Tasks and conversations that are remembered; those that nobody used for the longest time are forgotten."""

_Key = tuple[str, str]
"""`task` or `context`, and its id."""


class Owners:
    """Remembers who began what. A principal is a name, empty for the local user; an empty id means none."""

    def __init__(self) -> None:
        self._owners: OrderedDict[_Key, str] = OrderedDict()
        self._has_principals = False

    def allows(self, principal: str, *, task_id: str, context_id: str) -> bool:
        """Whether the principal may go on with these; asked before every exchange.

        What is not known, such as what was begun before the bridge started, is open as long as there is the local user
        alone; else it could be anybody's.
        """
        self._has_principals |= bool(principal)
        return all(self._is_open(key, principal) for key in _keys(task_id, context_id))

    def note(self, principal: str, *, task_id: str, context_id: str) -> None:
        """The agent named these in an exchange of the principal. What is somebody's already stays so."""
        for key in _keys(task_id, context_id):
            self._owners.setdefault(key, principal)
            self._owners.move_to_end(key)
        while len(self._owners) > MOST:
            self._owners.popitem(last=False)

    def _is_open(self, key: _Key, principal: str) -> bool:
        owner = self._owners.get(key)
        return owner == principal if owner is not None else not self._has_principals


def _keys(task_id: str, context_id: str) -> Iterator[_Key]:
    if task_id:
        yield "task", task_id
    if context_id:
        yield "context", context_id
