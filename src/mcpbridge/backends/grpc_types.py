"""The message types of one gRPC server: descriptors of files put together in a pool of their own.

Nothing is registered with the libraries' own pool, so two servers may have different types of one name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mcpbridge.backends.grpc_libraries import Libraries
from mcpbridge.errors import ConfigError, nearest

__all__ = ["DescriptorsInvalidError", "Types", "known_file", "no_such_service"]

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
