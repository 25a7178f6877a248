"""Who is asked during a call of a legacy client, and the requests that bring questions to it.

`ClientRequests` sends requests to a legacy client and waits for the answers. Modern clients take no requests:
`parked_calls.py` and `multi_round_trip.py` ask them in the answer to their call. What a client is asked, in the form of
its revision, is made in `question_forms.py`.
"""

import asyncio
import secrets

import msgspec
from msgspec import Raw

from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import (
    ELICIT,
    LIST_ROOTS,
    NO_CAPABILITIES,
    NOBODY,
    ClientCapabilities,
    Question,
    QuestionRefused,
    Unreachable,
)
from mcpbridge.downstream.client import Client, Notify, Requests
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, Frame, encode, encode_notification, encode_request
from mcpbridge.upstream.projects import uri_of_elsewhere, within
from mcpbridge.upstream.session.tasks import RELATED_TASK

log = get_logger("mcpbridge.questions")

MAX_OPEN = 16
"""Requests to one client that may be open at a time; more are refused."""
CANCELLED = b'{"action":"cancel"}'
"""The answer of a person who was asked and never answered."""
PROJECT_SECONDS = 10.0
"""Seconds to wait for the roots of a client whose call needs its directory: no person is asked for them."""
PROJECT_PAUSE = 60.0
"""Seconds after which a client that gave no roots is asked again."""
_GONE = "The client is gone"
_NO_STREAM = "The client reads no stream, so it cannot be asked anything during a call"


class _TooLate(QuestionRefused):
    """The client gave no answer in time."""


class ClientRequests:
    """The requests to one client, and who waits for their answers. The ids are the bridge's own."""

    def __init__(self, seconds: float, push: Notify = lambda _: False) -> None:
        """`seconds` to wait for an answer; `push` leads to the client beside any call."""
        self._seconds, self._push = seconds, push
        # Not from 1: a late answer to a question of the process before this one must not be taken for one to ours.
        self._last_id = secrets.randbits(32)
        self._waiting: dict[bytes, asyncio.Future[Frame]] = {}
        self._has_ended = False

    async def request(self, method: str, params: bytes | Raw, notify: Notify, *, seconds: float | None = None) -> Raw:
        """Send a request through `notify` and wait for its result. When this is cancelled, the client is notified.

        `seconds` to wait, if it is less than usual.

        Raises:
            Unreachable: no way to the client.
            QuestionRefused: an error as its answer, or none in time.
        """
        if self._has_ended:
            raise QuestionRefused(_GONE)
        if len(self._waiting) >= MAX_OPEN:
            raise QuestionRefused(f"The client has {MAX_OPEN} questions open; more are not put")
        patience = self._seconds if seconds is None else min(seconds, self._seconds)
        self._last_id += 1
        id_ = b"%d" % self._last_id
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = future
        try:
            if notify(encode_request(id_, method, params)) is False:
                raise Unreachable(_NO_STREAM, INVALID_REQUEST)
            try:
                async with asyncio.timeout(patience):
                    frame = await future
            except BaseException as error:
                if not future.done() or future.cancelled():
                    params = encode({"requestId": Raw(id_), "reason": "the answer is not wanted any more"})
                    told = encode_notification("notifications/cancelled", params)
                    if notify(told) is False:  # the call and its stream may be over
                        self._push(told)
                if isinstance(error, TimeoutError):
                    raise _TooLate(f"The client gave no answer within {patience:g} s") from None
                raise
        finally:
            self._waiting.pop(id_, None)
        return _result(frame, method)

    @property
    def is_open(self) -> bool:
        """Some of them wait for their answers."""
        return bool(self._waiting)

    def answered(self, frame: Frame) -> bool:
        """Take an answer of the client. False when it answers nothing that was asked."""
        id_ = bytes(frame.id)
        future = self._waiting.get(id_) or self._waiting.get(id_.strip(b'"'))
        if future is None or future.done():
            return False
        future.set_result(frame)
        return True

    def end(self) -> None:
        """The client is gone, or says nothing more: nothing will be answered."""
        self._has_ended = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(QuestionRefused(_GONE))


def _result(frame: Frame, method: str) -> Raw:
    error = bytes(frame.error)
    if error and error != b"null":
        raise QuestionRefused(f"The client answered {method} with an error", error=_error_object(error))
    if bytes(memoryview(frame.result)[:1]) != b"{":
        raise QuestionRefused(f"The client's answer to {method} is no object")
    return frame.result


class _Error(msgspec.Struct):
    code: int
    message: str


_decode_error = msgspec.json.Decoder(_Error).decode


def _error_object(error: bytes) -> bytes:
    """The client's own error, if it is one that may be passed on."""
    try:
        _decode_error(error)
    except (msgspec.DecodeError, RecursionError):
        return encode({"code": INTERNAL_ERROR, "message": "The client answered with an error"})
    return error


class LegacyElicitor:
    """The legacy client behind one call."""

    __slots__ = ("_client", "_minted", "_notify", "_requests", "_task", "capabilities")

    relays = False

    def __init__(self, client: Client, requests: Requests, notify: Notify, *, task: str = "") -> None:
        """`notify` leads to the stream of the call. `task`: what the client calls the task that all this is about."""
        self._client, self._requests, self._notify, self._task = client, requests, notify, task
        self._minted: dict[bytes, str] = {}
        self.capabilities: ClientCapabilities = client.capabilities
        """What it declared in its handshake."""

    @property
    def owner(self) -> object:
        """The session."""
        return self._client

    @property
    def principal(self) -> str:
        """Who was authenticated."""
        return self._client.principal

    @property
    def home(self) -> object:
        """The session."""
        return self._client

    async def ask(self, question: Question) -> Raw:
        """Put the question as a request of the client's revision; see `Elicitor`."""
        from mcpbridge.downstream.elicitation.question_forms import phrase

        id_ = secrets.token_hex(16)
        params = phrase(question, self._client.version, self.capabilities, elicitation_id=id_)
        params = _of_task(params, self._task) if self._task else params
        url_id = _elicitation_id(params) if question.method == ELICIT else ""
        if url_id:
            self._minted[bytes(question.params)] = url_id
            self._client.elicitations.add((question.upstream, url_id))
        is_accepted = False
        try:
            answer = await self._requests.request(question.method, params, self._notify)
            is_accepted = bool(url_id) and _is_accepted(answer)
        except _TooLate:
            if question.method == ELICIT:
                return Raw(CANCELLED)
            raise
        finally:
            if url_id and not is_accepted:  # the page is not opened, so nothing will come of it
                self._minted.pop(bytes(question.params), None)
                self._client.elicitations.discard((question.upstream, url_id))
        return answer

    def finished(self, question: Question) -> None:
        """Notify the client that the page it opened has done its work."""
        id_ = self._minted.pop(bytes(question.params), None)
        if id_ is not None:
            self._client.elicitations.discard((question.upstream, id_))
            self._notify(encode_notification("notifications/elicitation/complete", encode({"elicitationId": id_})))

    def give_way(self, server: str) -> bool:
        """A person may be at it; the client says itself when not."""
        return False

    async def project(self) -> str:
        """Its first root, or the directory that it was started in if it has no roots.

        It is asked once, and again when it says that its roots changed, or a while after no answer.
        """
        client, clock = self._client, asyncio.get_running_loop().time
        if not self.capabilities.roots:
            return client.known_project
        async with client.asking_project:
            if client.project is None and clock() >= client.project_again_at:
                try:
                    roots = await self._requests.request(
                        LIST_ROOTS, EMPTY_OBJECT, self._notify, seconds=PROJECT_SECONDS
                    )
                    client.project = _project_of(client, _first_root(roots))
                except QuestionRefused as refused:
                    log.info("client did not list its roots", reason=str(refused))
                    client.project_again_at = clock() + PROJECT_PAUSE
            return client.known_project


class NoElicitor:
    """The client behind a call during which it can be asked nothing. It is known all the same."""

    __slots__ = ("_client", "home", "owner", "principal")

    capabilities = NO_CAPABILITIES
    relays = False

    def __init__(self, client: Client) -> None:
        self._client = client
        self.principal = client.principal
        self.owner: object = client.channel or client
        self.home: object = modern_home(client)

    async def ask(self, question: Question) -> Raw:
        """Refuse."""
        return await NOBODY.ask(question)

    def finished(self, question: Question) -> None:
        """Nothing was asked."""

    def give_way(self, server: str) -> bool:
        """Nothing of its own waits."""
        return False

    async def project(self) -> str:
        """The directory that it was started in."""
        return self._client.known_project


def modern_home(client: Client) -> object:
    """Whose session the calls of a modern client go to at a server that keeps clients apart."""
    return client.channel or f"principal {client.principal}"


def _of_task(params: bytes | Raw, task: str) -> bytes | Raw:
    """Name the task that a question belongs to (2025-11-25, associating task-related messages)."""
    body = Body(params)
    meta = body.inner("_meta") or Body()
    meta.put(RELATED_TASK, {"taskId": task})
    body.put("_meta", meta)
    return body.data


def _elicitation_id(params: bytes | Raw) -> str:
    try:
        return Body(params).text("elicitationId")
    except (KeyError, msgspec.DecodeError):
        return ""


def _is_accepted(answer: Raw) -> bool:
    try:
        return Body(answer).text("action") == "accept"
    except (KeyError, msgspec.DecodeError):
        return False


class _Root(msgspec.Struct):
    uri: str


class _Roots(msgspec.Struct):
    roots: list[_Root] = []


_decode_roots = msgspec.json.Decoder(_Roots).decode


def _project_of(client: Client, root: str) -> str:
    """What counts of the root that a client told: who is elsewhere is not to choose where programs run here."""
    if client.projects is None:
        return root
    project = within(root, client.projects)
    if uri_of_elsewhere(project):
        log.info("project of an HTTP client is outside `http.projects`", root=root[:200])
    return project


def _first_root(result: Raw) -> str:
    try:
        roots = _decode_roots(result).roots
    except msgspec.DecodeError:
        return ""
    return roots[0].uri if roots else ""
