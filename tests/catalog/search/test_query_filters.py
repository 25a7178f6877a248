"""Boolean queries over tools (issue 8)."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.query_filters import QueryProblem, parse_query

TOOLS = {
    "sum": {
        "id": ["nlp/summarize"],
        "server": ["nlp"],
        "description": ["Make a summary of a text"],
        "tag": ["nlp", "text"],
        "runtime_type": ["remote"],
    },
    "issue": {
        "id": ["github/create_issue"],
        "server": ["github"],
        "description": ["Create an issue in a repository"],
        "tag": ["code"],
        "runtime_type": ["remote"],
    },
    "file": {
        "id": ["files/read_text_file"],
        "server": ["files"],
        "description": ["Read a file of the file system"],
        "tag": [],
        "runtime_type": ["local"],
    },
}


def found(query: str) -> set[str]:
    holds = parse_query(query).holds
    return {name for name, document in TOOLS.items() if holds(document)}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", {"sum", "issue", "file"}),
        ("summary AND remote", {"sum"}),
        ("summary remote", {"sum"}),
        ("tag:nlp OR server:github", {"sum", "issue"}),
        ("NOT remote", {"file"}),
        ("-remote", {"file"}),
        ('"file system"', {"file"}),
        ('"system file"', set()),
        ("remote AND (issue OR text)", {"sum", "issue"}),
        ("remote AND NOT (issue OR nothing)", {"sum"}),
        ("not remote", set()),  # lower case: three words that must all be there
        ("REMOTE", {"sum", "issue"}),
        ("server:git*", {"issue"}),
        ("id:github/create_issue", {"issue"}),
        ("create_issue", {"issue"}),
        ("runtime:local", {"file"}),
        ("tag:nl", set()),  # a tag is compared as a whole
        ("description:creat", {"issue"}),
        ("zebra OR issue AND local", set()),
        ("file OR issue AND remote", {"file", "issue"}),
    ],
)
def test_what_a_query_finds(query: str, names: set[str]) -> None:
    assert found(query) == names


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("(a", "not closed"),
        ("a)", "closes nothing"),
        ("AND b", "missing before"),
        ("a AND", "missing at the end"),
        ("NOT", "missing at the end"),
        ('"a', "quotation mark"),
        ("colour:red", "no field `colour`"),
        ("tag:(a)", "needs a word"),
        ("x" * 3000, "longer than"),
        ("(" * 60 + "a" + ")" * 60, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_says_where(query: str, what: str) -> None:
    with pytest.raises(QueryProblem, match=what):
        parse_query(query)


@given(st.text(max_size=60) | st.text(alphabet='abAND OR()NOT":-*', max_size=40))
def test_any_text_is_a_query_or_a_clear_error(text: str) -> None:
    with suppress(QueryProblem):
        found(text)


@given(
    st.sampled_from(["summary", "remote", "tag:nlp", '"file system"', "server:g*"]), st.sampled_from(["issue", "local"])
)
def test_de_morgan(one: str, other: str) -> None:
    assert found(f"NOT ({one} OR {other})") == found(f"NOT {one} AND NOT {other}")
    assert found(f"NOT ({one} AND {other})") == found(f"NOT {one} OR NOT {other}")
    assert found(f"NOT NOT {one}") == found(one)
