"""The layout of the code (docs/architecture.md, Layers): who may import whom, and what must be documented."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import mcpbridge
from mcpbridge.config.schema import Settings

SOURCE = Path(mcpbridge.__file__).parent

LAYERS = [
    "_version",
    "places",  # the standard library alone, as the next
    "shim",
    "errors",
    "units",
    "logs",
    "owned_tasks",
    "holdings",
    "redaction",
    "wire",
    "result_settings",
    "conduct",
    "interaction",  # questions carry unparsed params
    "events",
    "context",  # what a call brings with it is read from its unparsed `_meta`
    "model",  # a call carries unparsed fields, whose type is the wire's
    "toolcalls",
    "sandbox",  # running what should not be trusted: processes, paths, addresses
    "upstream",
    "backends",
    "cassettes",
    "policy",
    "storage",
    "approvals",
    "models",
    "results",
    "catalog",
    "routing",
    "builtin",
    "arguments",
    "hooks",
    "pipeline",
    "downstream",
    "config",
    "client_files",
    "telemetry",
    "result_parts",
    "routing_parts",
    "backend_parts",
    "builtin_parts",
    "assembly",
    "standing",
    "sandboxes",
    "making",
    "health",
    "representing",
    "generation",
    "over_http",
    "overlay",
    "private_values",
    "registry_rules",
    "registry_store",
    "registry",
    "telling",
    "library",
    "observing",
    "engine",
    "bridge",
    "sync_bridge",
    "reloading",
    "admin",
    "doctor",
    "daemon",
    "cli",
    "__main__",
    "__init__",
]
"""A module imports its own layer and those above it in this list."""

APART = {
    "wire": {"stdio", "streamable_http", "sse", "websocket"},
    "pipeline": {
        "late",
        "deadline",
        "observe",
        "tracing",
        "compress",
        "references",
        "guard",
        "arguments",
        "cache",
        "retry",
        "limits",
        "deliver",
        "approval",
        "hooks",
        "rates",
        "budgets",
    },
}
"""Modules of one layer that must not know each other: transports, and the stages of a call."""


@cache
def modules() -> Mapping[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    return list(ast.walk(modules()[path]))


def name_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(SOURCE).with_suffix("").parts


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Every module of ours that is imported anywhere in the file, functions and TYPE_CHECKING blocks included."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *parts = name.split(".")
            if package == "mcpbridge":
                yield tuple(parts) or ("__init__",)


def test_every_module_belongs_to_a_layer() -> None:
    assert {name_of(path)[0] for path in modules()} <= set(LAYERS)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: "/".join(name_of(path)))
def test_imports_point_one_way(path: Path) -> None:
    own = name_of(path)
    rank = LAYERS.index(own[0])
    for imported in imports(path):
        assert imported[0] in LAYERS, f"mcpbridge.{'.'.join(imported)} is in no layer"
        assert LAYERS.index(imported[0]) <= rank, f"{'/'.join(own)} imports mcpbridge.{'.'.join(imported)} upward"
        apart = APART.get(own[0], set())
        if len(own) > 1 and own[1] in apart and len(imported) > 1 and imported[:2] != own[:2]:
            assert imported[0] != own[0] or imported[1] not in apart, f"{own[1]} must not know {imported[1]}"


def test_package_files_below_the_top_are_empty() -> None:
    """Whoever reads an import sees the module that defines the name."""
    full = [path for path in SOURCE.rglob("*/__init__.py") if path.read_text("utf-8").strip()]
    assert full == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path, tree in modules().items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def settings_models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """A model and all models that stand in its fields."""
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        kinds = [field.annotation]
        while kinds:
            kind = kinds.pop()
            kinds += getattr(kind, "__args__", ())
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from settings_models(kind, seen)


@pytest.mark.parametrize("model", list(settings_models(Settings, set())), ids=lambda model: model.__name__)
def test_every_setting_is_documented_and_unknown_keys_are_forbidden(model: type[BaseModel]) -> None:
    """The reference page is made from these docstrings."""
    assert model.__doc__
    assert model.model_config.get("extra") == "forbid"
    assert model.model_config.get("frozen")
    definitions = [
        ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        for kind in model.__mro__
        if issubclass(kind, BaseModel) and kind is not BaseModel
    ]
    documented = {
        field.target.id
        for definition in definitions
        if isinstance(definition, ast.ClassDef)
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    assert documented == model.model_fields.keys()


def test_only_telemetry_and_commands_write_to_standard_streams() -> None:
    """On stdio, standard output belongs to the protocol."""
    writers = set[str]()
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                writers.add(name_of(path)[0])
    assert writers <= {"cli", "wire"}  # wire/launch.py is a program of its own


def test_only_the_logs_know_who_writes_them() -> None:
    """`structlog` brings much that a start need not pay for; `logs.get_logger` loads it with the first line."""
    for path in modules():
        if name_of(path) not in {("logs",), ("telemetry",)}:
            known = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
            assert "structlog" not in known, f"{'/'.join(name_of(path))} imports structlog"
