"""The program that the bridge runs in, as a client: its functions answer what upstreams ask during its calls."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.core.context import Session
from mcpbridge.core.elicitation import ELICIT, SAMPLE, ClientCapabilities, QuestionRefused
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.sessions import Sessions
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.tools.python.output import json_of

log = get_logger("mcpbridge.questions")

Answerer = Callable[[dict[str, Any]], Any | Awaitable[Any]]
"""Gets the params of a question and returns its result, as MCP has both. One that is not async runs on the event loop.

For an elicitation, None is "cancel", and a mapping without `action` the content of an accepted form; for sampling, a
text is the message of the model.
"""


class ProgramAnswers:
    """Functions of the program that answer. Meets `Requests`: nothing goes over a wire."""

    is_open = False

    def __init__(self, elicitation: Answerer | None = None, sampling: Answerer | None = None) -> None:
        """What is None cannot be asked."""
        self._by_method = {
            method: answerer for method, answerer in ((ELICIT, elicitation), (SAMPLE, sampling)) if answerer is not None
        }
        can_form, can_sample = elicitation is not None, sampling is not None
        self.capabilities = ClientCapabilities(
            form=can_form, url=can_form, sampling=can_sample, sampling_tools=can_sample, sampling_context=can_sample
        )
        """What can be asked."""

    async def request(self, method: str, params: bytes | Raw, notify: Notify, *, seconds: float | None = None) -> Raw:
        """Have the function answer. See `Requests`.

        Raises:
            QuestionRefused: there is none, it failed, or what it gave is no result.
        """
        answerer = self._by_method.get(method)
        if answerer is None:
            raise QuestionRefused(f"The program does not answer {method[:100]}")
        try:
            said = answerer(decoded(bytes(params)))
            if inspect.isawaitable(said):
                said = await said
            result = _as_result(method, said)
            return Raw(encode(result))
        except QuestionRefused:
            raise
        except Exception as error:  # the program's own code
            log.exception("the program failed to answer a question", method=method)
            raise QuestionRefused(f"The program failed to answer {method}") from error

    def answered(self, frame: Frame) -> bool:
        """Nothing comes over a wire."""
        return False

    def end(self) -> None:
        """Nothing waits."""


def _as_result(method: str, answer: object) -> dict[str, Any]:
    if method == ELICIT and answer is None:
        return {"action": "cancel"}
    if method == SAMPLE and isinstance(answer, str):
        return {"role": "assistant", "content": {"type": "text", "text": answer}, "model": "program"}
    plain: object = msgspec.json.decode(json_of(answer))
    if not isinstance(plain, dict):
        raise QuestionRefused(f"The program's answer to {method} is no object but {type(answer).__name__}")
    result = cast("dict[str, Any]", plain)
    return {"action": "accept", "content": result} if method == ELICIT and "action" not in result else result


class Program:
    """The program as a client, by the session that it calls in."""

    def __init__(self, answers: ProgramAnswers | None, project: str) -> None:
        """`project`: URI of the directory that it works in; empty: none."""
        self._answers, self._project = answers, project
        self._sessions = Sessions()
        self._requests = 0

    def next_id(self) -> bytes:
        """The id of a request, encoded."""
        self._requests += 1
        return b"%d" % self._requests

    def session(self, user: str, run: str, tenant: str = "") -> Session:
        """The session of one run alone; runs of other tenants are others, whatever they are called."""
        session = self._sessions.of(user, "", f"{tenant}\0{run}")
        session.run = run
        return session

    def client(self, user: str, session: Session | None = None) -> Client:
        """The client that a request is of. `session`: in place of the one of this user."""
        session = session or self._sessions.of(user)
        if self._answers is None:
            return self._make_client(user, session)
        client = session.program
        if not isinstance(client, Client):  # one for all requests: servers keep a session for each whom they may ask
            client = session.program = self._make_client(user, session)
            client.capabilities, client.requests = self._answers.capabilities, self._answers
        return client

    def _make_client(self, user: str, session: Session) -> Client:
        return Client(principal=user, version=LATEST_LEGACY, cached_session=session, started_in=self._project)
