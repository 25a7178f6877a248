"""A paused call as it stands in the store: all that is needed to go on with it in another process."""

from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.toolcalls import PausedCall
from mcpbridge.wire.frame import encode
from mcpbridge.wire.python_values import decoded

__all__ = ["KIND", "Label", "PausedRecord", "State", "label_of", "record_of"]

KIND = "paused"
"""The kind of value that paused calls are in the store."""

State = Literal["waiting", "answered", "cancelled"]


class PausedRecord(Struct, frozen=True, omit_defaults=True):
    """A call that waits, or what came of it."""

    tool: str
    """Its id, `server/tool`."""
    kind: Literal["manual", "human"]
    arguments: Raw
    """As the tool got them: an object."""
    created: float
    """Seconds since 1970."""
    expires: float
    id: str = ""
    """Its handle in the store, where it is left out."""
    call_id: str = ""
    """The model's."""
    run: str = ""
    """As the client named it."""
    reason: str = ""
    schema: dict[str, Any] | None = None
    """Of the answer; None: any."""
    principal: str = ""
    client: str = ""
    session: str = ""
    user: str = ""
    tenant: str = ""
    metadata: dict[str, Any] = {}
    agreed: str = ""
    """See `Call.agreed`: nobody is asked twice about one call."""
    state: State = "waiting"
    result: Raw = Raw()
    """What came of it, an object; empty: nothing yet."""

    @property
    def call(self) -> PausedCall:
        """As programs see it.

        Raises:
            msgspec.DecodeError: its arguments are nested too deep.
        """
        arguments = cast("dict[str, Any]", decoded(bytes(self.arguments)))
        return PausedCall(
            self.id,
            self.tool,
            arguments,
            self.kind,
            self.call_id,
            self.run,
            self.reason,
            self.schema,
            self.created,
            self.expires,
            is_answered=self.state != "waiting",
        )

    @property
    def label(self) -> bytes:
        """What lists tell of it without reading it."""
        return encode(Label(self.run, self.call_id, self.state, self.tenant))


class Label(Struct, frozen=True):
    """What a list of the store tells of a paused call."""

    run: str = ""
    call_id: str = ""
    state: State = "waiting"
    tenant: str = ""


_decode_label = msgspec.json.Decoder(Label).decode


def label_of(data: bytes) -> Label:
    """What a list of the store tells of a paused call."""
    try:
        return _decode_label(data)
    except msgspec.DecodeError:  # of another release
        return Label()


_decode_record = msgspec.json.Decoder(PausedRecord).decode


def record_of(data: bytes, handle: str) -> PausedRecord | None:
    """What the store has under a handle; None: it is of another release, or cannot be read here."""
    try:
        return replace(_decode_record(data), id=handle)
    except (msgspec.DecodeError, RecursionError):
        return None
