"""What one answer can ask of a modern client while nothing is kept here: the upstream's state, sealed into ours.

A modern upstream asks in the same way as the bridge does, so its questions pass through. A 2025-11-25 upstream that
wants pages visited first (-32042) forgets the call as well. Any replica can take the next round.
"""

from typing import Any

import msgspec

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.pages import url_questions
from mcpbridge.downstream.round_trips import Binding, input_required, read_answers, read_state, request_of
from mcpbridge.downstream.sealing import Sealer
from mcpbridge.errors import BadRequest, UpstreamAnswered, UpstreamGarbled
from mcpbridge.interaction import QuestionRefused
from mcpbridge.model import Call
from mcpbridge.pipeline.driving import MAX_ROUNDS, read_questions, state_of
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import INVALID_PARAMS

__all__ = ["Relaying", "restore"]


class Relaying:
    """Makes the answers. Each is for one client, bound to its request (`round_trips.Binding`), of one round."""

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
