"""Words in texts and identifiers: splitting, stems, word pieces, and the words that tool names are made of. Pure.

`listPullRequests`, `list_pull_requests` and "list pull requests" are the same words. Names that mix cases are found
whole and by their parts (`GitHub`: github, git, hub). Scripts without spaces are taken two characters at a time.

`NameIndex` has the tools and servers that a query names outright, which then come first whatever else fits.

The stemmer is light: it takes off plurals, `-ing`, `-ed`, `-ion` and a few more. Stems are compared with stems and
never shown. On the sets it was measured with it does as well as Snowball's, which is five times as long.
"""

import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from mcpbridge.base.late_pattern import late

_VOWELS = frozenset("aeiouy")
_LONGEST = 24
"""Letters of what is looked at; nothing longer is a word of a language."""


def stem(word: str) -> str:
    """The stem of a word in lower case; of one that is not made of ASCII letters, or is short or long, itself."""
    if not 3 < len(word) <= _LONGEST or not (word.isascii() and word.isalpha()):
        return word
    found = _without_end(_singular(word))
    if len(found) > 4 and found[-1] == "e":
        found = found[:-1]
    if found[-2:] in ("iz", "yz"):
        found = found[:-1] + "s"  # summarize, summarise
    return found


def _singular(word: str) -> str:
    if word[-1] != "s" or word[-2] in "sui" or word == "news":  # status, address, analysis
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


def _without_end(word: str) -> str:
    for end, kept in (("ing", 3), ("ed", 3)):
        if word.endswith(end) and len(word) - len(end) >= kept:
            bare = word[: -len(end)]
            if _VOWELS.isdisjoint(bare):
                return word  # string, shed
            # planning: plan; but calling: call
            doubled = bare[-1] == bare[-2] and bare[-1] not in "lsz" and len(bare) > 3
            return bare[:-1] if doubled else bare
    if word.endswith("ysis"):
        return word[:-2]
    if len(word) > 5:
        if word.endswith(("tion", "sion")):
            return word[:-3]
        if word.endswith("ator"):
            return word[:-2]
        if word.endswith("ly"):
            return word[:-2]
    return word


_RUN = late(r"[^\W_]+")
"""Letters and digits without a sign between them."""

_PART = late(
    r"(?P<spaceless>[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+)"
    r"|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)

_WHOLE = 14
"""Characters up to which a mixed name is a word of its own; longer ones are sentences without spaces."""
_LONGEST_WORD = 64
"""Characters of a run that are looked at: base64 and the like is no text."""
_CACHED = 16_384
"""Runs whose words are kept: catalogs say the same few thousand words again and again."""

_STOP_WORDS = """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can cannot could did do does doing done during each else ever every few for from further had has have having
    he her here hers him his how however i if in into is it its itself just let like many may me might mine more
    most much must my myself need needs no nor not now of off on once one only or other our ours out over own per
    please quite rather really same shall she should since so some such than that the their theirs them then there
    these they this those through to too under until up upon us use used using very via want wants was we were what
    when where whether which while who whom whose why will with within without would yes yet you your yours d ll m
    re s t ve hi hello hey thanks thank kindly tell give gimme lets wanna gonna im ive id
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that say nothing of what a tool does."""


class Run(NamedTuple):
    """What one run of letters and digits says."""

    stems: tuple[str, ...]
    """Without stop words; a mixed name also whole."""
    plain: tuple[str, ...]
    """In lower case and in order, stop words included."""


def folded(text: str) -> str:
    """The text without accents and other forms of the same letters; cases stay."""
    if text.isascii():
        return text
    parted = unicodedata.normalize("NFKD", text)
    bare = "".join([char for char in parted if not unicodedata.combining(char)])
    return unicodedata.normalize("NFC", bare)


def runs_of(text: str) -> list[Run]:
    """The words of a text, run by run. Callers cap how long it is."""
    return [_run(found) for found in _RUN.findall(folded(text))]


def stems_of(text: str) -> list[str]:
    """The stems of a text, in order, stop words left out."""
    return [found for run in runs_of(text) for found in run.stems]


def forget_runs() -> None:
    """Let go of the words that were read. They are kept while there is much to read, such as a whole catalog."""
    _run.cache_clear()


def name_key(name: str) -> str:
    """What is the same for all spellings of a name: letters and digits in lower case."""
    return "".join(_RUN.findall(folded(name))).lower()


@lru_cache(_CACHED)
def _run(run: str) -> Run:
    run = run[:_LONGEST_WORD]
    if run.islower() and run.isascii() and run.isalpha():
        return Run(() if run in STOP_WORDS else (stem(run),), (run,))
    stems: list[str] = []
    plain: list[str] = []
    parts = 0
    for found in _PART.finditer(run):
        part = found[0]
        parts += 1
        if found["spaceless"]:
            stems += _pairs(part)
        else:
            lower = part.lower()
            plain.append(lower)
            if lower not in STOP_WORDS:
                stems.append(stem(lower))
    if parts > 1 and len(run) <= _WHOLE and run.isascii():
        stems = _mixed(run.lower(), stems)
    return Run(tuple(stems), tuple(plain))


def _pairs(text: str) -> list[str]:
    return [text[at : at + 2] for at in range(len(text) - 1)] or [text]


def _mixed(whole: str, stems: list[str]) -> list[str]:
    """`s3`: as it is; `base64`: also base; `GitHub`: also git and hub."""
    return [stem(whole), *(part for part in stems if len(part) > 2 and not part.isdigit())]


_LONGEST_PIECE = 32
"""Characters of a word that are looked at."""
_CACHED_PIECES = 8192


class WordPieces:
    """Finds the rows of a word. Entries that continue a word begin with `##`."""

    def __init__(self, row_of: Callable[[str], int | None], longest: int) -> None:
        """`row_of`: the row of an entry; None: there is no such entry. `longest`: characters of the longest one."""
        self._row_of, self._longest = row_of, longest
        self.rows = lru_cache(_CACHED_PIECES)(self._look_up)

    def forget(self) -> None:
        """Let go of the words that were looked up."""
        self.rows.cache_clear()

    def _look_up(self, word: str) -> tuple[int, ...]:
        """The rows of a word in lower case; none if a part of it is in no entry."""
        whole = self._row_of(word)
        if whole is not None:
            return (whole,)
        word = word[:_LONGEST_PIECE]
        found: list[int] = []
        at = 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest), at, -1):
                row = self._row_of(("##" if at else "") + word[at:end])
                if row is not None:
                    found.append(row)
                    at = end
                    break
            else:
                return ()
        return tuple(found)


_NAME = late(
    r"[`'\"“‘]([^`'\"”’\s]{2,128})[`'\"”’]"  # in quotes
    r"|(?<![\w./@-])(\w{1,64}(?:[_./-]+\w{1,64}){1,8})"  # get_weather, github/list-issues
    r"|\b([a-z]{2,32}[A-Z]\w{1,64})"  # getWeather
)
_MOST = 32
"""Names in a query that are looked up."""


class NameIndex:
    """All names of a catalog, in any spelling: letters and digits count, signs and cases do not."""

    def __init__(self, tools: Iterable[tuple[str, str, str]], servers: Iterable[tuple[str, str, range]]) -> None:
        """Of each tool its id, name and server; of each server its name, title and the numbers of its tools."""
        pairs = [
            (hash(key), number)
            for number, (one, name, server) in enumerate(tools)
            for key in {name_key(one), name_key(name), name_key(server + name)}
            if key
        ]
        pairs.sort()
        # A dictionary of lists would take twenty times as much. With 64 bits no two names have the same.
        self._hashes = array("q", [one for one, _ in pairs])
        self._numbers = array("I", [number for _, number in pairs])
        self._servers: dict[str, list[int]] = {}
        for name, title, numbers in servers:
            for key in {name_key(name), name_key(title)}:
                self._servers.setdefault(key, []).extend(numbers)
        self._servers.pop("", None)

    def _of(self, key: str) -> Sequence[int]:
        """The tools of a name, in order."""
        one = hash(key)
        first = bisect_left(self._hashes, one)
        return self._numbers[first : bisect_right(self._hashes, one, first)] if key else ()

    def named(self, query: str) -> Sequence[int]:
        """Numbers of the tools that the query names, or whose server it is the name of; in the order of mention."""
        key = name_key(query)
        found: dict[int, None] = dict.fromkeys(self._of(key))
        for groups in _NAME.findall(query)[:_MOST]:
            found.update(dict.fromkeys(self._of(name_key("".join(groups)))))
        found.update(dict.fromkeys(self._servers.get(key, ())))
        return list(found)


KINDS: tuple[frozenset[str], ...] = tuple(
    frozenset(verbs.split())
    for verbs in (
        "create add insert new make upsert append write save put store generate register",
        "get read fetch retrieve load",
        "find search query lookup list browse",
        "show view describe inspect open",
        "update edit patch modify set change replace upsert write move rename configure",
        "delete remove clear drop destroy close archive cancel stop reset purge",
        "send post publish reply push notify broadcast",
        "run execute start invoke call evaluate trigger perform launch",
        "check validate verify test analyze analyse compare",
    )
)
"""Verbs that are often confused."""

_OTHERS = (
    "upload download import export convert copy merge fork assign attach detach enable disable connect disconnect"
    " subscribe unsubscribe follow unfollow browse navigate click type fill scrape crawl extract parse transform"
    " translate summarize calculate compute count sort filter batch bulk sync wait watch monitor track log login logout"
    " join leave invite share approve reject submit process handle manage use apply deploy build install restart pause"
    " resume lock unlock star tag mark complete finish begin ask answer comment review restore render format encode"
    " decode estimate predict classify explain suggest recommend resolve select toggle switch"
)
VERBS = frozenset[str]().union(*KINDS, _OTHERS.split())
"""What tools do."""

_SMALL = "a an the and or by for from to in into on of with at via as per if is has can not all any my its"
_BETWEEN = frozenset(_SMALL.split())
_LONGEST_SENTENCE = 160


@lru_cache(4096)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in order and in lower case: `createPullRequest`, `create_pull_request` are the same."""
    return tuple(word for run in runs_of(name[:_LONGEST_SENTENCE]) for word in run.plain)


def verb_of(words: Sequence[str]) -> str:
    """What a tool does, by the words of its name; empty if the name does not say."""
    return next((word for word in words[:3] if word in VERBS), "")


def object_of(words: Sequence[str], without: frozenset[str]) -> tuple[str, ...]:
    """What a tool does that to: the words after the verbs, up to the next preposition. `without`: stems left out."""
    found: list[str] = []
    for word in words:
        if word in _BETWEEN or word in VERBS:
            if found:
                break
        elif stem(word) not in without and not word.isdigit() and len(word) > 1:
            found.append(word)
    return tuple(found)
