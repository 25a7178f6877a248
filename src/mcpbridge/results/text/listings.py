"""Facts of listings: lists of paths, as `ls -l` and `tree` write them, and matches of a search in files.

Also listings whose lines say what each name is: `[FILE] a.txt`, `DIR: src`, with a size or without.
"""

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from heapq import nsmallest

from mcpbridge.results.text.lines import PATH_AT_LINE, ROW_OF_LS, TREE, Fact, Lines, cut, many, tally

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


def _sized(text: str) -> tuple[str, Decimal | None, str]:
    """The name, its size in bytes as far as the text tells it, and that size as written."""
    match = _SIZE.search(text, max(0, len(text) - 60))
    if match is None:
        return text, None, ""
    power = " KMGTP".index(match[2].upper() or " ")
    size = Decimal(match[1].replace(",", ".") if power else match[1].replace(",", "")) * 1024**power
    return text[: match.start()].rstrip(), size, text[match.start() :].strip(" \t()-–—|")


def extension(path: str) -> str:
    """Such as `.py`, in small letters."""
    stem, _, end = path[-80:].rpartition(".")
    is_one = stem and stem[-1] not in "./\\" and len(end) <= 12 and end.isascii() and end.replace("_", "0").isalnum()
    return f".{end.lower()}" if is_one else "no extension"


_BULLET = re.compile(r"^(?:[-*•]|\d{1,7}[.)]) (?=\S)")
"""What may be before a path in a list."""

NAMES = 8
"""Files that are named of each directory."""


def listing_facts(lines: Lines, items: int) -> list[Fact]:
    """The facts of a listing, in the order they are read in."""
    every = [line for line in lines.first + lines.last if line and not line.isspace()]
    if not every:
        return []
    probe = every[:200]
    hits = sum(1 for line in probe if PATH_AT_LINE.match(line))
    if hits * 2 > len(probe):
        return _search_matches(every, items)
    if sum(1 for line in probe if TAGGED.match(line)) * 2 > len(probe):
        return tagged_facts(every)
    if sum(1 for line in probe if ROW_OF_LS.match(line)) * 2 > len(probe):
        return _rows_of_ls(every)
    if sum(1 for line in probe if TREE.match(line)) * 2 > len(probe):
        return _paths(_paths_of_tree(every), every)
    return _paths([_BULLET.sub("", line.strip()).replace("\\", "/") for line in every], every)


def _paths(paths: Sequence[str], every: Sequence[str]) -> list[Fact]:
    listed = list(dict.fromkeys(paths))
    holders = {path.rstrip("/").rpartition("/")[0] for path in listed}
    folders = {path for path in listed if path.endswith("/") or path in holders}
    start = _common(listed)
    kinds, tops, homes = Counter[str](), Counter[str](), Counter[str]()
    depths = Counter[int]()
    grouped: dict[str, list[str]] = {}
    for path in listed:
        rest = path[len(start) :]
        home, _, name = rest.rstrip("/").rpartition("/")
        depths[rest.rstrip("/").count("/")] += 1
        if path in folders:
            grouped.setdefault(rest.rstrip("/"), [])
            continue
        kinds[extension(name)] += 1
        tops[rest.partition("/")[0] + "/" if "/" in rest else "(top)"] += 1
        homes[home or "."] += 1
        grouped.setdefault(home or ".", []).append(name)
    files = len(listed) - len(folders)
    doubled = len(paths) - len(listed)
    facts = [
        Fact(
            0,
            many(files, "file")
            + (f", {many(len(folders), 'directory', 'directories')}" if folders else "")
            + (f" in {len(homes)} directories" if len(homes) > 1 and not folders else "")
            + (f", all under {start}" if start else "")
            + (f"; {many(doubled, 'line')} named before" if doubled else ""),
        ),
        Fact(1, "by extension: ", tally(kinds.most_common(30)), share=0.2, of=len(kinds)),
    ]
    if len(homes) > 1 or len(tops) > 1:
        deepest = max(listed, key=lambda path: path.count("/"), default="")
        facts += [
            Fact(1, "by top directory: ", tally(tops.most_common(24)), share=0.25, of=len(tops)),
            Fact(2, "by directory: ", tally(homes.most_common(12), 100), share=0.2, of=len(homes)),
            Fact(4, f"deepest ({deepest[len(start) :].count('/')}): {cut(deepest, 200)}", share=0.15),
            Fact(3, "files: ", _grouped(grouped), "\n  ", share=0.35),
            Fact(2, f"first: {cut(every[0].strip(), 200)}", share=0.15),
        ]
    else:
        names = [cut(name, 120) for listed in grouped.values() for name in listed][:NAMED]
        where = next(iter(homes), ".")
        facts.append(
            Fact(3, "names: " if where == "." else f"names in {cut(where, 120)}/: ", names, share=0.3, of=files)
        )
    facts.append(Fact(1, f"last: {cut(every[-1].strip(), 200)}", share=0.15))
    return [fact for fact in facts if fact.items or not fact.head.endswith(": ")]


def _grouped(grouped: dict[str, list[str]]) -> list[str]:
    """Directory by directory, each with names of its files; small ones whole."""
    return [
        f"{home}/ ({len(names)}): " + " ".join(names[:NAMES]) + (" …" if len(names) > NAMES else "")
        for home, names in grouped.items()
        if names
    ]


def _common(paths: Sequence[str]) -> str:
    """The directory that all paths are in."""
    if len(paths) < 2:
        return ""
    low, high = min(paths), max(paths)
    end = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[: low.rfind("/", 0, end) + 1]


def _paths_of_tree(every: Sequence[str]) -> list[str]:
    """Paths of the rows of `tree`; what has rows below it is a directory."""
    found: list[tuple[int, str]] = []
    for line in every:
        match = TREE.match(line)
        if match:
            found.append((match.start(1), match[1].strip()))
    paths: list[str] = []
    above: list[tuple[int, str]] = []
    for at, (column, name) in enumerate(found):
        while above and above[-1][0] >= column:
            above.pop()
        is_folder = name.endswith("/") or (at + 1 < len(found) and found[at + 1][0] > column)
        prefix = (above[-1][1] if above else "") if len(above) < 100 else ""
        path = (prefix + name.rstrip("/") + ("/" if is_folder else ""))[-1000:]
        paths.append(path)
        if is_folder:
            above.append((column, path))
    return paths


def _rows_of_ls(every: Sequence[str]) -> list[Fact]:
    folder = ""
    files: list[tuple[int, str]] = []
    folders, owners, kinds = Counter[str](), Counter[str](), Counter[str]()
    others = 0
    links = 0
    for line in every:
        row = ROW_OF_LS.match(line)
        if row is None:
            if line.endswith(":"):
                folder = line[:-1].rstrip("/") + "/"
            continue
        kind, owner, _, size, _, name = row.groups()
        owners[owner] += 1
        if kind == "d":
            others += name not in (".", "..")
            continue
        links += kind == "l"
        folders[folder or "./"] += 1
        kinds[extension(name)] += 1
        files.append((_bytes(size), f"{folder}{name} {size}"))
    total = sum(size for size, _ in files)
    largest = nsmallest(12, files, key=lambda file: (-file[0], file[1]))
    facts = [
        Fact(
            0,
            f"{many(len(files), 'file')}, {many(others, 'directory', 'directories')}, {many(links, 'link')}; "
            f"{many(total, 'byte')} in files",
        ),
        Fact(1, "largest: ", [cut(text, 160) for _, text in largest], share=0.25, of=len(files)),
        Fact(2, "by extension: ", tally(kinds.most_common(30)), share=0.2, of=len(kinds)),
        Fact(2, "by directory: ", tally(folders.most_common(20), 100), share=0.25, of=len(folders)),
        Fact(4, "owners: ", tally(owners.most_common(20)), share=0.1, of=len(owners)),
        Fact(5, "rows: ", [cut(line, 200) for line in every[:100]], "\n  ", share=0.3, of=len(every)),
        Fact(1, f"last: {cut(every[-1], 200)}", share=0.15),
    ]
    return [fact for fact in facts if fact.items or not fact.head.endswith(": ")]


def _bytes(size: str) -> int:
    """A size as `ls` and `ls -h` write it."""
    if size.isdecimal() and len(size) < 20:
        return int(size)
    unit = "KMGTP".find(size[-1]) + 1
    digits = (size[:-1] if unit else size).replace(",", "")
    try:
        return int(float(digits) * 1024**unit) if unit else int(digits)
    except (ValueError, OverflowError):
        return 0


def _search_matches(every: Sequence[str], items: int) -> list[Fact]:
    """Of what a search found: how many matches in which files, some matches of each."""
    matches, files = 0, dict[str, list[str]]()
    texts = Counter[str]()
    for line in every:
        match = PATH_AT_LINE.match(line)
        if match:
            matches += 1
            said = line[match.end() :].strip()
            files.setdefault(match[1], []).append(f"{match[2]}: {cut(said, 160)}")
            texts[said[:200]] += 1
    ordered = sorted(files.items(), key=lambda file: -len(file[1]))
    kinds = Counter(map(extension, files))
    start = _common(list(files))
    twice = [(said, count) for said, count in texts.most_common() if count > 1 and said]
    first = max(items, 1)
    facts = [
        Fact(
            0,
            f"{many(matches, 'match', 'matches')} in {many(len(files), 'file')}"
            + (f", all under {start}" if start else ""),
        ),
        Fact(
            1,
            "matches by file: ",
            tally(((path, len(said)) for path, said in ordered[:24]), 120),
            share=0.3,
            of=len(files),
        ),
        Fact(2, "by extension: ", tally(kinds.most_common(30)), share=0.1, of=len(kinds)),
        Fact(3, "same text: ", tally(twice[:12], 100), share=0.2, of=len(twice)),
        Fact(
            4,
            "matches: ",
            [f"{path}:{said}" for path, found in files.items() for said in found[:first]],
            "\n  ",
            share=0.4,
            of=matches,
        ),
        Fact(1, f"last: {cut(every[-1], 240)}", share=0.2),
    ]
    return [fact for fact in facts if fact.items or not fact.head.endswith(": ")]
