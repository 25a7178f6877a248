"""Previews of listings whose lines say what each name is, with a size or without."""

import pytest

from mcpbridge.results.document import Document, read
from mcpbridge.results.preview.preview import preview_text

ENDS = ("txt", "md", "txt", "pdf", "txt")
NAMES = [f"{at:04d}-report.{ENDS[at % 5]}" for at in range(1500)]


def told(text: str, room: int = 1200) -> str:
    document = read(text)
    assert document.kind == "listing"
    return preview_text(document, room)


@pytest.mark.parametrize(
    ("file", "folder"),
    [("[FILE] ", "[DIR] "), ("file: ", "directory: "), ("- [F] ", "- [D] "), ("📄 ", "📁 "), ("(file) ", "(folder) ")],
)
def test_tagged_names_are_counted_exactly(file: str, folder: str) -> None:
    text = told("\n".join([f"{folder}attic", *(f"{file}{name}" for name in NAMES), f"{folder}my cellar"]))
    assert text.startswith("1500 files, 2 directories\n")
    assert "by extension: .txt×900, .md×300, .pdf×300" in text
    assert "directories: attic, my cellar\n" in text
    assert "files: 0000-report.txt, 0001-report.md, " in text
    assert text.count("0001-report.md") == 1
    assert f"last: {folder}my cellar" in text


def test_the_names_that_are_not_listed_are_counted() -> None:
    text = told("\n".join(f"[FILE] {name}" for name in NAMES))
    listed = text.partition("files: ")[2].partition(", … +")
    assert len(listed[0].split(", ")) + int(listed[2].split()[0]) == 1500


def test_sizes_tell_the_largest_and_a_sum_at_the_end_is_kept() -> None:
    sizes = ["37 B", "1.50 KB", "2 MB", "900 KB", "0 B", "1,024 bytes", "12 B"]
    rows = [f"[FILE] {f'a {at}.txt':<30}{size:>10}" for at, size in enumerate(sizes)]
    text = told("\n".join([*rows, "[DIR] sub", "", "Total: 7 files, 1 directories", "Combined size: 2.88 MB"]))
    assert "7 files, 1 directory\n" in text
    assert "largest: a 2.txt 2 MB, a 3.txt 900 KB, a 1.txt 1.50 KB, a 5.txt 1,024 bytes, a 0.txt 37 B, …" in text
    assert "other lines: Total: 7 files, 1 directories; Combined size: 2.88 MB" in text
    assert "last: [DIR] sub" in text


def test_other_words_in_brackets_make_no_listing() -> None:
    assert read("\n".join(f"[web] request {at} was served" for at in range(30))).kind == "text"
    assert read("\n".join(f"{at} files: none of them is new" for at in range(30))).kind == "text"


def test_rows_that_are_mostly_blank_are_read() -> None:
    text = ("[FILE] a" + " " * 980 + "b\n") * 200
    assert preview_text(Document(text, "listing"), 400).startswith("200 files, 0 directories")
