"""What a request implies: words that tools use for what it names or asks in other words.

"Is ibuprofen safe with aspirin?" has no word in common with a tool for medicines; that both are drugs is knowledge. It
is written down in `data/*.txt`, by people for people: named things with the words of their kind, ways to ask, words of
the same meaning, and common words of other languages. What is known by its shape is found by `query_types`.

The form of the files: `# remark`; `[class]`, how much the lines below it count; `terms, with commas > words | words`,
where the words after the bar are only suggested; `= terms, with commas`, each of which suggests the others. A line
that begins with a space continues the one above. Terms are in lower case without accents; one that ends with `*`
is the beginning of a word.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from mcpbridge.base.late_pattern import late
from mcpbridge.catalog.search.lexical.query_types import words_of_kinds
from mcpbridge.catalog.search.weights import IMPLIED_WORDS

_FILES = ("requests", "entities", "software", "languages")

_LONGEST = 4000
"""Characters of a query that are looked at."""
_WORDS = 400
"""Words that are looked at."""
_LETTERS = 64
"""Letters of a word that are looked at: words are kept."""
_PHRASE = 5
"""Words of the longest term."""
_SPACELESS = 10
"""Characters of the longest term of a script without spaces."""
_MOST = 20
"""Words that are answered with."""
_BEGINNING = 400
"""Characters of a description that are looked at."""
_LATIN = "\u02ff"
"""The last of the Latin letters."""
_FOREIGN = 0.2
"""Share of other letters from which a text is none in Latin letters."""

_TOKEN = late(r"[^\W_]+(?:[.&][^\W_]+)*[+#]*")
_IS = late(r"\b(what|who|where|how|when|it|that|there|here)(?:'s|(?<=what)s)\b")
"""What's, who's. Other apostrophes are only between what belongs together."""
_SPACELESS_RUN = late(r"[\u0900-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]{2,}")
_PLAIN = str.maketrans(
    "àáâãäåāăąçćčďđèéêëēėęěğìíîïīįıłñńňòóôõöøōőŕřśşšșťţțùúûüūůűýÿžźżæœ’",
    "aaaaaaaaacccddeeeeeeeegiiiiiiilnnnoooooooorrsssstttuuuuuuuyyzzzao'",
)
"""Letters without their accents. Other scripts' signs, such as the breve of й, belong to the letter."""
_NOT_SAID = (
    frozenset({"a", "all", "an", "at", "back", "by", "down", "for", "from", "go", "how", "in", "into"})
    | {"of", "off", "on", "or", "out", "over", "the", "to", "up", "what", "with"}
)  # fmt: skip
"""Words that say nothing. Phrases of a ring that have one, such as "look up", suggest, but are not suggested."""
_ADDRESS = frozenset({"com", "org", "net", "io", "co", "www"})
"""Parts of addresses that are no words."""


def lexicon_files() -> list[Path]:
    """The files that the knowledge is read from, in the order in which they are read."""
    return [Path(__file__).resolve().parent / "data" / f"{name}.txt" for name in _FILES]


def expansions(text: str) -> dict[str, float]:
    """Words that a query implies, the strongest first, with how much each counts: more than 0, at most 1.

    None of them is in the query. The same query always has the same answer, of at most 20 words. Meant to be weak:
    a word of the query counts 1. Time is linear in what is looked at, and that is capped.
    """
    shown = text[:_LONGEST].lower()
    if not shown.isascii():
        shown = shown.replace("ß", "ss").translate(_PLAIN)
    if "'" in shown or "whats" in shown:
        shown = _IS.sub(r"\1 is", shown).replace("'s ", " ").replace("'", "")
    tokens = [token[:_LETTERS] for token in _TOKEN.findall(shown)[:_WORDS]]
    weights = dict(words_of_kinds(text))
    lexicon = _lexicon()
    get = weights.get
    for number in _entries(lexicon, shown, tokens):
        for word, weight in lexicon.words(number):
            known = get(word, 0.0)
            weights[word] = known + weight - known * weight
    if not weights:
        return {}
    said = set[str]().union(*map(_all_forms, tokens))
    found = [(-weight, word) for word, weight in weights.items() if said.isdisjoint(_forms(word))]
    found.sort()
    return {word: -weight for weight, word in found[:_MOST]}


@lru_cache(8192)
def _all_forms(token: str) -> Sequence[str]:
    """The forms of a token, and its parts."""
    return _forms(token) if token.isalnum() else (*_forms(token), *re.split(r"\W+", token))


def in_english(text: str) -> list[str]:
    """English words for a text in other letters than Latin ones, each once, in no grammar; none for a text in these.

    For descriptions of tools, so that requests in English find them. Only what a text begins with is looked at.
    """
    if text.isascii():
        return []
    shown = text[:_BEGINNING].lower()
    if sum(char > _LATIN and char.isalpha() for char in shown) < len(shown) * _FOREIGN:
        return []
    lexicon = _lexicon()
    entries = _entries(lexicon, shown, _TOKEN.findall(shown))
    abroad = (number for number in entries if lexicon.entries[number].kind == "abroad")
    return list(dict.fromkeys(word for number in abroad for word, _ in lexicon.words(number)))


class _Entry(NamedTuple):
    kind: str
    """The class that it stands in."""
    line: str
    """What is right of `>`, or a whole ring."""


class _Lexicon:
    """All files. Lines are taken apart when a query needs them first."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.terms: dict[str, tuple[int, ...]] = {}
        self.longest: dict[str, int] = {}
        """By the first words of phrases: how many words the longest has."""
        self.pairs: set[tuple[str, str]] = set()
        """The first two words of phrases."""
        self.entries: list[_Entry] = []
        self._words: dict[int, Sequence[tuple[str, float]]] = {}
        for text in texts:
            self._read(text)

    def words(self, number: int) -> Sequence[tuple[str, float]]:
        """The words of an entry, with how much each counts."""
        known = self._words.get(number)
        if known is None:
            known = self._words[number] = list(_words_of(self.entries[number]))
        return known

    def _read(self, text: str) -> None:
        kind = ""
        terms = self.terms
        for line in text.replace("\n ", " ").split("\n"):
            if not line or line[0] == "#":
                continue
            if line[0] == "[":
                kind = line[1:-1]
                continue
            if line[0] == "=":
                left = right = line[2:]
            else:
                left, _, right = line.partition(" > ")
            here = (len(self.entries),)
            self.entries.append(_Entry(kind, right))
            for raw in left.split(","):
                term = raw.strip()
                terms[term] = terms.get(term, ()) + here
                if " " in term:
                    first, _, rest = term.partition(" ")
                    self.longest[first] = max(self.longest.get(first, 0), 2 + rest.count(" "))
                    self.pairs.add((first, rest.partition(" ")[0]))


def _words_of(entry: _Entry) -> Iterator[tuple[str, float]]:
    counts, suggested = IMPLIED_WORDS[entry.kind]
    if "," in entry.line:
        said = [words for term in entry.line.split(",") if _NOT_SAID.isdisjoint(words := term.split())]
        each = dict.fromkeys(word for words in said for word in words)
        yield from ((word, counts) for word in each)
        return
    strong, _, weak = entry.line.partition("|")
    yield from ((word, counts) for word in strong.split())
    yield from ((word, suggested) for word in weak.split())


@cache
def _lexicon() -> _Lexicon:
    return _Lexicon([file.read_text("utf-8") for file in lexicon_files()])


def _entries(lexicon: _Lexicon, text: str, tokens: Sequence[str]) -> dict[int, None]:
    """The entries of the terms in a text, each once: phrases first, the longest at each place."""
    found: dict[int, None] = {}
    if not text.isascii():
        for run in _SPACELESS_RUN.findall(text):
            for entries in _inside(lexicon, run):
                found.update(dict.fromkeys(entries))
    at, longest = 0, lexicon.longest
    while at < len(tokens):
        token = tokens[at]
        taken = 1
        entries: Sequence[int] | None = None
        if token in longest and _may_begin(lexicon, tokens[at : at + 2]):
            for size in range(min(longest[token], _PHRASE), 1, -1):
                words = tokens[at : at + size]
                entries = _phrase(lexicon, words) or _phrase(lexicon, [_singular(word) for word in words])
                if entries:
                    taken = size
                    break
        for number in entries or _single(token):
            found[number] = None
        at += taken
    return found


def _may_begin(lexicon: _Lexicon, words: Sequence[str]) -> bool:
    """Whether phrases begin with these two words."""
    if len(words) < 2:
        return False
    first, second = words
    return (first, second) in lexicon.pairs or (_singular(first), _singular(second)) in lexicon.pairs


def _phrase(lexicon: _Lexicon, words: Sequence[str]) -> tuple[int, ...] | None:
    return lexicon.terms.get(" ".join(words))


@lru_cache(8192)
def _single(token: str) -> Sequence[int]:
    """The entries of one token."""
    terms = _lexicon().terms
    for form in _forms(token):
        if (found := terms.get(form)) is not None:
            return found
    for size in range(min(len(token), 24), 2, -1):
        if (found := terms.get(token[:size] + "*")) is not None:
            return found
    if token.isalnum():
        return ()
    parts = [part for part in re.split(r"\W+", token) if part not in _ADDRESS]
    return tuple([number for part in parts if part in terms for number in terms[part]])


def _inside(lexicon: _Lexicon, run: str) -> Iterator[tuple[int, ...]]:
    """The entries of the terms in a run of signs without spaces, the longest at each place."""
    at = 0
    while at < len(run) - 1:
        taken = 1
        for size in range(min(_SPACELESS, len(run) - at), 1, -1):
            if (found := lexicon.terms.get(run[at : at + size])) is not None:
                yield found
                taken = size
                break
        at += taken


@lru_cache(8192)
def _singular(word: str) -> str:
    if len(word) < 4 or word[-1] != "s" or word[-2] in "su":
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes")):
        return word[:-2]
    return word[:-1]


@lru_cache(8192)
def _forms(token: str) -> Sequence[str]:
    """The token, and what it may be a form of, the likeliest first."""
    forms = [token]
    if len(token) < 4:
        return forms
    if (one := _singular(token)) != token:
        forms += [one] if one == token[:-1] else [one, token[:-1]]
    for end in ("ing", "ed"):
        if token.endswith(end) and len(token) > len(end) + 2:
            bare = token[: -len(end)]
            forms += [bare, bare + "e"]
            if bare[-1] == bare[-2]:
                forms.append(bare[:-1])
    return forms
