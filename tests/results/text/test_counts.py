"""Every number of what a preview does not show is true, beyond whatever is kept of long lists as well."""

import re

import pytest

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text
from mcpbridge.results.text.detect import TextKind
from mcpbridge.results.text.lines import Fact, fact_text, many, tally

MANY = 2_500
"""More than any list keeps."""


def word(at: int) -> str:
    """One of 17,576 words without a digit."""
    return chr(97 + at % 26) + chr(97 + at // 26 % 26) + chr(97 + at // 676)


def shown(text: str, kind: TextKind, head: str, between: str, room: int = 1900) -> tuple[int, int | None]:
    """How many items are listed after a heading, and how many are said to be missing; None: no number is said."""
    preview = preview_text(Document(text, kind), room)
    after = preview.partition(head)[2]
    assert after, preview
    end = re.search(rf"{re.escape(between)}…(?: \+(\d+))?(?:\n|\Z)", after)
    assert end is not None, preview
    return len(after[: end.start()].split(between)), int(end[1]) if end[1] else None


ACCESS = '10.0.{0}.1 - - [10/Oct/2025:13:55:36 +0000] "GET /p{0} HTTP/1.1" 200 5 "-" "agent{0}"'

EXACT: list[tuple[TextKind, str, str, str, int]] = [
    ("listing", "src/d{0}/a.py\n", "by top directory: ", ", ", 1),
    ("listing", "d{0}/a.py\n", "by top directory: ", ", ", MANY),
    ("listing", "d{0}/a.py\n", "by directory: ", ", ", MANY),
    ("listing", "d{0}/a.py\n", "files: ", "\n  ", MANY),
    ("listing", "file{0}.py\n", "names: ", ", ", MANY),
    ("listing", "d{0}/a.py:3: import os\n", "matches by file: ", ", ", MANY),
    ("listing", "d{0}/a.py:3: import os\n", "matches: ", "\n  ", MANY),
    ("listing", "d{0}/a.py:3: x{0}\nd{0}/a.py:4: x{0}\n", "same text: ", ", ", MANY),
    ("listing", "-rw-r--r-- 1 me us {0} Nov 22 04:47 a{0}.py\n", "largest: ", ", ", MANY),
    ("log", ACCESS + "\n", f"{MANY} paths: ", ", ", MANY),
    ("log", ACCESS + "\n", "agents: ", ", ", MANY),
    ("log", "FAILED tests/t.py::test_{0} - AssertionError: x{0}\n", f"{MANY} failed: ", "\n  ", MANY),
    ("markdown", "# H{0}\n[l{0}](http://x.example/{0})\n", "links: ", " | ", MANY),
    ("markdown", "# H{0}\n- [ ] task {0}\n", "open tasks: ", "; ", MANY),
    (
        "diff",
        "diff --git a/f{0} b/f{0}\n--- a/f{0}\n+++ b/f{0}\n@@ -1 +1 @@\n-x\n+y\n",
        "size of change: ",
        "\n  ",
        MANY,
    ),
    ("html", "<h2>h{0}</h2><p>x</p>", f"{MANY} h2 headings: ", " | ", MANY),
    ("html", "<p>x</p><table><tr><td>a{0}<td>b</table><tag{0}>", "tags: ", ", ", MANY + 5),
]


@pytest.mark.parametrize(("kind", "piece", "head", "between", "total"), EXACT)
def test_items_shown_and_items_missing_are_all_there_are(
    kind: TextKind, piece: str, head: str, between: str, total: int
) -> None:
    text = "".join(piece.format(at) for at in range(MANY))
    if total == 1:
        assert "by top directory: d0/×1, " in preview_text(Document(text, kind), 1900)
        return
    listed, missing = shown("<html>" + text if kind == "html" else text, kind, head, between)
    assert missing is not None
    assert listed + missing == total


@pytest.mark.parametrize(
    ("kind", "piece", "head", "between"),
    [
        ("markdown", "words **a{0}** are set\n", "marked: ", "\n  "),
        ("markdown", "about {0} of these\n", "lines with numbers: ", "\n  "),
        ("markdown", "words and words\n", "begins: ", " / "),
        ("html", "<p>words {0}</p>", "text: ", " / "),
        ("text", "key{0}x = 5\nkey{0}x = 6\n", "values: ", "; "),
    ],
)
def test_no_number_is_said_where_not_all_are_counted(kind: TextKind, piece: str, head: str, between: str) -> None:
    text = "".join(piece.format(at) for at in range(MANY))
    assert shown(("<html>" if kind == "html" else "# H\n") + text, kind, head, between)[1] is None


def test_sentences_with_a_number_are_counted_but_those_at_both_ends() -> None:
    said = [f"{word(at)} {word(at + 1)} came, then {at}\n" for at in range(1_000)]
    text = preview_text(Document("".join(said), "text"), 1900)
    listed = text.partition("other lines with numbers: ")[2].partition("\n  … +")
    at_ends = sum(1 for line in said if line in text)
    total = len(listed[0].split("\n  ")) + int(listed[2].split()[0])
    assert 1_000 - at_ends <= total < 1_000
    assert said[0].strip() not in listed[0]


def test_traces_are_counted() -> None:
    text = "".join(f'Traceback (most recent call last):\n  File "{word(at)}.py"\nKeyError: x\n' for at in range(900))
    preview = preview_text(Document(text, "log"), 1900)
    assert "900 traces: L1 Traceback" in preview
    assert "\n  … +898\n" in preview


def test_lines_of_a_change_are_counted() -> None:
    body = "".join(f"-old {at}\n" for at in range(400)) + "".join(f"+new {at}\n" for at in range(300))
    text = f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,400 +1,300 @@\n{body}"
    listed, missing = shown(text, "diff", "@@\n  ", "\n  ")
    assert (missing or 0) + listed == 700


def test_rows_of_a_page_that_are_not_looked_at_are_not_counted() -> None:
    text = "<html><table><tr><th>a</th></tr>" + "<tr><td>1</td></tr>" * 30_000 + "</table>"
    assert "table (its first 20000 rows only): 19999 rows × 1 column" in preview_text(Document(text, "html"), 900)


def test_the_last_paragraph_of_a_long_page_is_its_last() -> None:
    text = "<html>" + "".join(f"<p>words {at}</p>" for at in range(1_000))
    assert "last: words 999" in preview_text(Document(text, "html"), 900)


def test_a_long_trace_is_counted_whole() -> None:
    frames = "".join(f'  File "m{at}.py", line 1, in f\n' for at in range(900))
    text = f"Traceback (most recent call last):\n{frames}ValueError: x\n"
    assert "  … 896 lines\n" in preview_text(Document(text, "log"), 1900)


def test_kinds_of_lines_beyond_those_compared_count_as_one() -> None:
    words = [word(at) for at in range(2_000)]
    text = "".join(f"2025-01-02 03:04:05 INFO {word} is {word}\n" * 2 for word in words)
    listed, missing = shown(text, "log", "INFO says: ", "\n  ")
    assert listed + (missing or 0) == 1_501


def test_a_list_without_a_known_number_is_marked_only() -> None:
    assert fact_text(Fact(0, "a: ", ["b", "c"], is_counted=False), 100) == "a: b, c, …"
    assert fact_text(Fact(0, "a: ", ["b", "c", "d" * 50], is_counted=False), 20) == "a: b, c, …"
    assert fact_text(Fact(0, "a: ", ["b", "c"], of=1200), 100) == "a: b, c, … +1198"


def test_counts_are_written_as_plain_digits() -> None:
    assert tally([("a", 12_345)]) == ["a×12345"]
    assert many(1, "file") == "1 file"
    assert many(1_500, "match", "matches") == "1500 matches"
