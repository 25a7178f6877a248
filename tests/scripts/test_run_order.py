"""The order in which a run of several processes takes the files of tests."""

from pathlib import Path

import pytest

from support.run_order import DEAREST

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
pytest_plugins = ["support.run_order"]

def pytest_configure():
    import support.run_order
    support.run_order.DEAREST = ("test_d.py", "test_b.py")
"""


def test_dear_files_are_taken_first_however_few_tests_they_have(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    many = "import pytest\n@pytest.mark.parametrize('x', range(4))\ndef test_x(x): pass\n"
    one = "def test_x(): pass\n"
    pytester.makepyfile(test_a=one, test_b=one, test_c=many, test_d=one)
    ways = [(), ("-p", "xdist", "--numprocesses=1", "--dist=loadfile")]
    for way in ways:
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v", *way)
        result.assert_outcomes(passed=7)
        order = list(dict.fromkeys(word for line in result.outlines for word in line.split() if "::test_x" in word))
        files = list(dict.fromkeys(name.partition("::")[0] for name in order))
        assert files == ["test_d.py", "test_b.py", "test_a.py", "test_c.py"], way


def test_the_files_that_are_named_exist() -> None:
    assert [name for name in DEAREST if not (ROOT / name).is_file()] == []
    assert len(set(DEAREST)) == len(DEAREST)
