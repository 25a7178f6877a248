"""What is remembered of one call: the value that observers make and the call log keeps."""

from typing import Literal

from msgspec import Struct

__all__ = ["CallRecord", "Outcome"]

Outcome = Literal["ok", "tool_error", "refused", "failed", "cancelled", "asked"]
"""`tool_error`: a result with `isError`; `refused`: by the bridge, unsent; `failed`: at the server or on the way;
`asked`: the answer was a question, the call goes on with another request."""


class CallRecord(Struct, frozen=True):
    """One call, as far as it can be told without looking at what people said. Nothing here is encoded or hashed yet."""

    at: float
    """Seconds since 1970, when it began."""
    seconds: float
    method: str
    server: str
    tool: str
    """The tool's id; the prompt's name or the resource's URI for other requests."""
    client: str
    """`clientInfo.name`."""
    principal: str
    session: str
    run: str
    """Run id, if the call has one."""
    outcome: Outcome
    error: str
    """Class of the error, or what the tool's own result says; empty if there was none."""
    arguments: bytes
    """As sent, after all changes. The call log keeps size and digest, the bytes themselves only if `keeps_content`."""
    result: bytes
    """Empty if there is none."""
    keeps_content: bool = False
    facts: dict[str, object] | None = None
    """What stages noted: `retries`, `cache`, `coerced`, `approval`, and so on."""
    sent: int = 0
    """Bytes of the arguments; also where they themselves are left out, as in events."""
    received: int = 0
    """Bytes of the result; likewise."""
