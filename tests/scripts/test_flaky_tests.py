"""A failed test is run once more, alone: what counts then, in runs of pytest of their own."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = Path(__file__).resolve().parents[1]
LOADS = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
pytest_plugins = ["support.flaky_tests"]
"""
ONCE = """
import os
from pathlib import Path

def once(name):
    '''Fails the first time.'''
    marker = Path(__file__).with_name(f"was-{name}")
    with marker.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    assert len(marker.read_text().split()) > 1, f"the first time of {name}"
"""
SEVERAL = ("-p", "xdist", "--numprocesses=2", "--dist=loadfile")
WAYS = pytest.mark.parametrize("way", [(), SEVERAL], ids=["one process", "several"])

Way = tuple[str, ...]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests may fail the first time."""
    monkeypatch.delenv("MCPBRIDGE_TESTS_ALONE", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # else most of each run is their import
    pytester.makeconftest(LOADS)
    pytester.makepyfile(flaky=ONCE)
    pytester.makeini("[pytest]\npythonpath = .\n")
    return pytester


def run(project: pytest.Pytester, way: Way, *more: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", "--flaky-report=out/flaky.txt", *way, *more)


def listed(project: pytest.Pytester) -> str:
    return (project.path / "out" / "flaky.txt").read_text()


@WAYS
def test_what_passes_alone_is_flaky_and_does_not_fail_the_run(project: pytest.Pytester, way: Way) -> None:
    project.makepyfile(
        test_a="from flaky import once\ndef test_one(): once('one')\ndef test_good(): pass\n",
        test_b="def test_other(): pass\n",
    )
    result = run(project, way)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["passed test_a.py::test_one", "*flaky tests*", "test_a.py::test_one", "*1 flaky*"])
    result.stdout.no_fnmatch_line("*1 failed*")
    assert listed(project).startswith("test_a.py::test_one\n    call: ")
    assert "the first time of one" in listed(project)
    pids = (project.path / "was-one").read_text().split()
    assert len(set(pids)) == len(pids) == 2, "a process of its own"


@WAYS
def test_what_fails_twice_fails_beside_what_is_flaky(project: pytest.Pytester, way: Way) -> None:
    project.makepyfile(
        test_a="from flaky import once\ndef test_one(): once('one')\n",
        test_b="def test_bad(): assert 1 == 2\ndef test_good(): pass\n",
    )
    result = run(project, way)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["passed test_a.py::test_one", "failed test_b.py::test_bad"], consecutive=False)
    result.stdout.fnmatch_lines(["FAILED test_b.py::test_bad*", "*1 failed*1 flaky*"])
    assert "test_a.py::test_one" in listed(project)
    assert "test_bad" not in listed(project)


@WAYS
def test_without_failures_nothing_is_run_again_and_the_file_is_empty(project: pytest.Pytester, way: Way) -> None:
    project.makepyfile(test_a="def test_good(): pass\n")
    project.mkdir("out").joinpath("flaky.txt").write_text("of the run before")
    result = run(project, way)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*once more*")
    assert listed(project) == ""


@WAYS
def test_fixtures_that_fail_count_as_their_tests(project: pytest.Pytester, way: Way) -> None:
    project.makepyfile(
        test_a="""
        import pytest
        from flaky import once

        @pytest.fixture
        def before(): once("before")

        @pytest.fixture
        def after():
            yield
            once("after")

        def test_before(before): pass
        def test_after(after): pass
        """
    )
    result = run(project, way)
    assert result.ret == pytest.ExitCode.OK
    assert "test_a.py::test_before\n    setup: " in listed(project)
    assert "test_a.py::test_after\n    teardown: " in listed(project)


def test_a_test_that_fails_only_in_company_is_flaky_and_one_that_needs_it_fails(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_a="""
        state = []
        def test_one(): state.append(1)
        def test_two(): assert not state
        """,
        test_b="""
        state = []
        def test_one(): state.append(1)
        def test_two(): assert False, "whatever went before"
        """,
    )
    result = run(project, ())
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert listed(project).count("::test_two\n") == 1


NAMES = ["[", "a::b", "a b[0]", "-x", "a/b.py", "'\"\\"]


def test_whatever_its_parameters_are_called_it_is_run_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_a=f"""
        import pytest
        from flaky import once
        NAMES = {NAMES!r}

        @pytest.mark.parametrize("x", NAMES)
        def test_one(x): once(NAMES.index(x))
        """
    )
    result = run(project, ())
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"*{len(NAMES)} flaky*"])
    for number in range(len(NAMES)):
        assert len((project.path / f"was-{number}").read_text().split()) == 2


def test_many_failures_are_no_accident(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_a="""
        import pytest
        from flaky import once

        @pytest.mark.parametrize("x", range(21))
        def test_one(x): once(x)
        """
    )
    result = run(project, ())
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*21 failed*"])
    assert listed(project) == ""


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_a_run_that_stopped_at_a_failure_stays_failed(project: pytest.Pytester, option: str) -> None:
    """Nobody knows what the other tests would have done."""
    project.makepyfile(test_a="from flaky import once\ndef test_one(): once('one')\ndef test_two(): assert False\n")
    assert run(project, (), option).ret == pytest.ExitCode.TESTS_FAILED


def test_a_file_that_cannot_be_imported_fails_the_run(project: pytest.Pytester) -> None:
    project.makepyfile(test_a="from flaky import once\ndef test_one(): once('one')\n", test_b="import nowhere\n")
    assert run(project, (), "--continue-on-collection-errors").ret == pytest.ExitCode.TESTS_FAILED
    assert run(project, ()).ret == pytest.ExitCode.INTERRUPTED


def test_a_worker_that_dies_fails_the_run(project: pytest.Pytester) -> None:
    """As `make test` runs them: a process that ended is not begun anew, so some tests did not run."""
    project.makepyfile(
        test_a="import os, signal\ndef test_one(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_two(): pass\n",
        test_b="def test_other(): pass\n",
    )
    result = run(project, (*SEVERAL, "--max-worker-restart=0"))
    assert result.ret != pytest.ExitCode.OK


@WAYS
def test_a_test_may_fail_with_half_a_character(project: pytest.Pytester, way: Way) -> None:
    project.makepyfile(test_a=r"def test_one(): assert '\ud800' == ''" + "\n", test_b="def test_good(): pass\n")
    result = run(project, way)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED test_a.py::test_one*", "*1 failed, 1 passed*"])


def test_without_the_option_a_failure_is_a_failure(project: pytest.Pytester) -> None:
    project.makepyfile(test_a="from flaky import once\ndef test_one(): once('one')\n")
    assert project.runpytest_subprocess("-p", "no:cacheprovider").ret == pytest.ExitCode.TESTS_FAILED
    assert not (project.path / "out").exists()
