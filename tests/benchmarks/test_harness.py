"""The benchmark still runs, and says so when something did not: so that nobody finds out on the day of a release."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads Linux' process accounting")

ROOT = Path(__file__).parents[2]


def run(work: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", "--quick", "--work", str(work), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """The modules that reckon: `benchmarks.book` and `benchmarks.report`."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import book, report

    return book, report


def test_a_quick_run_of_the_floor_measures_every_kind_of_row(tmp_path: Path) -> None:
    """Promise of `make bench`: each row has figures, in the table and in the JSON."""
    figures_file = tmp_path / "figures.json"
    rows = ["stdio-stdio", "http-http", "big-result", "listing", "start-1"]
    done = run(tmp_path / "work", "--only", ",".join(["direct", "floor", *rows]), "--json", str(figures_file))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "tools/call, HTTP → HTTP" in done.stdout
    document = json.loads(figures_file.read_text())
    figures = {(entry["row"], entry["subject"]): entry["median"] for entry in document["figures"]}
    assert set(figures) == {(row, subject) for row in rows for subject in ("direct", "floor")}
    assert all(value > 0 for metrics in figures.values() for value in metrics.values())
    assert {"p50_us_1", "p99_us_1", "per_s_16", "cpu_us_1", "cpu_us_16"} <= set(figures["stdio-stdio", "floor"])
    assert document["machine"]["cores"] >= 1


def test_what_is_published_names_neither_the_machine_nor_its_folders(tmp_path: Path) -> None:
    """Promise of the benchmark: its output can be pasted into the README as it is."""
    figures_file = tmp_path / "figures.json"
    done = run(tmp_path / "work", "--only", "floor,stdio-stdio", "--json", str(figures_file))

    assert done.returncode == 0, done.stdout + done.stderr
    for text in (done.stdout, figures_file.read_text()):
        assert str(ROOT) not in text
        assert str(tmp_path) not in text


def test_a_bridge_that_does_not_work_is_named_and_fails_the_run(tmp_path: Path) -> None:
    """A row without the bridge must not pass for a good one."""
    broken = f"{sys.executable} -c 'import sys; sys.exit(\"no licence found\")'"
    done = run(tmp_path / "work", "--only", "mcpbridge,floor,stdio-stdio", "--bridge", broken)

    assert done.returncode == 1
    assert "mcpbridge: failed: does not start: no licence found" in done.stdout
    assert "| floor " in done.stdout


def test_a_name_that_is_neither_row_nor_subject_is_a_mistake_of_use(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "stdio-stdoi")

    assert done.returncode == 2
    assert "stdio-stdoi" in done.stderr


def test_ratios_are_taken_round_by_round(report: tuple[ModuleType, ModuleType]) -> None:
    """A machine that becomes three times slower in the middle changes every figure and no ratio."""
    book = report[0].Book()
    for slower in (1, 1, 3):
        book.add("stdio-stdio", "floor", cpu_us_1=10.0 * slower)
        book.add("stdio-stdio", "mcpbridge", cpu_us_1=15.0 * slower)

    assert book.ratio("stdio-stdio", "mcpbridge", "cpu_us_1", "floor") == 1.5
    assert book.ratio("stdio-stdio", "mcpbridge", "cpu_us_1", "direct") is None


def test_a_target_is_met_or_missed_by_its_own_sense(report: tuple[ModuleType, ModuleType]) -> None:
    book = report[0].Book()
    for subject, cpu, calls in (("floor", 10.0, 9.0), ("mcpbridge", 21.0, 90.0), ("fastmcp", 500.0, 2.0)):
        book.add("stdio-stdio", subject, cpu_us_1=cpu, per_s_16=calls)
    lines = report[1].verdicts(book).splitlines()

    assert [line.split("|")[-2].strip() for line in lines[4:]] == ["missed", "met"]
