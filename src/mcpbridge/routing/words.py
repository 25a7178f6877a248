"""Texts and identifiers as words: what the lexical part compares (stems) and what the table of vectors knows (plain).

`listPullRequests`, `list_pull_requests` and "list pull requests" are the same words. Names that mix cases are found
whole and by their parts (`GitHub`: github, git, hub). Scripts without spaces are taken two characters at a time.
"""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from mcpbridge.routing.stemming import stem

__all__ = ["STOP_WORDS", "Run", "folded", "name_key", "runs_of", "stems_of"]

_RUN = re.compile(r"[^\W_]+")
"""Letters and digits without a sign between them."""

_PART = re.compile(
    r"(?P<spaceless>[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+)"
    r"|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)

_WHOLE = 14
"""Characters up to which a mixed name is a word of its own; longer ones are sentences without spaces."""
_LONGEST = 64
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


def name_key(name: str) -> str:
    """What is the same for all spellings of a name: letters and digits in lower case."""
    return "".join(_RUN.findall(folded(name))).lower()


@lru_cache(_CACHED)
def _run(run: str) -> Run:
    run = run[:_LONGEST]
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
