"""Frames of the link between bridges: whatever the parts that they come in, what was sent arrives (issue 24)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.fleet.link.frames import Ask, BadFrame, FrameReader, Kind, Reply, frame, read_ask, read_reply, with_body

FRAMES = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.binary(max_size=200)), max_size=8
)
HEADERS = st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=40)), max_size=5)


@given(FRAMES, st.lists(st.integers(1, 40), max_size=60))
def test_frames_arrive_whole_and_in_order(frames: list[tuple[Kind, int, bytes]], sizes: list[int]) -> None:
    data = b"".join(frame(*one) for one in frames)
    reader, found = FrameReader(), list[tuple[int, int, bytes]]()
    for size in sizes:
        found += reader.feed(data[:size])
        data = data[size:]
    found += reader.feed(data)
    assert found == frames


@given(st.text(), HEADERS, st.binary(), st.binary(max_size=300), st.integers(100, 599))
def test_heads_and_bodies_are_told_apart(
    path: str, headers: list[tuple[bytes, bytes]], query: bytes, body: bytes, status: int
) -> None:
    ask, reply = Ask("POST", path, query, headers, "10.0.0.1", len(body)), Reply(status, headers)
    assert read_ask(with_body(ask, body)) == (ask, body)
    assert read_reply(with_body(reply, body)) == (reply, body)


@given(st.binary(max_size=60))
def test_what_is_no_head_is_refused(payload: bytes) -> None:
    for read in (read_ask, read_reply):
        try:
            head, _ = read(payload)
        except BadFrame:
            continue
        assert isinstance(head, Ask | Reply)


def test_a_frame_that_is_too_large_is_refused_by_its_length_alone() -> None:
    with pytest.raises(BadFrame, match="a frame of 4294967295 bytes"):
        FrameReader().feed(b"\xff\xff\xff\xff\x01\0\0\0\x01")
