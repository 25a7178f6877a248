"""Queries over documents: what is selected, computed and told."""

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest

from mcpbridge.results.document import Document, read
from mcpbridge.results.errors import QueryRefused
from mcpbridge.results.query.find_text import Patience, Plain, Regex
from mcpbridge.results.query.limits import SEARCH_SECONDS
from mcpbridge.results.query.query import answer, selected
from mcpbridge.results.query.request import Query, read_query
from mcpbridge.results.query.terms import split_terms

PEOPLE = ["ann", "bob", "cid"]
ISSUES: list[dict[str, Any]] = [
    {
        "id": 90000000000000000001 + number,
        "number": number,
        "title": f"Title {number}, or {'bug' if number % 4 == 0 else 'wish'}",
        "state": "open" if number % 3 else "closed",
        "comments": number * 7 % 11,
        "amount": Decimal(f"{number}.10"),
        "user": {"login": PEOPLE[number % 3], "id": number % 3},
        "labels": [{"name": "bug"}] * (number % 4 == 0) + [{"name": "ui"}] * (number % 2),
        "milestone": None if number % 5 else "v1",
    }
    for number in range(30)
]


def document(value: Any) -> Document:
    from mcpbridge.results.exact_json import write_json

    return Document(write_json(value), "json", value)


LIST, ENVELOPE = document(ISSUES), document({"total": 972, "items": ISSUES, "next": None})
TABLE = Document("a,b\n1,x\n2,y\n", "csv", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
LOG = Document(
    "".join(f"{n} {'ERROR' if n % 10 == 3 else 'INFO'} [{PEOPLE[n % 3]}] took {n}ms\n" for n in range(100)), "log"
)


def ask(document: Document = LIST, room: int = 2000, **arguments: Any) -> str:
    text = answer(read_query(arguments), {"h": document}, room).text
    assert len(text) <= room
    return text


def value(document: Document = LIST, **arguments: Any) -> Any:
    return selected(read_query(arguments), {"h": document})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "[0].id"}, 90000000000000000001),
        ({"path": "[0].user"}, {"login": "ann", "id": 0}),
        ({"path": "[0:3].number"}, [0, 1, 2]),
        ({"where": "number == 3", "select": "title"}, ["Title 3, or wish"]),
        ({"where": "number < 2", "select": ["number", "user.login"]},
         [{"number": 0, "user.login": "ann"}, {"number": 1, "user.login": "bob"}]),
        ({"where": {"number": 1}, "select": {"who": "user.login", "n": "len(labels)"}}, [{"who": "bob", "n": 1}]),
        ({"where": "number == 1", "select": "user.login as who, number"}, [{"who": "bob", "number": 1}]),
        ({"where": "number == 4", "select": "labels[].name"}, [["bug"]]),
        ({"sort": "-number", "limit": 2, "select": "number"}, [29, 28]),
        ({"sort": "number desc", "limit": "2", "offset": "1", "select": "number"}, [28, 27]),
        ({"sort": ["user.login", "-number"], "limit": 2, "select": "number"}, [27, 24]),
        ({"sort": '["user.login","-number"]', "limit": 1, "select": "number"}, [27]),
        ({"sort": {"number": "desc"}, "limit": 1, "select": "number"}, [29]),
        ({"sort": "-len(labels), number", "limit": 2, "select": "number"}, [0, 1]),
        ({"sort": "milestone", "limit": 7, "select": "milestone"}, ["v1"] * 6 + [None]),
        ({"sort": "-milestone", "limit": 7, "select": "milestone"}, ["v1"] * 6 + [None]),
        ({"aggregate": "count"}, {"count": 30}),
        ({"where": "labels[].name == 'bug'", "aggregate": "count"}, {"count": 8}),
        ({"aggregate": "sum:amount"}, {"sum(amount)": Decimal("438.00")}),
        ({"aggregate": "sum(id)"}, {"sum(id)": 30 * 90000000000000000001 + 435}),
        ({"aggregate": ["min:comments", "max:comments", "median:number"]},
         {"min(comments)": 0, "max(comments)": 10, "median(number)": Decimal("14.5")}),
        ({"aggregate": {"total": "sum:number", "mean": "avg:number"}}, {"total": 435, "mean": Decimal("14.5")}),
        ({"aggregate": {"sum": "number"}}, {"sum(number)": 435}),
        ({"aggregate": "count, sum(number)"}, {"count": 30, "sum(number)": 435}),
        ({"aggregate": "distinct:user.login"}, {"distinct(user.login)": {"count": 3, "values": PEOPLE}}),
        ({"aggregate": "count_distinct:user.login"}, {"count_distinct(user.login)": 3}),
        ({"aggregate": "first:title", "sort": "number"}, {"first(title)": "Title 0, or bug"}),
        ({"aggregate": "last:number"}, {"last(number)": 29}),
        ({"aggregate": "count:milestone"}, {"count(milestone)": 6}),
        ({"group_by": "state"}, [{"state": "open", "count": 20}, {"state": "closed", "count": 10}]),
        ({"group_by": "labels[].name"},
         [{"labels[].name": name, "count": n} for name, n in (("ui", 15), ("bug", 8), (None, 7))]),
        ({"group_by": ["user.login", "state"], "limit": 1}, [{"user.login": "ann", "state": "closed", "count": 10}]),
        ({"group_by": "user.login", "aggregate": "sum:number", "sort": "-sum(number)", "limit": 1},
         [{"user.login": "cid", "sum(number)": 155}]),
        ({"group_by": "user.login", "aggregate": {"n": "count"}, "select": "n"}, [10, 10, 10]),
        ({"find": "title 7", "select": "number"}, [7]),
        ({"regex": "^Title 1\\d", "aggregate": "count"}, {"count": 10}),
        ({"where": "number == 5", "select": "$path, $index, $handle"}, [{"$path": "[5]", "$index": 5, "$handle": "h"}]),
    ],
)  # fmt: skip
def test_what_is_asked_of_rows(arguments: dict[str, Any], expected: Any) -> None:
    assert value(**arguments) == expected


def test_the_rows_of_an_object_are_its_list_if_it_has_none_of_the_fields() -> None:
    assert value(ENVELOPE, where="number == 3", select="number") == [3]
    assert value(ENVELOPE, aggregate="count") == {"count": 30}
    assert value(ENVELOPE, select="total") == 972
    assert "of items" in ask(ENVELOPE, aggregate="count")
    assert value(ENVELOPE, path="items", where="number == 3", select="number") == [3]


def test_the_members_of_an_object_of_objects_are_rows() -> None:
    users = document({"users": {f"u{n}": {"name": f"n{n}", "quota": {"used": n}} for n in range(5)}})
    assert value(users, path="users", where="quota.used > 3", select="$key") == ["u4"]
    assert value(users, path="users", sort="-quota.used", limit=1, select="name") == ["n4"]
    assert value(users, path="users", aggregate="count") == {"count": 5}


def test_of_several_values_in_a_row_the_one_that_counts_sorts() -> None:
    """The row that holds the highest of all comes first when the highest are first."""
    series = document(
        [{"host": "a", "values": [[1, "9.5"], [2, "50"]]}, {"host": "b", "values": [[1, "100.25"], [2, "3"]]}]
    )
    assert value(series, sort="-values[][1]", limit=1, select="host") == ["b"]
    assert value(series, sort="values[][1]", limit=1, select="host") == ["b"]
    assert value(series, path="[].values[][1]", aggregate=["max", "min"]) == {"max": "100.25", "min": "3"}


def test_numbers_are_exact() -> None:
    exact = read('[{"n":1.10,"id":90071992547409931234},{"n":0.20,"id":90071992547409931235}]')
    assert (
        ask(exact, select="n,id") == "n,id\n1.10,90071992547409931234\n0.20,90071992547409931235\n[all 2 rows as CSV]"
    )
    assert '{"sum(n)":1.30}' in ask(exact, aggregate="sum:n")
    assert '{"max(id)":90071992547409931235}' in ask(exact, aggregate="max:id")
    assert value(exact, where="id == 90071992547409931235", select="n") == [Decimal("0.20")]
    tenths = document([{"n": Decimal("0.1")}] * 10)
    assert value(tenths, aggregate="sum:n") == {"sum(n)": Decimal(1)}
    assert value(document([{"n": 10}, {"n": 0}, {"n": 0}]), aggregate="avg:n") == {"avg(n)": Decimal("3.333333")}


def test_numbers_that_nobody_can_write_out_do_not_hang() -> None:
    huge = document([{"n": Decimal("1e999999")}, {"n": 1}, {"n": Decimal("-1e-999999")}])
    for function in ("sum", "avg", "median", "min", "max", "distinct"):
        assert ask(huge, aggregate=f"{function}:n")
    assert ask(huge, where="n > 1e999", sort="-n", select="n")
    assert ask(huge, group_by="n")


def test_rows_of_every_type_have_an_order() -> None:
    mixed = document([None, "b", 3, True, [1], {"a": 1}, "a", Decimal("2.5"), False])
    assert value(mixed, sort="$") == [Decimal("2.5"), 3, "a", "b", False, True, [1], {"a": 1}, None]
    assert value(mixed, sort="-$")[-1] is None
    assert value(mixed, aggregate="distinct")["distinct"]["count"] == 8


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "itmes"}, "no member 'itmes'"),
        ({"select": "nmber"}, "no row has 'nmber' (a text needs quotes); the rows have: number"),
        ({"sort": "-nmber"}, "no row has 'nmber'"),
        ({"where": "stat == 'open'"}, "no row has 'stat'"),
        ({"where": "state == open"}, "no row has 'open' (a text needs quotes)"),
        ({"where": "state = "}, "where: at its end"),
        ({"group_by": "stat"}, "no row has 'stat'"),
        ({"aggregate": "sum:nmber"}, "no row has 'nmber'"),
        ({"aggregate": "summ:number"}, "aggregate: no 'summ'; there are: sum"),
        ({"aggregate": "sum:title"}, "sum(title): there are no numbers"),
        ({"group_by": "state", "sort": "-number"}, "groups have no 'number'; they have: "),
        ({"limit": -1}, "limit: a number from 0, not -1"),
        ({"offset": "x"}, "offset: a number from 0"),
        ({"find": "a", "regex": "b"}, "give one of them"),
        ({"regex": "("}, "regex '(': missing )"),
        ({"regex": "a" * 1001}, "at most 1000 characters"),
        ({"regex": "((a{100}){100}){100}"}, "regex"),
        ({"lines": "x"}, "lines: 100-150, 100, or -20"),
        ({"lines": "9-3"}, "lines count from 1"),
        *(
            ({"lines": "1-2", name: asked}, f"lines and {name}: give one of them")
            for name, asked in {
                "where": "number > 3",
                "select": "number",
                "sort": "-number",
                "aggregate": "count",
                "group_by": "state",
                "find": "x",
                "regex": "x",
            }.items()
        ),
        ({"select": 7}, "select: a text, a list of texts"),
        ({"select": []}, "select: it is empty"),
        ({"path": 7}, "path: a path is a text"),
    ],
)
def test_what_cannot_be_answered_says_why(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        ask(**arguments)
    assert told in str(refused.value)


def test_fields_that_a_condition_only_asks_for_may_be_missing() -> None:
    assert value(where="exists(draft)") == []
    assert value(where="draft == null", aggregate="count") == {"count": 30}


def test_plain_values_are_a_list_and_records_a_table() -> None:
    assert ask(select="number", limit=3) == "[0,1,2]\n[rows 0-2 of 30; offset=3 for the next]"
    text = ask(select="number,title,state", limit=2)
    assert text == (
        'number,title,state\n0,"Title 0, or bug",closed\n1,"Title 1, or wish",open\n'
        "[rows 0-1 of 30 as CSV; offset=2 for the next]"
    )
    assert ask(where="number > 100") == "[no rows]"
    assert ask(limit=0) == "[30 rows, none shown]"
    assert ask(offset=99) == "[no rows from 99 on, of 30]"


def test_cells_cannot_be_taken_for_other_values() -> None:
    rows = [
        {"text": text, "n": 1} for text in ("null", "", "1", "a,b", 'say "x"', " x", "{", "-2e5", "True", "line\nend")
    ]
    lines = ask(document([*rows, {"text": None, "n": 1}, {"n": 1}])).splitlines()[2:-1]
    assert lines == [
        '"null",1', '"",1', '"1",1', '"a,b",1', '"say \\"x\\"",1', '" x",1', '"{",1', '"-2e5",1', "True,1",
        '"line\\nend",1',
        "null,1", ",1",
    ]  # fmt: skip


def test_one_text_is_shown_bare_and_paged_by_characters() -> None:
    body = document({"body": "line\n" * 2000, "number": "12", "said": "yes"})
    first = ask(body, path="body", room=300)
    assert first.startswith("line\nline\n")
    assert "[chars 0-" in first
    assert ask(body, path="body", offset=9995) == "line\n\n[chars 9995-10000 of 10,000, the end]"
    assert ask(body, path="number") == '"12"'
    assert ask(body, path="said") == "yes"


def test_lines_and_finding_work_inside_one_text() -> None:
    body = document({"items": [{"body": "one\ntwo\nthree"}]})
    assert ask(body, path="items[0].body", lines="2") == "two"
    assert ask(body, path="/items/0/body", find="THREE") == "3: three\n[all 1 matching lines]"
    with pytest.raises(QueryRefused, match="must lead to one text"):
        ask(body, path="items", lines="2")
    with pytest.raises(QueryRefused, match="path: this is log, which has no fields; give lines alone"):
        ask(LOG, path="items", lines="2")
    assert ask(LOG, path="$", lines="2") == ask(LOG, lines="2")
    assert ask(LOG, sort="", where=None, lines="2") == ask(LOG, lines="2"), "what is empty is not asked"


def test_an_object_that_does_not_fit_is_outlined_and_its_json_can_be_paged() -> None:
    text = ask(ENVELOPE, path="$", room=400)
    assert text.startswith('{"total":972,"items":[')
    assert "path for a member; offset=0" in text
    assert ask(ENVELOPE, offset=0, limit=20).startswith('{"total":972,"items"\n[as JSON: chars 0-20 of')


def test_a_row_that_does_not_fit_is_cut_and_says_how_to_get_it() -> None:
    rows = document([{"id": 7, "body": "x" * 5000, "tail": "end"}, {"id": 8}])
    text = ask(rows, room=400)
    assert '"id":7' in text
    assert '"tail":"end"' in text
    assert '[row 0 of 2, cut; path="[0]" for all of it; offset=1 for the next]' in text


def test_nothing_but_a_document_begins_with_what_it_is() -> None:
    assert ask(room=900).splitlines()[0].startswith("JSON array of 30 objects")
    assert "[rows 0-" in ask(room=900)
    assert ask(LOG, room=500).splitlines()[1] == "0 INFO [ann] took 0ms"


def test_where_something_stands_in_values_is_told_by_path() -> None:
    assert ask(find="title 7,") == "[7].title: Title 7, or wish\n[all 1 matches]"
    text = ask(find="bug", limit=2, offset=1)
    assert (
        text == "[0].labels[0].name (Title 0, or bug/bug): bug\n"
        "[4].title: Title 4, or bug\n[matches 1-2 of 16; offset=3 for the next]"
    )
    assert ask(find="nowhere") == "[found 0 times]"
    assert ask(path="[4:9]", regex="^v\\d$") == "[5].milestone: v1\n[all 1 matches]"


def test_in_a_tree_the_names_on_the_way_are_told() -> None:
    tree = document([{"name": "src", "children": [{"name": "deep", "children": [{"name": "a.py"}]}]}, {"name": "b.py"}])
    assert "(src/deep/a.py): a.py" in ask(tree, find="a.py")
    assert value(tree, path="**", where="name endswith '.py'", select="$trail") == ["src/deep/a.py", "b.py"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"lines": "1"}, "0 INFO [ann] took 0ms"),
        ({"lines": "99-100"}, "98 INFO [cid] took 98ms\n99 INFO [ann] took 99ms\n[lines 99-100 of 100]"),
        ({"lines": "-1"}, "99 INFO [ann] took 99ms"),
        ({"lines": [2, 3]}, "1 INFO [bob] took 1ms\n2 INFO [cid] took 2ms\n[lines 2-3 of 100]"),
        ({"lines": "[2, 2]"}, "1 INFO [bob] took 1ms"),
        ({"offset": 98}, "98 INFO [cid] took 98ms\n99 INFO [ann] took 99ms\n[lines 99-100 of 100]"),
        ({"offset": 5, "limit": 1}, "5 INFO [cid] took 5ms\n[lines 6-6 of 100; offset=6 for the next]"),
        ({"find": "3 error [ANN]", "offset": 2},
         "64: 63 ERROR [ann] took 63ms\n94: 93 ERROR [ann] took 93ms\n[matches 2-3 of 4]"),
        ({"find": "took 4ms", "context": 1},
         "4- 3 ERROR [ann] took 3ms\n5: 4 INFO [bob] took 4ms\n6- 5 INFO [cid] took 5ms\n[all 1 matching lines]"),
        ({"regex": "^9\\d ERROR"}, "94: 93 ERROR [ann] took 93ms\n[all 1 matching lines]"),
        ({"find": "error", "limit": 0}, "[found in 10 of 100 lines]"),
        ({"find": "error", "aggregate": "count"}, '{"count":10}\n[of 10 rows]'),
        ({"aggregate": "count"}, '{"count":100}\n[of 100 rows]'),
        ({"regex": "^\\d+ (?P<level>\\w+)", "group_by": "level"},
         "level,count\nINFO,90\nERROR,10\n[groups of 100 rows: all 2 rows as CSV]"),
        ({"regex": "took (?P<ms>\\d+)ms", "aggregate": "max:ms"}, '{"max(ms)":"99"}\n[of 100 rows]'),
        ({"regex": "took (?P<ms>\\d+)ms", "where": "ms > 97", "select": "ms"}, '["98","99"]\n[all 2 rows]'),
    ],
)  # fmt: skip
def test_what_is_asked_of_texts(arguments: dict[str, Any], expected: str) -> None:
    assert ask(LOG, **arguments) == expected


def test_texts_have_no_fields_and_say_what_to_do() -> None:
    with pytest.raises(QueryRefused, match="where: this is log, which has no fields; use find or regex"):
        ask(LOG, where="level == 'INFO'")
    with pytest.raises(QueryRefused, match="path: this is log"):
        ask(LOG, path="items")
    with pytest.raises(QueryRefused, match="lines: there are 100"):
        ask(LOG, lines="500")


def test_a_text_with_a_huge_line_is_paged_by_characters() -> None:
    html = Document("<p>" + "x" * 10_000 + "</p>", "html")
    text = ask(html, room=500, offset=10)
    assert "[chars 10-" in text
    assert "1: char 10003: " in ask(html, find="</p>")
    table = Document("<td>a</td>" * 300 + "\n<td>b</td>", "html")
    assert '"count":301' in ask(table, find="<td>", aggregate="count")
    assert ask(table, regex="<td>(?P<cell>.)</td>", group_by="cell").startswith("cell,count\na,300\nb,1")
    assert ask(html, lines="1", offset=10_000) == "xxx</p>\n[line 1 of 1: chars 10000-10007 of 10,007, the end]"


def test_lines_of_json_on_one_line_are_those_of_readable_json() -> None:
    text = ask(LIST, lines="1-3")
    assert text.startswith("[\n {\n")
    assert "[JSON written readably, lines 1-3 of" in text


def test_rows_of_csv_are_the_root() -> None:
    assert value(TABLE, where="a > 1", select="b") == ["y"]
    assert ask(TABLE, lines="2") == "1,x"


def test_several_documents_are_one_list_with_handles() -> None:
    documents = {"one": TABLE, "two": TABLE}
    text = answer(read_query({"select": "$handle,a", "sort": "-a", "limit": 2}), documents, 2000).text
    assert text == "$handle,a\none,2\ntwo,2\n[rows 0-1 of 4 as CSV; offset=2 for the next]"
    assert '"count":4' in answer(read_query({"aggregate": "count"}), documents, 2000).text
    both = answer(read_query({"lines": "1"}), {"one": TABLE, "log": LOG}, 2000).text
    assert both == "[one]\na,b\n[log]\n0 INFO [ann] took 0ms"
    assert answer(Query(), {"one": TABLE, "log": LOG}, 1000).text.count("\n[log]\n") == 1


def test_halves_of_characters_and_nulls_do_not_break_answers() -> None:
    odd = Document("", "json", [{"a": "\ud83d x\x00", "b": 1}])
    text = ask(odd)
    text.encode()
    assert "\ufffd x" in text
    assert ask(odd, find="\ud83d")
    assert ask(odd, regex="x")
    ask(Document("\ud83d\x00\n" * 5, "text"), find="\ud83d").encode()


def test_what_is_nested_too_deep_is_refused_or_shown_in_part() -> None:
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    for asked in ({}, {"path": "**", "aggregate": "count"}, {"path": "[0]"}, {"group_by": "$"}):
        with suppress(QueryRefused):
            ask(Document("", "json", [deep]), **asked)


def test_arguments_may_come_as_json_in_texts() -> None:
    assert value(where='{"number": {"lt": 2}}', select='["number", "state"]') == [
        {"number": 0, "state": "closed"},
        {"number": 1, "state": "open"},
    ]
    assert json.loads(ask(aggregate='{"n": "count"}').splitlines()[0]) == {"n": 30}


def test_finding_looks_at_the_words_around_a_value_too() -> None:
    rows = json.dumps([{"id": number, "note": f"done {number}"} for number in range(3)])
    found = read(f"3 rows, all done:\n\n{rows}\n\nDone.")
    assert found.is_structured
    assert ask(found, find="done").splitlines() == [
        "(before the value, line 1): 3 rows, all done:",
        *(f"[{number}].note: done {number}" for number in range(3)),
        "(after the value, line 1): Done.",
        "[all 5 matches]",
    ]
    assert ask(found, regex="^Done", offset=0) == "(after the value, line 1): Done.\n[all 1 matches]"
    assert ask(found, find="done", path="[1]") == "[1].note: done 1\n[all 1 matches]"
    assert ask(found, find="done", offset=3, limit=1).startswith("[2].note: done 2\n[matches 3-3 of 5")
    assert value(found, find="done", where="id == 1", select="note") == ["done 1"]


def test_a_pattern_has_a_few_groups_and_some_time() -> None:
    with pytest.raises(QueryRefused, match="at most 20 groups"):
        ask(regex="(a|b)*" * 150)
    assert ask(regex="(o)" * 20, limit=1)
    now = [0.0]
    patience = Patience(lambda: now[0])
    finders = Plain("title", patience), Regex("(?i)title", patience)
    for finder in finders:
        assert finder.first("a Title") == (2, 7)
    now[0] = SEARCH_SECONDS + 1
    for finder in finders:
        with pytest.raises(QueryRefused, match="takes longer than 15 s: give a path or where"):
            finder.first("a title")
    with pytest.raises(QueryRefused):
        finders[1].groups("a title")


def test_documents_of_which_one_is_no_list_are_the_rows_themselves() -> None:
    documents = {"a": document([1, 2, 3]), "b": document({"x": 1})}

    def asked(**arguments: Any) -> str:
        return answer(read_query(arguments), documents, 2000).text

    assert asked(aggregate="count") == '{"count":2}\n[of 2 rows]'
    assert asked(select="$") == '[1,2,3]\n{"x":1}\n[all 2 rows]'
    documents["b"] = document([4])
    assert asked(aggregate="count") == '{"count":4}\n[of 4 rows]'


def test_too_many_handles_for_the_room_are_refused() -> None:
    """Of each there would be less than one line: an answer that says nothing costs more than an error."""
    documents = {f"h{at}": document({"a": "x" * 500}) for at in range(20)}
    with pytest.raises(QueryRefused, match="too many handles for 2000 characters: give fewer"):
        answer(read_query({"find": "x"}), documents, 2000)
    assert len(answer(read_query({"find": "x"}), dict(list(documents.items())[:5]), 2000).text) <= 2000


def test_commas_with_nothing_between_them_name_no_column() -> None:
    assert ask(select="number, ,title,", limit=1) == ask(select="number,title", limit=1)
    assert ask(sort="-number,", limit=1) == ask(sort="-number", limit=1)
    assert split_terms("a, ,b(c, d),") == ["a", "b(c, d)"]


@pytest.mark.parametrize("blank", ["", " ", "  \n\t"])
def test_a_blank_text_is_shown_as_what_it_is(blank: str) -> None:
    assert ask(document({"a": blank}), path="a") == json.dumps(blank)


def test_the_first_match_is_shown_though_it_is_longer_than_the_room() -> None:
    found = ask(document({"a": f"needle {'x' * 190}", "b": "needle"}), room=200, find="needle")
    assert found.startswith("a: needle xxx")
    assert found.endswith("[matches 0-0 of 2; offset=1 for the next]")
