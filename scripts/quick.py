"""Check what changed, in about a minute: format, lint, types of the changed files, and the tests that mirror them.

`make quick` runs it before a commit; `make test` runs everything. What changed is what git sees against `HEAD`, or
against `BASE` if that is given (`python scripts/quick.py origin/main`). A module `src/mcpbridge/a/b/c.py` is tested by
`tests/a/b/test_c*.py`, or else by the nearest folder of `tests/` that mirrors it.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("src/mcpbridge")
TYPED = ("src/", "examples/", "scripts/", "tests/typed/")
"""Where pyright is strict; as in `pyproject.toml`."""


def changed_files(base: str) -> list[Path]:
    """The files that differ from `base` and still exist, untracked ones included; relative to the repository."""
    tracked = _git("diff", "--name-only", "--diff-filter=d", base)
    untracked = _git("ls-files", "--others", "--exclude-standard")
    return sorted({Path(name) for name in (tracked + untracked).splitlines() if name})


def tests_of(module: Path, root: Path) -> list[Path]:
    """The tests that mirror a module of the package: its own files, or else those of the nearest folder above it."""
    inside = module.relative_to(SOURCE)
    folder = Path("tests") / inside.parent
    own = sorted((root / folder).glob(f"test_{inside.stem}*.py")) if inside.stem != "__init__" else []
    if own:
        return [path.relative_to(root) for path in own]
    while folder != Path("tests"):
        direct = sorted((root / folder).glob("test_*.py"))
        if direct:
            return [path.relative_to(root) for path in direct]
        folder = folder.parent
    return sorted(path.relative_to(root) for path in (root / "tests").glob("test_*.py"))


def chosen_tests(changed: Iterable[Path], root: Path) -> list[Path]:
    """The test files to run for these changes; the rules of the layout and of the documents always run."""
    chosen = {Path("tests/test_architecture.py")}
    for path in changed:
        if path.suffix == ".py" and path.is_relative_to(SOURCE):
            chosen.update(tests_of(path, root))
        elif path.name.startswith("test_") and path.suffix == ".py":
            chosen.add(path)
    return sorted(path for path in chosen if (root / path).exists())


def main(arguments: Sequence[str]) -> int:
    """Run the checks; the exit code of the first that fails."""
    changed = changed_files(arguments[0] if arguments else "HEAD")
    if not changed:
        print("quick: nothing has changed since HEAD; name a base to compare with: make quick BASE=main")
        return 0
    programs = ROOT / ".venv" / "bin"
    python = [str(path) for path in changed if path.suffix == ".py"]
    typed = [name for name in python if name.startswith(TYPED)]
    tests = [str(path) for path in chosen_tests(changed, ROOT)]
    steps: list[list[str]] = []
    if python:
        steps.append([str(programs / "ruff"), "format", "--check", "--quiet", *python])
        steps.append([str(programs / "ruff"), "check", "--quiet", *python])
    if typed:
        steps.append([str(programs / "pyright"), "--pythonpath", str(programs / "python"), *typed])
    steps.append([str(programs / "pytest"), "--quiet", "--numprocesses=3", "--dist=loadfile", *tests])
    for step in steps:
        print(f"quick: {Path(step[0]).name} on {len(step) - 1} arguments", flush=True)
        done = subprocess.run(step, cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
