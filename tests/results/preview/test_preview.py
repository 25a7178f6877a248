"""What previews of structured results promise whatever the value: room, counts, names, the same text each time."""

import hashlib
import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.document import Document, read
from mcpbridge.results.preview.column_profile import profile_of
from mcpbridge.results.preview.facts import series_columns
from mcpbridge.results.preview.flatten import Column, Lists, Table, branch_of, table_of
from mcpbridge.results.preview.preview import headline, preview

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    | st.sampled_from(["open", "closed", "2026-01-01T00:00:00Z", "https://example.com/a", "1.50", "a.py", "fix: b"])
)
_names = st.text(max_size=8) | st.sampled_from(["id", "name", "status", "children", "ts", "values", "amount", "labels"])
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=8) | st.dictionaries(_names, inner, max_size=8), max_leaves=12
)
_documents = st.lists(_values) | st.dictionaries(_names, _values)


@settings(max_examples=50, deadline=None)
@given(_documents, st.integers(150, 3000), st.integers(0, 5))
def test_any_value_fits_its_room_and_gives_the_same_text_each_time(value: Any, room: int, items: int) -> None:
    document = Document("", "json", value)
    text = preview(document, room, items)
    assert len(text) <= room
    assert text == preview(document, room, items)
    assert text.encode()
    assert headline(document).startswith("JSON ")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.dictionaries(_names, _values, max_size=4), min_size=2, max_size=12))
def test_the_number_of_rows_is_told_exactly(rows: list[Any]) -> None:
    document = Document("", "json", rows)
    assert f"array of {len(rows)} objects" in headline(document)
    text = preview(document, 4000)
    assert f"array of {len(rows)} objects" in text or (branch_of(rows) and "tree" in text)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.text("abcdefgh", min_size=3, max_size=8), _scalars, min_size=1, max_size=15))
def test_each_field_of_an_object_is_named(value: dict[str, Any]) -> None:
    text = preview(Document("", "json", value), 4000)
    for name in value:
        assert name in text


def _pods(random_: random.Random) -> dict[str, Any]:
    phases = ["Running"] * 12 + ["Pending", "Failed"]
    return {
        "kind": "List",
        "items": [
            {
                "metadata": {"name": f"pod-{number}-{random_.randrange(10**6)}", "labels": {"app": f"app{number % 7}"}},
                "spec": {"containers": [{"name": "main", "image": f"registry.example/app:{number % 5}.1"}]},
                "status": {"phase": random_.choice(phases), "restarts": random_.choice([0, 0, 0, 0, 3, 11])},
            }
            for number in range(60)
        ],
    }


def _text(value: Any, room: int = 1860) -> str:
    return preview(read(json.dumps(value)), room)


@pytest.mark.parametrize("room", [660, 1860])
def test_rows_that_differ_from_the_others_are_named(room: int) -> None:
    pods = _pods(random.Random(3))
    text = _text(pods, 1860)
    odd = [pod for pod in pods["items"] if pod["status"]["phase"] != "Running"]
    assert f"status.phase not Running ({len(odd)})" in text
    for pod in odd:
        assert pod["metadata"]["name"] in text
    assert f"Running {60 - len(odd)}" in _text(pods, room)


def test_every_field_path_can_be_read_off_in_eight_hundred_characters() -> None:
    text = _text(_pods(random.Random(3)), 660)
    for name in ("metadata", "name", "labels", "app", "spec", "containers", "image", "status", "phase", "restarts"):
        assert name in text


def test_a_sum_of_money_is_exact_and_ids_are_not_added_up() -> None:
    rows = [
        {"id": 10**17 + number, "total": number + 0.1, "status": "paid" if number % 3 else "open"}
        for number in range(50)
    ]
    text = _text(rows)
    assert f"sum {sum(Decimal(str(row['total'])) for row in rows)}" in text
    assert "max 49.1 at id 100000000000000049" in text
    assert str(sum(row["id"] for row in rows)) not in text
    paid = sum(Decimal(str(row["total"])) for row in rows if row["status"] == "paid")
    assert f"total sum by status: paid {paid}" in text


def test_a_small_table_is_shown_whole_and_of_a_large_one_some_rows() -> None:
    rows = [{"title": f"Result {n}", "url": f"https://x.example/{n * 7919}", "score": n / 7} for n in range(200)]
    small, large = _text(rows[:10]), _text(rows)
    assert all(row["url"] in small for row in rows[:10])
    assert large.count("https://") < 30
    assert "Result 199" in large


def test_a_longer_room_is_not_filled_with_what_is_worth_little() -> None:
    rows = [{"id": f"r-{n * 7919}", "kind": "abc"[n % 3], "n": n * n, "on": n % 5 == 0} for n in range(300)]
    text = _text(rows, 8000)
    assert 400 < len(text) < 4000
    assert "array of 300 objects" in text


def test_sums_by_two_categories_are_told_of_amounts_and_counts_of_others() -> None:
    rows: list[dict[str, Any]] = [
        {"region": "eu" if n % 3 else "us", "state": "paid" if n % 2 else "open", "amount": n * 37 % 101}
        for n in range(60)
    ]

    def told(region: str, state: str) -> str:
        amounts = [row["amount"] for row in rows if row["region"] == region and row["state"] == state]
        return f"{len(amounts)} {sum(amounts)}"

    expected = "; ".join(f"{region} {told(region, 'open')}, {told(region, 'paid')}" for region in ("us", "eu"))
    assert f"count and amount sum by region × state (open, paid): {expected}" in _text(rows)
    plain = _text([{"region": row["region"], "state": row["state"]} for row in rows])
    assert "count by region × state (open, paid): us 10, 10; eu 20, 20" in plain


def test_labels_in_lists_and_missing_values_are_counted() -> None:
    rows = [
        {"n": number, "labels": [{"name": "bug"}] * (number % 2) + [{"name": "docs"}] * (number % 3 == 0)}
        | ({"closed_at": "2026-01-02T00:00:00Z"} if number < 7 else {})
        | {"milestone": None if number % 4 else "v1"}
        for number in range(40)
    ]
    text = _text(rows)
    assert "labels[].name: " in text
    assert "bug 20, docs 14" in text
    assert "in 7" in text.partition("closed_at")[2][:20]
    assert "10 set, 30 null" in text


def test_columns_that_say_the_same_are_told_once() -> None:
    rows = [
        {"user": {"login": f"anna{n % 4}", "id": 50 + n % 4, "url": f"https://x.example/{n % 4}"}} for n in range(30)
    ]
    text = _text(rows)
    assert "anna0 8, anna1 8, anna2 7, anna3 7" in text
    assert "50 8" not in text


def test_an_object_under_ids_is_a_table_with_its_keys() -> None:
    users = {
        f"u-{number:04x}": {"role": "admin" if number % 5 else "owner", "mb": number * 37 % 50 * 7}
        for number in range(50)
    }
    text = _text({"generated": "now", "users": users})
    assert "users: map of 50 entries" in text
    assert "admin 40, owner 10" in text
    assert "max 343 at {key} u-001b" in text


def _tree(random_: random.Random, depth: int) -> list[dict[str, Any]]:
    return [
        {"name": f"dir{number}", "type": "directory", "children": _tree(random_, depth - 1)}
        if depth and random_.random() < 0.4
        else {"name": f"file{random_.randrange(999)}.{random_.choice(['py', 'md'])}", "type": "file"}
        for number in range(6)
    ]


def test_a_tree_tells_how_many_nodes_of_which_sort_it_has() -> None:
    tree = _tree(random.Random(1), 4)

    def names(nodes: list[dict[str, Any]]) -> list[str]:
        return [name for node in nodes for name in (names(node["children"]) if "children" in node else [node["name"]])]

    files = names(tree)
    text = _text(tree)
    assert f"file {len(files)}" in text
    assert f".py {sum(name.endswith('.py') for name in files)}" in text
    assert "top level: 6 entries" in text
    assert "children" in text
    assert tree[2]["name"] in text


def test_series_are_told_by_their_ends_and_extremes() -> None:
    random_ = random.Random(2)
    series = [
        {
            "metric": {"host": f"h{n}"},
            "values": [[1780000000 + 60 * i, f"{random_.uniform(0, 90):.2f}"] for i in range(80)],
        }
        for n in range(5)
    ]
    text = _text({"data": {"result": series}})
    for entry in series:
        figures = [point[1] for point in entry["values"]]
        line = next(line for line in text.splitlines() if entry["metric"]["host"] + " |" in line)
        assert {figures[-1], max(figures, key=float), min(figures, key=float)} <= set(line.split(" | "))
    assert "80 in each of 5 lists" in text
    assert str(sum(point[0] for entry in series for point in entry["values"])) not in text


def test_a_table_of_lists_takes_its_names_from_the_first() -> None:
    table = [["day", "volume"], *([f"2026-01-{day:02d}", day * 10] for day in range(1, 31))]
    text = _text(table)
    assert "[1] volume: 10–300" in text
    assert "2026-01-30" in text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "JSON empty array"),
        ({}, "JSON object, 0 members"),
        ([1, 2.5], "JSON array of 2 numbers"),
        (["a"], "JSON array of 1 string"),
        ([{}, 1], "JSON array of 2 values"),
        ({"a": 1, "items": [{"b": n} for n in range(250)]}, "JSON object, 2 members, items: 250"),
    ],
)
def test_headlines(value: Any, said: str) -> None:
    assert headline(read(json.dumps(value))) == said
    assert len(preview(read(json.dumps(value)), 150)) <= 150


@pytest.mark.parametrize(
    ("value", "said", "text"),
    [
        (None, "JSON null", "value: null"),
        (True, "JSON boolean", "boolean: true"),
        (12345678901234567890, "JSON number", "number: 12345678901234567890"),
        (Decimal("1.10"), "JSON number", "number: 1.10"),
        ("", "JSON string of 0 chars", 'string: ""'),
        ("plain", "JSON string of 5 chars", "string: plain"),
        ({}, "JSON object, 0 members", "empty object"),
        ([], "JSON empty array", "empty array"),
    ],
)
def test_any_root_has_a_headline_and_a_preview(value: Any, said: str, text: str) -> None:
    document = Document("", "json", value)
    assert headline(document) == said
    assert preview(document, 150) == text


def test_a_long_string_alone_is_cut_to_its_room() -> None:
    document = Document("", "json", 'word "quoted" ' * 1000)
    assert headline(document) == "JSON string of 14000 chars"
    text = preview(document, 300)
    assert 260 < len(text) <= 300
    assert text.startswith("string: word")
    assert " chars … " in text


def test_headlines_of_other_kinds() -> None:
    assert headline(read("a,b,c\n1,2,3\n4,5,6\n")) == "CSV, 2 rows × 3 columns"
    assert headline(read('{"a": 1}\n{"a": 2}\n')) == "JSON lines, 2"
    assert headline(read("[{'a': None}]")) == "Python array of 1 object"


def test_the_text_around_a_value_is_shown() -> None:
    rows = json.dumps([{"id": n, "name": f"n{n}"} for n in range(50)])
    text = preview(read(f"Found 50 of 312 rows:\n{rows}\n(page 1 of 7)"), 900)
    assert "Found 50 of 312 rows:" in text
    assert "(page 1 of 7)" in text


def test_a_very_large_table_says_that_it_was_sampled_and_counts_exactly() -> None:
    rows = [{"id": n, "v": n % 10} for n in range(300_001)]
    text = preview(Document("", "json", rows), 1500)
    assert "300001 objects" in text
    assert "sample" in text
    assert "300000" in text


@pytest.mark.parametrize(
    "value",
    [
        {f"name{number}": number if number % 2 else str(number) for number in range(50_000)},
        [{f"k{number}": 1} for number in range(5_000)],
        {f"list{number}": [1] * 9 for number in range(2_000)},
        [["x" * 100_000]] * 50,
        ["\ud800 half a character", "and\nlines\x00"] * 30,
        [Decimal("1e999999"), Decimal("-1e999999"), 10**5000, 7],
        [{"a": {"b": {"c": [[[[{"d": 1}]]]]}}}] * 20,
    ],
    ids=["names", "sparse", "lists", "long", "surrogates", "numbers", "deep"],
)
def test_hostile_shapes_are_previewed_within_their_room(value: Any) -> None:
    for room in (150, 700, 2000):
        text = preview(Document("", "json", value), room)
        assert 0 < len(text) <= room
        assert text.encode()


def _orders(count: int = 120) -> list[dict[str, Any]]:
    return [
        {
            "id": 10**17 + number,
            "customer": f"O'Neil {number}" if number % 7 == 0 else f"Customer {number}",
            "city": ("Lima", "Quito", "Oslo")[number % 3],
            "digest": f"{number * 7919:040x}",
            "amount": number / 8,
            "currency": "EUR",
        }
        for number in range(count)
    ]


def test_the_first_and_the_last_row_are_told_in_short() -> None:
    lines = _text(_orders()).splitlines()
    first = next(line for line in lines if line.startswith("0 100000000000000000 | "))
    last = next(line for line in lines if line.startswith("119 100000000000000119 | "))
    assert "O'Neil 0" in first
    assert "O'Neil 119" in last
    assert {"Lima", "Oslo"} <= {*first.split(" | "), *last.split(" | ")}


def test_each_of_two_tables_has_its_first_and_its_last_row() -> None:
    graph = {
        "nodes": [{"name": f"node-{n}", "sort": "abc"[n % 3]} for n in range(90)],
        "edges": [{"from": f"node-{n}", "to": f"node-{n + 1}", "sort": "knows"} for n in range(40)],
    }
    text = _text(graph)
    assert headline(read(json.dumps(graph))).endswith("nodes: 90, edges: 40")
    for row in ("0 node-0 | a", "89 node-89 | c", "0 node-0 | node-1", "39 node-39 | node-40"):
        assert row in text.splitlines()
    assert 'sort="knows"' in text


def test_hashes_are_cut_in_rows_and_few_are_listed() -> None:
    rows = [{"sha": hashlib.sha1(b"%d" % n).hexdigest(), "author": "abc"[n % 3], "lines": n * n} for n in range(50)]
    text = _text(rows)
    assert 2 <= sum(row["sha"] in text for row in rows) <= 5
    assert f"0 {rows[0]['sha'][:10]}… | " in text
    assert rows[-1]["sha"] in text


def test_what_is_the_same_in_all_rows_is_told_once_with_its_value() -> None:
    text = _text(_orders())
    assert text.count("EUR") == 1
    assert "(= always)" in text
    assert 'currency="EUR"' in text


def test_ids_that_are_all_different_are_told_with_their_range() -> None:
    assert "id: 100000000000000000–100000000000000119, all different" in _text(_orders())
    assert "SN-1000–SN-1990, all different" in _text([{"sensor": f"SN-{n * 10}", "n": n % 5} for n in range(100, 200)])


def test_texts_begin_with_whole_words() -> None:
    assert "begin Customer 102, O'Neil 18" in _text(_orders())


def test_a_rounded_mean_is_marked_and_an_exact_one_is_not() -> None:
    assert "mean ≈4.333" in _text([{"n": n, "size": size} for n, size in enumerate([1, 2, 10] * 5)])
    assert "mean 2;" in _text([{"n": n, "size": size} for n, size in enumerate([1, 2, 3] * 5)]) + ";"


def test_numbers_that_are_none_leave_the_others_their_range() -> None:
    rows = [{"id": n, "ratio": float("-inf") if n % 9 == 0 else n + 0.5} for n in range(60)]
    text = preview(read(repr(rows)), 1860)
    assert "numbers 1.5 to 59.5" in text
    assert "-inf 7" in text


@pytest.mark.parametrize("wrap", [lambda text: [{"ids": text}], lambda text: {"ids": [text]}, lambda text: [text]])
def test_one_long_text_is_told_to_the_room_with_its_end(wrap: Any) -> None:
    text = _text(wrap("".join(f"{n}," for n in range(2000)) + "THE END"))
    assert 1700 < len(text) <= 1860
    assert "0,1,2,3,4" in text
    assert "THE END" in text


def test_long_texts_share_the_room() -> None:
    text = _text({"title": "t", "body": "b" * 6000 + "END", "more": "m" * 6000})
    assert text.count("b") > 600
    assert text.count("m") > 600
    assert "END" in text
    assert len(text) <= 1860


def test_numbers_like_times_are_times_only_where_the_name_and_the_spread_say_so() -> None:
    """Within a fifth of the latest; further apart they are amounts."""

    def sort_of(path: str, values: list[Any]) -> str:
        return profile_of(Column(path, values, range(len(values)), len(values))).sort

    assert sort_of("created", [1_200_000_001, 1_300_000_000, 1_500_000_000]) == "time"
    assert sort_of("created", [1_200_000_000, 1_300_000_000, 1_500_000_000]) == "number"
    decimals = ["1500000000.5", "1600000000.25", "1700000000.75"]
    for path, sort in (("created", "time"), ("a.ts", "time"), ("price", "number"), ("created.price", "number")):
        assert sort_of(path, decimals) == sort


def test_series_of_very_many_rows_are_not_summed_up() -> None:
    """It would take longer than what it says is worth."""
    series = list(range(10))
    for many, has_columns in ((20_000, True), (20_001, False)):
        table = Table(rows=[], lists=[Lists("points", [series] * many, range(many))])
        assert bool(series_columns(table)) is has_columns


def test_sixteen_long_names_are_all_listed_and_of_more_the_first() -> None:
    for many in (15, 16, 17):
        rows = [{"name": f"a rather long name of a thing {at * 7919 % 97} {at}"} for at in range(many)]
        text = preview(Document("", "json", rows), 3000)
        assert all(row["name"] in text for row in rows) == (many <= 16)


def test_of_very_wide_rows_a_hundred_members_count_for_how_many_are_looked_at() -> None:
    wide = {f"m{at}": at for at in range(300)}
    text = preview(Document("", "json", [wide, *[{"m0": at} for at in range(3000)]]), 2000)
    assert "array of 3001" in text
    assert "sample" not in text
    wider = {f"m{at}": {f"n{inner}": 1 for inner in range(10)} for at in range(100)}
    assert "sample" in preview(Document("", "json", [wider, *[{"m0": at} for at in range(3000)]]), 2000)


def test_a_member_is_left_out_of_the_rows_themselves_and_not_of_what_is_in_them() -> None:
    rows = [{"a": at, "b": at, "inner": {"a": at, "c": at}} for at in range(3)]
    assert [column.path for column in table_of(rows, "a").columns] == ["b", "inner.a", "inner.c"]
    assert [column.path for column in table_of(rows, None).columns] == ["a", "b", "inner.a", "inner.c"]
