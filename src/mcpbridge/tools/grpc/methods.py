"""Which methods of a server are tools, their names and their definitions. `schema.py` has the JSON form of messages."""

import re
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.suggestions import nearest
from mcpbridge.tools.grpc.message_types import Libraries, Types, no_such_service
from mcpbridge.tools.grpc.schema import from_json, schema_of, to_json
from mcpbridge.tools.grpc.settings import GrpcSettings

_IMPOSSIBLE = re.compile(r"[^A-Za-z0-9_.-]")


class GrpcMethod(Struct, frozen=True):
    """One method as a tool."""

    libraries: Libraries
    types: Types
    descriptor: Any
    definition: dict[str, Any]
    """As `tools/list` shows it."""

    @property
    def path(self) -> str:
        """`/package.Service/Method`, as it is called."""
        return f"/{self.descriptor.containing_service.full_name}/{self.descriptor.name}"

    @property
    def takes_many(self) -> bool:
        """It takes a stream of messages."""
        return self.descriptor.client_streaming

    @property
    def gives_many(self) -> bool:
        """It answers with a stream of messages."""
        return self.descriptor.server_streaming

    @property
    def request(self) -> Any:
        """The class of what it takes."""
        return self.types.message_class(self.descriptor.input_type)

    @property
    def response(self) -> Any:
        """The class of what it gives."""
        return self.types.message_class(self.descriptor.output_type)

    def messages(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The messages to send.

        Raises:
            ArgumentsRefused: they cannot be made of these arguments.
        """
        several = arguments.get("messages", []) if self.takes_many else [arguments]
        return [from_json(self.libraries, self.types, self.request, one) for one in several]

    def value(self, message: Any) -> dict[str, Any]:
        """A message as JSON; see `schema.to_json`."""
        return to_json(self.libraries, self.types, message)


def methods_of(libraries: Libraries, types: Types, name: str, settings: GrpcSettings) -> dict[str, GrpcMethod]:
    """The tools by name; `name` is that of the table.

    Raises:
        ConfigError: the service or method is not there, or nothing is left of them.
    """
    services = types.services() if settings.service is None else [_service(types, settings.service)]
    if settings.method is not None:
        method = _method(services[0], settings.method)
        return {name: GrpcMethod(libraries, types, method, _definition(types, name, method, settings))}
    found = {f"{one.full_name}/{method.name}": method for one in services for method in one.methods}
    wanted = [method for path, method in found.items() if _is_wanted(path, settings)]
    if not wanted:
        raise ConfigError(
            f"none of its {len(found)} methods is left by `include` and `exclude`" if found else "it has no methods",
            key="grpc",
        )
    names = _names(wanted, is_one_service=settings.service is not None)
    return {
        named: GrpcMethod(libraries, types, method, _definition(types, named, method, settings))
        for named, method in zip(names, wanted, strict=True)
    }


def _service(types: Types, name: str) -> Any:
    service = types.service(name)
    if service is None:
        raise no_such_service(name, [one.full_name for one in types.services()])
    return service


def _method(service: Any, name: str) -> Any:
    method = service.methods_by_name.get(name)
    if method is None:
        known = list(service.methods_by_name)
        near = nearest(name, known) or known[:5]
        raise ConfigError(f"{service.full_name} has no method {name} (it has {', '.join(near)})", key="method")
    return method


def _is_wanted(path: str, settings: GrpcSettings) -> bool:
    def fits(globs: list[str]) -> bool:
        return any(fnmatchcase(path, glob) for glob in globs)

    return fits(settings.include) and not fits(settings.exclude)


def _names(methods: list[Any], *, is_one_service: bool) -> list[str]:
    """The names of tools: the method's, behind that of its service where there may be several."""
    if is_one_service:
        return [method.name for method in methods]
    short = [f"{method.containing_service.name}_{method.name}" for method in methods]
    count = Counter(short)
    return [
        name if count[name] == 1 else _IMPOSSIBLE.sub("_", f"{method.containing_service.full_name}.{method.name}")
        for name, method in zip(short, methods, strict=True)
    ]


def _definition(types: Types, name: str, method: Any, settings: GrpcSettings) -> dict[str, Any]:
    takes = settings.input_schema or schema_of(types, method.input_type, takes=True)
    if method.client_streaming and settings.input_schema is None:
        takes = _several(takes, "What to send, in order.")
    gives = settings.output_schema or schema_of(types, method.output_type, takes=False)
    if method.server_streaming and settings.output_schema is None:
        gives = _several(gives, "What came, in order.")
        gives["properties"]["truncated"] = {"type": "boolean", "description": "There was more; it was left."}
    comment = types.comments.get(method.full_name, "")
    described = settings.description if settings.description is not None and settings.method is not None else comment
    definition = {
        "name": name,
        "description": described or f"Calls {method.containing_service.full_name}/{method.name}.",
        "inputSchema": takes,
        "outputSchema": gives,
    }
    hints = {**_hints(method), **settings.annotations}
    return {**definition, "annotations": hints} if hints else definition


def _hints(method: Any) -> dict[str, Any]:
    """What the method's `idempotency_level` says."""
    no_side_effects, idempotent = 1, 2
    level = method.GetOptions().idempotency_level
    if level == no_side_effects:
        return {"readOnlyHint": True}
    return {"idempotentHint": True} if level == idempotent else {}


def _several(one: dict[str, Any], description: str) -> dict[str, Any]:
    inner = {key: value for key, value in one.items() if key != "$defs"}
    messages = {"type": "array", "items": inner, "description": description}
    schema: dict[str, Any] = {"type": "object", "properties": {"messages": messages}, "required": ["messages"]}
    return {**schema, "$defs": one["$defs"]} if "$defs" in one else schema
