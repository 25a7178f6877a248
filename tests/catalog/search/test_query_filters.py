"""Boolean queries over tools (issue 8)."""

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
        ("summ*", {"sum"}),
        ("summar?", {"sum"}),
        ("ummary", set()),  # a word is looked for at the beginning of words
        ("summ?", set()),  # a wildcard is for the whole word
        ("server:git?ub", {"issue"}),
        ("server:git?", set()),
        ("id:read_text_file", {"file"}),  # a name as a whole, or one of its words
        ("id:text", {"file"}),
        ("id:tex", set()),
        ("tex_fil", set()),
        ("text", {"sum", "file"}),
        ("read-text", {"file"}),  # each of its words
        ("read-issue", set()),
        ("repo-is", {"issue"}),
        ("+", set()),
        ('""', set()),
        ('"text file"', set()),
        ('"read_text_file"', {"file"}),
        ('"A TEXT"', {"sum"}),
        ('description:"summary of"', {"sum"}),
        ('description:"of summary"', set()),
        ("description:crea*", {"issue"}),
        ("description:*file", {"file"}),
        ("description:file*", {"file"}),
        ("TAGS:NLP", {"sum"}),
        ("tag:AND", set()),
        ("remote -nlp", {"issue"}),
        ("(nlp)(text)", {"sum"}),
        ("(nlp -)", set()),  # a dash before nothing is a word
        ("(nlp OR github) remote", {"sum", "issue"}),
        ("((nlp) OR (github))", {"sum", "issue"}),
    ],
)
def test_what_a_query_finds(query: str, names: set[str]) -> None:
    assert found(query) == names


@pytest.mark.parametrize(
    ("query", "what", "at"),
    [
        ("b (a", "this `\\(` is not closed", 3),
        ("(a b", "this `\\(` is not closed", 1),
        ("a)", "this `\\)` closes nothing", 2),
        ("a OR (b) )", "this `\\)` closes nothing", 10),
        ("AND b", "something is missing before `AND`", 1),
        ("a OR OR b", "something is missing before `OR`", 6),
        ("a ()", "something is missing before `\\)`", 4),
        ("a AND", "something is missing at the end", 6),
        ("NOT", "something is missing at the end", 4),
        ("a -(", "something is missing at the end", 5),
        ('b "a', "this quotation mark is not closed", 3),
        ("a colour:red", "there is no field `colour`: there are description, example, id,", 3),
        ("a tag:(a)", "`tag:` needs a word or a phrase", 3),
        ("tag:server:a", "`tag:` needs a word or a phrase", 1),
        ("x" * 2001, "the query is longer than 2000 characters", 2001),
        ("(" * 50 + "a" + ")" * 50, "the query is nested too deeply", 51),
        ("NOT " * 50 + "a", "the query is nested too deeply", 201),
    ],
)
def test_what_cannot_be_read_says_where(query: str, what: str, at: int) -> None:
    with pytest.raises(QueryProblem, match=f"{what}.*[(]at character {at} of the query[)]"):
        parse_query(query)


@pytest.mark.parametrize("query", ["(" * 49 + "nlp" + ")" * 49, "NOT NOT " * 24 + "nlp", "(nlp) " * 80, "nlp " * 500])
def test_only_what_is_too_deep_or_too_long_is_refused(query: str) -> None:
    assert found(query) == {"sum"}


WORDS = ["summary", "remote", "tag:nlp", '"file system"', "server:g*", "issue", "local", "-text", "zebra"]


def queries() -> st.SearchStrategy[tuple[str, frozenset[str]]]:
    """Queries, and what each finds by the rules of sets."""
    everything = frozenset(TOOLS)
    words = st.sampled_from(WORDS).map(lambda word: (word, frozenset(found(word))))

    def larger(
        inner: st.SearchStrategy[tuple[str, frozenset[str]]],
    ) -> st.SearchStrategy[tuple[str, frozenset[str]]]:
        several = st.lists(inner, min_size=2, max_size=3)
        bare = several.map(lambda all_: (" OR ".join(one for one, _ in all_), frozenset.union(*(s for _, s in all_))))
        within = inner.map(lambda one: (f"({one[0]})", one[1]))
        both = st.tuples(st.lists(within, min_size=2, max_size=3), st.sampled_from([" ", " AND "])).map(
            lambda drawn: (
                drawn[1].join(one for one, _ in drawn[0]), frozenset.intersection(*(s for _, s in drawn[0]))
            )
        )  # fmt: skip
        negated = st.tuples(within, st.sampled_from(["NOT ", "-"])).map(
            lambda drawn: (f"{drawn[1]}{drawn[0][0]}", everything - drawn[0][1])
        )
        return st.one_of(bare, both, negated)

    return st.recursive(words, larger, max_leaves=8)


@given(queries())
def test_and_or_and_not_are_those_of_sets(query: tuple[str, frozenset[str]]) -> None:
    text, expected = query
    assert found(text) == expected, text


@given(st.text(max_size=60) | st.text(alphabet='abAND OR()NOT":-*', max_size=40))
def test_any_text_is_a_query_or_a_clear_error(text: str) -> None:
    """Of a query, what it finds and what its opposite finds are everything; an error says a place in the text."""
    problem: QueryProblem | None = None
    names = set[str]()
    try:
        names = found(text)
    except QueryProblem as error:
        problem = error
    if problem is not None:
        assert 0 <= problem.at <= len(text)
        assert f"(at character {problem.at + 1} of the query)" in str(problem)
    elif text.strip():
        assert found(f"NOT ({text})") == set(TOOLS) - names


@given(
    st.sampled_from(["summary", "remote", "tag:nlp", '"file system"', "server:g*"]), st.sampled_from(["issue", "local"])
)
def test_de_morgan(one: str, other: str) -> None:
    assert found(f"NOT ({one} OR {other})") == found(f"NOT {one} AND NOT {other}")
    assert found(f"NOT ({one} AND {other})") == found(f"NOT {one} OR NOT {other}")
    assert found(f"NOT NOT {one}") == found(one)
