"""Things in a query that are known by their shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.lexical import query_types
from mcpbridge.catalog.search.lexical.query_types import kinds_in, words_of_kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("who is behind 8.8.8.8", ["ip"]),
        ("2001:4860:4860:0:0:0:0:8888", ["ip"]),
        ("is coolstartup.io taken?", ["domain"]),
        ("read https://example.com/a", ["url"]),
        ("s3://logs/2024", ["storage"]),
        ("postgres://u@db/x", ["database address"]),
        ("write to ann@example.org", ["e-mail"]),
        ("what did @arbitrum post", ["handle"]),
        ("0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045", ["chain address"]),
        ("0x" + "5c504ed432cb5113" * 4, ["chain transaction"]),
        ("d41d8cd98f00b204e9800998ecf8427e", ["hash"]),
        ("978-0-306-40615-7", ["isbn"]),
        ("9788532530783", ["isbn"]),
        ("10.1038/nphys1170", ["doi"]),
        ("2301.07041 please", ["arxiv"]),
        ("PMID: 123456", ["pmid"]),
        ("NCT01234567", ["trial"]),
        ("CVE-2021-44228", ["cve"]),
        ("1Z999AA10123456784", ["parcel"]),
        ("$AAPL", ["ticker"]),
        ("2+2", ["sum"]),
        ("144 / 12", ["quotient"]),
        ("7 * 6", ["product"]),
        ("23 times 17", ["arithmetic"]),
        ("x^2", ["power"]),
        ("15% of 80", ["percent"]),
        ("€20", ["money"]),
        ("200 USD", ["currency"]),
        ("5 miles to km", ["quantity"]),
        ("on 2024-05-01", ["date"]),
        ("48.8584, 2.2945", ["place"]),
        ("+49 30 1234567", ["phone"]),
        ("in ~/src/main", ["path"]),
        ("C:\\Users", ["path"]),
        ("what is DATABASE_URL", ["variable"]),
        ("*/5 * * * *", ["cron"]),
        ("#ff8800", ["colour"]),
        ("PROJ-1432", ["key of an issue"]),
        ("close #17", ["number of an issue"]),
        ("select a from b", ["sql"]),
        ("delete from users", ["sql"]),
        ("T | where x > 1", ["kql"]),
        ("rate(http_requests[5m])", ["promql"]),
        ("match (n) return n", ["cypher"]),
        ("$.store.book", ["jsonpath"]),
        ('{"a": 1}', ["json"]),
        ("print('hi')", ["code"]),
        ("plain words, nothing else", []),
        ("select a good film", []),
        ("a well-known e-reader, twenty-two of them", []),
        ("24/7 support", []),
        ("Next.js or Node.js", []),
        ("GPT-4 and UTF-8", []),
        ("", []),
    ],
)
def test_a_thing_is_known_by_its_shape(text: str, kinds: list[str]) -> None:
    assert kinds_in(text) == kinds


def test_a_kind_has_words_of_tools() -> None:
    assert {"ip", "lookup", "whois"} <= words_of_kinds("8.8.8.8").keys()
    assert {"transcript", "video"} <= words_of_kinds("https://youtu.be/abc").keys()
    assert words_of_kinds("hello") == {}


@given(st.text())
def test_every_text_has_an_answer(text: str) -> None:
    assert all(0 < weight <= 1 for weight in words_of_kinds(text).values())
    assert len(kinds_in(text)) == len(set(kinds_in(text)))


@given(st.text(alphabet="01.,:;-+*/x^=%$#@[]{}()|\\ aAfFzZ_'\"", max_size=200))
def test_texts_of_signs_have_an_answer(text: str) -> None:
    assert bool(kinds_in(text)) == bool(words_of_kinds(text))


_WORDS = [
    "12",
    "x",
    "3",
    "/",
    "$",
    "usd",
    "eur",
    " to ",
    "km",
    "in",
    "1.5",
    "plus",
    " ",
    "pmid",
    "select",
    " from ",
    "ab",
]


@given(st.lists(st.sampled_from(_WORDS), max_size=12).map("".join))
def test_what_is_looked_for_first_is_in_every_such_thing(text: str) -> None:
    """Patterns are tried only where a sign that they need is there: that must leave nothing out."""
    for kind in query_types._KINDS:  # pyright: ignore[reportPrivateUsage]
        if kind.pattern.search(text):
            assert not kind.one_of or any(one in text.lower() for one in kind.one_of)
            assert max(map(len, text.split())) >= kind.length
