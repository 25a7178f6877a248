"""Tasks of sessions of revision 2025-11-25: created with `task` in a call, polled, listed, waited for and cancelled.

The task lives at its server, in the very session that created it. This file knows the owner: a session sees its own
tasks, and those of its principal if there is one. Whatever the server sends about a task later (a question, its
progress, its status) goes to that session: on the stream of a request about the task if there is one, else outside
any request.
"""

import asyncio

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest, BridgeError, Overloaded, UpstreamAnswered
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.core.elicitation import NOBODY
from mcpbridge.core.jobs import Job, Jobs
from mcpbridge.core.model import Call, CallHandler
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import LegacyElicitor
from mcpbridge.downstream.handler import Handler, text
from mcpbridge.downstream.progress import CallUpdates
from mcpbridge.downstream.revisions.result_links import publish_uris
from mcpbridge.downstream.tasks.tasks import TaskIds, unknown_task, with_public_id
from mcpbridge.pipeline.task_results import created_task
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND, code_of
from mcpbridge.protocol.jsonrpc import Frame, encode, encode_notification
from mcpbridge.protocol.payload import Payload
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.session.tasks import LONGEST, RELATED_TASK
from mcpbridge.upstream.supervisor import Upstream

MAX_TASKS = 256
"""Tasks of one session, or of one principal, that are known at a time; more are not made."""
LOOKS_AT_ONCE = 8
"""Tasks that are looked at side by side for a list."""


class _Task(Job):
    """One task and whose it is. Its id is the one that clients know."""

    __slots__ = ("client", "instance", "server", "streams", "task_id")

    def __init__(self, client: Client, server: str, task_id: str, public_id: str) -> None:
        super().__init__(_owner(client), id=public_id)
        self.server, self.task_id = server, task_id
        self.client = client
        """The session that made it, or asked for it last."""
        self.instance: Upstream | None = None
        """The session it lives in; None when that is not known any more."""
        self.streams: list[Notify] = []
        """Open streams of requests about it, the newest last."""

    def send(self, message: bytes) -> bool:
        """Send what belongs to the task. False when there is no way to its client."""
        ways = [*reversed(self.streams), self.client.push]
        return any(way(message) is not False for way in ways)


class LegacyTasks:
    """The tasks of all legacy sessions."""

    def __init__(self, catalog: Catalog, pool: Pool, plan: CallHandler, ids: TaskIds) -> None:
        self._catalog, self._pool, self._plan, self._ids = catalog, pool, plan, ids
        self._tasks = Jobs[_Task]()

    @property
    def legacy(self) -> dict[str, Handler]:
        """By method, for legacy sessions."""
        return {
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/list": self._list,
            "tasks/cancel": self._cancel,
        }

    def require_room(self, client: Client) -> None:
        """Refuse one task too many.

        Raises:
            Overloaded: this client has as many as it may.
        """
        if len(self._of(client)) >= MAX_TASKS:
            raise Overloaded(f"{MAX_TASKS} tasks of this client are known; more are not made")

    def created(self, client: Client, call: Call, result: Body, notify: Notify) -> Body:
        """The answer to the call that made a task: the task with its id for this client."""
        task = created_task(result)
        if task is None:
            return result
        from mcpbridge.pipeline.task_polling import read_task

        state = read_task(call.upstream, task)
        tool = call.tool.id if call.tool is not None else ""
        record = self._keep(client, call.upstream, state.id, state.seconds_to_live, tool)
        record.instance = call.instance if isinstance(call.instance, Upstream) else None
        if isinstance(call.update, CallUpdates):
            call.update.go_to(record.send)  # the stream of the call ends with this answer
        self._follow(record, call, state.seconds_to_live)
        task.put("taskId", record.id)
        result.put("task", task)
        _rename(result, record.id)
        return result

    def forget(self, client: Client) -> None:
        """A session ended. Its tasks run on, since they may be asked for again; nobody gets news of them meanwhile."""
        for record in self._tasks.of(_owner(client)):
            if record.client is client:
                record.streams.clear()
                self._leave(record)
                if not client.principal:
                    self._tasks.forget(record)  # nobody could list it; its id is still good for whoever has it

    def end(self) -> None:
        """The bridge stops: no task is known any more."""
        self._tasks.clear()

    # -- requests

    async def _get(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        return (await self._look(client, *self._opened(client, frame))).data

    async def _cancel(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        record, params = self._opened(client, frame)
        task = await self._ask(client, "tasks/cancel", record, params)
        self._leave(record)
        task.put("taskId", record.id)
        return task.data

    async def _result(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        record, params = self._opened(client, frame)
        record.streams.append(notify)
        try:
            result = await self._ask(client, "tasks/result", record, params)
        finally:
            if notify in record.streams:
                record.streams.remove(notify)
        self._leave(record)
        snapshot = self._catalog.view(client.view)
        if snapshot.uris.may_hold_uris(record.server, result):
            publish_uris("tools/call", result, lambda uri: snapshot.published_uri(record.server, uri))
        _rename(result, record.id, always=True)
        return result.data

    async def _list(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        """Every task of this client, as its server tells of it now. All on one page, so no cursor is ever good."""
        _require_tasks(client)
        params = Body(frame.params) if bytes(memoryview(frame.params)[:1]) else Body()
        if bytes(params.get("cursor") or b"null") not in (b"null", b'""'):
            raise BadRequest(INVALID_PARAMS, "Invalid cursor: list again from the start")
        room = asyncio.Semaphore(LOOKS_AT_ONCE)

        async def look(record: _Task) -> Body | None:
            async with room:
                try:
                    return await self._look(client, record, Body())
                except UpstreamAnswered as error:
                    if code_of(error.error) == INVALID_PARAMS:
                        self._tasks.forget(record)  # its server has forgotten it
                    return None
                except BridgeError:
                    return None

        looked = await asyncio.gather(*(look(record) for record in self._of(client)))
        return encode({"tasks": [Raw(bytes(task.data)) for task in looked if task is not None]})

    def _opened(self, client: Client, frame: Frame) -> tuple[_Task, Body]:
        _require_tasks(client)
        params = Body(frame.params) if bytes(memoryview(frame.params)[:1]) else Body()
        public_id = text(params, "taskId")
        server, id_ = self._ids.open(client, public_id)
        if server not in self._pool.upstreams:
            raise unknown_task(public_id)
        record = self._tasks.get(public_id)
        if record is None:  # of a session that ended, or from before a restart
            record = self._known(client, server, id_, public_id, LONGEST)
        elif record.client is not client and not client.is_guest:
            record.client = client
            self._tasks.hand_over(record, _owner(client))
            seconds = record.expires - asyncio.get_running_loop().time()
            self._follow(record, Call("tools/call", server, "", Body()), seconds)
        return record, params

    async def _look(self, client: Client, record: _Task, params: Body) -> Body:
        from mcpbridge.pipeline.task_polling import read_task

        task = await self._ask(client, "tasks/get", record, params)
        if read_task(record.server, task).has_ended:
            self._leave(record)
        task.put("taskId", record.id)
        return task

    async def _ask(self, client: Client, method: str, record: _Task, params: Body) -> Body:
        params.put("taskId", record.task_id)
        call = Call(method, record.server, record.task_id, params, params.inner("_meta"))
        call.caller = client.caller
        if client.requests is not None:
            call.client = LegacyElicitor(client, client.requests, record.send, task=record.id)
        if record.instance is not None and record.instance.status.state != "stopped":
            call.instance = record.instance
        try:
            return await self._plan(call)
        except UpstreamAnswered as error:
            raise with_public_id(error, record.task_id, record.id) from error

    # -- what is known

    def _keep(self, client: Client, server: str, id_: str, seconds_to_live: float | None, tool: str) -> _Task:
        public_id = self._ids.seal(client, server, id_, seconds_to_live, tool)
        return self._known(client, server, id_, public_id, LONGEST if seconds_to_live is None else seconds_to_live)

    def _known(self, client: Client, server: str, id_: str, public_id: str, seconds: float) -> _Task:
        record = self._tasks.add(_Task(client, server, id_, public_id))
        self._tasks.forget_in(record, min(LONGEST, seconds))
        return record

    def _of(self, client: Client) -> list[_Task]:
        own = [task for task in self._tasks.of(_owner(client)) if client.view in ("", task.server)]
        return [task for task in own if self._ids.knows(client, task.id)] if self._catalog.has_roles else own

    def _follow(self, record: _Task, call: Call, seconds: float | None) -> None:
        """From now on what its server says of the task is this client's."""
        instance, client = record.instance, record.client
        if instance is None:
            return
        call.client = NOBODY
        if client.requests is not None:
            call.client = LegacyElicitor(client, client.requests, record.send, task=record.id)
        instance.tasks.follow(record.task_id, call, lambda params: self._changed(record, params), seconds=seconds)

    def _changed(self, record: _Task, params: Raw) -> None:
        """A `notifications/tasks/status` of the server: to the client."""
        from mcpbridge.pipeline.task_polling import read_task

        try:
            task = Body(params)
            has_ended = read_task(record.server, task).has_ended
            task.put("taskId", record.id)
            record.client.push(encode_notification("notifications/tasks/status", bytes(task.data)))
        except (BridgeError, msgspec.DecodeError):
            return
        if has_ended:
            self._leave(record)

    def _leave(self, record: _Task) -> None:
        """Nothing more comes of it by itself."""
        if record.instance is not None:
            record.instance.tasks.leave(record.task_id)


def _owner(client: Client) -> str:
    """Whom a task is counted for: the principal, or the one session that has none."""
    return client.principal or f"session {client.session.id}"


def _require_tasks(client: Client) -> None:
    """Raise BadRequest (−32601) for a session that was not told of tasks."""
    if not client.runs_tasks:
        raise BadRequest(METHOD_NOT_FOUND, "Method not found: no server behind this session runs tasks")


def _rename(result: Body, public_id: str, *, always: bool = False) -> None:
    """Name the task in the result's `_meta` as the client does; `always`: also where the server does not name it."""
    meta = result.inner("_meta")
    if meta is None and not always:
        return
    meta = meta or Body()
    if always or RELATED_TASK in meta:
        meta.put(RELATED_TASK, {"taskId": public_id})
        result.put("_meta", meta)
