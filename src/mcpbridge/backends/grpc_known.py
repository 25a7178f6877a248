"""The services that servers have beside their own: reflection, in both its versions, and health; details of errors.

Their messages are put together here from names and numbers, which the protocols fix. The packages that have them
ready-made know one version of reflection, and register their types for the whole process.
"""

from typing import Any

from msgspec import Struct

from mcpbridge.backends.grpc_libraries import Libraries
from mcpbridge.backends.grpc_types import Types

__all__ = ["HEALTH", "REFLECTIONS", "Known", "Method"]

REFLECTIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
"""Packages of the reflection service, the one to prefer first."""
HEALTH = "grpc.health.v1"

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


class Known:
    """The known services."""

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
