"""Previews of lists of paths and of what was found in files."""

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text


def told(text: str, room: int = 1900) -> str:
    return preview_text(Document(text, "listing"), room)


def test_paths_are_counted_by_extension_and_directory() -> None:
    paths = [f"app/src/m{at % 4}/f{at}.py" for at in range(40)] + ["app/docs/readme.md", "app/docs", "app/Makefile"]
    text = told("\n".join(paths))
    assert "42 files, 1 directory, all under app/" in text
    assert "by extension: .py×40, .md×1, no extension×1" in text
    assert "by top directory: src/×40, docs/×1, (top)×1" in text
    assert "src/m0×10" in text
    assert "last: app/Makefile" in text


def test_rows_of_ls_tell_sizes() -> None:
    rows = [f"-rw-r--r-- 1 me staff {at * 100} Nov 22 04:47 f{at}.txt" for at in range(20)]
    text = told("./sub:\ntotal 8\n" + "\n".join([*rows, "drwxr-xr-x 2 me staff 4096 Nov 22 04:47 deeper"]))
    assert f"20 files, 1 directory, 0 links; {sum(range(20)) * 100} bytes in files" in text
    assert "largest: ./sub/f19.txt 1900" in text


def test_a_tree_is_read_by_its_depth() -> None:
    text = told("p\n├── a\n│   ├── one.py\n│   └── two.py\n├── b\n│   └── c\n│       └── three.md\n└── last.toml\n")
    assert "4 files, 3 directories" in text
    assert "by directory: a×2, b/c×1, .×1" in text


def test_matches_of_a_search_are_counted_by_file() -> None:
    rows = [f"src/m{at % 3}.py:{at + 1}:import os" for at in range(30)]
    text = told("\n".join(rows))
    assert "30 matches in 3 files, all under src/" in text
    assert "src/m0.py×10" in text
    assert "same text: import os×30" in text
    assert "src/m0.py:1: import os" in text


def test_sizes_that_are_no_numbers_of_bytes_count_as_none() -> None:
    rows = [f"-rw-r--r-- 1 me staff {size} Nov 22 04:47 f.txt" for size in ("9" * 400 + "K", "1.2.3", "7", "2K")]
    assert "4 files, 0 directories, 0 links; 2055 bytes in files" in told("\n".join(rows))


def test_long_lists_of_counts_are_cut_and_what_is_missing_is_said() -> None:
    rows = [f"src/package{at}/module.py:{at + 1}:import os" for at in range(60)]
    assert "src/package23/module.py×1, … +36" in told("\n".join(rows), 5000)


def test_a_flat_list_is_told_by_its_names_alone() -> None:
    text = told("\n".join(f"/srv/inbox/{at:03d}.md" for at in range(450)))
    assert text.startswith("450 files, all under /srv/inbox/\nby extension: .md×450\nnames: 000.md, 001.md, ")
    assert "by directory" not in text
    assert "deepest" not in text
    assert "… +434\nlast: /srv/inbox/449.md" in text


def test_bullets_before_paths_are_no_part_of_them() -> None:
    text = told("\n".join(f"- src/m{at % 2}/f{at}.py" for at in range(10)))
    assert text.startswith("10 files in 2 directories, all under src/\n")
    assert "files: m0/ (5): f0.py" in text
