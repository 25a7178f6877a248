"""Requests that a program makes of its own bridge, in the same way as every client's.

The program's values become JSON here. A value that cannot is refused by its name before anything is sent, and so are
names of runs, users and tenants that are too long.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.errors import ArgumentsRefused, BridgeError, ConfigError
from mcpbridge.base.json_values import decoded
from mcpbridge.core.context import Session, new_run, short
from mcpbridge.core.tool_calls_and_results import CallResult, PausedCall, ToolCall
from mcpbridge.downstream.client import Notify
from mcpbridge.downstream.errors import failed_call
from mcpbridge.engine.state import EngineState
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.meta import CONTEXT, RUN, TURN
from mcpbridge.results.header_line import RESULT
from mcpbridge.tools.python.output import Misshapen, json_of


class RequestFailed(BridgeError):
    """A request of the program was answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


def _unheard(message: bytes) -> None:
    """For requests whose sender wants to hear nothing meanwhile."""


class ProgramRequests(EngineState):
    """The part of an `Engine` that makes requests of the program."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        run: str = "",
        session: Session | None = None,
        notify: Notify = _unheard,
    ) -> dict[str, Any]:
        """Make a request as a client in this process; the same way as every other client's.

        The rest is its context (`Call.context`): for whom it is made, and in which run. `user` counts as a principal,
        as the holder of a token does: what is kept for one user, no other gets. `session`: what lasts over its calls,
        where that is not one for all of the user's. `notify` gets the notifications that belong to it, encoded.
        Cancelling this cancels the request, at its server too, where it may have had an effect by then.

        Raises:
            RequestFailed: it was answered with an error.
            ArgumentsRefused: what it says is no JSON. ConfigError: a name is too long for one.
        """
        if session is None:  # else somebody else's names, who may be a client
            check_names(run=run, user=user, tenant=tenant)
        meta: dict[str, Any] = (
            {CONTEXT: {"tenant": tenant, "metadata": dict(metadata or {})}} if tenant or metadata else {}
        )
        if run:
            meta[RUN] = run
        if meta:
            params = {**params, "_meta": {**params.get("_meta", {}), **meta}}
        self.require_running()
        if run and session is None and self.backends.extra.are_any:
            whose = self._context.tenants.get(user, "") or tenant
            session = self._program.session(user, run, whose)  # it may have tools of its own
        frame = Frame(id=Raw(self._program.next_id()), method=method, params=_as_json(params))
        answer = await self.server.answer(self._program.client(user, session), frame, notify)
        message = decoded(bytes(answer.data))
        if "error" in message:
            error = message["error"]
            raise RequestFailed(error.get("code", 0), error.get("message", ""), error.get("data"))
        return message["result"]

    async def call_tools(
        self,
        calls: Sequence[Mapping[str, Any]],
        *,
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        run: str = "",
    ) -> list[CallResult[Any]]:
        """Call several tools as one turn of a model: side by side, at most `calls.batch` at a time.

        Each of `calls` is what `tools/call` takes: `name` and `arguments`. The results come in the order of the calls.
        One that fails, also since its arguments are no JSON, is a result with `is_error`, and no concern of the others.
        The rest is as for `request`. Cancelling this cancels all of them, at their servers too.

        Raises:
            ConfigError: a name is too long for one. BridgeClosed: it does not run.
        """
        check_names(run=run, user=user, tenant=tenant)
        self.require_running()
        turn = new_run()
        most = asyncio.Semaphore(self.settings.calls.batch + self.settings.calls.max_queued)

        async def call_one(params: Mapping[str, Any]) -> dict[str, Any]:
            marked = {**params, "_meta": {**params.get("_meta", {}), TURN: turn}}
            try:
                async with most:  # so that no member finds the queue of its own turn full
                    return await self.request(
                        "tools/call", marked, user=user, tenant=tenant, metadata=metadata, run=run
                    )
            except BridgeError as error:  # also arguments that are no JSON
                text = str(error) if isinstance(error, RequestFailed) else error.full_message()
                return msgspec.json.decode(failed_call(text, type(error).__name__, modern=False))

        async with TaskGroup() as members:
            tasks = [members.create_task(call_one(params)) for params in calls]
        return [result_of(task.result()) for task in tasks]


def result_of(
    raw: Mapping[str, Any],
    call: ToolCall[Any, Any] | None = None,
    *,
    artifacts: Sequence[Any] = (),
    paused: PausedCall | None = None,
) -> CallResult[Any]:
    """What came of a call. `raw`: the result object; `artifacts`, `paused`: what its `_meta` led to."""
    meta, content = meta_of(raw), raw.get("content")
    about_result = meta.get(RESULT)
    handle = str(cast("Mapping[str, Any]", about_result).get("handle", "")) if isinstance(about_result, dict) else ""
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return CallResult(
        content=tuple(cast("Mapping[str, Any]", block) for block in blocks if isinstance(block, dict)),
        structured=raw.get("structuredContent"),
        is_error=raw.get("isError") is True,
        artifacts=tuple(artifacts),
        meta=meta,
        call=call,
        paused=paused,
        handle=handle,
        raw=raw,
    )


def meta_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` of a result."""
    meta = raw.get("_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, dict) else {}


def _as_json(params: Mapping[str, Any]) -> Raw:
    try:
        return Raw(encode(params))
    except (TypeError, ValueError, RecursionError):  # models, or no JSON at all
        return params_json(params)


_encode = msgspec.json.Encoder(decimal_format="number").encode
"""Numbers that no Python number is came as `Decimal`, and go as they came."""


def encoded(value: object) -> bytes:
    """Arguments or a result as JSON, also what is nested deeply; models, dataclasses and so on as pydantic writes them.

    Raises:
        Misshapen: it is none.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # models, or no JSON at all
        return json_of(value)


def arguments_json(call: ToolCall[Any, Any]) -> Raw:
    """The arguments of a call.

    Raises:
        ArgumentsRefused: they are no JSON; names the one that is none.
    """
    try:
        return Raw(encoded(call.arguments))
    except Misshapen as error:
        arguments: object = call.arguments
        if isinstance(arguments, Mapping):
            _members(cast("Mapping[object, object]", arguments), f"the argument {{}} of {call.name[:200]}")
        raise ArgumentsRefused(f"The arguments of {call.name[:200]} are no JSON: {error}") from error


def params_json(params: Mapping[str, Any]) -> Raw:
    """The params of a request that are no plain JSON.

    Raises:
        ArgumentsRefused: they are none at all; names the member that is none.
    """
    members: dict[str, Any] = {}
    for name, value in params.items():
        if name == "arguments" and isinstance(value, Mapping):
            members[name] = _members(cast("Mapping[object, object]", value), "the argument {}")
        elif name == "_meta" and isinstance(value, Mapping):
            members[name] = _meta_json(cast("Mapping[str, object]", value))
        else:
            members[name] = _one(value, f"`{name}` of the request")
    return _one(members, "the request")


def _meta_json(meta: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: _context_json(cast("Mapping[str, object]", value))
        if name == CONTEXT and isinstance(value, Mapping)
        else _one(value, f"`{name}` in the `_meta` of the request")
        for name, value in meta.items()
    }


def _context_json(context: Mapping[str, object]) -> Mapping[str, object]:
    metadata = context.get("metadata")
    if not isinstance(metadata, Mapping):
        return context
    return {**context, "metadata": _members(cast("Mapping[object, object]", metadata), "the metadata {}")}


def _members(values: Mapping[object, object], named: str) -> dict[object, Raw]:
    """Each as JSON; `named` says what one is, by its name."""
    return {name: _one(value, named.format(repr(name)[:200])) for name, value in values.items()}


def _one(value: object, what: str) -> Raw:
    if isinstance(value, Raw):
        return value
    try:
        return Raw(encoded(value))
    except Misshapen as error:
        raise ArgumentsRefused(f"{what[0].upper()}{what[1:]} is no JSON: {error}") from error


def check_names(*, run: str = "", user: str = "", tenant: str = "") -> None:
    """Refuse names that would count as none: what a program says by mistake, it should hear.

    Raises:
        ConfigError: one is too long.
    """
    for key, name in (("run", run), ("user", user), ("tenant", tenant)):
        if name and not short(name):
            problem = f"it has {len(name)} characters" if isinstance(name, str) else f"it is {type(name).__name__}"  # pyright: ignore[reportUnnecessaryIsInstance] - of programs without types
            raise ConfigError(f"{problem}, and a name is a text of at most 200", key=key)
