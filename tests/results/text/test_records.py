"""Previews of records: blocks of `Key: value` lines with the same keys."""

import re

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text


def told(text: str, room: int = 1300) -> str:
    return preview_text(Document(text, "text"), room)


def commit(at: int) -> str:
    body = f"\nThe reason is told in note {at}.\n" if at % 5 == 0 else ""
    who = "Ada" if at % 3 else "Grace"
    day = f"2026-09-{at % 28 + 1:02d} 05:56:40+02:00"
    return f'Commit: {at * 7919:040x}\nAuthor: <git.Actor "{who}">\nDate: {day}\nMessage: step {at}\n{body}'


def test_records_are_counted_and_their_keys_summed_up() -> None:
    text = told("Commit history:\n" + "\n".join(commit(at) for at in range(80)))
    assert text.startswith("80 records of Commit, Author, Date, Message\n")
    assert 'Author: <git.Actor "Ada">×53, <git.Actor "Grace">×27\n' in text
    assert "Date: 2026-09-01 05:56:40+02:00 to 2026-09-28 05:56:40+02:00\n" in text
    assert "all different: Commit, Message\n" in text
    assert f'first: L2 {0:040x} | <git.Actor "Grace"> | 2026-09-01 05:56:40+02:00 | step 0 | The reason' in text
    assert f'last: L429 {79 * 7919:040x} | <git.Actor "Ada"> | 2026-09-24 05:56:40+02:00 | step 79\n' in text
    assert "lines alike: 16× The reason is told in note {0–75}." in text


def test_the_log_of_git_is_read_as_records() -> None:
    rows = [f"commit {at:040x}\nAuthor: Ada <a@b.example>\nDate:   today\n\n    step {at}\n" for at in range(30)]
    text = told("\n".join(rows))
    assert "30 records of commit, Author, Date\n" in text
    assert f"first: L1 {0:040x} | Ada <a@b.example> | today | step 0\n" in text
    assert "last: L175" in text


def test_numbers_of_records_are_summed_exactly_and_missing_values_are_marked() -> None:
    rows = [f"Name: h{at}\nCost: {at}.10" + ("\nNote: x" if at % 3 else "") for at in range(30)]
    text = told("\n\n".join(rows), 600)
    assert "30 records of Name, Cost, Note" in text
    assert "Cost: 0.10–29.10, sum 438.00" in text
    assert "first: L1 h0 | 0.10 | -\n" in text
    assert "last: L107 h29 | 29.10 | x" in text


def test_the_records_that_are_not_shown_are_counted() -> None:
    text = told("\n\n".join(f"Name: host-{at}\nState: {'up' if at % 3 else 'down'}" for at in range(500)), 500)
    shown = text.partition("first: ")[2].partition("\nlast: ")[0].split("\n  ")
    assert shown[-1].startswith("… +")
    assert len(shown) - 1 + int(shown[-1][3:]) + 1 == 500


def test_what_only_looks_like_records_is_shown_as_text() -> None:
    assert "records" not in told("Note: one\nNote: two\nNote: three\n" + "and some words\n" * 300)
    assert "records" not in told("version: 3\nservices:\n" + "".join(f"  s{at}:\n    image: x\n" for at in range(99)))


def test_records_may_hold_long_texts() -> None:
    rows = [
        f"commit {at:040x}\nAuthor: Ada <a@b.example>\n\n    step {at}\n\n" + " src/file.py | 3 +++\n" * 60
        for at in range(20)
    ]
    text = told("\n".join(rows))
    assert "20 records of commit, Author\n" in text
    assert re.search(r"lines alike: 1200×  ?src/file\.py \| 3 \+\+\+", text)


def test_settings_that_stand_once_are_listed_once() -> None:
    text = told("".join(f"KEY_{at}=value{at}\n" for at in range(300)), 900)
    assert "300 keys at the top\nsaid once: KEY_0: value0; KEY_1: value1; " in text
