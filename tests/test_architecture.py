"""The layout of the code (docs/explanation/architecture.md): imports, sizes, what is documented."""

import ast
import gc
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import mcpbridge
from mcpbridge.config.schema import Settings

SOURCE = Path(mcpbridge.__file__).parent

LAYERS = [
    "base",
    "protocol",
    "core",
    "storage",
    "sandbox",
    "results",
    "upstream",
    "pipeline",
    "catalog",
    "tools",
    "downstream",
    "fleet",
    "config",
    "engine",
    "library",
    "app",
    "__main__",
    "__init__",
]
"""A module imports its own folder and those above it in this list."""

APART = {
    ("upstream", "transports"): {"stdio", "streamable_http", "sse", "websocket"},
    ("pipeline", "stages"): {path.stem for path in (SOURCE / "pipeline" / "stages").glob("*.py")} - {"__init__"},
}
"""Modules of a folder that must not know each other: transports, and the stages of a call."""

MAX_ENTRIES = 20
"""Modules and folders in one folder; more and nobody finds anything."""
MAX_LINES = 500
"""Lines of a module; a longer one holds two ideas."""


@cache
def modules() -> Mapping[Path, ast.Module]:
    gc.disable()  # which all stay: to look through them again and again took longer than to read them
    try:
        return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    finally:
        gc.enable()


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    return list(ast.walk(modules()[path]))


def name_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(SOURCE).with_suffix("").parts


@cache
def imports(path: Path) -> Sequence[tuple[str, ...]]:
    """Every module of ours that is imported anywhere in the file, functions and TYPE_CHECKING blocks included."""
    found: list[tuple[str, ...]] = []
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
                found.append(tuple(parts) or ("__init__",))
    return found


def dotted(path: Path) -> str:
    return "/".join(name_of(path))


PATHS = sorted(SOURCE.rglob("*.py"))


def test_the_package_has_sixteen_folders() -> None:
    assert {path.relative_to(SOURCE).parts[0] for path in PATHS if path.parent != SOURCE} == set(LAYERS[:16])
    assert {path.name for path in SOURCE.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


# One test looks through all modules: a test of each would cost more than what it looks at.
def test_imports_point_one_way() -> None:
    assert [wrong for path in PATHS for wrong in wrong_imports(path)] == []


def wrong_imports(path: Path) -> Iterator[str]:
    own = name_of(path)
    rank = LAYERS.index(own[0])
    for imported in imports(path):
        if imported[0] not in LAYERS:
            yield f"mcpbridge.{'.'.join(imported)} is in no layer"
        elif LAYERS.index(imported[0]) > rank:
            yield f"{dotted(path)} imports mcpbridge.{'.'.join(imported)} upward"
        apart = APART.get(own[:2], set())
        is_beside = len(own) == 3 and imported[:2] == own[:2] and imported[:3] != own
        if is_beside and own[2] in apart and imported[2] in apart:
            yield f"{own[2]} must not know {imported[2]}"


def test_no_module_imports_itself_in_a_circle() -> None:
    """Late imports and those for types alone count: a circle that is hidden is still one."""
    names = {name_of(path): path for path in PATHS if path.name != "__init__.py"}
    graph = {
        name: {target for one in imports(path) for target in (one, one[:-1]) if target in names and target != name}
        for name, path in names.items()
    }
    circles = [sorted("/".join(name) for name in circle) for circle in strongly_connected(graph) if len(circle) > 1]
    assert circles == []


def strongly_connected(graph: Mapping[tuple[str, ...], set[tuple[str, ...]]]) -> list[list[tuple[str, ...]]]:
    """The groups of modules that reach each other (Kosaraju: depth first, then again on the turned graph)."""
    order: list[tuple[str, ...]] = []
    seen = set[tuple[str, ...]]()
    for start in graph:
        stack = [(start, False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((target, False) for target in graph[node])
    turned: dict[tuple[str, ...], set[tuple[str, ...]]] = {node: set() for node in graph}
    for node, targets in graph.items():
        for target in targets:
            turned[target].add(node)
    groups: list[list[tuple[str, ...]]] = []
    for start in reversed(order):
        group: list[tuple[str, ...]] = []
        todo = [start]
        while todo:
            node = todo.pop()
            if node in seen:
                seen.remove(node)
                group.append(node)
                todo.extend(turned[node])
        if group:
            groups.append(group)
    return groups


def test_circles_are_found() -> None:
    """The check above would find one: two of four nodes reach each other."""
    graph = {("a",): {("b",)}, ("b",): {("c",), ("d",)}, ("c",): {("b",)}, ("d",): set[tuple[str, ...]]()}
    assert sorted(sorted(group) for group in strongly_connected(graph)) == [[("a",)], [("b",), ("c",)], [("d",)]]


FOLDERS = sorted({path.parent for path in PATHS})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE)))
def test_a_folder_can_be_overlooked(folder: Path) -> None:
    below = [path.relative_to(folder).parts[0] for path in PATHS if path.is_relative_to(folder)]
    assert len({*below} - {"__init__.py"}) <= MAX_ENTRIES  # modules and folders; not what an older checkout left behind
    assert len(folder.relative_to(SOURCE).parts) <= 4


def test_a_module_can_be_read_at_one_go() -> None:
    assert [dotted(path) for path in PATHS if path.read_text("utf-8").count("\n") > MAX_LINES] == []


def test_package_files_below_the_top_hold_a_docstring_and_nothing_else() -> None:
    """It says what the folder is for. Whoever reads an import sees the module that defines the name."""
    packages = {path: tree for path, tree in modules().items() if path.name == "__init__.py" and path.parent != SOURCE}
    assert [dotted(path) for path, tree in packages.items() if len(tree.body) != 1 or not ast.get_docstring(tree)] == []
    assert {path.parent for path in packages} == {path.parent for path in PATHS} - {SOURCE}


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
    assert writers <= {"app", "base"}  # base/process/parent_death_main.py is a program of its own


def test_only_the_logs_know_who_writes_them() -> None:
    """`structlog` brings much that a start need not pay for; `logs.get_logger` loads it with the first line."""
    for path in modules():
        if name_of(path) not in {("base", "log"), ("app", "logging_setup")}:
            known = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
            assert "structlog" not in known, f"{'/'.join(name_of(path))} imports structlog"


RUNS_WHAT_IT_READS = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}


def test_nothing_is_read_by_a_module_that_runs_what_it_reads() -> None:
    """Processes that read what is not trusted answer with data alone (`sandbox/worker_messages.py`)."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.partition(".")[0] in RUNS_WHAT_IT_READS
    ]
    assert found == []


RIDDLES = {"told", "said", "made", "found", "taken", "shown", "kept"}
"""What they mean is known to whoever wrote them: names say what a thing is, or what a function does."""

DOCUMENTED = {
    "app/cli/json_formats/calls: Searches.shown",
    "app/cli/json_formats/calls: TokenSums.shown",
    "app/cli/json_formats/daemon: Changed.kept",
    "app/cli/json_formats/servers: Added.kept",
    "app/cli/json_formats/servers: Added.said",
    "app/cli/json_formats/servers: Fix.kept",
    "config/needs_restart: Reloaded.kept",  # what `Bridge.reload` returns, and its JSON
    "engine/cassettes/format: Entry.told",  # a key of cassettes
    "results/token_ledger: Account.shown",  # a key of `mcpbridge stats tokens --json`
}
"""Fields that programs of users read under these names."""


def named(path: Path) -> Iterator[str]:
    """The names of functions, of their parameters, and of the fields of classes in a module."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            arguments = node.args
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield f"{node.name}({one.arg})"
        elif isinstance(node, ast.ClassDef):
            stored = (
                one for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
            )
            yield from (f"{node.name}.{one.attr}" for one in stored if ast.unparse(one.value) == "self")
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield f"{node.name}.{field.target.id}"


def is_riddle(name: str) -> bool:
    return name.rstrip(")").replace("(", ".").rpartition(".")[2].strip("_") in RIDDLES


def test_functions_fields_and_parameters_say_what_they_are() -> None:
    """Public formats keep their words; all else is called what the field calls it."""
    riddles = {f"{dotted(path)}: {name}" for path in PATHS for name in named(path) if is_riddle(name)}
    assert riddles == DOCUMENTED


SILENCED = re.compile(r"# (?:noqa(?:: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*)?|(?:pyright|type): ignore(?:\[[\w, -]+\])?)")
"""A comment that silences a checker in its line."""


def unexplained(text: str) -> list[str]:
    """The lines that silence a checker and do not say why behind ` - `."""
    return [
        line.strip()
        for line in text.splitlines()
        for silenced in list(SILENCED.finditer(line))[-1:]
        if not re.match(r" - \S", line[silenced.end() :])
    ]


def test_what_silences_a_checker_says_why() -> None:
    assert [f"{dotted(path)}: {line}" for path in PATHS for line in unexplained(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("line", "is_explained"),
    [
        ("import x  # noqa: F401 - its names are read", True),
        ("x = y  # type: ignore[arg-type] - the stub is too narrow", True),
        ("x = y  # noqa: S608  # pyright: ignore[reportAny] - both for one reason", True),
        ("x = y  # noqa: A002", False),
        ("x = y  # pyright: ignore", False),
        ("x = y  # noqa: A002 what it is", False),
        ("x = y  # noqa: A002 - a reason  # type: ignore", False),
    ],
)
def test_a_reason_is_recognised(line: str, is_explained: bool) -> None:
    """The check above would find one without."""
    assert (unexplained(line) == []) == is_explained


def coroutines() -> Iterator[tuple[str, Callable[..., object]]]:
    """The public coroutines, with their names."""
    for name in mcpbridge.__all__:
        thing = getattr(mcpbridge, name)
        members = inspect.getmembers(thing) if inspect.isclass(thing) else [("", thing)]
        for member, function in members:
            is_one = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
            if is_one and function.__module__.startswith("mcpbridge.") and not member.startswith("_"):
                yield f"{name}.{member}".rstrip("."), function


COROUTINES = dict(coroutines())


def says_what_cancelling_costs(function: Callable[..., object]) -> bool:
    """In its docstring, in that of its class, or in that of the method that it refers to: "See `Backend`."."""
    text = inspect.getdoc(function) or ""
    owner = getattr(inspect.getmodule(function), function.__qualname__.partition(".")[0], None)
    if inspect.isclass(owner):
        text += inspect.getdoc(owner) or ""
    if referred := re.match(r"See `(\w+)`", text):
        text += inspect.getdoc(getattr(getattr(mcpbridge, referred[1], None), function.__name__, None)) or ""
    return re.search(r"[Cc]ancel", text) is not None


@pytest.mark.parametrize("name", COROUTINES)
def test_a_public_coroutine_says_what_cancelling_it_costs(name: str) -> None:
    """Cancelling is ordinary in programs: whoever does it wants to know what was done by then."""
    assert says_what_cancelling_costs(COROUTINES[name]), f"say it in a sentence: `Cancelling …`, in {name}"
