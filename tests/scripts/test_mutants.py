"""`make mutants`: which changes there are, and that one which a test notices is told from one that none does."""

import ast
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


@pytest.fixture(scope="module")
def mutants() -> Iterator[ModuleType]:
    before = set(sys.modules)
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("mutants")
    finally:
        while str(SCRIPTS) in sys.path:
            sys.path.remove(str(SCRIPTS))
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(SCRIPTS)):
                del sys.modules[name]


def changes(mutants: ModuleType, source: str) -> set[str]:
    """The lines that a source of one line may become."""
    return {one.after for one in mutants.mutants_of("x.py", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a >= b", {"x = a > b", "x = a < b"}),
        ("x = a == b", {"x = a != b"}),
        ("x = a is  not b", {"x = a is b"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a and b", {"x = a or b", "x = True and b", "x = a and True"}),
        ("x = a or b", {"x = a and b", "x = False or b", "x = a or False"}),
        ("x = not a", {"x = a"}),
        ("x = 3", {"x = 4"}),
        ("x = 100", {"x = 200"}),
        ("x = 0.5", {"x = 1.5"}),
        ("x = True", {"x = False"}),
        ("x = a + b", {"x = a - b"}),
        ("x = a + 'text'", set[str]()),
        ("x = min(a)", {"x = max(a)"}),
        ("x = a.startswith(b)", {"x = a.endswith(b)"}),
        ("x = a if b else c", {"x = a if True else c", "x = a if False else c"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if True]", "x = [a for a in b if False]"}),
        ("while a: b()", {"while False: b()", "while a: pass"}),
        ("def f(): return a", {"def f(): return None"}),
        ("def f(a=1): a.b = c", {"def f(a=2): a.b = c", "def f(a=1): pass"}),
        ("if a: raise B('text' + d, 1)", {"if True: raise B('text' + d, 1)", "if False: raise B('text' + d, 1)",
                                          "if a: pass"}),
        ("x += 1", {"x += 2", "pass"}),
        ("for a in b: break", {"for a in b: pass"}),
        ("log.info('x', a=1 < 2)", set[str]()),
        ("class A(B, frozen=True): x: int | None = None", set[str]()),
        ("def __repr__(self): return f'{self.a < 1}'", set[str]()),
        ("x = a < b  # pragma: no cover - why", set[str]()),
        ("from a import b", set[str]()),
        ("x = f'{a < 1}'", set[str]()),
        ("x = a == 'ä' and ü < 1", {"x = a != 'ä' and ü < 1", "x = a == 'ä~' and ü < 1", "x = a == 'ä' or ü < 1",
                                    "x = True and ü < 1", "x = a == 'ä' and True", "x = a == 'ä' and ü <= 1",
                                    "x = a == 'ä' and ü >= 1", "x = a == 'ä' and ü < 2"}),
    ],
)  # fmt: skip
def test_each_kind_of_line_has_its_changes(mutants: ModuleType, source: str, expected: set[str]) -> None:
    assert changes(mutants, source) == expected


def test_a_statement_of_several_lines_is_changed_in_its_place(mutants: ModuleType) -> None:
    source = "def f():\n    return (\n        a  # a < b\n        and b\n    )\n"
    found = [one for one in mutants.mutants_of("x.py", source) if one.replacement == "or"]
    assert [(one.line, one.before, one.after) for one in found] == [(4, "and b", "or b")]
    assert found[0].applied(source.encode()) == source.replace("and b", "or b").encode()


def test_every_change_of_every_module_is_a_program(mutants: ModuleType) -> None:
    """All of a few modules here; `make mutants` would count one that is none as not run."""
    for name in ("results/query/where.py", "protocol/deadlines.py", "sandbox/fetch/address_rules.py"):
        source = (ROOT / mutants.PACKAGE / name).read_text()
        found = mutants.mutants_of(name, source)
        assert len(found) > 50
        for one in found:
            ast.parse(one.applied(source.encode()))
            assert one.before != one.after


def test_a_sample_is_the_same_for_the_same_seed(mutants: ModuleType) -> None:
    everything = mutants.mutants_of("x.py", "\n".join(f"x = a < {number}" for number in range(20)))
    assert mutants.sampled(everything, 9, 1) == mutants.sampled(everything, 9, 1)
    assert mutants.sampled(everything, 9, 1) != mutants.sampled(everything, 9, 2)
    assert mutants.sampled(everything, 999, 1) == everything


def test_the_tables_name_what_there_is(mutants: ModuleType) -> None:
    """An equivalent change that is no change any more would excuse another one."""
    modules = mutants.modules_and_tests()
    assert len(modules) > 5
    for name, tests in modules.items():
        assert tests, name
    named = {entry["module"] for entry in mutants.equivalent_entries()}
    assert named <= set(modules)
    found = [one for name in named for one in mutants.mutants_of(name, (ROOT / mutants.PACKAGE / name).read_text())]
    mutants.equivalents(found, named)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"module": "a.py", "before": "x = 1", "after": "x = 3", "why": "for no reason at all"}, "has no change"),
        ({"module": "a.py", "before": "x = 1", "after": "x = 2", "why": "because"}, "why does"),
    ],
)
def test_an_equivalent_change_exists_and_says_why(
    mutants: ModuleType, monkeypatch: pytest.MonkeyPatch, entry: dict[str, str], told: str
) -> None:
    monkeypatch.setattr(mutants, "equivalent_entries", lambda: [entry])
    with pytest.raises(mutants.Mistaken, match=told):
        mutants.equivalents(mutants.mutants_of("a.py", "x = 1"), {"a.py"})


@pytest.mark.parametrize(
    ("outcomes", "is_enough"),
    [
        (["killed"] * 19 + ["survived"], True),
        (["killed"] * 18 + ["survived"] * 2, False),
        (["killed"] * 18 + ["late"] + ["survived"], True),
        (["killed"] * 19 + ["equivalent"], True),
        (["killed"] * 18 + ["equivalent"] * 2, False),
        (["killed"] * 19 + ["survived"] + ["broken"] * 9, True),
        (["killed"] + ["broken"] * 99, True),
        ([], True),
    ],
)
def test_enough_is_ninety_five_of_a_hundred(mutants: ModuleType, outcomes: list[str], is_enough: bool) -> None:
    mutant = mutants.mutants_of("a.py", "x = 1")[0]
    assert mutants.report([mutants.Result(mutant, outcome) for outcome in outcomes])[1] is is_enough


TESTED = """
import subprocess
import sys

def limit(value):
    return value < 10

def table(value):
    return value in LARGE

def unused(value):
    return value > 1

def in_a_program(value):
    return value > 2

LARGE = frozenset({500})
"""
TESTS = """
import subprocess, sys
from mcpbridge.a import limit, table

def test_limit():
    assert limit(9) and not limit(10)

def test_table():
    assert table(500)

def test_program():
    code = "from mcpbridge.a import in_a_program as f; assert f(3) and not f(2)"
    subprocess.run([sys.executable, "-c", code], check=True)

def test_that_fails_anyway():
    assert False
"""


def test_a_run_tells_what_is_noticed_from_what_is_not(
    mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, with a small project: coverage, the copy, the runs, the list of survivors."""
    package = tmp_path / "src" / "mcpbridge"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "a.py").write_text(TESTED)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TESTS)
    (tmp_path / "scripts").symlink_to(SCRIPTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    runs: Any = sys.modules["mutation_runs"]
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    monkeypatch.delenv("MUTATION_PLAN", raising=False)
    everything = mutants.mutants_of("a.py", TESTED)
    found = list({one.line: one for one in everything}.values()) + [one for one in everything if one.line == 12][:1]
    equal = {found[-1].key: "nobody calls it"}
    results = mutants.run(found, {"a.py": ["tests/test_a.py"]}, equal, 1)
    outcomes = {(one.mutant.line, one.mutant.after): one.outcome for one in results}
    unused = {outcome for (line, _), outcome in outcomes.items() if line == 12}
    assert unused == {"survived", "equivalent"}
    others = {key: outcome for key, outcome in outcomes.items() if key[0] != 12}
    assert set(others.values()) == {"killed"}
    assert {line for line, _ in others} == {6, 9, 15, 17}
    assert (package / "a.py").read_text() == TESTED
    told = json.loads(mutants.as_json(results, 1))
    assert [row["why"] for row in told["mutants"] if row["outcome"] == "equivalent"] == ["nobody calls it"]
