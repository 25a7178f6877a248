"""What `mcpbridge bench routing` is made of: queries out of files, queries made of descriptions, and their score."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.search.duplicates import Ability
from mcpbridge.catalog.search.evaluation import (
    Asked,
    Flaw,
    Outcome,
    Spread,
    are_close,
    confusions,
    firsts,
    query_for,
    read_queries,
    recall,
    with_ids,
)
from mcpbridge.catalog.search.ranker import ToolText


def tool(server: str, name: str, description: str = "", title: str = "") -> ToolText:
    return ToolText(f"{server}/{name}", server, name, title, description)


# -- files


def test_json_lines_name_one_tool_or_several_needs() -> None:
    text = (
        '{"query": "open an issue", "tool": "github/create_issue"}\n'
        "\n"
        '{"text": "open an issue, tell all", "gold": [["a/new", "b/new"], "slack/post"], "kind": "user"}\r\n'
    )
    assert read_queries(text) == (
        [
            Asked("open an issue", (("github/create_issue",),), 1),
            Asked("open an issue, tell all", (("a/new", "b/new"), ("slack/post",)), 3),
        ],
        [],
    )


@pytest.mark.parametrize(
    "text",
    [
        'open an issue,g/new\n"list, and sort",g/list\n',
        "open an issue\tg/new\nlist, and sort\tg/list\n",
        'query,tool\nopen an issue,g/new\n"list, and sort",g/list\n',
        'ID,Tool,Text\n1,g/new,open an issue\n2,g/list,"list, and sort"\n',
        '\ufeffopen an issue,g/new\r\n"list, and sort",g/list',
    ],
)
def test_tables_have_commas_or_tabs_and_may_name_their_columns(text: str) -> None:
    asked, flaws = read_queries(text)
    assert [(one.text, one.needs) for one in asked] == [
        ("open an issue", (("g/new",),)),
        ("list, and sort", (("g/list",),)),
    ]
    assert flaws == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{broken", "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"tool": "a/b"}', "`query` is missing"),
        ('{"query": " ", "tool": "a/b"}', "`query` is missing"),
        ('{"query": 7, "tool": "a/b"}', "`query` is missing"),
        ('{"query": "x"}', "`tool` must be"),
        ('{"query": "x", "tool": []}', "`tool` must be"),
        ('{"query": "x", "tool": [["a/b", 7]]}', "`tool` must be"),
        ('{"query": "x", "tool": [["a/b"], []]}', "`tool` must be"),
    ],
)
def test_a_line_that_is_no_query_is_named_with_its_number(line: str, why: str) -> None:
    good = '{"query": "x", "tool": "a/b"}'
    asked, flaws = read_queries(f"{good}\n\n{line}\n{good}\n")
    assert [one.line for one in asked] == [1, 4]
    [flaw] = flaws
    assert flaw.line == 3
    assert why in flaw.what


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("find, then read,g/x", "3 columns instead of 2; a query with commas must be in quotes"),
        ("g/x", "1 columns instead of 2"),
        (",g/x", "the query is missing"),
        ("find, ", "the tool is missing"),
        ('"find,g/x', "cannot be read as a row"),
        ("a" * 200_000 + ",g/x", "cannot be read as a row"),
    ],
)
def test_a_row_that_is_no_query_is_named_with_its_number(line: str, why: str) -> None:
    asked, flaws = read_queries(f"find,g/find\n{line}\n")
    assert [one.line for one in asked] == [1]
    [flaw] = flaws
    assert flaw.line == 2
    assert why in flaw.what


@given(st.text(max_size=300) | st.lists(st.sampled_from(['{"query":"a","tool":"b"}', "a,b", '"', "\t"])).map("\n".join))
def test_any_text_is_queries_and_flaws(text: str) -> None:
    asked, flaws = read_queries(text)
    lines = [*(one.line for one in asked), *(flaw.line for flaw in flaws)]
    assert len(lines) == len(set(lines)) <= text.count("\n") + 1
    assert all(one.text.strip() and all(one.needs) for one in asked)


def test_names_become_ids_and_unknown_ones_are_told() -> None:
    known = {"new": "g/new", "g/new": "g/new", "g__new": "g/new", "s/post": "s/post"}

    def id_of(name: str) -> str:
        if name not in known:
            raise UnknownName("tool", name, candidates=["g__new"])
        return known[name]

    asked = [
        Asked("one", (("new", "g/new", "gone"), ("s/post",)), 1),
        Asked("two", (("g__new",), ("nwe",)), 2),
    ]
    assert with_ids(asked, id_of) == (
        [Asked("one", (("g/new",), ("s/post",)), 1)],
        [
            Flaw(1, "Unknown tool: gone (did you mean g__new?)"),
            Flaw(2, "Unknown tool: nwe (did you mean g__new?)"),
        ],
    )


# -- generated


@pytest.mark.parametrize(
    ("description", "query"),
    [
        ("Creates an issue.", "create an issue"),
        ("This tool allows you to create an issue. Needs a token.", "create an issue"),
        ("Use this tool to create an issue", "create an issue"),
        ("A function that retrieves HTTP headers", "retrieve HTTP headers"),
        ("Calls `create_issue` of GitHub for you", "call of GitHub for you"),
        ("## create_issue\nOpens issues.\n\nArgs:\n  title: the title", "open issues"),
        ("Queries issue(s)", "query issue"),
        ("Create issue", "please create issue"),
        ("根據名稱獲取行動資訊。第二句", "根據名稱獲取行動資訊。"),
    ],
)
def test_a_query_is_the_first_sentence_as_an_order(description: str, query: str) -> None:
    assert query_for(tool("github", "create_issue", description)).rstrip("。") == query.rstrip("。")


def test_a_third_of_the_words_is_left_out_and_always_the_same() -> None:
    said = "Search documents of a workspace by author, title, folder and date of the last change"
    one, same = (query_for(tool("docs", "search", said)) for _ in range(2))
    other = query_for(tool("docs", "find", said))
    assert one == same != other
    for query in (one, other):
        assert query.startswith("search ")
        left_out = set(said.lower().replace(",", "").split()) - set(query.split())
        assert len(left_out) == 3


def test_without_a_description_there_is_the_title_or_no_query() -> None:
    assert query_for(tool("s", "t", "", "Weather by city")) == "weather by city"
    assert query_for(tool("s", "t", "Args:\n  city: where")) == ""
    assert query_for(tool("s", "t")) == ""
    assert query_for(tool("s", "t", "…!? -- the")) == ""


_ANY = st.characters(exclude_categories=())


@given(st.text(_ANY, max_size=400), st.text(_ANY, max_size=40), st.text(_ANY, max_size=40))
def test_any_description_makes_a_query_on_one_line(description: str, name: str, title: str) -> None:
    query = query_for(tool("s", name, description, title))
    assert query == query_for(tool("s", name, description, title))
    assert "\n" not in query
    query.encode()


def test_megabytes_make_a_short_query() -> None:
    for text, begins in (
        ("word " * 1_200_000, "word"),
        ("a" * 6_000_000, "a"),
        ("use this tool to " * 300_000, ""),
        ("(" * 6_000_000, ""),
    ):
        query = query_for(tool("s", "t", text))
        assert len(query) <= 500
        assert query.startswith(begins)


# -- score

TOOLS = {
    one.id: one
    for one in (
        tool("git", "create_issue"),
        tool("git", "create_issue_comment"),
        tool("git", "git_push"),
        tool("hub", "create_issue"),
    )
}


def outcome(*lines: str, needs: tuple[tuple[str, ...], ...]) -> Outcome:
    """Each line: ids of a tool and its near-duplicates, with blanks between."""
    found = [Ability(ids[0], tuple(ids[1:])) for ids in map(str.split, lines)]
    return Outcome.of(Asked("x", needs), found)


def test_a_need_is_met_by_the_first_line_that_has_one_of_its_tools() -> None:
    found = outcome("git/push", "git/b git/new", "git/new", needs=(("hub/x", "git/new"), ("git/push",), ("gone",)))
    assert found.places == (2, 1, None)
    assert [round(found.recall(most), 2) for most in (1, 2, 50)] == [0.33, 0.67, 0.67]


def test_recall_is_averaged_over_queries_and_nothing_beyond_fifty_lines_counts() -> None:
    needs = (("git/new",),)
    late = outcome(*(f"s/{number}" for number in range(49)), "git/new", needs=needs)
    later = outcome(*(f"s/{number}" for number in range(50)), "git/new", needs=needs)
    both = [late, later]
    assert (recall(both, 8), recall(both, 50), recall([], 8)) == (0, 0.5, 0)


def test_what_comes_first_is_told_by_how_near_it_is_to_the_right_tool() -> None:
    needs = (("git/create_issue",),)
    outcomes = [
        outcome("git/create_issue", needs=needs),
        outcome("hub/create_issue git/create_issue", needs=needs),
        outcome("git/create_issue_comment", "git/create_issue", needs=needs),
        outcome("git/git_push", needs=needs),
        outcome("hub/create_issue", needs=needs),
        outcome(needs=needs),
        Outcome.of(Asked("x", needs), [Ability("git/create_issue")], is_doubtful=True),
    ]
    counts = {"right": 2, "sibling": 1, "same_server": 1, "other_server": 1, "doubtful": 2}
    assert firsts(outcomes, TOOLS) == counts


def test_pairs_are_told_the_worst_first_whichever_of_the_two_was_right() -> None:
    issue, comment, push = "git/create_issue", "git/create_issue_comment", "git/git_push"
    outcomes = [
        outcome(comment, needs=((issue,),)),
        outcome(issue, needs=((comment,),)),
        outcome(comment, needs=((comment,),)),
        outcome(push, needs=((issue,),)),
    ]
    [pair] = confusions(outcomes, TOOLS)
    assert (pair.tools, pair.times, pair.of) == ((issue, comment), 2, 4)


def test_names_are_close_by_their_words_but_not_by_their_servers() -> None:
    assert are_close(tool("git", "git_push_tag"), tool("git", "git_tag_push"))
    assert are_close(tool("git", "createIssue"), tool("git", "create_issue_comment"))
    assert not are_close(tool("git", "git_push"), tool("git", "git_fetch"))
    assert not are_close(tool("git", "push"), tool("hub", "push"))
    assert not are_close(tool("git", "push"), tool("git", "push"))


def test_a_spread_is_a_mean_and_what_nearly_all_stay_within() -> None:
    assert Spread.of(range(1, 101)) == Spread(100, 50.5, 95)
    assert Spread.of([7]) == Spread(1, 7.0, 7)
    assert Spread.of([]) == Spread(0, 0.0, 0)


def test_a_file_written_by_a_program_is_read() -> None:
    rows = [{"query": "line\u2028break", "tool": "a/b"}, {"query": "ü \u0000", "tool": "a/b"}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    asked, flaws = read_queries(text + '\n{"query": "half \\ud800", "tool": "a/b"}')
    assert [one.text for one in asked] == ["line\u2028break", "ü \u0000", "half ?"]
    assert flaws == []
