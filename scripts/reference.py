"""Write what the documentation says of the configuration from the models that read it.

    python scripts/reference.py            write configuration.md and servers.schema.json in docs/reference
    python scripts/reference.py --check    exit with 1 if they are not what would be written

In the page, what stands between `<!-- fields: MODEL -->` and `<!-- end -->` is a table of that model's fields; the rest
is written by people. A field is described by its docstring, where it is declared.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import AliasChoices, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from mcpbridge.base.units import parse_bytes, parse_rate, parse_seconds, show_bytes, show_seconds
from mcpbridge.config.mcp_servers_json import NAME, NAME_LENGTH
from mcpbridge.config.schema import Settings
from mcpbridge.tools.builtin.settings import BuiltinSettings
from mcpbridge.tools.factory import KEYS, model_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/configuration.md"
SCHEMA = ROOT / "docs/reference/servers.schema.json"

SET_WHILE_LOADING = {"unavailable", "project_texts", "written", "source"}
"""Fields that people do not write."""

SHORT_FORMS: dict[str, dict[str, Any]] = {
    "RetrySettings": {"type": "integer", "minimum": 1, "maximum": 10},  # `retry = 3`
    "AuthSettings": {"const": "none"},  # `auth = "none"`
    "SandboxSettings": {"enum": ["auto", "bubblewrap", "launcher", "off"]},  # `sandbox = "off"`
    "SandboxOverrides": {"const": True},  # `sandbox = true` of a server or command
    "ServerSandbox": {"enum": [True, "profile"]},  # `sandbox = "profile"` of a server
}
"""What may stand in the place of a whole table, by the table's model."""

TIMED = ("HttpToolSettings", "OpenApiSettings", "AgentSettings", "GrpcSettings")
"""Models that take `timeout` and `timeout_s` for `call_timeout`; all but the last also `backoff_s` in `retry`."""

OLDER_NAMES: dict[str, dict[str, Any]] = {
    "isolation": {
        "deprecated": True,
        "description": "An older name of `share`; `client` is `session`.",
        "anyOf": [
            {"enum": ["shared", "client", "session", "project"], "type": "string"},
            {"type": "string", "pattern": r"\$\{"},
        ],
    },
}
"""What the table of a server may hold as well, and the page does not tell."""

_BLOCK = re.compile(r"(<!-- fields: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_VARIABLE = r"\$\{"
"""A value may also be brought in by a variable, and is checked when it is there."""


def main() -> int:
    stale = [path for path, text in pages() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages():
        path.write_text(text, "utf-8")
    return 0


def pages() -> Iterator[tuple[Path, str]]:
    """Each generated file and what must stand in it."""
    models = {model.__name__: model for model in all_models()}
    written = PAGE.read_text("utf-8")
    yield PAGE, _BLOCK.sub(lambda block: f"{block[1]}{table(models[block[2]])}{block[3]}", written)
    yield SCHEMA, json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def all_models() -> Iterator[type[BaseModel]]:
    """Every model of the configuration, and those of each kind of tools, which the whole does not name."""
    yield from models_in(Settings)
    yield from models_in(BuiltinSettings)
    for kind in KEYS.values():
        yield from models_in(model_of(kind))


def models_in(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, the one that it shares fields with, and those in its fields."""
    yield model
    if (shared := shared_model(model)) is not None:
        yield from models_in(shared)
    for name, field in model.model_fields.items():
        kinds: list[Any] = [] if name in SET_WHILE_LOADING else [field.annotation]
        while kinds:
            kind = kinds.pop()
            kinds += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from models_in(kind)


# -- the page


def table(model: type[BaseModel]) -> str:
    """The fields of a model as a Markdown table; those that it shares with others stand in the table of their own."""
    shared = shared_model(model)
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if name not in SET_WHILE_LOADING and (shared is None or name not in shared.model_fields):
            told = docstrings(model)[name].replace("|", r"\|").replace("\n", " ")
            rows.append(f"| `{field.alias or name}` | {kind_of(field)} | {default_of(field)} | {told} |")
    return "\n".join(rows) + "\n"


def shared_model(model: type[BaseModel]) -> type[BaseModel] | None:
    """The model whose fields this one has besides its own, and which has a table of its own; None if there is none."""
    bases = models_above(model)
    return bases[0] if len(bases) == 1 else None


def models_above(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models that this one takes fields from. Several: it is put together of them, and its table has them all."""
    return [base for base in model.__bases__ if issubclass(base, BaseModel) and base is not BaseModel]


@cache
def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each field in the source."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    own = {
        field.target.id: inspect.cleandoc(str(text.value.value))
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    return {name: text for base in models_above(model) for name, text in docstrings(base).items()} | own


def kind_of(field: FieldInfo) -> str:
    """What people write there."""
    reader = reader_of(field)
    names: dict[object, str] = {parse_seconds: "time", parse_bytes: "size", parse_rate: "rate"}
    words = names[reader] if reader else _words(field.annotation)
    limits = _limits(field)
    return f"{words}, {limits}" if limits else words


def _words(kind: Any) -> str:
    given, parts = get_origin(kind), [part for part in get_args(kind) if part is not NoneType]
    if given is Literal:
        return ", ".join(f'`"{part}"`' for part in parts)
    if given in (list, tuple):
        return _several("list", parts[0])
    if given in (dict, Mapping):
        return _several("table", parts[1])
    if kind in (Any, object):
        return "anything"
    if hasattr(kind, "__metadata__"):  # Annotated
        return _words(parts[0])
    if parts:
        return " or ".join(dict.fromkeys(map(_words, parts)))
    if issubclass(kind, BaseModel):
        return "table"
    return {str: "text", int: "number", float: "number", bool: "`true` or `false`"}[kind]


def _several(what: str, kind: Any) -> str:
    """A list or table of such values."""
    if kind is Any:
        return what
    each = _words(kind).replace("list of", "lists of").split(" or ")
    return f"{what} of {' or '.join(one if one[0] == '`' or one[-1] == 's' else f'{one}s' for one in each)}"


def _limits(field: FieldInfo) -> str:
    found: dict[str, Any] = {}
    for part in field.metadata:
        found |= {name: getattr(part, name) for name in ("gt", "ge", "le") if hasattr(part, name)}
    reader = reader_of(field)
    show: Callable[[Any], str] = show_bytes if reader is parse_bytes else str
    if "ge" in found and "le" in found:
        return f"{show(found['ge'])} to {show(found['le'])}"
    if "gt" in found:
        return f"above {found['gt']}"
    return f"at least {show(found['ge'])}" if found.get("ge") else ""


def default_of(field: FieldInfo) -> str:
    """The default, as people would write it."""
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value == {}:
        return ""
    if reader_of(field) is parse_seconds:
        return f'`"{show_seconds(value)}"`' if value else "`0`"
    if reader_of(field) is parse_bytes:
        return f'`"{show_bytes(value)}"`'
    return f"`{json.dumps(value)}`"


def reader_of(field: FieldInfo) -> Callable[[object], object] | None:
    """`parse_seconds`, `parse_bytes` or `parse_rate`, where one of them reads the value."""
    parts = [*field.metadata]
    for kind in (field.annotation, *get_args(field.annotation)):  # `Seconds | None` has its reader further in
        parts += getattr(kind, "__metadata__", ())
    readers = [part.func for part in parts if isinstance(part, BeforeValidator)]
    return next((reader for reader in (parse_seconds, parse_bytes, parse_rate) if reader in readers), None)


# -- the schema


class _Schema(GenerateJsonSchema):
    """What may stand in a file; looser than the models where they take more than one spelling."""

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        reader = schema["function"]["function"]
        if reader is parse_seconds:
            return _quantity("30s", "5 min", "1.5h")
        if reader is parse_bytes:
            return _quantity("64 KiB", "2 MiB", "10 MB")
        return super().function_before_schema(schema)


def _quantity(*examples: str) -> JsonSchemaValue:
    text = {"type": "string", "pattern": rf"^\s*[0-9._]+\s*[A-Za-z]*\s*$|{_VARIABLE}", "examples": list(examples)}
    return {"anyOf": [{"type": "number", "minimum": 0}, text]}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `servers.toml`."""
    schema = Settings.model_json_schema(schema_generator=_Schema)
    by_name = {model.__name__: model for model in all_models()}
    own = BuiltinSettings.model_json_schema(schema_generator=_Schema)
    schema["$defs"] |= own.pop("$defs", {}) | {"BuiltinSettings": own}
    schema["properties"]["builtin"] = {"$ref": "#/$defs/BuiltinSettings"}
    schema["properties"]["tools"]["additionalProperties"] = {"oneOf": list(_kinds(schema["$defs"]))}
    schema["$defs"] = {name: part for name, part in schema["$defs"].items() if name in by_name}
    for name, part in [("Settings", schema), *schema["$defs"].items()]:
        _describe(part, by_name[name])
    server = schema["$defs"]["ServerSettings"]
    server["oneOf"] = [{"required": [way]} for way in ("command", "image", "url")]
    server["properties"] |= OLDER_NAMES
    server["not"] = {"required": ["share", "isolation"]}
    [variable] = server["properties"]["env"]["patternProperties"].values()
    variable["type"] = ["string", "number", "boolean"]
    _take_other_spellings(schema["$defs"])
    for name, short in SHORT_FORMS.items():
        schema["$defs"][name] = {"anyOf": [schema["$defs"][name], short]}
    schema["properties"]["servers"]["propertyNames"] = {"pattern": f"^{NAME.pattern}$", "maxLength": NAME_LENGTH}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "mcpbridge: servers.toml",
    }


def _kinds(defs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema of each kind of tools, told by its key; what they use goes into `defs`."""
    for key, kind in KEYS.items():
        model = model_of(kind)
        own = model.model_json_schema(schema_generator=_Schema)
        defs |= own.pop("$defs", {})
        own["required"] = sorted({*own.get("required", []), key})
        defs[model.__name__] = own
        yield {"$ref": f"#/$defs/{model.__name__}"}


def _take_other_spellings(defs: dict[str, Any]) -> None:
    """What tools may be told in other words: as specs of tools have them, or shorter."""
    retry = dict(defs["RetrySettings"]["properties"])
    retry["backoff_s"] = {**retry.pop("backoff"), "description": "The same as `backoff`."}
    for name in TIMED:
        properties = defs[name]["properties"]
        same = {**properties["call_timeout"], "description": "The same as `call_timeout`."}
        properties |= {"timeout": same, "timeout_s": same}
        if name != "GrpcSettings":
            other = {"type": "object", "properties": retry, "required": ["backoff_s"], "additionalProperties": False}
            about = properties["retry"]
            properties["retry"] = {
                "description": about["description"],
                "anyOf": [{"$ref": about["$ref"]}, other],
            }
    for value in defs["CommandSettings"]["properties"]["env"].get("patternProperties", {}).values():
        value["type"] = ["string", "number", "boolean"]
    roots = defs["FilesSettings"]["properties"]["roots"]
    named = {key: roots.pop(key) for key in [*roots] if key not in ("description", "default")}
    roots["anyOf"] = [{"type": "array", "items": {"type": "string"}}, named]


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    for name in SET_WHILE_LOADING & part["properties"].keys():
        del part["properties"][name]
    named: dict[str, str] = {str(field.alias): name for name, field in model.model_fields.items() if field.alias}
    for name, about in part["properties"].items():
        about.pop("title", None)
        kinds = [kind for kind in about.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:  # TOML has no null
            del about["anyOf"]
            about.update(kinds[0])
        if about.get("default", ...) is None or isinstance(about.get("default"), dict):
            del about["default"]
        about["description"] = docstrings(model)[named.get(name) or name]
        _or_variable(about)
    for name, field in model.model_fields.items():
        for other in other_names(name, field):
            part["properties"][other] = {**part["properties"][name], "description": f"The same as `{name}`."}


def other_names(name: str, field: FieldInfo) -> list[str]:
    """What a field may be called as well."""
    choices = field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else []
    return [other for other in choices if isinstance(other, str) and other != name]


def _or_variable(about: dict[str, Any]) -> None:
    """What is no text of any length may be written as a text that holds a variable."""
    if about.get("type") in ("integer", "boolean") or "enum" in about or about.get("minLength", 0) > 1:
        inner = {key: about.pop(key) for key in [*about] if key not in ("description", "default")}
        about["anyOf"] = [inner, {"type": "string", "pattern": _VARIABLE}]


if __name__ == "__main__":
    sys.exit(main())
