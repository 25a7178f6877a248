"""Record and replay tools of services that are not MCP servers, by the results of their calls.

These are the `[tools]` over HTTP, OpenAPI, gRPC and A2A, and the built-in tools that fetch. Their tool lists are
recorded too, so replay reads no document and asks no server.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UnknownName
from mcpbridge.core.model import Call
from mcpbridge.engine.cassettes.file import CassetteFile
from mcpbridge.engine.cassettes.format import Entry, Step
from mcpbridge.engine.cassettes.plain_form import as_error, as_failure, of_step
from mcpbridge.engine.cassettes.replay import Script
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, encode
from mcpbridge.tools.backend import Backend, Condition, Health


class _Listed(msgspec.Struct):
    tools: list[dict[str, Any]] = []


_decode_listed = msgspec.json.Decoder(_Listed).decode
_LIST, _CALL = "tools/list", "tools/call"


async def recorded(file: CassetteFile, server: str, run: Callable[[Call], Awaitable[Body]], call: Call) -> Body:
    """Make the call, and write down what came of it."""
    number, steps, update = file.next_number(), list[Step](), call.update
    entry = Entry(server, _CALL, _params(call))

    def heard(method: str, params: Raw) -> None:
        steps.append(Step(method, params=of_step(params)))
        update(method, params)

    call.update = heard
    try:
        result = await run(call)
    except BridgeError as error:
        failed = as_failure(error)
        file.add(msgspec.structs.replace(entry, meanwhile=tuple(steps), failed=failed), number)
        raise
    except BaseException:  # cancelled, or a fault that tells nothing of the service
        file.add(msgspec.structs.replace(entry, meanwhile=tuple(steps), unanswered=True), number)
        raise
    finally:
        call.update = update
    data = Raw(bytes(result.data))
    file.add(msgspec.structs.replace(entry, meanwhile=tuple(steps), result=data), number)
    return result


async def replayed(script: Script, server: str, call: Call) -> Body:
    """What came of the call when it was recorded."""
    taken = script.take(server, _CALL, _params(call))
    if isinstance(taken, str):
        return Body(encode({"content": [{"type": "text", "text": taken}], "isError": True}))
    for step in taken.meanwhile:
        if step.tell != "notifications/progress" or call.wants_progress:
            call.update(step.tell, step.params)
    if taken.failed is not None:
        raise as_error(taken.failed, call.upstream)
    if taken.unanswered:
        import anyio

        await anyio.sleep_forever()
    return Body(taken.result)


def _params(call: Call) -> Raw:
    arguments = call.params.get("arguments") or Raw(EMPTY_OBJECT)
    return Raw(encode({"name": call.target, "arguments": arguments}))


class RecordedBackend:
    """A backend that is listened to. Implements `Backend`."""

    def __init__(self, name: str, inner: Backend, file: CassetteFile) -> None:
        self._name, self._inner, self._file = name, inner, file
        self._written: Sequence[Mapping[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # what only some backends have

    @property
    def kind(self) -> str:
        """See `Backend`."""
        return self._inner.kind

    @property
    def condition(self) -> Condition:
        """See `Backend`."""
        return self._inner.condition

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """See `Backend`."""
        tools = self._inner.tools
        if tools is not self._written and self._inner.condition.state == "ready":
            self._written = tools
            result = Raw(encode({"tools": [dict(tool) for tool in tools]}))
            self._file.add(Entry(self._name, _LIST, result=result), self._file.next_number())
        return tools

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`."""
        async with self._inner.running(changed):
            yield

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        return await recorded(self._file, self._name, self._inner.run, call)

    async def check(self) -> Health:
        """See `Backend`."""
        return await self._inner.check()

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. Not recorded."""
        return await self._inner.command(name, data)


class ReplayedBackend:
    """A backend out of a cassette. Implements `Backend`."""

    def __init__(self, name: str, kind: str, script: Script) -> None:
        self._name, self._kind, self._script = name, kind, script
        self._why = script.why_unavailable(name)
        taken = None if self._why else script.take(name, _LIST, Raw(EMPTY_OBJECT))
        self._tools = tuple(self._listed(taken)) if isinstance(taken, Entry) else ()

    def _listed(self, entry: Entry) -> list[dict[str, Any]]:
        try:
            return _decode_listed(entry.result or Raw(EMPTY_OBJECT)).tools
        except (msgspec.DecodeError, RecursionError) as error:
            self._why = f"its list of tools in the cassette cannot be read: {error}"
            return []

    @property
    def kind(self) -> str:
        """See `Backend`."""
        return self._kind

    @property
    def condition(self) -> Condition:
        """See `Backend`."""
        return Condition("failed", self._why, is_lasting=True) if self._why else Condition("ready")

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """See `Backend`."""
        return self._tools

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`. Nothing runs."""
        yield

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        return await replayed(self._script, self._name, call)

    async def check(self) -> Health:
        """See `Backend`."""
        return Health(ok=not self._why, detail=self._why or "answers out of a cassette")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`.

        Raises:
            UnknownName: always: commands are not recorded.
        """
        raise UnknownName("command", name)
