"""The events of a run in the order in which they happen, its turns, its outcome, and its token usage. Pure.

`match event:` distinguishes events by class. `event.name` is a text for it; for a `BusEvent` it is the name that the
publisher chose, whatever that is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, cast

from msgspec import Struct

from mcpbridge.base.errors import BridgeError
from mcpbridge.core.events import Event
from mcpbridge.core.tool_calls_and_results import CallResult, PausedCall, ToolCall

_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "candidatesTokenCount")
_APART = ("cache_creation_input_tokens", "cache_read_input_tokens")
"""What Anthropic's API does not count as input though the model reads it."""
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")
"""What Gemini's does not count as output though the model writes it."""


class Usage(Struct, frozen=True):
    """Tokens of one answer, or of several together; 0 where the API does not say."""

    input: int = 0
    """What the model read, from caches or not."""
    output: int = 0
    """What it wrote, thoughts included."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input + other.input, self.output + other.output)


def usage_of(response: object) -> Usage:
    """What a response says of its usage: an object of an official client, or plain JSON values."""
    for name in ("usage", "usage_metadata", "usageMetadata"):
        usage = _member(response, name)
        if usage is not None:
            read = _first(usage, _INPUT) + sum(_number(usage, one) for one in _APART)
            return Usage(read, _first(usage, _OUTPUT) + _first(usage, _THOUGHTS))
    return Usage()


def _first(usage: object, names: tuple[str, ...]) -> int:
    return next((number for name in names if (number := _number(usage, name))), 0)


def _number(usage: object, name: str) -> int:
    value = _member(usage, name)
    return value if isinstance(value, int) else 0


def _member(value: object, name: str) -> Any:
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)


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
    """The whole history as the model's API has it, JSON values. A paused run continues from there, in any process that
    has the same store: `run(model, messages, run=outcome.run)`."""
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
    """The model, or a function of the program, raised; `__cause__` is its exception. `outcome` is the run so far."""

    advice = (
        "The calls have had their effect: continue from `outcome.messages` in the same run, so that none is repeated."
    )

    def __init__(self, what: str, outcome: RunOutcome) -> None:
        super().__init__(what)
        self.outcome = outcome


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
    """A tool reported how far it is, or gave a preliminary result."""

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
"""What a run reports while it works: `async for event in bridge.run(...)`."""
