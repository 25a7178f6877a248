"""Tasks that a client follows itself: who may, the sealed task ids, and the handlers of modern clients.

A client that knows the task dialect of the server behind a tool gets the task with its id sealed, and its requests
about the task go to that server (MCP 2025-11-25, Tasks; SEP-2663). For every other client the bridge follows the task
(`pipeline/task_polling.py`). Sessions of 2025-11-25 are in `session_tasks.py`.

A task id is a bearer token for what a server keeps (2025-11-25 and the extension of 2026-07-28, security
considerations). `TaskIds` seals it: it cannot be guessed and opens only for the principal that created the task, and
the bridge need not remember it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest, UpstreamAnswered
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, SAMPLE, ClientCapabilities, Question, QuestionRefused
from mcpbridge.core.model import Call, CallHandler
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import NoElicitor
from mcpbridge.downstream.elicitation.request_state import Sealer
from mcpbridge.downstream.handler import Handler, text
from mcpbridge.downstream.revisions.result_links import publish_uris
from mcpbridge.pipeline.input_required import read_questions
from mcpbridge.pipeline.task_results import is_task
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY
from mcpbridge.protocol.extensions import TASKS, declared_to_servers, extensions_of
from mcpbridge.protocol.jsonrpc import Frame, decode_fields, encode, encode_fields
from mcpbridge.protocol.meta import complete_for_modern
from mcpbridge.protocol.payload import Payload
from mcpbridge.upstream.pool import Pool

MARGIN = 24 * 3600.0
"""Seconds that an id outlives its task: servers may let a task live longer than they said at first."""
UNLIMITED = 30 * 24 * 3600.0
"""Seconds that the id of a task without an end is good for."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(?:\s*:)?')
"""A string of a JSON document; with the colon, if it names a member."""


class TaskIds:
    """Seals and opens. The same text is good for as long as the task lives, any number of times."""

    def __init__(
        self,
        sealer: Sealer,
        sees: Callable[[Client, str], bool] = lambda client, tool: True,
        *,
        runs_here: Callable[[str], bool] = lambda server: False,
    ) -> None:
        """`sees`: whether a client may still know of the tool with this id.

        `runs_here`: whether a server is a process of this bridge, which no other bridge reaches.
        """
        self._sealer, self._sees, self._runs_here = sealer, sees, runs_here

    def seal(self, client: Client, server: str, id_: str, seconds_to_live: float | None, tool: str = "") -> str:
        """What this client gets in place of a server's own id; `tool`: the id of the tool whose task it is."""
        seconds = UNLIMITED if seconds_to_live is None else seconds_to_live + MARGIN
        claims = {"server": server, "task": id_, "tool": tool}
        return self._sealer.seal(claims, _bind(client), seconds=seconds, is_here=True)

    def open(self, client: Client, public_id: str) -> tuple[str, str]:
        """Server, and its own id.

        Raises:
            BadRequest: forged, expired, another principal's, of a server that this endpoint does not show, or of a
                tool that the client's roles forbid by now.
        """
        try:
            claims = self._sealer.open(public_id, _bind(client))
            server, id_ = str(claims["server"]), str(claims["task"])
        except (BadRequest, KeyError):
            raise unknown_task(public_id) from None
        if self._sealer.is_elsewhere(claims) and self._runs_here(server):
            raise unknown_task(public_id)  # it ended with its bridge; the process here may have another of this id
        if client.view not in ("", server) or not self._sees(client, str(claims.get("tool", ""))):
            raise unknown_task(public_id)
        return server, id_

    def knows(self, client: Client, public_id: str) -> bool:
        """Whether `open` opens it."""
        try:
            self.open(client, public_id)
        except BadRequest:
            return False
        return True


def unknown_task(public_id: str) -> BadRequest:
    """The one answer to an id that is not good, whatever is wrong with it."""
    return BadRequest(INVALID_PARAMS, f"Unknown task: {public_id[:40]}{'…' if len(public_id) > 40 else ''}")


def with_public_id(error: UpstreamAnswered, id_: str, public_id: str) -> UpstreamAnswered:
    """The server's error, naming the task as the client does: as a string in its data, and as a word of its message."""
    try:
        fields = decode_fields(error.error)
        for name, raw in fields.items():
            if name == "message":
                message = msgspec.json.decode(raw, type=str)
                fields[name] = Raw(
                    encode(re.sub(rf"(?<![\w-]){re.escape(id_)}(?![\w-])", lambda _: public_id, message))
                )
            elif name != "code":
                fields[name] = _renamed(raw, encode(id_), encode(public_id))
    except (msgspec.DecodeError, RecursionError):
        return error
    renamed = UpstreamAnswered(error.upstream, encode_fields(fields))
    renamed.asked, renamed.is_masked = error.asked, error.is_masked
    return renamed


def _renamed(raw: Raw, id_: bytes, public_id: bytes) -> Raw:
    """JSON in which whole strings that are `id_` are `public_id`. Names of members stay, whatever they are."""

    def instead(match: re.Match[bytes]) -> bytes:
        return public_id if match[0] == id_ else match[0]

    return Raw(_STRING.sub(instead, bytes(raw)))


def _bind(client: Client) -> tuple[str, ...]:
    return "task", "modern" if client.modern else "legacy", client.principal


_CAPABILITY: Mapping[str, str] = {ELICIT: "elicitation", SAMPLE: "sampling", LIST_ROOTS: "roots"}


class SessionTasks(Protocol):
    """The tasks of legacy sessions; `mcpbridge.downstream.tasks.session_tasks.LegacyTasks` is them."""

    def created(self, client: Client, call: Call, result: Body, notify: Notify) -> Body:
        """The answer to the call that made a task."""
        ...

    def require_room(self, client: Client) -> None:
        """Raises Overloaded: this client has as many tasks as it may."""
        ...


def require_tasks(client: Client) -> None:
    """Refuse a modern client that did not declare the extension with this request.

    Raises:
        BadRequest: −32021, naming the extension.
    """
    if TASKS not in extensions_of(client.declared_capabilities):
        required: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise BadRequest(MISSING_CAPABILITY, f"The client did not declare the extension {TASKS}", required)


class Tasks:
    """Tasks of modern clients at modern servers: nothing is kept here, so any replica can continue."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        plan: CallHandler,
        ids: TaskIds,
        server_info: bytes,
        sessions: SessionTasks,
    ) -> None:
        """`server_info`: the bridge's own, encoded."""
        self._catalog, self._pool, self._plan, self._ids = catalog, pool, plan, ids
        self._server_info, self._sessions = server_info, sessions
        self.extensions: frozenset[str] = frozenset()
        """Those that the configuration lets cross, besides those that the bridge understands."""

    @property
    def modern(self) -> dict[str, Handler]:
        """By method, for modern clients."""
        return {
            "tasks/get": self._get,
            "tasks/update": self._hand_on("tasks/update"),
            "tasks/cancel": self._hand_on("tasks/cancel"),
        }

    def task_mode(self, client: Client, tool: ToolRef, params: Body) -> tuple[bool, bool]:
        """Whether the tool needs a task of the bridge's own, and whether the client takes a task for an answer.

        A client that does not know of tasks may name one all the same: that is ignored (2025-11-25, task support and
        handling). One that learned of them may do so for tools that can run as tasks (tool-level negotiation).

        Raises:
            BadRequest: −32601, this tool cannot.
            Overloaded: the client has as many tasks as it may.
        """
        is_required = tool.task_support == "required"
        if client.modern:
            params.drop("task")
            return is_required, TASKS in extensions_of(client.declared_capabilities)
        if "task" not in params:
            return is_required, False
        if not client.runs_tasks:
            params.drop("task")
            return is_required, False
        upstream = self._pool.upstreams.get(tool.server)
        if not tool.task_support or upstream is None or not upstream.runs_tasks:
            raise BadRequest(METHOD_NOT_FOUND, f"{tool.wire} does not run as a task; call it without `task`")
        self._sessions.require_room(client)
        return False, True

    def created(self, client: Client, call: Call, result: Body, notify: Notify) -> Body:
        """The answer to a call that may have made a task; any other result is left as it is."""
        if not client.modern:
            return self._sessions.created(client, call, result, notify)
        if is_task(result):
            from mcpbridge.pipeline.task_polling import read_task

            state = read_task(call.upstream, result)
            tool = call.tool.id if call.tool is not None else ""
            result.put("taskId", self._ids.seal(client, call.upstream, state.id, state.seconds_to_live, tool))
        return result

    async def look(self, client: Client, server: str, id_: str, public_id: str, params: Body | None = None) -> Body:
        """What the server says of a task now, as the client must get it.

        Raises:
            BadRequest: the task asks for what this client did not declare.
            UpstreamError: the server does not know the task, or cannot be reached.
        """
        task = await self._ask(client, "tasks/get", server, id_, public_id, params)
        if self._knows_roots(server) and (keys := _asked_for_roots(server, task)):
            roots = Raw(self._pool.upstreams[server].settings.roots_result)
            answers = Body(encode({"inputResponses": dict.fromkeys(keys, roots)}))
            await self._ask(client, "tasks/update", server, id_, public_id, answers)
        return self.for_client(client, server, public_id, task)

    def for_client(self, client: Client, server: str, public_id: str, task: Body) -> Body:
        """A task with all that is in it, for this client."""
        from mcpbridge.pipeline.task_polling import INPUT_REQUIRED, read_task

        task.put("taskId", public_id)
        result = task.inner("result")
        snapshot = self._catalog.view(client.view)
        if result is not None and snapshot.uris.may_hold_uris(server, result):
            publish_uris("tools/call", result, lambda uri: snapshot.published_uri(server, uri))
            task.put("result", result)
        if read_task(server, task).status == INPUT_REQUIRED and "inputRequests" in task:
            known = _asked_for_roots(server, task) if self._knows_roots(server) else ()
            questions = {key: one for key, one in read_questions(server, task).items() if key not in known}
            if (upstream := self._pool.upstreams.get(server)) is not None:
                upstream.declared.question_limits.admit_in_task(public_id, questions)
            task.put("inputRequests", {key: _asked(question, client) for key, question in questions.items()})
        return task

    def _knows_roots(self, server: str) -> bool:
        """The configuration answers what this server asks for roots, so no client is asked."""
        upstream = self._pool.upstreams.get(server)
        return upstream is not None and bool(upstream.settings.roots)

    async def _get(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        server, id_, public_id, params = self._opened(client, frame)
        task = await self.look(client, server, id_, public_id, params)
        return complete_for_modern(task, self._server_info).data

    def _hand_on(self, method: str) -> Handler:
        async def hand_on(client: Client, frame: Frame, _: Notify) -> Payload:
            server, id_, public_id, params = self._opened(client, frame)
            result = await self._ask(client, method, server, id_, public_id, params)
            return complete_for_modern(result, self._server_info).data

        return hand_on

    def _opened(self, client: Client, frame: Frame) -> tuple[str, str, str, Body]:
        require_tasks(client)
        params = Body(frame.params)
        public_id = text(params, "taskId")
        server, id_ = self._ids.open(client, public_id)
        if server not in self._pool.upstreams:
            raise unknown_task(public_id)
        return server, id_, public_id, params

    async def _ask(
        self, client: Client, method: str, server: str, id_: str, public_id: str, params: Body | None = None
    ) -> Body:
        params = params if params is not None else Body()
        params.put("taskId", id_)
        call = Call(method, server, id_, params, params.inner("_meta"), client=_Follower(client))
        call.caller = client
        call.extensions = encode(
            declared_to_servers(extensions_of(client.declared_capabilities), self.extensions, tasks=True)
        )
        try:
            return await self._plan(call)
        except UpstreamAnswered as error:
            raise with_public_id(error, id_, public_id) from error


class _Follower(NoElicitor):
    """The modern client behind a request about a task. What the task asks stands in the answer."""

    __slots__ = ("capabilities",)

    relays = True

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.capabilities: ClientCapabilities = client.capabilities


def _asked_for_roots(server: str, task: Body) -> list[str]:
    """The keys of the questions of a task that ask for roots."""
    if "inputRequests" not in task:
        return []
    return [key for key, question in read_questions(server, task).items() if question.method == LIST_ROOTS]


def _asked(question: Question, client: Client) -> dict[str, Any]:
    from mcpbridge.downstream.elicitation.question_forms import phrase

    try:
        params = phrase(question, client.version, client.capabilities)
    except QuestionRefused as refused:
        required: dict[str, Any] = {"requiredCapabilities": {_CAPABILITY[question.method]: {}}}
        raise BadRequest(MISSING_CAPABILITY, f"The task asks for {question.method}: {refused}", required) from refused
    return {"method": question.method, "params": params if isinstance(params, Raw) else Raw(params)}
