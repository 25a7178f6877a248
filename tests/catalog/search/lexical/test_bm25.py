"""Which tools share words with a request: rare words and common ones are kept in different ways (issue 6, Ranker)."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.lexical.bitsets import Shape
from mcpbridge.catalog.search.lexical.bm25 import ServerFields, ToolFields, WordIndex, postings_of

COUNT = 300
RARE, COMMON = 7, 2
"""One tool in 100 and one in 2 have it: below, and above, what is looked up in lanes."""


def said(number: int) -> str:
    words = {"seldom": number % 100 == RARE, "common": number % COMMON == 0, "all": True}
    return " ".join(f"w{word}" for word, has in words.items() if has)


@pytest.fixture(scope="module")
def index() -> WordIndex:
    tools = [ToolFields(f"n{number}", "", said(number), "", "") for number in range(COUNT)]
    parts = [postings_of(ServerFields("", ""), some) for some in (tools[:100], tools[100:])]
    return WordIndex(Shape(COUNT), zip((100, 200), parts, strict=True))


weights = st.dictionaries(st.sampled_from(["wseldom", "wcommon", "n7", "n8", "unknown"]), st.floats(0.1, 1), min_size=1)


@given(weights)
def test_tools_have_what_their_words_weigh(index: WordIndex, words: Mapping[str, float]) -> None:
    amounts = list(Shape(COUNT).cells(index.amounts(words)))
    having = {
        "wseldom": {number for number in range(COUNT) if number % 100 == RARE},
        "wcommon": set(range(0, COUNT, COMMON)),
    } | {f"n{number}": {number} for number in (7, 8)}
    for number, amount in enumerate(amounts):
        assert bool(amount) == any(number in having.get(word, ()) for word in words)
    shares = index.shares(words, range(COUNT))
    for number, share in shares.items():
        exact = sum(weight for word, weight in words.items() if number in having.get(word, ()))
        assert share == pytest.approx(exact)


def test_rarer_words_tell_more(index: WordIndex) -> None:
    assert (
        index.rarest
        >= index.rarity("n7")
        > index.rarity("wseldom")
        > index.rarity("wcommon")
        > index.rarity("wall")
        > 0
    )
    assert index.rarity("unknown") == 0


def test_any_number_of_words_is_survived(index: WordIndex) -> None:
    words = {f"n{number}": 1.0 for number in range(COUNT)} | {"wcommon": 1.0, "wall": 1.0}
    assert any(Shape(COUNT).cells(index.amounts(words)))
    assert not any(Shape(COUNT).cells(index.amounts({})))
