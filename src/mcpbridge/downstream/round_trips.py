"""The parts of a multi round-trip request: what a modern client is asked, and what it comes back with.

MCP 2026-07-28, multi round-trip requests: `input_required` with `inputRequests` and a `requestState`; the same request
again with that state and `inputResponses`.
"""

from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.phrasing import phrase
from mcpbridge.errors import BadRequest
from mcpbridge.interaction import Question
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.canonical import canonical_digest
from mcpbridge.wire.codes import INVALID_PARAMS
from mcpbridge.wire.frame import encode

__all__ = ["GONE", "Binding", "input_required", "read_answers", "read_state", "request_of"]

GONE = "Invalid or expired requestState"

_NOT_BOUND = frozenset({"_meta", "inputResponses", "requestState"})

_decode_answers = msgspec.json.Decoder(dict[str, Raw]).decode


class Binding:
    """What a state belongs to: whoever calls what with which arguments. Their order and spacing may differ.

    Numbers are compared as they are written; a member that is named twice is not the same as either alone.
    Most calls end without a state, so it is worked out at the first use; what it is of is kept as it came.
    """

    __slots__ = ("_fields", "_target", "_value")

    def __init__(self, client: Client, call: Call) -> None:
        self._target = client.principal, call.method, call.upstream, call.target
        self._fields = {name: value for name, value in call.params.fields.items() if name not in _NOT_BOUND}
        self._value: tuple[str, ...] | None = None

    @property
    def value(self) -> tuple[str, ...]:
        """As `Sealer` takes it."""
        if self._value is None:
            digests = {name: canonical_digest(value) for name, value in sorted(self._fields.items())}
            self._value = (*self._target, canonical_digest(encode(digests)))
        return self._value


def request_of(question: Question, client: Client) -> dict[str, Any]:
    """One of `inputRequests`. Raises QuestionRefused: this client cannot be asked that."""
    params = phrase(question, client.version, client.profile)
    return {"method": question.method, "params": params if isinstance(params, Raw) else Raw(params)}


def input_required(requests: dict[str, Any], state: str) -> Body:
    """The answer that asks the client for something."""
    return Body(encode({"resultType": "input_required", "inputRequests": requests, "requestState": state}))


def read_answers(params: Body) -> dict[str, Raw]:
    """The `inputResponses`. Raises BadRequest: they are no object."""
    raw = params.get("inputResponses")
    try:
        return _decode_answers(raw) if raw is not None else {}
    except msgspec.DecodeError as error:
        raise BadRequest(INVALID_PARAMS, f"params.inputResponses: {error}") from error


def read_state(raw: Raw) -> str:
    """A `requestState`. Raises BadRequest: it is no string."""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        raise BadRequest(INVALID_PARAMS, GONE) from None
