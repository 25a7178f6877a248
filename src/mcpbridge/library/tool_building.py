"""From what was said to a `ToolBuilder` to the tool."""

from collections.abc import Mapping
from typing import Any, Optional, cast

import msgspec
from msgspec import UNSET

from mcpbridge.backends.docstrings import documented
from mcpbridge.backends.outputs import Misshapen, check_of, json_of
from mcpbridge.errors import ConfigError
from mcpbridge.library.tool_adapting import returned_by
from mcpbridge.library.tool_backends import looked_at, maker_of
from mcpbridge.library.tool_base import Tool
from mcpbridge.library.tool_builder import Param, ToolBuilder
from mcpbridge.library.tool_options import asks_of, check_name, settings_of
from mcpbridge.library.tool_schemas import Schema, Stated, refuse_misfit, stated, typed

__all__ = ["built", "schema_of"]

_NO_HANDLER = "Say `.handler(function)`; `.manual()` makes a tool whose calls are handed to the program instead."


def built(said: ToolBuilder[Any]) -> Tool[dict[str, Any], Any]:
    """See `ToolBuilder.build`."""
    name = check_name(said.name)
    if said.kind == "function" and said.function is None:
        raise ConfigError("this tool has no handler", key=name, hint=_NO_HANDLER)
    described = documented(said.function)[1] if said.function is not None else {}
    schema, adapters = schema_of(name, said.params, described)
    if said.function is not None:
        refuse_misfit(name, said.function, schema)
    output, returns = returned_by(name, *_of_output(name, said.said_output))
    events = stated(said.said_events, f"{name}: events").schema if said.said_events is not None else None
    schemas: dict[str, Any] = {"input_schema": schema, "output_schema": output}
    if said.kind != "function":
        return _by_people(said, {**schemas, **({"event_schema": events} if events is not None else {})}, returns)
    assert said.function is not None
    settings = settings_of(name, said.said_options, description=said.said_description, event_schema=events, **schemas)
    defaults = {param: one["default"] for param, one in schema["properties"].items() if "default" in one}
    made = typed(looked_at(name, said.function, settings, said.context_init), adapters, defaults)
    return Tool(made.definition, maker_of(made, settings, asks_of(name, said.said_options)), returns=returns)


def _by_people(said: ToolBuilder[Any], schemas: Mapping[str, Any], returns: Any) -> Tool[dict[str, Any], Any]:
    from mcpbridge.library.tool_people import human_tool, manual_tool

    given: dict[str, Any] = {"description": said.said_description, **schemas, **said.people, **said.said_options}
    if said.kind == "manual":
        if said.context_init is not None or schemas.get("event_schema") is not None:
            what = "yields no events" if said.context_init is None else "keeps no context"
            raise ConfigError(f"what has no handler {what}", key=said.name)
        made: Tool[Any, Any] = manual_tool(said.name, **given)
    else:
        given["context_init"] = said.context_init
        made = human_tool(cast("Any", said.function), cast("Any", said.received), name=said.name, **given)
    return made.returning(returns) if returns is not None else made


def _of_output(name: str, said: object) -> tuple[dict[str, Any] | None, object]:
    """What was said of the output, as a schema or as a type."""
    if said is None or not isinstance(said, str | Mapping):
        return None, said
    return stated(cast("object", said), f"{name}: output").schema, None


def schema_of(name: str, params: Mapping[str, Param], described: Mapping[str, str]) -> tuple[Schema, dict[str, Any]]:
    """The schema of the arguments, and what reads those that have a Python type, by name.

    `described`: descriptions of parameters of which none was said.

    Raises:
        ConfigError: what was said of a parameter does not fit together.
    """
    properties: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    required: list[str] = []
    adapters: dict[str, Any] = {}
    for param, said in params.items():
        key = f"{name}: {param}"
        found = _found(key, said)
        own = _own(key, found, shared)
        if text := said.description or described.get(param, ""):
            own["description"] = text
        if said.enum is not None:
            own["enum"] = [_json_of(key, found, one) for one in said.enum]
        if said.default is not UNSET:
            own["default"] = _json_of(key, found, said.default)
        _check(key, own, shared, found)
        properties[param] = own
        if said.is_required or (said.is_required is None and said.default is UNSET):
            required.append(param)
        if found.adapter is not None:
            adapters[param] = found.adapter
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    schema |= {"required": required} if required else {}
    return schema | ({"$defs": shared} if shared else {}), adapters


def _found(key: str, said: Param) -> Stated:
    """What was said of a parameter; one whose default is None may be that, as it may in a signature."""
    found = stated({} if said.type is UNSET else said.type, key)
    if said.default is not None or said.enum is not None or not check_of(found.schema)(None):
        return found
    if found.adapter is not None:
        return stated(Optional[said.type], key)  # noqa: UP045 - any type, not only a class
    inner = {name: one for name, one in found.schema.items() if name != "$defs"}
    shared = {name: one for name, one in found.schema.items() if name == "$defs"}
    return Stated({**shared, "anyOf": [inner, {"type": "null"}]})


def _own(key: str, found: Stated, shared: dict[str, Any]) -> Schema:
    """The schema without its definitions, which those of all parameters are put beside."""
    own = dict(found.schema)
    for name, definition in own.pop("$defs", {}).items():
        if shared.setdefault(name, definition) != definition:
            hint = "Give one of the two types another name."
            raise ConfigError(f"another parameter has a different type {name!r}", key=key, hint=hint)
    return own


def _json_of(key: str, found: Stated, value: object) -> Any:
    """A value of a parameter as JSON."""
    from pydantic_core import PydanticSerializationError

    try:
        if found.adapter is not None:
            return found.adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        return msgspec.json.decode(json_of(value))
    except (Misshapen, PydanticSerializationError, ValueError) as error:
        raise ConfigError(f"{value!r} is no JSON: {error}", key=key) from error


def _check(key: str, own: Schema, shared: Mapping[str, Any], found: Stated) -> None:
    """Refuse a default or an `enum` that the parameter itself does not allow."""
    plain = {"$defs": dict(shared), **{name: value for name, value in own.items() if name != "enum"}}
    allowed = check_of(plain)
    for value in own.get("enum", ()):
        if "enum" not in found.schema and (fault := allowed(value)):
            raise ConfigError(f"`enum` has what its type does not allow: {fault}", key=key)
    if "default" in own and (fault := check_of({**plain, **own})(own["default"])):
        raise ConfigError(f"its default is not what it may be: {fault}", key=key)
