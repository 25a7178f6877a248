"""How values are written: what is compressed, what stays as it is, and what is refused when it is read."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.storage import compression
from mcpbridge.storage.compression import PLAIN, Unreadable, is_worth_packing, pack, unpack

_ZLIB = 1
NOISE = random.Random(1).randbytes(2_000_000)


@pytest.mark.parametrize(("size", "is_worth"), [(0, False), (1, False), (1023, False), (1024, True), (10**6, True)])
def test_short_values_stay_as_they_are(size: int, is_worth: bool) -> None:
    body = b"a" * size
    assert is_worth_packing(body) is is_worth
    form, data = pack(body)
    assert (form != PLAIN) is is_worth
    assert (len(data) < len(body)) is is_worth
    assert unpack(form, data, size) == body


@pytest.mark.parametrize("size", [1024, 100_000, 256 * 1024, 256 * 1024 + 1, 2_000_000])
def test_what_does_not_become_smaller_stays_as_it_is(size: int) -> None:
    assert pack(NOISE[:size]) == (PLAIN, NOISE[:size])


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_what_becomes_smaller_by_a_good_part_is_compressed(share: float) -> None:
    noisy = int(100_000 * share)
    form, data = pack(NOISE[:noisy] + b"a" * (100_000 - noisy))
    assert form != PLAIN
    assert len(data) < 95_000


def test_a_gain_of_a_few_bytes_is_none() -> None:
    body = NOISE[:98_000] + b"a" * 2_000
    assert pack(body) == (PLAIN, body)


def test_a_value_is_given_up_after_its_beginning_but_not_for_a_later_part() -> None:
    """A picture is not compressed to its end; a text with a picture in it is."""
    picture = NOISE[:1_500_000] + b"a" * 6_000_000
    assert pack(picture) == (PLAIN, picture)
    text = b"a" * 1_500_000 + NOISE[: 256 * 1024] + b"a" * 1_000_000
    form, data = pack(text)
    assert form != PLAIN
    assert unpack(form, data, len(text)) == text


@given(st.binary(max_size=300), st.integers(1, 9000))
def test_a_value_comes_back_as_it_was(piece: bytes, times: int) -> None:
    body = piece * min(times, 30_000 // max(1, len(piece)))
    form, data = pack(body)
    assert unpack(form, data, len(body)) == body


@pytest.mark.parametrize(
    ("form", "data", "size", "told"),
    [
        (PLAIN, b"abc", 2, "its size is not what it was"),
        (PLAIN, b"abc", 4, "its size is not what it was"),
        (_ZLIB, zlib.compress(b"abc"), 2, "its size is not what it was"),
        (_ZLIB, zlib.compress(b"abc"), 4, "its size is not what it was"),
        (_ZLIB, zlib.compress(b"abc"), -1, "no such size"),
        (_ZLIB, zlib.compress(b"abc"), 10**12, "no such size"),
        (_ZLIB, b"x" * 10, 11_001, "no such size"),
        (_ZLIB, b"", 1, "no such size"),
        (_ZLIB, b"nothing of zlib", 5, "it is damaged"),
        (_ZLIB, zlib.compress(b"abc" * 100)[:-6], 300, "it is damaged"),
        (99, b"abc", 3, "an unknown form, 99"),
        (-1, b"abc", 3, "an unknown form, -1"),
    ],
)
def test_what_is_not_what_it_should_be_is_refused(form: int, data: bytes, size: int, told: str) -> None:
    """A size in a file that somebody changed is no reason to allocate that much."""
    with pytest.raises(Unreadable, match=told):
        unpack(form, data, size)


def test_nothing_and_what_deflate_can_make_at_most_are_read() -> None:
    assert unpack(_ZLIB, zlib.compress(b""), 0) == b""
    body = bytes(10_000_000)
    data = zlib.compress(body, 9)
    assert len(body) / len(data) > 1000
    assert unpack(_ZLIB, data, len(body)) == body


def test_without_zstd_what_it_wrote_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_zstd", lambda: None)
    with pytest.raises(Unreadable, match=r"Python has from 3\.14 on"):
        unpack(2, b"abc", 3)
