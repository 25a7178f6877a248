"""Previews of prose, settings and XML: outline, beginning, end, and exactly what is missing."""

import re

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text
from mcpbridge.results.text.lines import ends


def told(text: str, room: int = 1200) -> str:
    return preview_text(Document(text, "text"), room)


def test_headings_of_a_manual_are_listed() -> None:
    text = told(
        "NAME\n    x - thing\n\nOPTIONS\n" + "    words about it\n" * 200 + "EXIT STATUS\n    0 if all is well\n"
    )
    assert "3 headings: L1 NAME | L4 OPTIONS | L205 EXIT STATUS" in text
    assert "0 if all is well" in text


def test_settings_are_told_by_their_keys() -> None:
    body = "".join(f"  svc{at}:\n    image: reg/svc{at}\n    replicas: {at % 2}\n" for at in range(60))
    text = told("version: 3\nservices:\n" + body)
    assert "2 keys at the top (keys below): version, services (60)" in text
    assert "replicas: 0×30 1×30" in text
    assert "said once: version: 3" in text


def test_xml_is_told_by_its_elements() -> None:
    text = told(
        "<feed>" + "".join(f"<e id='{at}'><s>{'open' if at % 3 else 'shut'}</s></e>" for at in range(90)) + "</feed>"
    )
    assert "elements: e×90, s×90, feed×1" in text
    assert "s: open×60 shut×30" in text


@given(st.text(alphabet="ab \né", max_size=2000), st.integers(100, 1000))
def test_what_is_missing_between_both_ends_is_exact(text: str, room: int) -> None:
    shown = ends(text, room)
    assert len(shown) <= room
    if len(text) <= room:
        assert shown == text
        return
    note = re.search(r"\n?\[… (?:(\d+) lines?, )?(\d+) characters …\]\n", shown)
    assert note is not None
    start, end = shown[: note.start()], shown[note.end() :]
    missing = int(note[2])
    assert text.startswith(start)
    assert text.endswith(end)
    assert missing + len(end) in {len(text) - len(start), len(text) - len(start) - 1}


def test_whole_lines_that_are_missing_are_counted() -> None:
    assert "…\n" not in ends("x" * 500, 200)
    assert re.search(r"^x+\n\[… \d+ characters …\]\nx+$", ends("x" * 500, 200))
    assert "[… 2 lines, 46 characters …]" in ends("a" * 20 + "\n" + ("b" * 20 + "\n") * 4 + "c" * 60, 150)
    assert "[… 1 line, " in ends("a" * 500 + "\n" + "b" * 9 + "\n" + "c" * 500, 200)


def test_one_long_line_is_shown_from_both_ends() -> None:
    text = told("start " + "middle 1 " * 3000 + "end")
    assert text.startswith("1 line, 6002 words\nstart middle 1 ")
    assert text.endswith("middle 1 end")
    assert "characters …]\n" in text
    assert "numbers" not in text


def test_lines_alike_are_told_once() -> None:
    text = told("".join(f"line {at} of the text\n" for at in range(60_000)), 1800)
    assert text.startswith("60000 lines, 300000 words\nlines alike: 60000× line {0–59999} of the text\nline 0 of")
    assert len(text) < 700


def test_sentences_are_not_cut_at_abbreviations() -> None:
    filler = "Nothing of it was known to anybody for a long time.\n"
    said = "One thing. It was, e.g. in the case no. 5 of Dr. J. Smith, about approx. 12 days. Then it was over."
    text = told(filler * 40 + said + "\n" + filler * 40)
    assert "with numbers: It was, e.g. in the case no. 5 of Dr. J. Smith, about approx. 12 days.\n" in text
