"""`make quick` runs the tests that mirror what changed, and no others."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("quick", ROOT / "scripts" / "quick.py")
assert SPEC is not None
assert SPEC.loader is not None
quick = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(quick)


def tree(root: Path, *files: str) -> Path:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def chosen(root: Path, *changed: str) -> list[str]:
    return [str(path) for path in quick.chosen_tests([Path(name) for name in changed], root)]


def test_a_module_is_tested_by_the_files_that_bear_its_name(tmp_path: Path) -> None:
    tree(tmp_path, "tests/a/test_pool.py", "tests/a/test_pool_limits.py", "tests/a/test_other.py", "tests/test_top.py")
    assert chosen(tmp_path, "src/mcpbridge/a/pool.py") == ["tests/a/test_pool.py", "tests/a/test_pool_limits.py"]


def test_a_module_without_tests_of_its_name_is_tested_by_the_nearest_folder(tmp_path: Path) -> None:
    tree(tmp_path, "tests/a/test_one.py", "tests/a/b/data.txt", "tests/test_architecture.py")
    assert chosen(tmp_path, "src/mcpbridge/a/b/deep.py") == ["tests/a/test_one.py", "tests/test_architecture.py"]


def test_a_changed_test_runs_itself_and_documents_run_nothing(tmp_path: Path) -> None:
    tree(tmp_path, "tests/a/test_one.py", "tests/a/test_two.py", "README.md")
    assert chosen(tmp_path, "tests/a/test_two.py", "README.md") == ["tests/a/test_two.py"]


def test_every_folder_of_the_package_has_tests_that_are_found() -> None:
    for package in (ROOT / "src" / "mcpbridge").glob("*/__init__.py"):
        folder = package.parent
        module = next(path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py")
        tests = quick.tests_of(module.relative_to(ROOT), ROOT)
        assert tests, f"no tests mirror {module}"
        assert any(path.is_relative_to(Path("tests") / folder.name) for path in tests)
