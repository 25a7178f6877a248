"""Asks a gRPC server for the types of its services (reflection), and for its health.

The versions of reflection, in the order in which they are tried, the names of the health service and the messages of
both are decided here. The messages are put together from names and numbers, which the protocols fix: the packages that
have them ready-made know one version of reflection, and register their types for the whole process.

Types may also come from a file. A server without a health service is well if it answers at all.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.tools.grpc.channel import why
from mcpbridge.tools.grpc.message_types import (
    DescriptorsInvalidError,
    Libraries,
    Types,
    known_file,
    no_such_service,
)
from mcpbridge.tools.grpc.settings import GrpcSettings

REFLECTIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
"""Packages of the reflection service, the one to prefer first."""
HEALTH = "grpc.health.v1"
"""Package of the health service."""
MOST_FILES = 5000
"""Files of one server; more are refused."""


class Server(Struct, frozen=True):
    """The way to one server."""

    libraries: Libraries
    known: "KnownServices"
    channel: Any
    metadata: tuple[tuple[str, str | bytes], ...]


class NoReflectionError(Exception):
    """The server has no reflection, or does not let us use it."""


class Reflection:
    """Asks one server. Each question is a line of its own, answered in order."""

    def __init__(self, server: Server) -> None:
        self._server, self._libraries = server, server.libraries

    async def types(self, wanted: Iterable[str]) -> Types:
        """The types of these services, or of all that the server names.

        Raises:
            ConfigError: it has no such service.
            NoReflectionError: the server has none.
            DescriptorsInvalidError: what it answers cannot be used.
            grpc.RpcError: it cannot be asked.
        """
        for package in REFLECTIONS:
            try:
                return await self._types(package, list(wanted))
            except self._libraries.aio.AioRpcError as error:
                if error.code() is not self._libraries.grpc.StatusCode.UNIMPLEMENTED:
                    raise
        raise NoReflectionError

    async def services(self) -> list[str]:
        """The names of its services. Raises: as `types`."""
        for package in REFLECTIONS:
            try:
                services = await self._services(package)
            except self._libraries.aio.AioRpcError as error:
                if error.code() is not self._libraries.grpc.StatusCode.UNIMPLEMENTED:
                    raise
            else:
                if services is None:
                    break
                return services
        raise NoReflectionError

    async def _services(self, package: str) -> list[str] | None:
        """The names of its services; None: it does not list them.

        The first question to a version of reflection: it goes out at once with the end of what we send. Of a stream
        that the server ends while we write, as it does where it lacks the version, the library tells that something is
        wrong and not what.
        """
        method = self._server.known.reflection(package)
        ask = self._server.channel.unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        stream = ask(method.request(list_services="*"), metadata=self._server.metadata)
        try:
            answer = self.answer(await stream.read())
        finally:
            stream.cancel()
        return [one.name for one in answer.list_services_response.service] if answer is not None else None

    async def _types(self, package: str, wanted: list[str]) -> Types:
        services = await self._services(package)
        if not wanted:
            if services is None:
                raise NoReflectionError
            wanted = [name for name in services if not _is_known(name)]
        files: dict[str, Any] = {}
        async with _Questions(self, package) as questions:
            for symbol in wanted:
                await self._take(files, await questions.ask(file_containing_symbol=symbol))
            missing = deque(_missing(files))
            while missing:
                name = missing.popleft()
                if name in files:
                    continue
                found = await self._take(files, await questions.ask(file_by_filename=name))
                if name not in files:
                    data = known_file(name)
                    if data is None:
                        raise DescriptorsInvalidError(f"the server does not hand out {name}, which its types need")
                    files[name] = self._libraries.descriptors.FileDescriptorProto.FromString(data)
                    found = [name]
                missing += [needed for one in found for needed in files[one].dependency if needed not in files]
                if len(files) > MOST_FILES:
                    raise DescriptorsInvalidError(f"its types are in more than {MOST_FILES} files")
        types = Types(self._libraries, files)
        for name in wanted:
            if types.service(name) is None:
                raise no_such_service(name, services or [])
        return types

    async def _take(self, files: dict[str, Any], answer: Any) -> list[str]:
        """Keep the files of an answer; the names of those that are new."""
        new: list[str] = []
        for data in answer.file_descriptor_response.file_descriptor_proto if answer is not None else ():
            try:
                file = self._libraries.descriptors.FileDescriptorProto.FromString(data)
            except self._libraries.DecodeError as error:
                raise DescriptorsInvalidError("its descriptors cannot be read") from error
            if file.name not in files:
                files[file.name] = file
                new.append(file.name)
        return new

    def open(self, package: str) -> Any:
        """The stream of questions and answers, and the class of questions."""
        method = self._server.known.reflection(package)
        call = self._server.channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call(metadata=self._server.metadata), method.request

    def answer(self, read: Any) -> Any | None:
        """What was read of a stream of answers; None: it says that there is no such thing.

        Raises:
            NoReflectionError: the stream ended without it.
            DescriptorsInvalidError: it cannot be read.
        """
        if read is self._libraries.aio.EOF:
            raise NoReflectionError
        if read is None:
            raise DescriptorsInvalidError("its answers cannot be read")
        return None if read.HasField("error_response") else read


class _Questions:
    """One stream of questions, ended in any case."""

    def __init__(self, reflection: Reflection, package: str) -> None:
        self._reflection, self._package = reflection, package

    async def __aenter__(self) -> "_Questions":
        self._stream, self._question = self._reflection.open(self._package)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.cancel()

    async def ask(self, **question: str) -> Any | None:
        """The answer; None: it says that there is no such thing."""
        await self._stream.write(self._question(**question))
        return self._reflection.answer(await self._stream.read())


def types_of_file(libraries: Libraries, path: Path) -> Types:
    """The types in a file of descriptors (`FileDescriptorSet`).

    Raises:
        ConfigError: it cannot be read, or is no such file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", key="descriptor") from error
    try:
        found = libraries.descriptors.FileDescriptorSet.FromString(data)
        return Types(libraries, {file.name: file for file in found.file})
    except (libraries.DecodeError, DescriptorsInvalidError) as error:
        what = str(error) if isinstance(error, DescriptorsInvalidError) else "no descriptors are in it"
        raise ConfigError(
            f"{path} cannot be used: {what}",
            key="descriptor",
            hint="Make it with: protoc --include_imports --include_source_info --descriptor_set_out=FILE …",
        ) from error


def _missing(files: dict[str, Any]) -> list[str]:
    return [needed for file in files.values() for needed in file.dependency if needed not in files]


def _is_known(service: str) -> bool:
    """Services about the server itself are no tools."""
    return service.startswith(("grpc.reflection.", "grpc.health.", "grpc.channelz."))


_SERVING = 1
_STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


async def health_of(server: Server, settings: GrpcSettings) -> tuple[bool, str]:
    """Whether it is well, and what was found."""
    method = server.known.health
    ask = server.channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    for service in dict.fromkeys([settings.service or "", ""]):
        try:
            answer = await ask(method.request(service=service), metadata=server.metadata)
        except server.libraries.aio.AioRpcError as error:
            if error.code().name == "UNIMPLEMENTED":
                return await _answers(server, settings)
            if error.code().name != "NOT_FOUND" or not service:
                return False, why_not(error, settings)
        else:
            status = _STATUSES.get(answer.status, str(answer.status))
            return answer.status == _SERVING, f"{status}, says its health service"
    return False, "its health service knows nothing of it"


async def _answers(server: Server, settings: GrpcSettings) -> tuple[bool, str]:
    """It has no health service: it is well if it answers at all."""
    if settings.descriptor is not None:
        return True, "it answers; it has no health service"
    try:
        services = await Reflection(server).services()
    except NoReflectionError:
        return True, "it answers; it has no health service and no reflection"
    except server.libraries.aio.AioRpcError as error:
        return False, why_not(error, settings)
    return True, f"it lists {len(services)} services; it has no health service"


def why_not(error: Any, settings: GrpcSettings) -> str:
    """Why the server cannot be asked, for people; secrets in what it says are not masked yet."""
    said = why(error, lambda text: text)
    if error.code().name != "UNAVAILABLE":
        return said
    return f"{said} ({'with' if settings.encrypted else 'without'} TLS; `tls` says which)"


_STRING, _BYTES, _INT32, _MESSAGE = 9, 12, 5, 11
_ONE, _MANY = 1, 3
_Fields = list[tuple[str, int, int, int, str]]

_REFLECTION: dict[str, _Fields] = {
    "ServerReflectionRequest": [
        ("file_by_filename", 3, _STRING, _ONE, ""),
        ("file_containing_symbol", 4, _STRING, _ONE, ""),
        ("list_services", 7, _STRING, _ONE, ""),
    ],
    "FileDescriptorResponse": [("file_descriptor_proto", 1, _BYTES, _MANY, "")],
    "ServiceResponse": [("name", 1, _STRING, _ONE, "")],
    "ListServiceResponse": [("service", 1, _MESSAGE, _MANY, "ServiceResponse")],
    "ErrorResponse": [("error_code", 1, _INT32, _ONE, ""), ("error_message", 2, _STRING, _ONE, "")],
    "ServerReflectionResponse": [
        ("file_descriptor_response", 4, _MESSAGE, _ONE, "FileDescriptorResponse"),
        ("list_services_response", 6, _MESSAGE, _ONE, "ListServiceResponse"),
        ("error_response", 7, _MESSAGE, _ONE, "ErrorResponse"),
    ],
}
_HEALTH: dict[str, _Fields] = {
    "HealthCheckRequest": [("service", 1, _STRING, _ONE, "")],
    "HealthCheckResponse": [("status", 1, _INT32, _ONE, "")],
}
_STATUS: dict[str, _Fields] = {
    "Detail": [("type_url", 1, _STRING, _ONE, ""), ("value", 2, _BYTES, _ONE, "")],  # laid out as google.protobuf.Any
    "Status": [("details", 3, _MESSAGE, _MANY, "Detail")],
    "FieldViolation": [("field", 1, _STRING, _ONE, ""), ("description", 2, _STRING, _ONE, "")],
    "BadRequest": [("field_violations", 1, _MESSAGE, _MANY, "FieldViolation")],
}


class Method(Struct, frozen=True):
    """A method that is known in advance: its path, and the classes of what goes and what comes."""

    path: str
    request: Any
    response: Any


class KnownServices:
    """Services that servers have beside their own, and the details of their errors: the messages of these."""

    def __init__(self, libraries: Libraries) -> None:
        files = {package: _file(libraries, package, _REFLECTION) for package in REFLECTIONS}
        files[HEALTH] = _file(libraries, HEALTH, _HEALTH)
        files["google.rpc"] = _file(libraries, "google.rpc", _STATUS)
        self._error = libraries.DecodeError
        self._types = Types(libraries, files)
        self.health = self._method(HEALTH, "Health/Check", "HealthCheckRequest", "HealthCheckResponse")

    def reflection(self, package: str) -> Method:
        """The method of this version of reflection."""
        name = "ServerReflection/ServerReflectionInfo"
        return self._method(package, name, "ServerReflectionRequest", "ServerReflectionResponse")

    def violations(self, status: bytes) -> list[tuple[str, str]]:
        """Fields and what is wrong with them, of an encoded `google.rpc.Status`; empty: it says nothing of that."""
        try:
            details = self._class("google.rpc.Status").FromString(status).details
            requests = [one.value for one in details if one.type_url.endswith("/google.rpc.BadRequest")]
            read = self._class("google.rpc.BadRequest").FromString
            return [(one.field, one.description) for data in requests for one in read(data).field_violations]
        except self._error:
            return []

    def _method(self, package: str, name: str, request: str, response: str) -> Method:
        return Method(f"/{package}.{name}", self._class(f"{package}.{request}"), self._class(f"{package}.{response}"))

    def _class(self, name: str) -> Any:
        return self._types.message_class(self._types.pool.FindMessageTypeByName(name))


def _file(libraries: Libraries, package: str, messages: dict[str, _Fields]) -> Any:
    file = libraries.descriptors.FileDescriptorProto(name=package, package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, type_, label, of in fields:
            type_name = f".{package}.{of}" if of else None
            message.field.add(name=field, number=number, type=type_, label=label, type_name=type_name)
    return file
