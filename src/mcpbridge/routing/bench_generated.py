"""Queries made of what tools say of themselves, for where nobody has written any. Pure.

A query is the first sentence of a tool's description as an order, without the tool's own name and without a third of
its words. Its words are the tool's, so it is easier than what people and models ask: what it measures is whether the
catalog tells its tools apart at all.
"""

import re
from collections.abc import Iterator
from zlib import crc32

from mcpbridge.routing.short_texts import SECTION, clean, sentences
from mcpbridge.routing.tool_text import ToolText
from mcpbridge.routing.verbs import VERBS
from mcpbridge.routing.words import name_key, stems_of

__all__ = ["query_for"]

_LONGEST = 400
"""Characters of a sentence that are looked at."""
_MOST = 12
"""Words of a query, those not counted that say nothing."""
_SPARED = 3
"""Words that a query has at least, if there were as many."""
_NAME = 200
_THING = r"(?:mcp )?(?:tool|function|endpoint|method|command|action|operation)"
_PURPOSE = (
    r"(?:(?:that|which) )?(?:(?:is |can be )?used (?:to|for)|(?:allows?|enables?|helps?|lets?) (?:you|users?)(?: to)?"
    r"|(?:allows?|helps?) to|can|will|to|for|that|which)"
)
_OPENING = re.compile(
    rf"(?:(?:(?:this|the|an?) )?{_THING} {_PURPOSE}|(?:this|the) {_THING}"
    rf"|use (?:this|it)(?: {_THING})? (?:to|for|when you (?:want|need) to)"
    r"|(?:allows?|enables?|lets?) (?:you|users?)(?: to)?|used (?:to|for)) ",
    re.IGNORECASE,
)
"""How descriptions begin, before they come to what the tool does."""
_SIGNS = re.compile(r"^\W+|\W+$")
_MIXED = re.compile(r"\w[_./-]\w|[a-z][A-Z]")
_CODE = re.compile(r"\w_\w|\b[a-z]{2,}[A-Z]")
"""A name of something in a program, which nobody says: another tool's, a parameter's."""


def query_for(tool: ToolText) -> str:
    """What somebody might ask for who wants this tool; empty if it does not say what it does."""
    names = {name_key(name[:_NAME]) for name in (tool.name, tool.server + tool.name)}
    for said in _said(tool):
        words = [word for raw in said.replace("(s)", "").split() if (word := _SIGNS.sub("", raw))]
        words = [word for word in words if not _is_name(word, names)]
        if any(len(stem) > 1 for word in words for stem in stems_of(word)):
            break
    else:
        return ""
    words = _shortened(words, tool.id)
    words[0] = _as_order(words[0])
    query = " ".join(words)
    return f"please {query}" if name_key(query) in names else query


def _said(tool: ToolText) -> Iterator[str]:
    """What a tool says of what it does: its sentences, and then its title."""
    for sentence in sentences(tool.description):
        if SECTION.match(sentence):
            break
        said = sentence[:_LONGEST]
        opening = _OPENING.match(said)
        yield said[opening.end() :] if opening else said
    yield clean(tool.title, _LONGEST)


def _is_name(word: str, names: set[str]) -> bool:
    """Whether it is written as a name: the tool's own, or one in a program. Plain words are what people say as well."""
    return bool(_CODE.search(word)) or (bool(_MIXED.search(word)) and name_key(word) in names)


def _shortened(words: list[str], seed: str) -> list[str]:
    """Without a third of the words that say something; which, depends on nothing but the tool.

    The first stays: it is the verb as a rule, without which creating and deleting would be asked for alike.
    """
    saying = [at for at, word in enumerate(words) if stems_of(word)]
    end = saying[_MOST] if len(saying) > _MOST else len(words)
    saying = saying[:_MOST]
    spared = max(_SPARED, len(saying) - len(saying) // 3)
    order = sorted(saying[1:], key=lambda at: (crc32(f"{seed}\0{at}\0{words[at]}".encode(errors="replace")), at))
    dropped = set(order[spared - 1 :])
    return [word for at, word in enumerate(words[:end]) if at not in dropped]


def _as_order(word: str) -> str:
    """`Creates`, `Create`: create. `HTTP` stays."""
    lower = word.lower()
    for ending, instead in (("ies", "y"), ("es", ""), ("s", "")):
        if lower.endswith(ending) and (verb := lower.removesuffix(ending) + instead) in VERBS:
            return verb
    return lower if word.istitle() else word
