"""Word vectors without numpy: the table, sums of its rows, and products with many tools at once (issue 6, Ranker)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.routing.dense import ZERO, Lanes, packed
from mcpbridge.routing.vectors import NORM, TABLE, Table, encode_table, table

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


def test_long_texts_do_not_overflow() -> None:
    made = small_table()
    assert list(made.vector([("dark", 1)] * 100_000)) == list(made.vector([("dark", 1)]))


@given(st.lists(vectors, min_size=1, max_size=20), vectors, st.integers(0, 20))
def test_products_are_exact(tools: list[list[int]], query: list[int], cut: int) -> None:
    lanes = Lanes([packed(tools[:cut]), packed(tools[cut:])], DIMS)
    found = [product - ZERO for product in lanes.products(query)]
    assert found == [sum(a * b for a, b in zip(tool, query, strict=True)) for tool in tools]


@given(st.lists(vectors, min_size=1, max_size=20), vectors, st.integers(0, NORM**2), st.sets(st.integers(0, 19)))
def test_near_tools_are_found(tools: list[list[int]], query: list[int], least: int, some: set[int]) -> None:
    products = Lanes([packed(tools)], DIMS).products(query)
    cells = list(products)
    assert products.above(ZERO + least) == [tool for tool, cell in enumerate(cells) if cell > ZERO + least]
    assert products.nearest() == max(ZERO, *cells)
    few = products.only(some)
    assert few.nearest() == max([ZERO, *(cell for tool, cell in enumerate(cells) if tool in some)])
    assert set(few.above(ZERO)) <= some


def test_there_may_be_no_tools() -> None:
    products = Lanes([], DIMS).products([1, 2, 3])
    assert list(products) == products.above(ZERO) == []
    assert products.nearest() == ZERO


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
