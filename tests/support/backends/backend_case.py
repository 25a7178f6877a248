"""What the contract suite of backends works with; see `kinds.py`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcpbridge.tools.backend import Backend

__all__ = ["BackendCase"]


@dataclass(frozen=True)
class BackendCase:
    """A backend to be tested, and calls of it."""

    backend: Backend
    tool: str
    """The tool that is called below, by its own name."""
    arguments: Mapping[str, Any]
    """A call that works."""
    expected: str
    """What stands in the text of its result."""
    slow_arguments: Mapping[str, Any] | None = None
    """A call that would take a minute or more; None: there is none of this kind."""
    failing_arguments: Mapping[str, Any] | None = None
    """A call that the tool's own work refuses or fails at; None: there is none of this kind."""
    slow_tool: str = ""
    """The tool of the slow call; empty: the same."""
    failing_tool: str = ""
    """The tool of the failing call; empty: the same."""
    begun: Callable[[], Awaitable[None]] | None = None
    """Returns when the slow call has reached who does the work; None: nothing tells."""
    is_over: Callable[[], bool] | None = None
    """Whether nothing is left of what the slow call began, a moment after it was cancelled; None: nothing tells."""
    forbidden: tuple[str, ...] = ()
    """Texts, such as secrets of its settings, that no result, error or state may have."""
