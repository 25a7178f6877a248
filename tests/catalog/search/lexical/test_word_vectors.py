"""Word vectors without numpy: the table, sums of its rows, and numbers of many tools at once (issue 6, Ranker)."""

import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.search.lexical.bitsets import MOST, Shape
from mcpbridge.catalog.search.lexical.word_vectors import NORM, TABLE, Near, Table, encode_table, packed, table

DIMS = 3
ROWS = {"rain": (100, 0, 0), "sun": (0, 100, 0), "##fall": (0, 0, -128), "dark": (-100, -100, 127)}

vectors = st.lists(st.integers(-101, 101), min_size=DIMS, max_size=DIMS)


def small_table() -> Table:
    cells = bytes(value % 256 for row in ROWS.values() for value in row)
    return Table(encode_table(list(ROWS), [1.0, 0.5, 1.0, 1.0], cells, DIMS))


def test_a_text_is_the_sum_of_its_words_at_full_length() -> None:
    made = small_table()
    assert list(made.vector([("rain", 1)])) == [NORM, 0, 0]
    assert list(made.vector([("rain", 1), ("sun", 2)])) == [round(NORM / 2**0.5)] * 2 + [0]
    assert made.vector([("rainfall", 1)])[2] < 0
    assert list(made.vector([("unknown", 1)])) == [0, 0, 0]
    assert list(made.vector([])) == [0, 0, 0]


@given(st.lists(st.text("ab#é語", min_size=1, max_size=4), min_size=1, max_size=40, unique=True), st.text("ab#é語"))
def test_each_word_of_the_table_has_its_row(entries: list[str], other: str) -> None:
    made = Table(encode_table(entries, [1.0] * len(entries), bytes(DIMS * len(entries)), DIMS))
    assert [made.rows(entry) for entry in entries] == [(row,) for row in range(len(entries))]
    assert len(made.rows(other)) != 1 or other in entries


def test_words_that_were_let_go_of_are_read_again() -> None:
    shipped = table()
    assert shipped is not None
    before = list(shipped.vector([("umbrella", 1), ("rainfall", 2)]))
    shipped.forget()
    assert list(shipped.vector([("umbrella", 1), ("rainfall", 2)])) == before


@given(st.data())
def test_a_table_that_was_cut_off_is_none(data: st.DataObject) -> None:
    whole = encode_table(list(ROWS), [1.0] * len(ROWS), bytes(DIMS * len(ROWS)), DIMS)
    with pytest.raises((ValueError, struct.error)):
        Table(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_long_texts_do_not_overflow() -> None:
    made = small_table()
    assert list(made.vector([("dark", 1)] * 100_000)) == list(made.vector([("dark", 1)]))


@given(st.lists(vectors, min_size=1, max_size=20), vectors, st.integers(0, 20), st.integers(1, 60))
def test_products_are_exact(tools: list[list[int]], query: list[int], cut: int, least: int) -> None:
    shape = Shape(len(tools))
    near = Near(shape, [packed(tools[:cut]), packed(tools[cut:])], DIMS)
    told = [value if abs(value) >= least else 0 for value in query]
    exact = [max(0, sum(a * b for a, b in zip(tool, told, strict=True))) for tool in tools]
    assert list(shape.cells(near.products(query, least))) == exact


@given(st.lists(vectors, min_size=1, max_size=20), st.integers(0, 20))
def test_vectors_can_be_had_back(tools: list[list[int]], cut: int) -> None:
    near = Near(Shape(len(tools)), [packed(tools[:cut]), packed(tools[cut:])], DIMS)
    assert near.vectors() == packed(tools)


def test_there_may_be_no_tools() -> None:
    shape = Shape(0)
    cells = shape.cells(Near(shape, [], DIMS).products([1, 2, 3]))
    assert list(cells) == cells.first(3) == []
    assert cells.largest() == 0


numbers = st.lists(st.one_of(st.integers(0, MOST), st.integers(0, 300)), min_size=1, max_size=30)


@given(numbers, st.integers(1, 31))
def test_the_largest_are_found(cells: list[int], count: int) -> None:
    shape = Shape(len(cells))
    found = shape.cells(shape.put(array("H", cells)))
    assert list(found) == cells
    assert found.largest() == max(cells)
    first = found.first(count)
    assert first == sorted(set(first))
    telling = [tool for tool, cell in enumerate(cells) if cell > MOST >> 8]
    assert set(sorted(telling, key=lambda tool: -cells[tool])[: count - 1]) <= set(first) <= set(telling)


@given(numbers, st.data())
def test_only_masked_tools_stay(cells: list[int], data: st.DataObject) -> None:
    shape = Shape(len(cells))
    flags = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(cells), max_size=len(cells))))
    few = shape.cells(shape.put(array("H", cells)) & shape.mask(flags).lanes)
    assert list(few) == [cell * flag for cell, flag in zip(cells, flags, strict=True)]


@given(numbers, numbers, st.floats(0.1, 0.9))
def test_two_kinds_of_numbers_are_weighed_against_each_other(one: list[int], other: list[int], share: float) -> None:
    count = min(len(one), len(other))
    shape = Shape(count)
    kinds = [(numbers[:count], part) for numbers, part in ((one, share), (other, 1 - share))]
    sums = sum(shape.share(shape.put(array("H", cells)), max(cells), part) for cells, part in kinds)
    for tool, cell in enumerate(shape.cells(sums)):
        exact = sum(part * cells[tool] / (max(cells) or 1) for cells, part in kinds)
        assert abs(cell / MOST - exact) < 0.02


def near(one: str, other: str) -> float:
    shipped = table()
    assert shipped is not None
    first, second = (shipped.vector([(word, 1) for word in text.split()]) for text in (one, other))
    return sum(a * b for a, b in zip(first, second, strict=True)) / NORM**2


def test_the_shipped_table_knows_what_is_alike() -> None:
    assert TABLE.stat().st_size < 5_000_000
    assert near("buy a car", "purchase a vehicle") > 0.4
    assert near("buy a car", "weather forecast") < 0.2


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_vectors_of_any_text_have_one_length(text: str) -> None:
    shipped = table()
    assert shipped is not None
    vector = shipped.vector([(word, 1) for word in text.lower().split()])
    length = sum(value * value for value in vector) ** 0.5
    assert length == 0 or abs(length - NORM) < 6
