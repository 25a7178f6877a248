"""Questions of results and their answers, read by people, and compared with each run."""

from support.query_examples import FILE, examples


def test_each_question_has_the_answer_that_the_file_has() -> None:
    """Written anew by `PYTHONPATH=tests python -m support.query_examples --write`, when what is answered changes."""
    found, expected = examples().splitlines(), FILE.read_text(encoding="utf-8").splitlines()
    assert [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]] == []
    assert len(found) == len(expected)
