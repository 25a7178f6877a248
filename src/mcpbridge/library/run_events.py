"""What happens in a run, as programs that show progress hear it: one class for each kind, in the order of happening.

`match event:` tells them apart by class. `event.name` is a text for it; that of a `BusEvent` is what its publisher
named it, whatever that is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct

from mcpbridge.events import Event
from mcpbridge.library.run_outcome import RunOutcome
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall

__all__ = [
    "ApprovalPending",
    "ArgumentsDelta",
    "BusEvent",
    "CallProgress",
    "CallReturned",
    "CallStarted",
    "MessageWritten",
    "RoundStarted",
    "RunEvent",
    "RunFinished",
    "RunPaused",
    "TextDelta",
]


class RoundStarted(Struct, frozen=True):
    """The model is asked."""

    name: ClassVar[str] = "round.started"
    round: int
    """1 for the first. What happens before that is of round 0: calls that an earlier run left open."""


class TextDelta(Struct, frozen=True):
    """The model wrote some text."""

    name: ClassVar[str] = "text.delta"
    text: str


class ArgumentsDelta(Struct, frozen=True):
    """The model wrote some of the arguments of a call."""

    name: ClassVar[str] = "arguments.delta"
    call_id: str
    tool: str
    """As the model calls it."""
    json: str
    """A part of the JSON; those of one call together are the whole."""


class MessageWritten(Struct, frozen=True):
    """The model's message is there, whole."""

    name: ClassVar[str] = "message"
    messages: Sequence[Mapping[str, Any]]
    """What was added to the history, as the model's API has it: one message, of OpenAI's responses perhaps several."""
    text: str
    """All text of it."""


class CallStarted(Struct, frozen=True):
    """A call goes out."""

    name: ClassVar[str] = "tool.call"
    call: ToolCall[Any, Any]


class CallProgress(Struct, frozen=True):
    """A tool told how far it is, or gave a preliminary result."""

    name: ClassVar[str] = "tool.progress"
    call: ToolCall[Any, Any]
    message: str = ""
    progress: float | None = None
    total: float | None = None
    event: Any = None
    """The JSON value that it yielded, where that is more than a message."""


class CallReturned(Struct, frozen=True):
    """What came of a call; `result.call` is the call."""

    name: ClassVar[str] = "tool.result"
    result: CallResult[Any]


class ApprovalPending(Struct, frozen=True):
    """Somebody has to agree to a call: `Bridge.approve(id)`, `Bridge.deny(id)`."""

    name: ClassVar[str] = "approval.pending"
    id: str
    tool: str
    """Id of the tool (`server/tool`)."""
    arguments: Any
    """None: they are nested too deep to be read; the pending approval has their JSON."""
    call_id: str
    reason: str = ""


class RunPaused(Struct, frozen=True):
    """The run ends here until these calls are answered."""

    name: ClassVar[str] = "run.paused"
    paused: Sequence[PausedCall]


class BusEvent(Struct, frozen=True):
    """Something that was published in the name of this run: by a tool, a hook, or the bridge (`context.updated`)."""

    event: Event

    @property
    def name(self) -> str:
        """As it was published."""
        return self.event.name


class RunFinished(Struct, frozen=True):
    """The last event, unless the run failed."""

    name: ClassVar[str] = "run.finished"
    outcome: RunOutcome


RunEvent: TypeAlias = (
    RoundStarted
    | TextDelta
    | ArgumentsDelta
    | MessageWritten
    | CallStarted
    | CallProgress
    | CallReturned
    | ApprovalPending
    | RunPaused
    | BusEvent
    | RunFinished
)
"""What a run tells while it goes on: `async for event in bridge.run(...)`."""
