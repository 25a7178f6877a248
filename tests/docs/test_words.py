"""The docs are in plain English and in one set of words: `words.toml` lists what not to write (issue 19)."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text("utf-8"))["word"]
FROM_DOCSTRINGS = {"api.md", "configuration.md", "commands.md", "errors.md", "frames.md", "upstream-faults.md"}
"""Their words are those of the code."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in FROM_DOCSTRINGS),
]
_NO_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`\n]+`|\]\([^)\n]*\)|^#[^\n]*$", re.MULTILINE | re.DOTALL)


def against(text: str) -> Iterator[tuple[int, str, str]]:
    """Each word that is not to be written: line, the word, and what to write."""
    prose = _NO_PROSE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for word in WORDS:
        for found in re.finditer(word["not"], prose, re.IGNORECASE):
            right = [found.span() for but in word.get("but", ()) for found in re.finditer(re.escape(but), text)]
            if not any(first <= found.start() and found.end() <= last for first, last in right):
                yield text.count("\n", 0, found.start()) + 1, found[0], word["write"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_uses_the_words_of_the_project(page: Path) -> None:
    assert [f"line {line}: {word!r}; write: {write}" for line, word, write in against(page.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The client is told so.", ["told"]),
        ("It stands there, `told` in code.\n\n```sh\ntells\n```\n", ["stands"]),
        ("- stands for it, stands alone, [told](told.md)", ["told"]),
        ("# A heading that tells\n\nfine", []),
        ("It was told to cancel.", []),
        ("This is easily\ndone via it", ["easily", "via"]),
    ],
)
def test_a_word_is_found_in_prose_alone(text: str, words: list[str]) -> None:
    assert [word for _, word, _ in against(text)] == words


def test_a_term_is_explained_once() -> None:
    """`docs/glossary.md` names every term once, in order."""
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)
    assert len(terms) > 40
    assert [term for term, times in Counter(terms).items() if times > 1] == []
    assert terms == sorted(terms, key=str.lower)
