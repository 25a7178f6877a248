"""The kinds of `[tools.NAME]`: the key that tells each, its settings and its backend. Unused kinds are not imported."""

from collections.abc import Mapping
from typing import Any, cast

from mcpbridge.base.errors import nearest
from mcpbridge.tools.backend import Backend, BackendContext
from mcpbridge.tools.settings import BackendSettings

KEYS = {
    "function": "function",
    "executor_class": "executor",
    "endpoint": "http",
    "openapi": "openapi",
    "grpc": "grpc",
    "command": "command",
    "agent": "agent",
}
"""The key that tells a kind, and the kind."""


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
        raise ValueError(f"a tool needs one of {', '.join(f'`{key}`' for key in KEYS)}, which tells its kind{hint}")
    settings = model_of(KEYS[given[0]]).model_validate(dict(table))
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
            "settings stand in the table itself"
        )
    if "tools" in settings.model_fields_set:
        raise ValueError("`tools` chooses among several tools, and here is one only: `disabled` switches it off")


def model_of(kind: str) -> type[BackendSettings]:
    """The model of the settings of a kind."""
    if kind == "function":
        from mcpbridge.tools.python.settings import FunctionSettings as Model
    elif kind == "executor":
        from mcpbridge.tools.python.settings import ExecutorSettings as Model
    elif kind == "http":
        from mcpbridge.tools.http.settings import HttpToolSettings as Model
    elif kind == "openapi":
        from mcpbridge.tools.openapi.settings import OpenApiSettings as Model
    elif kind == "grpc":
        from mcpbridge.tools.grpc.settings import GrpcSettings as Model
    elif kind == "command":
        from mcpbridge.tools.command.settings import CommandSettings as Model
    else:
        from mcpbridge.tools.agent.settings import AgentSettings as Model
    return Model


def kind_of(settings: BackendSettings) -> str:
    """Which kind these settings are of."""
    return next(KEYS[key] for key in KEYS if getattr(settings, key, None) is not None)


def has_several(settings: BackendSettings) -> bool:
    """Its tools come as those of a server (`NAME/tool`), whether or not there happens to be one only."""
    kind = kind_of(settings)
    if kind == "grpc":
        return getattr(settings, "method", None) is None
    return kind == "openapi" or bool(getattr(settings, "skills", False))


def make(name: str, settings: BackendSettings, context: BackendContext) -> Backend:
    """The backend of these settings; nothing of it runs yet. `name` is the name of its table."""
    kind = kind_of(settings)
    if kind == "function":
        from mcpbridge.tools.python.function import FunctionBackend as Made
    elif kind == "executor":
        from mcpbridge.tools.python.executor import ExecutorBackend as Made
    elif kind == "http":
        from mcpbridge.tools.http.backend import HttpBackend as Made
    elif kind == "openapi":
        from mcpbridge.tools.openapi.backend import OpenApiBackend as Made
    elif kind == "grpc":
        from mcpbridge.tools.grpc.backend import GrpcBackend as Made
    elif kind == "command":
        from mcpbridge.tools.command.backend import CommandBackend as Made
    elif getattr(settings, "is_remote", False):
        from mcpbridge.tools.agent.a2a_agent import RemoteAgent as Made
    else:
        from mcpbridge.tools.agent.local_agent import LocalAgent as Made
    return Made(name, cast("Any", settings), context)
