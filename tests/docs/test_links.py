"""Links between the pages lead to a file that is there, and to a heading that it has as repositories name it."""

import os
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks/README.md"]

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:a|img|source)\b[^>]*\b(?:href|src|srcset)=\"([^\"]+)\"")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def links(text: str) -> list[str]:
    prose = re.sub(r"`[^`\n]+`", "x", _FENCED.sub("", text))
    return [one or other for one, other in _LINK.findall(prose)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page: its headings, as GitHub names them, and those that it names itself."""
    text = _FENCED.sub("", page.read_text("utf-8"))
    seen = Counter[str]()
    named = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<[^>]+>", "", heading))
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        named.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(named)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        file = Path(os.path.normpath(page.parent / target)) if target else page
        assert file.exists(), f"{name(page)} links to {link}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{name(page)} links to {link}"


def test_a_heading_is_named_as_repositories_name_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The `[servers.NAME]` table\n\n```sh\n# no heading\n```\n\n## A – b, [c](d.md)?\n\n"
        '## Twice\n\n## Twice\n\n<a id="Own.one"></a>\n'
    )
    assert anchors(page) == {"the-serversname-table", "a--b-c", "twice", "twice-1", "Own.one"}
    assert links("[a](b.md#c) `[d](e)` ![f](g.svg)\n```\n[h](i)\n```\n") == ["b.md#c", "g.svg"]
