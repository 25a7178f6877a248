"""The parts of a multi round-trip request: questions, answers, and the sealed `requestState` (MCP 2026-07-28).

A call is answered with `input_required`, which has `inputRequests` and a `requestState`. The client sends the same
request again with that state and `inputResponses`.

`Sealer` decides the format of the state. The bridge must not trust what a client brings back (MCP 2026-07-28, multi
round-trip requests), so AES-256-GCM hides the content and proves that it is ours. Principal, method, target and
arguments are bound in as associated data: a state does not open with any other request.

`Relaying` passes questions of an upstream through and keeps nothing: the upstream's state is sealed into ours, and
any replica can take the next round. That serves modern upstreams, and upstreams of 2025-11-25 that want pages visited
first (-32042), since those forget the call as well.
"""

import base64
import binascii
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest, UpstreamAnswered, UpstreamGarbled
from mcpbridge.core.elicitation import Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.ask import phrase
from mcpbridge.downstream.revisions.downgrade import url_questions
from mcpbridge.pipeline.input_required import MAX_ROUNDS, read_questions, state_of
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.json_values import canonical_digest
from mcpbridge.protocol.jsonrpc import encode

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


_NONCE = 12
_INVALID = "Invalid or expired requestState"
_PRUNE_ABOVE = 4096


class Sealer:
    """Seals and opens. One key for all replicas of a bridge makes their seals exchangeable."""

    def __init__(self, key: str = "", *, seconds: float = 600, clock: Callable[[], float] = time.time) -> None:
        """`key`: any secret text; without one a key is made that dies with the process.

        `seconds`: how long a seal lasts.
        """
        self._key = sha256(b"mcpbridge seal " + key.encode()).digest() if key else secrets.token_bytes(32)
        self.seconds, self._clock = seconds, clock
        self._used: dict[bytes, float] = {}
        """Seals that may open no second time, by nonce, and when they expire."""
        self._prune_at = _PRUNE_ABOVE

    def seal(self, claims: Mapping[str, Any], bind: tuple[str, ...], *, seconds: float | None = None) -> str:
        """The claims as URL-safe text that opens with the same `bind` only."""
        nonce = secrets.token_bytes(_NONCE)
        until = self._clock() + (self.seconds if seconds is None else seconds)
        sealed = self._cipher().encrypt(nonce, encode({**claims, "until": until}), encode(bind))
        return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()

    def open(self, text: str, bind: tuple[str, ...], *, once: bool = False) -> dict[str, Any]:
        """The claims. `once`: this seal opens no second time, as far as this process can tell.

        Raises:
            BadRequest: forged, changed, expired, opened before, or made for something else; it does not say which.
        """
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            claims = msgspec.json.decode(self._cipher().decrypt(data[:_NONCE], data[_NONCE:], encode(bind)))
        except (InvalidTag, ValueError, binascii.Error):
            raise BadRequest(INVALID_PARAMS, _INVALID) from None
        now = self._clock()
        until = claims.pop("until")
        if until < now:
            raise BadRequest(INVALID_PARAMS, _INVALID)
        if once and not self._first_use(data[:_NONCE], until, now):
            raise BadRequest(INVALID_PARAMS, _INVALID)
        return claims

    def _first_use(self, nonce: bytes, until: float, now: float) -> bool:
        if nonce in self._used:
            return False
        if len(self._used) >= self._prune_at:
            self._used = {known: end for known, end in self._used.items() if end >= now}
            self._prune_at = max(_PRUNE_ABOVE, 2 * len(self._used))
        self._used[nonce] = until
        return True

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 30 ms that few need to pay

        return AESGCM(self._key)


class Relaying:
    """Makes the answers. Each is for one client, bound to its request (`Binding`), for one round."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def questions(
        self, client: Client, bound: Binding, rounds: int, server: str, result: Body, *, agreed: str = ""
    ) -> Body:
        """A modern upstream's questions as they came, its state sealed into one of ours.

        `agreed`: what a person agreed to before (`Call.agreed`): it holds for the rounds to come.

        Raises:
            UpstreamGarbled: it asks too often, or for what the client did not declare.
        """
        if rounds >= MAX_ROUNDS:
            raise UpstreamGarbled(server, f"it asked back more than {MAX_ROUNDS} times")
        requests: dict[str, Any] = {}
        for key, question in read_questions(server, result).items():
            try:
                requests[key] = request_of(question, client)
            except QuestionRefused as refused:
                raise UpstreamGarbled(server, f"it asks what it must not: {refused}") from refused
        claims: dict[str, Any] = {"round": rounds + bool(requests)}  # a call that is only put off asks nothing
        own = state_of(result)
        if own is not None:
            claims["state"] = read_state(own)
        if agreed:
            claims["agreed"] = agreed
        if requests:
            result.put("inputRequests", requests)
        result.put("requestState", self._sealer.seal(claims, bound.value))
        return result

    def visit_first(
        self, client: Client, bound: Binding, rounds: int, error: UpstreamAnswered, *, agreed: str = ""
    ) -> Body:
        """A 2025-11-25 upstream wants pages visited before it runs the call (-32042): ask for that, then call again.

        Raises:
            UpstreamAnswered: `error`, if it is another one, or the client opens no pages.
            UpstreamGarbled: it asks too often.
        """
        urls = url_questions(error)
        if not urls or not client.profile.url:
            raise error
        if rounds >= MAX_ROUNDS:
            raise UpstreamGarbled(error.upstream, f"it asked for a page more than {MAX_ROUNDS} times")
        requests = {f"q{number}": request_of(question, client) for number, question in enumerate(urls, 1)}
        claims = {"visit": list(requests), "round": rounds + 1, "agreed": agreed}
        return input_required(requests, self._sealer.seal(claims, bound.value))


def restore(call: Call, claims: dict[str, Any]) -> None:
    """Make the params those that the upstream expects: its own state, or none; and recall what was agreed to.

    Raises:
        QuestionRefused, BadRequest: a page was not visited.
    """
    params = call.params
    call.agreed = claims.get("agreed", "")
    if "visit" in claims:
        _require_visited(params, claims["visit"])
        params.drop("inputResponses")
    if "state" in claims:
        params.put("requestState", claims["state"])
    else:
        params.drop("requestState")


def _require_visited(params: Body, keys: list[str]) -> None:
    """Every page was agreed to; else the call is not made again."""
    answers = read_answers(params)
    for key in keys:
        try:
            action = Body(answers[key]).text("action")
        except (KeyError, msgspec.DecodeError):
            raise BadRequest(INVALID_PARAMS, f"params.inputResponses has no answer for {key!r}") from None
        if action != "accept":
            raise QuestionRefused(f"The page that the server asked for was not opened (action: {action[:20]})")
