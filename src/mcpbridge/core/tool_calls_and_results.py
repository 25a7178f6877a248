"""Tool calls as programs see them: what a model wants called, what a tool returns, and the result of a call."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, field

from mcpbridge.base.errors import CallFailed
from mcpbridge.protocol.body import Body

PAUSED = "mcpbridge/paused"
"""In `_meta` of a result: the call is paused; by which `id` it is resumed, and what is asked."""

_PAUSED_BYTES = PAUSED.encode()

Args_co = TypeVar("Args_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class ToolCall(Struct, Generic[Args_co, R_co], frozen=True):
    """A call that is to be made: by a model's wish (`Bridge.calls_from`), or made by a tool itself (`add.call(1, 2)`).

    `Args` is what the arguments are, `R` what `CallResult.value` of it is.
    """

    name: str
    """Of the tool: as models know it, its wire name, or its id (`server/tool`)."""
    arguments: Args_co
    """What it is called with: JSON values by name, or a model, dataclass or typed dict that becomes them."""
    id: str = field(default_factory=_new_id)
    """The model's own id of the call, which its result is given back under; made up where it has none."""
    problem: str = ""
    """Why the model's arguments could not be read; such a call is answered with an error that says so, and not made."""
    returns: Callable[[Any], R_co] | None = None
    """Makes `CallResult.value` of the structured result; None: it stays the JSON value that it is."""


class ToolResult(Struct, Generic[R_co], frozen=True):
    """What a tool written in Python may return, where its value alone does not say all."""

    content: R_co
    """What the model sees: any value that a tool may return, or a list of content blocks."""
    artifacts: Sequence[Any] = ()
    """Structured data for the program alone (`CallResult.artifacts`): JSON values, models, dataclasses. They are kept
    in the store for the caller, and no client and no model is shown them. They come back as JSON has them: models as
    objects, names of members as texts, bytes as base64, NaN as null."""
    is_error: bool = False
    """It did not work; `content` says why, for the model."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members of the result's `_meta`, which clients see and models do not."""


class PausedCall(Struct, frozen=True):
    """A call that waits for an answer from outside. It is in the store, so it outlives the process."""

    id: str
    """What it is resumed by: `Bridge.resume(id, answer)`."""
    tool: str
    """Id of the tool (`server/tool`)."""
    arguments: Mapping[str, Any]
    kind: Literal["manual", "human", "approval"]
    """`manual`: the answer is the tool's result. `human`: the tool makes the result of the answer. `approval`: somebody
    has to agree (`Bridge.approve`, `Bridge.deny`), and the call is then to be made again."""
    call_id: str = ""
    """The model's id of the call, if a model wanted it."""
    run: str = ""
    """The run that it belongs to."""
    reason: str = ""
    """What is asked, for people."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer; None: any."""
    created: float = 0.0
    """Seconds since 1970."""
    expires: float = 0.0
    """Seconds since 1970, when it is forgotten."""
    is_answered: bool = False
    """It was resumed, and its result is there to continue with."""


class CallResult(Struct, Generic[R_co], frozen=True):
    """What came of a call."""

    content: Sequence[Mapping[str, Any]]
    """Content blocks as MCP has them (`{"type": "text", "text": …}`, images, resources, …): what a model is shown."""
    structured: Any = None
    """`structuredContent`; None if there is none."""
    is_error: bool = False
    artifacts: Sequence[Any] = ()
    """What the tool gave for the program alone; see `ToolResult.artifacts`."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`_meta` of the result."""
    call: "ToolCall[Any, R_co] | None" = None
    """The call that it is of."""
    paused: PausedCall | None = None
    """It waits for an answer from outside; the content says so."""
    handle: str = ""
    """Under which the whole is kept, where the content is a preview: `Bridge.recall(handle)`. Empty: this is all."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The result object as MCP has it."""

    @property
    def text(self) -> str:
        """All text of the content, joined by line breaks."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def value(self) -> R_co:
        """What the tool returned, of the type that it says, where the call was made by the tool (`add.call(1)`).

        Of any other call (`Bridge.call_tool`, a model's), and where the tool does not say what it returns: the
        structured result, else the text. Of generators: what they return, what the `Result` holds that they yield, or
        else their last event.

        Raises:
            CallFailed: it is an error, is paused, or is not of that type.
        """
        if self.paused is not None:
            raise CallFailed(f"{self.paused.tool} is paused: resume it by its id, {self.paused.id}")
        if self.is_error:
            raise CallFailed(self.text or "it failed, and does not say why")
        value: Any = self.text if self.structured is None else self.structured
        returns = self.call.returns if self.call is not None else None
        return value if returns is None else returns(value)


def is_paused(result: Body, data: bytes) -> bool:
    """Whether a result says that its call is paused. `data`: its bytes."""
    if _PAUSED_BYTES not in data:
        return False
    meta = result.inner("_meta")
    return meta is not None and PAUSED in meta
