"""Which kind of values shrinks next."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.storage.store import next_to_shrink

rooms = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 10_000), min_size=1)


@given(rooms, st.integers(1, 20_000))
def test_the_kind_that_takes_the_most_room_shrinks_to_where_another_does(rooms: dict[str, int], surplus: int) -> None:
    kind, most = next_to_shrink(rooms, surplus)
    assert rooms[kind] == max(rooms.values())
    assert 1 <= most <= surplus
    if rooms[kind] - most < max((room for other, room in rooms.items() if other != kind), default=0):
        assert most == 1, "two kinds of the same size take turns"


def test_what_is_spared_does_not_count() -> None:
    assert next_to_shrink({"drafts": 100, "results": 60}, 500, {"drafts": 50}) == ("results", 10)
    assert next_to_shrink({"drafts": 200, "results": 60}, 500, {"drafts": 50}) == ("drafts", 90)
