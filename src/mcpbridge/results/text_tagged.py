"""Facts of listings whose lines say what each name is: `[FILE] a.txt`, `DIR: src`, with a size or without."""

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from heapq import nsmallest

from mcpbridge.results.text_facts import Fact, cut, many, tally

__all__ = ["NAMED", "TAGGED", "extension", "tagged_facts"]

TAGGED = re.compile(
    r"\s{0,40}(?:[-*•] )?(?:[\[(<](file|dir|directory|folder|symlink|link|other|f|d|l)[\])>]:?\s{1,20}"
    r"|(file|dir|directory|folder|symlink|link):\s{1,20}"
    r"|([\U0001F4C1\U0001F4C2\U0001F4C4\U0001F4C3\U0001F517])\ufe0f?\s{0,20})"
    r"(?=[^\s])([^\r\n]{1,1000})",
    re.IGNORECASE,
)
"""A tag that says what the rest of the line names."""

_SIZE = re.compile(
    r"(?:\s{2,}|\t|\s+\(|\s+[-–—|]\s+)(\d{1,20}(?:[.,]\d{1,6})?) ?([KMGTP]?)(i?)(B|bytes)\)?$", re.IGNORECASE
)
"""A size behind a name."""

_KINDS = {
    **dict.fromkeys(("dir", "directory", "folder", "d", "\U0001f4c1", "\U0001f4c2"), "dir"),
    **dict.fromkeys(("symlink", "link", "l", "\U0001f517"), "link"),
    "other": "other",
}
"""What tags say; any other one is that of a file."""

LARGEST = 5
"""Files that are named as the largest."""

NAMED = 16
"""Files that are named, from the first."""


def tagged_facts(every: Sequence[str]) -> list[Fact]:
    """The facts of such a listing. `every`: its lines that are not blank."""
    files: list[str] = []
    folders: list[str] = []
    others: list[str] = []
    counts, kinds = Counter[str](), Counter[str]()
    sized: list[tuple[Decimal, str]] = []
    for line in every:
        match = TAGGED.match(line)
        if match is None:
            others.append(line.strip())
            continue
        kind = _KINDS.get((match[1] or match[2] or match[3]).lower(), "file")
        name, size, shown = _sized(match[4].rstrip())
        counts[kind] += 1
        if kind == "dir":
            folders.append(name)
            continue
        files.append(name)
        kinds[extension(name)] += 1
        if size is not None:
            sized.append((size, f"{cut(name, 120)} {shown}"))
    counted = [many(counts["file"], "file"), many(counts["dir"], "directory", "directories")]
    counted += [many(counts[kind], kind) for kind in ("link", "other") if counts[kind]]
    facts = [Fact(0, ", ".join(counted)), *_totals(others)]
    if kinds:
        facts.append(Fact(1, "by extension: ", tally(kinds.most_common(30)), share=0.2, of=len(kinds)))
    if sized:
        largest = nsmallest(LARGEST, sized, key=lambda file: (-file[0], file[1]))
        facts.append(Fact(2, "largest: ", [text for _, text in largest], share=0.2, is_counted=len(sized) <= LARGEST))
    if folders:
        facts.append(Fact(2, "directories: ", [cut(name, 120) for name in folders], share=0.25))
    if files:
        facts.append(Fact(3, "files: ", [cut(name, 120) for name in files[:NAMED]], share=0.3, of=len(files)))
    facts.append(Fact(1, f"last: {cut(' '.join(_last(every).split()), 200)}", share=0.15))
    return facts


def _last(every: Sequence[str]) -> str:
    """The last line that names something."""
    return next((line for line in reversed(every) if TAGGED.match(line)), "")


def _totals(others: Sequence[str]) -> list[Fact]:
    """What the lines without a tag say, such as a sum at the end."""
    if not others:
        return []
    return [Fact(1, "other lines: ", [cut(line, 160) for line in others], "; ", share=0.15)]


def _sized(said: str) -> tuple[str, Decimal | None, str]:
    """The name, its size in bytes as far as the text tells it, and that size as written."""
    match = _SIZE.search(said, max(0, len(said) - 60))
    if match is None:
        return said, None, ""
    power = " KMGTP".index(match[2].upper() or " ")
    size = Decimal(match[1].replace(",", ".") if power else match[1].replace(",", "")) * 1024**power
    return said[: match.start()].rstrip(), size, said[match.start() :].strip(" \t()-–—|")


def extension(path: str) -> str:
    """Such as `.py`, in small letters."""
    stem, _, end = path[-80:].rpartition(".")
    is_one = stem and stem[-1] not in "./\\" and len(end) <= 12 and end.isascii() and end.replace("_", "0").isalnum()
    return f".{end.lower()}" if is_one else "no extension"
