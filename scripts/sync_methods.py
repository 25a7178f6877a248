"""Write the methods of `SyncBridge`, src/mcpbridge/library/sync_methods.py, from those of `Bridge`.

    python scripts/sync_methods.py            write the module anew
    python scripts/sync_methods.py --check    exit with 1 if it is not what would be written

The sources are read, not run. Each method has the parameters and the result of its original, and the first paragraph of
its docstring. A method that is added to `Bridge` comes along by itself, unless it is listed in `LEFT_OUT`.
"""

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/mcpbridge"
MODULE = SOURCE / "library/sync_methods.py"

CLASSES = {
    "library.tool_methods": "ToolMethods",
    "library.agent_methods": "AgentMethods",
    "engine.requests": "ProgramRequests",
    "engine.status": "EngineStatus",
    "engine.reload": "Reloading",
    "engine.engine": "Engine",
}
"""The classes that `Bridge` has its methods from, by module."""

BY_HAND = {"run"}
"""Methods whose result is of another type here; `sync_bridge.py` has them."""
LEFT_OUT = {
    "answered",
    "artifacts_of",
    "authorization",
    "call_tools",
    "command",
    "paused_of",
    "originals",
    "representations",
    "require_running",
    "set_backend",
}
"""Methods that the command line, the daemon and parts of the library need, not programs."""
INNER = {"request": {"session", "notify"}}
"""Parameters that parts of the bridge give one another, by method."""

HEAD = '''"""The methods of `SyncBridge` that differ from those of `Bridge` only in that they wait.

This module is written by `scripts/sync_methods.py`; `make docs` writes it anew. `Bridge` says more of each method.
"""

# ruff: noqa: A002 - the parameters are those of `Bridge`
'''

Method = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """A class of `CLASSES`, and where the names that its module uses come from."""

    methods: list[Method]
    imported: dict[str, str]
    """Modules of the names that exist while the program runs."""
    for_types: dict[str, str]
    """Modules of the names that exist for type checkers only."""


def source(module: str, name: str) -> Source:
    """Read one class."""
    tree = ast.parse((SOURCE / Path(*module.split("."))).with_suffix(".py").read_text("utf-8"))
    imported, for_types, methods = dict[str, str](), dict[str, str](), list[Method]()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            imported |= _names(node)
        elif isinstance(node, ast.If):
            for one in node.body:
                for_types |= _names(one) if isinstance(one, ast.ImportFrom) else {}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            imported[node.targets[0].id] = f"mcpbridge.{module}"
        elif isinstance(node, ast.ClassDef) and node.name == name:
            methods = [one for one in node.body if isinstance(one, Method) and _is_wanted(one)]
    return Source(methods, imported, for_types)


def _names(node: ast.ImportFrom) -> dict[str, str]:
    return {alias.name: node.module or "" for alias in node.names}


def _is_wanted(method: Method) -> bool:
    return not (method.name.startswith("_") or method.decorator_list or method.name in BY_HAND | LEFT_OUT)


def written(method: Method) -> str:
    """The method as `SyncBridge` has it."""
    arguments = method.args
    kept = [
        (one, default)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if one.arg not in INNER.get(method.name, ())
    ]
    arguments.kwonlyargs, arguments.kw_defaults = [one for one, _ in kept], [default for _, default in kept]
    given = [one.arg for one in arguments.args[1:]] + [f"{one.arg}={one.arg}" for one, _ in kept]
    if arguments.kwarg is not None:
        given.append(f"**{arguments.kwarg.arg}")
    work = f"self._thread.held.{method.name}"
    call = f"{work}({', '.join(given)})"
    if isinstance(method, ast.AsyncFunctionDef):
        work = f"wait({call})"
    else:
        work = f"do(lambda: {call})" if given else f"do({work})"
    assert method.returns is not None
    text = " ".join((ast.get_docstring(method) or "").partition("\n\n")[0].split())
    return (
        f"    def {method.name}({ast.unparse(arguments)}) -> {ast.unparse(method.returns)}:\n"
        f"        {_docstring(text)}\n"
        f"        return self._thread.{work}\n"
    )


def _docstring(text: str) -> str:
    """On as many lines as it needs."""
    lines = textwrap.wrap(f'"""{text}', 109)
    return f'{lines[0]}"""' if len(lines) == 1 else "\n        ".join([*lines, '"""'])


def types(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """The names in the annotations of a method, and whether they stand in quotes."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id, False
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.strip():
            try:
                quoted = ast.parse(one.value, mode="eval")
            except SyntaxError:  # a default or a literal
                continue
            yield from ((name.id, True) for name in ast.walk(quoted) if isinstance(name, ast.Name))


def module() -> str:
    """The whole module."""
    needed = {
        ("Bridge", "mcpbridge.library.bridge", False),
        ("LoopThread", "mcpbridge.library.client.sync_loop", False),
    }
    methods: list[str] = []
    for home, name in CLASSES.items():
        read = source(home, name)
        for method in read.methods:
            methods.append(written(method))
            for part in (method.args, method.returns):
                for used, is_quoted in types(part) if part is not None else ():
                    if used in read.imported:
                        needed.add((used, read.imported[used], False))
                    elif is_quoted and used in read.for_types:
                        needed.add((used, read.for_types[used], True))
    running = {(name, home) for name, home, is_type in needed if not is_type}
    checked = {(name, home) for name, home, is_type in needed if is_type} - running
    text = "\n".join([
        HEAD,
        *(f"from {home} import {name}" for name, home in running),
        "from typing import TYPE_CHECKING",
        "if TYPE_CHECKING:",
        *(f"    from {home} import {name}" for name, home in checked),
        "class SyncMethods:",
        '    """The methods of a bridge that lives in the loop of another thread."""\n',
        "    _thread: LoopThread[Bridge]\n",
        *methods,
    ])  # fmt: skip
    return _ruff("format", _ruff("check", text, "--select=I", "--fix", "--quiet"))


def _ruff(command: str, text: str, *options: str) -> str:
    arguments = [sys.executable, "-m", "ruff", command, *options, f"--stdin-filename={MODULE}", "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main() -> int:
    text = module()
    if "--check" not in sys.argv[1:]:
        MODULE.write_text(text, "utf-8")
    elif not MODULE.exists() or MODULE.read_text("utf-8") != text:
        print(f"{MODULE.relative_to(ROOT)} is not what `Bridge` says: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
