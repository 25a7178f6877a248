"""Methods of a gRPC server as tools: their types are asked of the server, arguments and results are JSON.

The server is reached when the backend begins to run, to learn what it offers, and asked anew when a call cannot be sent
or a method is gone. Meanwhile the tools stay, and calls of them make the connection anew.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec import Raw

from mcpbridge.base.background_tasks import is_asked_to_end
from mcpbridge.base.errors import (
    ArgumentsRefused,
    ConfigError,
    UnknownName,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamUnavailable,
)
from mcpbridge.base.masking.known_values import Redactor, Redactors
from mcpbridge.base.units import show_bytes
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import BackendContext, Condition, Health
from mcpbridge.tools.grpc.channel import ended_early, metadata_of, not_sent, open_channel, outcome, secrets_of
from mcpbridge.tools.grpc.message_types import DescriptorsInvalidError, Types, load
from mcpbridge.tools.grpc.methods import GrpcMethod, methods_of
from mcpbridge.tools.grpc.reflection import (
    KnownServices,
    NoReflectionError,
    Reflection,
    Server,
    health_of,
    types_of_file,
    why_not,
)
from mcpbridge.tools.grpc.settings import GrpcSettings
from mcpbridge.tools.http.response import aside
from mcpbridge.tools.serving import Discovery, masked

CHECK_SECONDS = 5.0
"""Seconds that a look at the server's health may take."""
CLOSE_SECONDS = 2.0
"""Seconds for the connection to end."""
_MESSAGE_LENGTH = 500
"""Characters of a message of a stream that progress shows."""


class GrpcBackend:
    """See `Backend`."""

    kind = "grpc"

    def __init__(self, name: str, settings: GrpcSettings, context: BackendContext) -> None:
        self._name, self._settings, self._directory = name, settings, context.directory
        own = Redactor(secrets_of(settings))
        self._redact = Redactors(context.redact, own)
        self._discovery = Discovery(name, self._find, self._redact, unavailable=settings.unavailable)
        file = settings.descriptor
        self._descriptor = self._directory / Path(file).expanduser() if file is not None else None
        self._server: Server | None = None
        self._is_running = False
        self._methods: Mapping[str, GrpcMethod] = {}
        self.tools: Sequence[Mapping[str, Any]] = ()
        """See `Backend`."""

    @property
    def condition(self) -> Condition:
        """See `Backend`."""
        return self._discovery.condition

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`."""
        self._is_running = True
        try:
            async with self._discovery.running(changed):
                yield
        finally:
            self._is_running = False
            server, self._server = self._server, None
            if server is not None:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await server.channel.close()

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        server, method = self._server, self._methods.get(call.target)
        if server is None or method is None:
            raise UpstreamUnavailable(call.upstream, self.condition.reason or "it is not known yet what it offers")
        arguments = call.params.inner("arguments")
        messages = method.messages(arguments.value() if arguments is not None else {})
        self._check_sizes(messages)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._exchange(server, method, messages, call)
        except server.libraries.aio.AioRpcError as error:
            if not_sent(error) or ended_early(error) or error.code().name == "UNIMPLEMENTED":
                self._discovery.again()
            return outcome(
                error,
                call.upstream,
                violations=server.known.violations,
                seconds=loop.time() - began,
                limit=show_bytes(self._settings.max_message),
                redact=self._redact,
            )
        except asyncio.CancelledError:
            if is_asked_to_end():
                raise
            raise UpstreamGone(call.upstream, "the connection was closed") from None  # the backend ends

    async def check(self) -> Health:
        """See `Backend`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_ok, detail = False, f"no answer within {CHECK_SECONDS:g} s"
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                if self._is_running:
                    is_ok, detail = await health_of(await self._reach(), self._settings)
                else:
                    detail = "it does not run"
        except TimeoutError:
            pass
        except ConfigError as error:
            detail = str(error)
        if is_ok and self.condition.state == "failed":
            self._discovery.again()
        return Health(is_ok, self._redact(detail), loop.time() - began)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. `refresh` asks the server anew what it offers.

        Raises:
            UpstreamUnavailable: that fails; the tools stay as they are.
        """
        if name != "refresh":
            raise UnknownName("command", name, candidates=["refresh"])
        condition = await self._discovery.look()
        if condition.state == "failed":
            raise UpstreamUnavailable(self._name, condition.reason)
        return {"state": condition.state, "reason": condition.reason, "tools": [tool["name"] for tool in self.tools]}

    async def _exchange(self, server: Server, method: GrpcMethod, messages: list[Any], call: Call) -> Body:
        """The result of one call.

        All four kinds of methods are one on the wire: messages go, messages come. What goes as a stream the library
        sends piece by piece, and if the server ends the call meanwhile its status is lost; so one message goes as one.
        """
        takes, gives = ("stream" if many else "unary" for many in (method.takes_many, method.gives_many))
        open_call = getattr(server.channel, f"{takes}_{gives}")(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        sent = iter(messages) if method.takes_many else messages[0]
        under_way = open_call(sent, timeout=self._seconds(call, method), metadata=server.metadata)
        try:
            if method.gives_many:
                return _result(encode(await self._collect(method, under_way, call)))
            return _result(await self._message_json(method, await under_way, call))
        finally:
            under_way.cancel()

    async def _message_json(self, method: GrpcMethod, message: Any, call: Call) -> bytes:
        """A message that came, as JSON without secrets."""
        if message is None:  # so the library tells of bytes that are no such message
            raise UpstreamGarbled(call.upstream, f"its answer is no {method.descriptor.output_type.full_name}")
        try:
            return await aside(message.ByteSize(), lambda: masked(method.value(message), self._redact.known))
        except (TypeError, ValueError, method.libraries.json.Error, method.libraries.DecodeError) as error:
            why = self._redact(str(error))[:_MESSAGE_LENGTH]  # an `Any` of a type that nobody told, for example
            raise UpstreamGarbled(call.upstream, f"its answer cannot be written as JSON: {why}") from error

    async def _collect(self, method: GrpcMethod, stream: Any, call: Call) -> dict[str, Any]:
        """All that comes, up to the caps; each message is told as progress."""
        values: list[Raw] = []
        size, is_cut = 0, False
        async for message in stream:
            size += message.ByteSize() if message is not None else 0
            if len(values) == self._settings.max_messages or size > self._settings.max_message:
                is_cut = True
                break
            answer = await self._message_json(method, message, call)
            values.append(Raw(answer))
            if call.wants_progress:
                text = answer[: 4 * _MESSAGE_LENGTH].decode(errors="ignore")[:_MESSAGE_LENGTH]
                call.update("notifications/progress", Raw(encode({"progress": len(values), "message": text})))
        return {"messages": values, **({"truncated": True} if is_cut else {})}

    def _check_sizes(self, messages: list[Any]) -> None:
        """The library would tell of a fault of its own."""
        largest, limit = max((message.ByteSize() for message in messages), default=0), self._settings.max_message
        if largest > limit:
            raise ArgumentsRefused(
                f"A message of {largest} bytes would have to be sent, and it may have {show_bytes(limit)} "
                "(`max_message` of this tool)"
            )

    def _seconds(self, call: Call, method: GrpcMethod) -> float:
        """The deadline that the server is told; the call's own is kept by whoever makes it."""
        timeouts = call.timeouts or self._settings.timeouts
        seconds = timeouts.total if method.gives_many else timeouts.idle
        if call.deadline and not method.gives_many:
            seconds = min(seconds, call.deadline - asyncio.get_running_loop().time())
        return max(seconds, 0.001)

    async def _reach(self) -> Server:
        """The way to the server, made at the first use."""
        if self._server is None:
            libraries = await asyncio.to_thread(load)
            known = KnownServices(libraries)
            channel = open_channel(libraries, self._settings, self._directory)
            self._server = Server(libraries, known, channel, metadata_of(self._settings))
        return self._server

    async def _find(self) -> bool:
        """Learn what the server offers; whether the tools are others than before."""
        server = await self._reach()
        types = await self._types(server)
        methods = methods_of(server.libraries, types, self._name, self._settings)
        tools = [method.definition for method in methods.values()]
        is_other = tools != self.tools
        self._methods = methods
        if is_other:
            self.tools = tools
        return is_other

    async def _types(self, server: Server) -> Types:
        settings = self._settings
        if self._descriptor is not None:
            return await asyncio.to_thread(types_of_file, server.libraries, self._descriptor)
        reflection = Reflection(server)
        try:
            return await reflection.types([settings.service] if settings.service is not None else [])
        except NoReflectionError:
            raise ConfigError(
                "it does not describe its types (no server reflection)",
                key="grpc",
                hint="Name a file with them: `descriptor` (protoc --include_imports --descriptor_set_out=FILE)",
            ) from None
        except DescriptorsInvalidError as error:
            raise ConfigError(f"its types cannot be used: {error}", key="grpc") from error
        except server.libraries.aio.AioRpcError as error:
            raise UpstreamUnavailable(self._name, why_not(error, settings)) from error


def _result(data: bytes) -> Body:
    return Body(encode({"content": [{"type": "text", "text": data.decode()}], "structuredContent": Raw(data)}))
