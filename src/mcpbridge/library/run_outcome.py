"""What a run is made of as programs see it: its turns, and what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.errors import BridgeError
from mcpbridge.library.usage import Usage
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall

__all__ = ["RunFailed", "RunOutcome", "Status", "Turn"]

Status = Literal["done", "paused", "max_rounds", "stopped", "failed"]
"""`done`: the model called no more tools. `paused`: calls wait for an answer from outside. `max_rounds`: as often as
it may, the model was asked. `stopped`: `stop_when` said so. `failed`: only in `RunFailed.outcome`."""


class Turn(Struct, frozen=True):
    """One round of a run: what the model said, and what came of the calls that it wanted."""

    round: int
    """1 for the first; 0 before the model was asked at all."""
    run: str
    messages: Sequence[Mapping[str, Any]]
    """The whole history up to here, results included, as the model's API has it."""
    response: Any = None
    """What the model gave back."""
    text: str = ""
    """All text that the model wrote in this round."""
    calls: Sequence[ToolCall[Any, Any]] = ()
    results: Sequence[CallResult[Any]] = ()
    """What came of the calls, in their order."""
    usage: Usage = Usage()
    """Tokens of this round."""
    elapsed: float = 0.0
    """Seconds since the run began."""
    deliverable: Mapping[str, Any] | None = None
    """What the tool `final-answer` or `task-complete` was given, in this round or before; None: it was not called."""


class RunOutcome(Struct, frozen=True):
    """What came of a run."""

    status: Status
    text: str
    """What the model wrote last."""
    messages: Sequence[Mapping[str, Any]]
    """The whole history as the model's API has it, JSON values. A paused run goes on from there: `run(model, messages,
    run=outcome.run)`, in any process that has the same store."""
    run: str
    """Id of the run."""
    turns: Sequence[Turn] = ()
    results: Sequence[CallResult[Any]] = ()
    """What came of all calls, artifacts included, in their order; of a paused run also of calls that the history does
    not show yet."""
    paused: Sequence[PausedCall] = ()
    """What the run waits for: `Bridge.resume(id, answer)`, or of the kind `approval` `approve(id)` and `deny(id)`."""
    deliverable: Mapping[str, Any] | None = None
    """What the tool `final-answer` or `task-complete` was given last: its arguments, and `tool`."""
    usage: Usage = Usage()
    """Tokens of all rounds together."""


class RunFailed(BridgeError):
    """The model, or a function of the program, failed; `__cause__` is how. `outcome` is what came of the run so far."""

    advice = (
        "What was called has had its effect: go on from `outcome.messages` and in the same run, to repeat none of it."
    )

    def __init__(self, what: str, outcome: RunOutcome) -> None:
        super().__init__(what)
        self.outcome = outcome
