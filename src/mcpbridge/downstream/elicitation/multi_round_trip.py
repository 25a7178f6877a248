"""The parts of a multi round-trip request: questions and answers (MCP 2026-07-28).

A call is answered with `input_required`, which has `inputRequests` and a `requestState` (`request_state.py`). The
client sends the same request again with that state and `inputResponses`.

`Relaying` passes questions of an upstream through and keeps nothing: the upstream's state is sealed into ours, and
any replica can take the next round, unless the upstream is a process of its own bridge. That serves modern upstreams,
and upstreams of 2025-11-25 that want pages visited first (-32042), since those forget the call as well.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest, UpstreamAnswered, UpstreamGarbled
from mcpbridge.core.elicitation import Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.request_state import Binding, Sealer, read_state
from mcpbridge.downstream.revisions.downgrade import url_questions
from mcpbridge.pipeline.input_required import MAX_ROUNDS, read_questions, state_of
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import encode

_decode_answers = msgspec.json.Decoder(dict[str, Raw]).decode


def request_of(question: Question, client: Client) -> dict[str, Any]:
    """One of `inputRequests`. Raises QuestionRefused: this client cannot be asked that."""
    from mcpbridge.downstream.elicitation.question_forms import phrase  # loaded with the first question

    params = phrase(question, client.version, client.capabilities)
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


class Relaying:
    """Makes the answers. Each is for one client, bound to its request (`Binding`), for one round."""

    def __init__(self, sealer: Sealer, runs_here: Callable[[str], bool] = lambda server: False) -> None:
        """`runs_here`: whether a server is a process of this bridge, which may remember what it asked."""
        self._sealer, self._runs_here = sealer, runs_here

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
        result.put("requestState", self._sealer.seal(claims, bound.value, is_here=self._runs_here(server)))
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
        if not urls or not client.capabilities.url:
            raise error
        if rounds >= MAX_ROUNDS:
            raise UpstreamGarbled(error.upstream, f"it asked for a page more than {MAX_ROUNDS} times")
        requests = {f"q{number}": request_of(question, client) for number, question in enumerate(urls, 1)}
        claims = {"visit": list(requests), "round": rounds + 1, "agreed": agreed}
        state = self._sealer.seal(claims, bound.value, is_here=self._runs_here(error.upstream))
        return input_required(requests, state)


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
