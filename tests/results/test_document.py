"""Reading the texts of results: which kind they are, and values that stay exact."""

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.document import read
from support.cpu_time import assert_no_longer


def test_a_json_array_and_object_are_read_with_their_numbers_as_written() -> None:
    document = read('[{"id": 12345678901234567890, "price": 1.10}]')
    assert document.kind == "json"
    assert document.value == [{"id": 12345678901234567890, "price": Decimal("1.10")}]
    assert str(document.value[0]["price"]) == "1.10"
    assert read(' {"a": 1}\n').value == {"a": 1}
    assert read('\ufeff{"a": 1}').value == {"a": 1}


@pytest.mark.parametrize("text", ["", " ", "hello", "12", '"text"', "true", "{", "[1, 2", "{]", "\x00\x01", "\ud800"])
def test_what_is_no_value_is_text_and_raises_nothing(text: str) -> None:
    document = read(text)
    assert document.value is None
    assert document.text == text
    assert not document.is_structured


def test_json_lines_are_a_list() -> None:
    document = read('{"a": 1}\n{"a": 2.50}\r\n\n{"b": "{}"}\n')
    assert document.kind == "ndjson"
    assert document.value == [{"a": 1}, {"a": Decimal("2.50")}, {"b": "{}"}]


def test_an_odd_line_among_json_lines_stays_in_its_place() -> None:
    lines = [json.dumps({"n": n}) for n in range(30)]
    lines[7] = "... 3 lines skipped"
    document = read("\n".join(lines))
    assert document.kind == "ndjson"
    assert document.value[7] == "... 3 lines skipped"
    assert document.value[8] == {"n": 8}


def test_two_values_on_one_line_are_no_json_lines_with_the_wrong_count() -> None:
    document = read('{"a": 1},{"a": 2}\n{"a": 3}\n')
    assert document.kind != "ndjson"


def test_json_below_a_heading_is_json_with_the_heading_kept() -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(33)]
    document = read(f"Found 33 results:\n{json.dumps(rows, indent=2)}\n\nSee page 2 for more.")
    assert document.kind == "json"
    assert document.value == rows
    assert document.around == ("Found 33 results:", "See page 2 for more.")


def test_a_fenced_block_of_json_is_json() -> None:
    document = read('Here it is:\n```json\n{"a": [1, 2, 3], "b": "a text with some length to it"}\n```\n')
    assert document.kind == "json"
    assert document.value["a"] == [1, 2, 3]
    assert document.around == ("Here it is:", "")


def test_a_long_text_that_holds_some_json_stays_a_text() -> None:
    document = read("word " * 2000 + "\n" + json.dumps([{"id": number} for number in range(30)]))
    assert not document.is_structured


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimited_text_is_a_table_whatever_the_delimiter(delimiter: str) -> None:
    lines = ["id,name,price,zip", "1,anna,1.10,01234", "2,bert,20.00,94110", "3,,-3.5,00001"]
    document = read("\n".join(line.replace(",", delimiter) for line in lines) + "\n")
    assert document.kind == "csv"
    assert document.value == [
        {"id": 1, "name": "anna", "price": Decimal("1.10"), "zip": "01234"},
        {"id": 2, "name": "bert", "price": Decimal("20.00"), "zip": "94110"},
        {"id": 3, "name": "", "price": Decimal("-3.5"), "zip": "00001"},
    ]
    assert str(document.value[1]["price"]) == "20.00"


def test_quoted_cells_keep_delimiters_quotes_and_line_breaks() -> None:
    text = 'id,note,flag\r\n1,"a, b",x\r\n2,"say ""hi""",y\r\n3,"two\nlines",z\r\n'
    assert [row["note"] for row in read(text, "text/csv").value] == ["a, b", 'say "hi"', "two\nlines"]


@pytest.mark.parametrize(
    "text",
    [
        "Dear all, thank you.\nWe met, we ate.\nSo long, and thanks.\nGoodbye, then.\n",
        "2026-01-01 12:00:00,123 INFO start\n2026-01-01 12:00:01,456 WARN slow\n2026-01-01 12:00:02,789 INFO end\n",
        "a,b\n1,2,3\n4\n5,6\n",
        "x = f(a, b)\ny = g(c, d)\nz = h(e, f)\n",
    ],
)
def test_prose_logs_and_code_are_no_tables(text: str) -> None:
    assert read(text).kind != "csv"


def test_a_markdown_table_is_a_table() -> None:
    document = read(
        "### Open orders\n\n| id | name | total |\n|---:|:-----|------:|\n"
        + "".join(f"| {number} | item \\| {number} | {number}.50 |\n" for number in range(1, 6))
    )
    assert document.kind == "table"
    assert document.value[0] == {"id": 1, "name": "item | 1", "total": Decimal("1.50")}
    assert len(document.value) == 5
    assert document.around[0] == "### Open orders"


def test_a_python_value_is_read_with_dates_and_decimals() -> None:
    document = read(
        "[{'id': 1, 'at': datetime.datetime(2026, 1, 2), 'price': Decimal('1.10'), 'ok': True, 'note': None},"
        " {'id': 2, 'at': datetime.date(2026, 1, 3), 'price': 2.50, 'ok': False, 'note': \"it's (here)\"}]"
    )
    assert document.kind == "repr"
    assert document.value == [
        {"id": 1, "at": "2026-01-02T00:00:00", "price": Decimal("1.10"), "ok": True, "note": None},
        {"id": 2, "at": "2026-01-03", "price": Decimal("2.50"), "ok": False, "note": "it's (here)"},
    ]


def test_tuples_and_sets_of_python_are_lists() -> None:
    assert read("[(1, 'a'), (2, 'None of it'), ()]").value == [[1, "a"], [2, "None of it"], []]
    assert read("{'tags': {'x'}, 5: (1,)}").value == {"tags": ["x"], "5": [1]}


def test_strings_of_python_in_either_quotes_and_with_escapes() -> None:
    value = [
        "it's",
        'a "quote"',
        "both ' and \"",
        "back\\slash",
        "line\nbreak\tand \x1b",
        "\ud800 half",
        "none: None, (1)",
    ]
    assert read(repr([value])).value == [value]
    assert read(repr({"it's": ("x", 1.50, None, True)})).value == {"it's": ["x", Decimal("1.5"), None, True]}


@pytest.mark.parametrize("text", ["['a' 'b', 1]", "[b'bytes', 1]", "[None1, 'x']", "['a'.upper(), 1]", "['open, 1]"])
def test_texts_that_are_more_than_strings_are_not_read_as_strings(text: str) -> None:
    assert read(text).value in (None, ["ab", 1], ["b'bytes'", 1])


def test_code_is_never_run() -> None:
    assert not read("[__import__('os').getcwd(), 1]").is_structured
    assert not read("[open('x') for x in 'ab']").is_structured


@pytest.mark.parametrize(
    "text",
    [
        "[" + "\\'" * 300_000 + "]",
        "[" + "'\n" * 300_000 + "]",
        "['" + "\\" * 300_001 + "']",
        "[" + " " * 300_000 + "a]",
        "[" + ", " * 300_000 + "a)]",
        "[" + "date(1" * 100_000 + "]",
    ],
    ids=["escapes", "open strings", "backslashes", "spaces", "commas", "calls"],
)
def test_what_looks_like_python_over_and_over_takes_time_in_proportion(text: str) -> None:
    """Each would take minutes if its rest were searched again from each place."""
    ordinary = repr([f"word {number}" for number in range(len(text) // 14)])
    assert read(ordinary).is_structured
    assert_no_longer(lambda: read(text), lambda: read(ordinary))
    assert not read(text).is_structured


@pytest.mark.parametrize("nested", ["[" * 200_000, "[" * 50_000 + "]" * 50_000, "{'a':" * 20_000 + "1" + "}" * 20_000])
def test_hostile_nesting_is_no_error(nested: str) -> None:
    assert read(nested).text == nested


_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_values, min_size=1) | st.dictionaries(st.text(max_size=5), _values, min_size=1))
def test_any_value_that_python_prints_is_read_back(value: object) -> None:
    """Whatever way the text is read, the value is the one that was printed."""
    document = read(repr(value))
    assert document.kind in {"json", "repr"}
    assert document.value == value


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.text("abc", min_size=1, max_size=2), _scalars, min_size=1), min_size=2))
def test_any_objects_as_json_lines_are_read_back(rows: list[dict[str, object]]) -> None:
    document = read("\n".join(map(json.dumps, rows)))
    assert document.kind == "ndjson"
    assert document.value == rows


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert read(text).text == text
    assert read(text, "text/csv").text == text
    assert read("a,b,c\n" + text).text.endswith(text)


def test_numbers_that_json_has_not_and_bytes_are_strings_of_a_python_value() -> None:
    document = read("[{'a': inf, 'b': -inf, 'c': nan, 'd': 'nan, inf', 'e': b'it\\x00', 'f': Decimal('1.10')}] ")
    assert document.kind == "repr"
    assert document.value == [
        {"a": "inf", "b": "-inf", "c": "nan", "d": "nan, inf", "e": "b'it\\x00'", "f": Decimal("1.10")}
    ]
    assert read("[info, 1]").kind != "repr"


def test_numbers_of_a_column_are_read_as_each_alone_would_be() -> None:
    """Columns of nothing but numbers are read at once; what writing back would change stays text."""
    columns = (["1", "20", "-3"], ["1.50", "2", "0.1"], ["-0", "1", "2"], ["1", "٣", "1_0"], ["007", "8", "9"])
    told = (
        [1, 20, -3],
        [Decimal("1.50"), 2, Decimal("0.1")],
        ["-0", 1, 2],
        [1, "٣", "1_0"],
        ["007", "8", "9"],
    )
    for cells, values in zip(columns, told, strict=True):
        csv = "\n".join(["name,value,of", *(f"a,{cell},b" for cell in cells)])
        table = "\n".join(["| name | value |", "|---|---|", *(f"| a | {cell} |" for cell in cells)])
        for text in (csv, table):
            read_values = [row["value"] for row in read(text).value]
            assert list(map(repr, read_values)) == list(map(repr, values)), text


def test_line_separators_in_csv_break_nothing() -> None:
    """What looks like three lines to one reader and like one to another is no error."""
    assert read("a,b,c\u20281,2,3\u20284,5,6").kind in {"csv", "text"}
    assert read('a,b,c\u2028"1",2,3\u20284,5,6').kind in {"csv", "text"}
