"""The kinds of `[tools.NAME]`: the key that selects each, its settings, its backend. Only used kinds are imported."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, cast

from mcpbridge.base.suggestions import nearest
from mcpbridge.tools.backend import Backend, BackendContext
from mcpbridge.tools.settings import BackendSettings


class _Kind(NamedTuple):
    name: str
    settings: str
    """The model of its settings: `module:class` below `mcpbridge.tools`."""
    backend: str
    """The class of its backend, in the same form."""


_KINDS = {
    "function": _Kind("function", "python.settings:FunctionSettings", "python.function:FunctionBackend"),
    "executor_class": _Kind("executor", "python.settings:ExecutorSettings", "python.executor:ExecutorBackend"),
    "endpoint": _Kind("http", "http.settings:HttpToolSettings", "http.backend:HttpBackend"),
    "openapi": _Kind("openapi", "openapi.settings:OpenApiSettings", "openapi.backend:OpenApiBackend"),
    "grpc": _Kind("grpc", "grpc.settings:GrpcSettings", "grpc.backend:GrpcBackend"),
    "command": _Kind("command", "command.settings:CommandSettings", "command.backend:CommandBackend"),
    "agent": _Kind("agent", "agent.settings:AgentSettings", "agent.local_agent:LocalAgent"),
}
"""The key that selects a kind, and the kind. An agent with an address has another backend, see `make`."""

KEYS = {key: kind.name for key, kind in _KINDS.items()}
"""The key that selects a kind, and the name of the kind."""

_REMOTE_AGENT = "agent.a2a_agent:RemoteAgent"


def read_settings(value: object) -> object:
    """The settings that a table of the configuration stands for, for pydantic; errors are pydantic's."""
    if not isinstance(value, Mapping):
        return value
    table = cast("Mapping[str, Any]", value)
    given = [key for key in KEYS if table.get(key) is not None]
    if len(given) > 1:
        raise ValueError(f"`{given[0]}` and `{given[1]}` are of different kinds of tools: choose one")
    if not given:
        near = [
            close for key in table for close in nearest(key, KEYS, limit=1) if key not in BackendSettings.model_fields
        ]
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ValueError(f"a tool needs one of {', '.join(f'`{key}`' for key in KEYS)}, which says its kind{hint}")
    settings = _load(_KINDS[given[0]].settings).model_validate(dict(table))
    refuse_unused(settings, several=has_several(settings))
    return settings


def refuse_unused(settings: BackendSettings, *, several: bool) -> None:
    """Refuse what changes single tools of a backend that is one tool: nothing would come of it.

    Raises:
        ValueError: there is some.
    """
    if several:
        return
    if settings.tool:
        name = next(iter(settings.tool))
        raise ValueError(
            f"`tool.{name}` changes one tool of several, and here is one only: it has the name of its table, and its "
            "settings are in the table itself"
        )
    if "tools" in settings.model_fields_set:
        raise ValueError("`tools` chooses among several tools, and here is one only: `disabled` switches it off")


def model_of(kind: str) -> type[BackendSettings]:
    """The model of the settings of a kind."""
    return _load(next(one.settings for one in _KINDS.values() if one.name == kind))


def kind_of(settings: BackendSettings) -> str:
    """Which kind these settings are of."""
    return _kind_of(settings).name


def _kind_of(settings: BackendSettings) -> _Kind:
    return next(kind for key, kind in _KINDS.items() if getattr(settings, key, None) is not None)


def has_several(settings: BackendSettings) -> bool:
    """Its tools come as those of a server (`NAME/tool`), whether or not there happens to be one only."""
    kind = kind_of(settings)
    if kind == "grpc":
        return getattr(settings, "method", None) is None
    return kind == "openapi" or bool(getattr(settings, "skills", False))


def make(name: str, settings: BackendSettings, context: BackendContext) -> Backend:
    """The backend of these settings; nothing of it runs yet. `name` is the name of its table."""
    backend = _REMOTE_AGENT if getattr(settings, "is_remote", False) else _kind_of(settings).backend
    return _load(backend)(name, settings, context)


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(f"mcpbridge.tools.{module}"), name)
