"""The page of faults says what the tests try."""

from collections import Counter
from pathlib import Path

from faults.hostile_cases import CASES
from faults.hostile_http_cases import CONNECT_CASES, HTTP_CASES, SSE_CASES, WS_CASES
from faults.hostile_page import page


def test_the_page_of_faults_says_what_was_tried() -> None:
    """Whoever changes a case writes what `page()` returns into the file."""
    path = Path(__file__).parents[2] / "docs/reference/upstream-faults.md"
    assert path.read_text("utf-8") == page()


def test_each_case_is_there_once() -> None:
    for cases in (CASES, [*HTTP_CASES, *CONNECT_CASES], SSE_CASES, WS_CASES):
        assert [id_ for id_, times in Counter(case.id for case in cases).items() if times > 1] == []
