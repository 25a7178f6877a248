"""The message types of one gRPC server, and the libraries of the extra `grpc`, loaded when the first backend runs.

Descriptors of files are put together in a pool of their own. Nothing is registered with the libraries' own pool, so two
servers may have different types of one name. Which types a server has is asked in `reflection.py`.

The libraries come without types, so what is theirs is `Any` here and in the modules that use them. Of the two clients
for asyncio, grpcio is the one that the gRPC project itself keeps: 19 MB, and 0.05 s to import. grpclib (3 MB with what
it needs) takes as long to import and leaves the retries of connections, message limits and name resolution to us.
"""

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.suggestions import nearest

_ENVIRONMENT = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Else it writes to standard error of its own accord: of each program that is started meanwhile, and of each connection
that is lost, which statuses say as well. What people have set stays."""


class Libraries(Struct, frozen=True):
    """The modules."""

    grpc: Any
    aio: Any
    descriptors: Any
    """`google.protobuf.descriptor_pb2`"""
    pools: Any
    """`google.protobuf.descriptor_pool`"""
    messages: Any
    """`google.protobuf.message_factory`"""
    json: Any
    """`google.protobuf.json_format`"""
    DecodeError: Any


def load() -> Libraries:
    """The libraries.

    Raises:
        ConfigError: they are not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return Libraries(
            import_module("grpc"),
            import_module("grpc.aio"),
            import_module("google.protobuf.descriptor_pb2"),
            import_module("google.protobuf.descriptor_pool"),
            import_module("google.protobuf.message_factory"),
            import_module("google.protobuf.json_format"),
            import_module("google.protobuf.message").DecodeError,
        )
    except ImportError as error:
        raise ConfigError(
            f"tools of gRPC servers need packages that are not installed ({error.name or error})",
            key="grpc",
            hint="Install them with: pip install 'mcpbridge[grpc]'",
        ) from error


_FILES = "any api descriptor duration empty field_mask source_context struct timestamp type wrappers"
_KNOWN = {f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in _FILES.split()}


class DescriptorsInvalidError(Exception):
    """The descriptors do not belong together, or cannot be read."""


def known_file(name: str) -> bytes | None:
    """The descriptor of a file that comes with protobuf, for servers that do not hand it out; None: it is no such."""
    from importlib import import_module

    module = _KNOWN.get(name)
    return None if module is None else import_module(module).DESCRIPTOR.serialized_pb


def no_such_service(name: str, known: list[str]) -> ConfigError:
    """The error that names what may have been meant."""
    near = nearest(name, known) or known[:3]
    has = f" (it has {', '.join(near)})" if near else ""
    return ConfigError(f"it has no service {name}{has}", key="service")


class Types:
    """Types by name, and what the comments say of them."""

    def __init__(self, libraries: Libraries, files: Mapping[str, Any]) -> None:
        """`files`: `FileDescriptorProto` by name; those that come with protobuf may be missing.

        Raises:
            DescriptorsInvalidError: a file is missing, or cannot be used.
        """
        self._libraries = libraries
        self._files = dict(files)
        self._added: set[str] = set()
        self.pool: Any = libraries.pools.DescriptorPool()
        self.comments: dict[str, str] = {}
        """By the full name of messages, fields, services and methods; those that have one."""
        for name in list(self._files):
            self._add(name, ())

    def message_class(self, descriptor: Any) -> Any:
        """The class of messages of this type."""
        return self._libraries.messages.GetMessageClass(descriptor)

    def services(self) -> list[Any]:
        """Descriptors of all services of the files."""
        names = (f"{_prefix(file.package)}{one.name}" for file in self._files.values() for one in file.service)
        return [self.pool.FindServiceByName(name) for name in names]

    def service(self, name: str) -> Any | None:
        """The descriptor of a service, by its full name."""
        try:
            return self.pool.FindServiceByName(name)
        except KeyError:
            return None

    def is_marked_required(self, field: Any) -> bool:
        """`google.api.field_behavior` says that it must be given."""
        try:
            extension = self.pool.FindExtensionByName("google.api.field_behavior")
            options = self.message_class(self.pool.FindMessageTypeByName("google.protobuf.FieldOptions"))()
        except KeyError:
            return False
        options.ParseFromString(field.GetOptions().SerializeToString())
        required = 2
        return required in options.Extensions[extension]

    def _add(self, name: str, within: tuple[str, ...]) -> None:
        if name in self._added:
            return
        if name in within:
            raise DescriptorsInvalidError(f"the files {', '.join(within)} import each other")
        file = self._files.get(name)
        if file is None:
            data = known_file(name)
            if data is None:
                raise DescriptorsInvalidError(f"the file {name}, which {within[-1]} imports, is missing")
            file = self._libraries.descriptors.FileDescriptorProto.FromString(data)
        for needed in file.dependency:
            self._add(needed, (*within, name))
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, KeyError) as error:
            raise DescriptorsInvalidError(f"the file {name} cannot be used: {error}") from error
        self._added.add(name)
        self._read_comments(file)

    def _read_comments(self, file: Any) -> None:
        prefix = _prefix(file.package)
        for place in file.source_code_info.location:
            text = (place.leading_comments or place.trailing_comments).strip()
            name = _named(file, tuple(place.path)) if text else ""
            if name:
                self.comments[prefix + name] = " ".join(text.split())


def _prefix(package: str) -> str:
    return f"{package}." if package else ""


_LEVELS: Mapping[str, Mapping[int, str]] = {
    "file": {4: "message_type", 5: "enum_type", 6: "service"},
    "message_type": {2: "field", 3: "message_type", 4: "enum_type"},
    "enum_type": {2: "value"},
    "service": {2: "method"},
}
_ATTRIBUTES = {("message_type", "message_type"): "nested_type"}


def _named(thing: Any, path: Iterable[int]) -> str:
    """The name that a path of `source_code_info` leads to, from the file down; empty: not one of those read here."""
    kind, names, numbers = "file", list[str](), iter(path)
    for number in numbers:
        child = _LEVELS.get(kind, {}).get(number)
        index = next(numbers, None)
        if child is None or index is None:
            return ""
        several = getattr(thing, _ATTRIBUTES.get((kind, child), child))
        if index >= len(several):
            return ""
        kind, thing = child, several[index]
        names.append(thing.name)
    return ".".join(names)
