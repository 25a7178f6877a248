"""Calls of modern clients that may be asked something: relayed if the upstream is modern too, else parked.

A modern client takes no requests. The question comes as the answer to its call (`input_required`), and the client
comes back with its answers and a `requestState` (MCP 2026-07-28, multi round-trip requests).

A modern upstream works the same way: its questions and its state pass through, the state sealed
(`multi_round_trip.py`). Nothing is kept here, so any replica can continue. A legacy upstream waits in the middle of the
call. That call is **parked**: it continues in a task of its own, and the sealed state names it, and the bridge of a
fleet that has it. Each state opens once, only for the same request of the same principal, and it expires.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Raw, Struct

from mcpbridge.base.errors import BadRequest, CallRefused, InsufficientScope, UpstreamAnswered
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import ELICIT, ClientCapabilities, Question, QuestionRefused
from mcpbridge.core.jobs import Job, Jobs
from mcpbridge.core.model import Call, CallHandler, ignore_update
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.ask import CANCELLED, modern_home
from mcpbridge.downstream.elicitation.multi_round_trip import Relaying, input_required, read_answers, restore
from mcpbridge.downstream.elicitation.request_state import GONE, Binding, Sealer, read_state
from mcpbridge.pipeline.input_required import MAX_ROUNDS, needs_driving
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.peer import Update

log = get_logger("mcpbridge.questions")

GATHER_SECONDS = 0.02
"""Questions that come so soon after the first go into the same answer."""
OWN_PATIENCE, PATIENCE = 5.0, 60.0
"""Seconds that a client may be away before its call gives way to another one of its own, or of others, where a server
has no session left for them."""
MAX_PARKED = 64
"""Parked calls of one principal; further questions are refused."""
_OVER = "The call that this belongs to is over"


class _OpenQuestion(Struct, eq=False):
    """A question that waits for the client."""

    question: Question
    params: Raw
    answer: asyncio.Future[Raw]


class _ParkedCall(Job):
    """One call that outlives its requests. Its outcome is the call's."""

    __slots__ = ("bound", "call", "client", "count", "is_away", "open", "round", "since", "update")

    def __init__(self, client: Client, bound: Binding, call: Call, rounds: int) -> None:
        super().__init__(client.principal, id=secrets.token_hex(16))
        self.client = client
        self.bound = bound
        """What its states belong to."""
        self.call = call
        """The one that runs; later requests that resume it have calls of their own."""
        self.update: Update = call.update
        self.round = rounds
        self.count = 0
        """Questions that were put so far."""
        self.open: dict[str, _OpenQuestion] = {}
        self.is_away = False
        """Its client was asked something and has not come back: nobody attends."""
        self.since = 0.0
        """Loop time when its client was last asked something."""

    @property
    def is_asking(self) -> bool:
        """A question waits; those that the upstream has withdrawn are forgotten."""
        self.open = {key: entry for key, entry in self.open.items() if not entry.answer.done()}
        return bool(self.open)


class _ModernElicitor:
    """The modern client behind one call."""

    __slots__ = ("_parked", "_parking")

    relays = True

    def __init__(self, parking: "Parking", parked: _ParkedCall) -> None:
        self._parking, self._parked = parking, parked

    @property
    def capabilities(self) -> ClientCapabilities:
        return self._parked.client.capabilities

    @property
    def owner(self) -> object:
        return self._parked  # not the channel: what is asked comes as the answer to this very call

    @property
    def principal(self) -> str:
        return self._parked.client.principal

    @property
    def home(self) -> object:
        return modern_home(self._parked.client)

    def ask(self, question: Question) -> asyncio.Future[Raw]:
        return self._parking.ask(self._parked, question)

    def finished(self, question: Question) -> None:
        """The revision has no such notification: a client that comes back sees for itself."""

    def give_way(self, server: str) -> bool:
        return self._parking.give_way(server, self.principal)

    async def project(self) -> str:
        return self._parked.client.known_project


class Parking:
    """Every call of a modern client that can be asked something goes through `deliver`."""

    def __init__(
        self,
        plan: CallHandler,
        sealer: Sealer,
        *,
        seconds: float,
        runs_here: Callable[[str], bool] = lambda server: False,
        judge: Callable[[Call, Call], None] = lambda call, begun: None,
    ) -> None:
        """`seconds`: how long a parked call waits for its client. `runs_here`: see `Relaying`.

        `judge`: refuses a request that continues a call which may not be any more; gets both.
        """
        self._judge = judge
        self._plan, self._sealer, self.seconds = plan, sealer, seconds
        self._relaying = Relaying(sealer, runs_here)
        self._parked = Jobs[_ParkedCall](per_owner=MAX_PARKED, cancels_by_hand=True)

    async def deliver(self, client: Client, call: Call) -> Body:
        """The result of the call, or the `input_required` that asks its client for something.

        Raises:
            BadRequest: the `requestState` is none of ours, or not for this request; nothing was run.
            StoreFailed: nobody in the fleet can know now whether it was used before; nothing was run.
            BridgeError: as the plan.
        """
        bound = Binding(client, call)
        state = call.params.get("requestState")
        if state is None:
            call.params.drop("inputResponses")  # answers to nothing: each question of ours comes with a state
            parked = self._begin(client, call, bound, 0)
        else:
            answers = read_answers(call.params)  # first: a state is not used up by a request that cannot be read
            text = read_state(state)
            self._judge_parked(self._sealer.open(text, bound.value), call)
            claims = await self._sealer.open_once(text, bound.value)
            if "parked" in claims:
                parked = self._resume(claims["parked"], claims["round"], client, call, answers)
            else:
                restore(call, claims)
                call.continues = True  # the state is ours and of this very request, made when it had been let through
                parked = self._begin(client, call, bound, claims["round"])
        try:
            result = await self._attend(parked)
        except UpstreamAnswered as error:
            return self._relaying.visit_first(parked.client, bound, parked.round, error, agreed=parked.call.agreed)
        if parked.is_away or not needs_driving(result):
            return result
        agreed = parked.call.agreed
        return self._relaying.questions(parked.client, bound, parked.round, call.upstream, result, agreed=agreed)

    def ask(self, parked: _ParkedCall, question: Question) -> asyncio.Future[Raw]:
        """Put a question with the next answer that the client gets. The future fails with QuestionRefused."""
        from mcpbridge.downstream.elicitation.question_forms import phrase

        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        try:
            if parked.is_away and parked not in self._parked:
                raise QuestionRefused("The client is not there")
            if parked.is_done:
                raise QuestionRefused(_OVER)
            if parked.round >= MAX_ROUNDS:
                raise QuestionRefused(f"The client was asked {MAX_ROUNDS} times during this call")
            params = phrase(question, parked.client.version, parked.client.capabilities)
        except QuestionRefused as refused:
            answer.set_exception(refused)
            return answer
        parked.count += 1
        parked.open[f"q{parked.count}"] = _OpenQuestion(
            question, params if isinstance(params, Raw) else Raw(params), answer
        )
        parked.wake()
        return answer

    def left(self, channel: object) -> None:
        """The connection that these calls came on has ended: nobody will come back."""
        for parked in self._parked:
            if parked.client.channel is channel and parked.is_away:
                self._expire(parked)

    def give_way(self, server: str, principal: str) -> bool:
        """End the call at this server whose client is away longest. False: no client is away, or not for long.

        One's own go first; those of others only when they can hardly be waited for any more. A client over HTTP may
        leave for good in between its requests, and nobody is notified.
        """
        away = [parked for parked in self._parked if parked.is_away and parked.call.upstream == server]
        own = [parked for parked in away if parked.client.principal == principal]
        now = asyncio.get_running_loop().time()
        for parked in own or away:  # in the order in which they were parked first
            if now - parked.since >= (OWN_PATIENCE if own else PATIENCE):
                self._expire(parked)
                return True
        return False

    def end_of_user(self, principal: str) -> int:
        """This user may not continue any call. Returns how many were parked."""
        parked = [one for one in self._parked if one.client.principal == principal]
        for one in parked:
            self._expire(one)
        return len(parked)

    def end_where(self, is_over: Callable[[Client, Call], bool]) -> None:
        """End the parked calls that are over for their clients."""
        for parked in self._parked:
            if is_over(parked.client, parked.call):
                self._expire(parked)

    def end_all(self) -> None:
        """The bridge stops: nobody will come back."""
        for parked in self._parked:
            self._expire(parked)

    def under_way(self) -> set[asyncio.Task[Any]]:
        """The tasks of the calls that are parked."""
        return {parked.task for parked in self._parked if parked.task is not None}

    # -- parked calls

    def _begin(self, client: Client, call: Call, bound: Binding, rounds: int) -> _ParkedCall:
        """Start the call in a task of its own, which outlives this request if it has to."""
        parked = _ParkedCall(client, bound, call, rounds)
        # Not `parked.update` itself: it is another one after each resume.
        call.update = lambda method, params: parked.update(method, params)  # noqa: PLW0108 - see above
        call.client = _ModernElicitor(self, parked)
        parked.on_expired = partial(self._expire, parked)
        self._parked.start(parked, self._run(call))
        assert parked.task is not None
        parked.task.add_done_callback(lambda _: self._ended(parked))
        return parked

    async def _run(self, call: Call) -> Body:
        try:
            return await self._plan(call)
        except asyncio.CancelledError:
            call.cancelled()
            raise

    async def _attend(self, parked: _ParkedCall) -> Body:
        """Wait with the client's request, until there is a result or something to tell it."""
        try:
            while not parked.is_done:
                if not parked.is_asking:
                    await parked.wait()
                elif not await parked.wait(GATHER_SECONDS, to_the_end=True) and parked.is_asking:
                    return self._park(parked)
            return parked.result()
        except asyncio.CancelledError:
            if parked.task is not None:
                parked.task.cancel()  # the client left while it waited: that is the cancel
            raise
        finally:
            if parked.is_done:
                self._parked.forget(parked)

    def _park(self, parked: _ParkedCall) -> Body:
        if parked not in self._parked:
            if not self._parked.has_room(parked.owner):
                self._refuse(
                    parked, f"{MAX_PARKED} calls of this client wait for answers already; no more are accepted"
                )
                raise BadRequest(INVALID_PARAMS, f"{MAX_PARKED} of your calls wait for answers; answer those first")
            self._parked.add(parked)
        parked.round += 1
        parked.since = asyncio.get_running_loop().time()
        parked.update = ignore_update  # the request that it would belong to is answered now
        parked.is_away = True
        self._parked.forget_in(parked, self.seconds)
        claims = {"parked": parked.id, "round": parked.round}
        state = self._sealer.seal(claims, parked.bound.value, seconds=self.seconds, is_here=True)
        requests = {
            key: {"method": entry.question.method, "params": entry.params} for key, entry in parked.open.items()
        }
        return input_required(requests, state)

    def _resume(self, id_: str, round_: int, client: Client, call: Call, answers: dict[str, Raw]) -> _ParkedCall:
        parked = self._parked.get(id_)
        if parked is None or parked.round != round_ or not parked.is_away:
            raise BadRequest(INVALID_PARAMS, GONE)
        self._parked.keep(parked)
        parked.is_away = False
        parked.client, parked.update = client, call.update
        call.resumes = parked.call
        for key, entry in list(parked.open.items()):
            answer = answers.get(key)
            if answer is not None and bytes(memoryview(answer)[:1]) == b"{":
                del parked.open[key]
                if not entry.answer.done():
                    entry.answer.set_result(answer)
        return parked

    def _judge_parked(self, claims: Mapping[str, Any], call: Call) -> None:
        """Whoever comes back may have another token than before: what it says counts, and the rules that there are now.

        A call that may not be any more ends. One whose token lacks scopes waits on: its client can fetch a wider one.
        """
        parked = self._parked.get(claims["parked"]) if "parked" in claims else None
        if parked is None:
            return
        try:
            self._judge(call, parked.call)
        except InsufficientScope:
            raise
        except CallRefused:
            self._expire(parked)
            raise

    def _expire(self, parked: _ParkedCall) -> None:
        """Nobody came back: the upstream gets an answer that says so, then the call is withdrawn."""
        self._refuse(parked, "The client did not come back with an answer")
        self._parked.forget(parked)

    def _refuse(self, parked: _ParkedCall, reason: str) -> None:
        for entry in parked.open.values():
            if entry.answer.done():
                continue
            if entry.question.method == ELICIT:
                entry.answer.set_result(Raw(CANCELLED))
            else:
                entry.answer.set_exception(QuestionRefused(reason))
        parked.open.clear()
        task = parked.task
        if task is not None and not task.done():
            # In the next turn but one: first the answers go out.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, task.cancel)

    def _ended(self, parked: _ParkedCall) -> None:
        """The call is over. Its outcome is kept while its client is expected back."""
        for entry in parked.open.values():  # somebody else may wait for it, such as a sign-in that others need too
            if not entry.answer.done():
                entry.answer.set_exception(QuestionRefused(_OVER))
                entry.answer.exception()  # nor is it one if nobody waits
        parked.open.clear()
        if not parked.is_away:
            self._parked.forget(parked)
