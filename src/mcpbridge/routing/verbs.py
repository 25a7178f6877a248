"""What the names of tools are made of: verbs, and what these are about."""

from collections.abc import Sequence
from functools import lru_cache

from mcpbridge.routing.stemming import stem
from mcpbridge.routing.words import runs_of

__all__ = ["KINDS", "VERBS", "object_of", "verb_of", "words_of"]

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
"""Verbs that are easily taken for one another."""

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
_LONGEST = 160


@lru_cache(4096)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in order and in lower case: `createPullRequest`, `create_pull_request` are the same."""
    return tuple(word for run in runs_of(name[:_LONGEST]) for word in run.plain)


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
