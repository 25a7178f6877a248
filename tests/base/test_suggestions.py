"""Which names are taken for the one that was meant."""

import pytest

from mcpbridge.base.suggestions import nearest


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("GET_NOTE", ["set_note", "get_note"], ["get_note", "set_note"]),
        ("Guests", ["guests", "area"], ["guests"]),
        ("issueid", ["issueId", "issueID", "IssueId"], ["issueId", "issueID", "IssueId"]),
        ("readFile", ["readfile", "readFile2"], ["readfile", "readFile2"]),
        ("get_note", ["GET_NOTE", "get_nota"], ["GET_NOTE", "get_nota"]),
        ("zzz", ["guests"], []),
        ("a", [], []),
    ],
)
def test_case_tells_apart_only_what_is_equally_near(name: str, known: list[str], expected: list[str]) -> None:
    assert nearest(name, known) == expected


def test_names_are_given_as_they_are_and_once() -> None:
    assert nearest("ECHO", ["Echo", "echo", "Echo"], limit=2) == ["Echo", "echo"]
    assert nearest("echo", ["Echo", "echo", "ECHO"], limit=1) == ["echo"]
