"""Functions of the program that hear of calls, so that one that fails costs no call its result."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from mcpbridge.errors import BridgeError
from mcpbridge.logs import get_logger
from mcpbridge.toolcalls import CallResult

__all__ = ["CallbackFailed", "Listener"]

log = get_logger("mcpbridge.library")

T = TypeVar("T")


class CallbackFailed(BridgeError):
    """A function of the program that hears of calls (`on_progress`, `on_event`) failed; `__cause__` is how.

    The calls were made all the same, and it went on hearing of them: `results` is what came of them, in their order.
    """

    advice = "The calls were made, and `results` is what came of them: do not make them again."

    def __init__(self, error: Exception, results: Sequence[CallResult[Any]]) -> None:
        super().__init__(f"A function that hears of calls failed: {type(error).__name__}: {error}")
        self.results = results


class Listener(Generic[T]):
    """Tells a function of the program, and goes on whatever it raises; the first of that is remembered, and logged."""

    def __init__(self, function: Callable[[T], object]) -> None:
        self._function = function
        self._error: Exception | None = None

    def __call__(self, told: T) -> None:
        """Tell it."""
        try:
            self._function(told)
        except Exception as error:  # noqa: BLE001 - the program's own, whatever it is
            if self._error is None:
                self._error = error
                log.warning("a function that hears of calls failed", error=type(error).__name__)

    def settle(self, results: Sequence[CallResult[Any]]) -> None:
        """The calls are over, and this is what came of them.

        Raises:
            CallbackFailed: the function failed meanwhile.
        """
        if self._error is not None:
            raise CallbackFailed(self._error, results) from self._error
