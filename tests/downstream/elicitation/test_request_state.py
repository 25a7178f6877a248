"""What clients keep for the bridge: only the bridge can make it, and it opens for what it was made for."""

import base64
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcpbridge.base.errors import BadRequest, StoreFailed
from mcpbridge.downstream.elicitation.request_state import Sealer, bridge_of

KEY = "a secret of at least sixteen characters"
BIND = ("ada", "tools/call", "up", "echo", "digest")

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
claims = st.dictionaries(st.text(max_size=8).filter(lambda name: name != "until"), values, max_size=4)
binds = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=5).map(tuple)


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def refused(sealer: Sealer, text: str, bind: tuple[str, ...] = BIND) -> None:
    """Assert that this does not open, with an answer that does not say why."""
    with pytest.raises(BadRequest) as caught:
        sealer.open(text, bind)
    assert (caught.value.code, str(caught.value)) == (-32602, "Invalid or expired requestState")


@given(claims, binds)
def test_what_was_sealed_opens_again(content: dict[str, Any], bind: tuple[str, ...]) -> None:
    text = Sealer(KEY).seal(content, bind)
    assert text.isascii()
    assert Sealer(KEY).open(text, bind) == content


SEALED = Sealer(KEY).seal({"round": 1}, BIND)


@given(st.integers(0, len(SEALED) * 6 // 8 - 1), st.integers(1, 255))
def test_no_changed_byte_opens(place: int, change: int) -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests: the state is an attacker's until it is proved."""
    sealed = bytearray(_bytes(SEALED))
    sealed[place] ^= change
    refused(Sealer(KEY), _text(bytes(sealed)))


@given(st.integers(0, len(SEALED) - 2), st.text(min_size=1).filter(lambda more: more.strip("=")))
def test_no_part_of_a_seal_opens_and_nothing_longer(length: int, more: str) -> None:
    refused(Sealer(KEY), SEALED[:length])
    refused(Sealer(KEY), SEALED + more)


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_nothing_else_opens(text: str) -> None:
    refused(Sealer(KEY), text)


@given(binds, binds)
def test_a_seal_opens_for_what_it_was_made_for_alone(made_for: tuple[str, ...], shown_with: tuple[str, ...]) -> None:
    assume(made_for != shown_with)
    sealer = Sealer(KEY)
    refused(sealer, sealer.seal({}, made_for), shown_with)


def test_the_parts_of_what_it_is_bound_to_do_not_run_together() -> None:
    sealer = Sealer(KEY)
    text = sealer.seal({}, ("ab", "c"))
    for bind in (("a", "bc"), ("abc",), ("ab", "c", ""), ('ab","c',)):
        refused(sealer, text, bind)


def test_a_seal_expires() -> None:
    clock = Clock()
    sealer = Sealer(KEY, seconds=60, clock=clock)
    usual, short = sealer.seal({"a": 1}, BIND), sealer.seal({"a": 2}, BIND, seconds=10)
    clock.now += 10
    assert sealer.open(short, BIND) == {"a": 2}
    clock.now += 1
    refused(sealer, short)
    assert sealer.open(usual, BIND) == {"a": 1}
    clock.now += 50
    refused(sealer, usual)


async def used_up(sealer: Sealer, text: str, bind: tuple[str, ...] = BIND) -> None:
    """Assert that this does not open once (more)."""
    with pytest.raises(BadRequest, match=r"^Invalid or expired requestState$"):
        await sealer.open_once(text, bind)


async def test_a_seal_that_opens_once_is_used_up() -> None:
    """Issue 3: replayed."""
    sealer = Sealer(KEY)
    text = sealer.seal({}, BIND)
    await used_up(sealer, text, ("somebody", "else"))  # which uses up nothing
    sealer.open(text, BIND)
    await sealer.open_once(text, BIND)
    await used_up(sealer, text)
    padded = text + "=" * (-len(text) % 4)
    await used_up(sealer, padded)  # the same in another spelling
    assert await sealer.open_once(sealer.seal({}, BIND), BIND) == {}


async def test_what_was_used_is_remembered_until_it_expires_and_no_longer() -> None:
    clock = Clock()
    sealer = Sealer(KEY, seconds=60, clock=clock)
    first = sealer.seal({}, BIND)
    await sealer.open_once(first, BIND)
    long = sealer.seal({}, BIND, seconds=600)
    await sealer.open_once(long, BIND)
    for _ in range(3):
        for _ in range(3000):
            await sealer.open_once(sealer.seal({}, BIND), BIND)
        await used_up(sealer, long)
        clock.now += 61
    assert len(sealer._used) < 8000


class Fleet:
    """Bridges that share what was used, until their records are away."""

    def __init__(self, me: str, used: set[bytes]) -> None:
        self.me, self._used, self.is_away = me, used, False

    async def is_first_use(self, seal: bytes, seconds: float) -> bool:
        if self.is_away:
            raise StoreFailed("not sent: away")
        assert seconds > 0
        is_first = seal not in self._used
        self._used.add(seal)
        return is_first


def fleet() -> tuple[Sealer, Sealer]:
    one, other = Sealer(KEY), Sealer(KEY)
    used = set[bytes]()
    one.shared, other.shared = Fleet("one", used), Fleet("other", used)
    return one, other


async def test_in_a_fleet_a_seal_opens_once_whichever_bridge_opens_it() -> None:
    """Issue 24: never a silent second run."""
    one, other = fleet()
    text = one.seal({"round": 1}, BIND)
    assert bridge_of(text) == ""
    assert await other.open_once(text, BIND) == {"round": 1}
    await used_up(one, text)
    await used_up(other, text)


async def test_a_seal_about_what_one_bridge_has_opens_there_alone() -> None:
    """Without the name that it begins with, too: that is for whoever hands it on."""
    one, other = fleet()
    text = one.seal({"parked": "x"}, BIND, is_here=True)
    assert bridge_of(text) == "one"
    for named in (text, text.removeprefix("one."), "other." + text.removeprefix("one.")):
        await used_up(other, named)
    assert (await one.open_once(text, BIND))["parked"] == "x"
    await used_up(one, text)


async def test_what_was_used_is_not_known_while_the_records_are_away() -> None:
    one, _ = fleet()
    text = one.seal({}, BIND)
    assert isinstance(one.shared, Fleet)
    one.shared.is_away = True
    with pytest.raises(StoreFailed, match=r"^not sent"):
        await one.open_once(text, BIND)
    one.shared.is_away = False
    assert await one.open_once(text, BIND) == {}


def test_replicas_with_one_key_open_what_the_others_sealed_and_nobody_else() -> None:
    text = Sealer(KEY).seal({"a": 1}, BIND)
    assert Sealer(KEY).open(text, BIND) == {"a": 1}
    refused(Sealer(KEY + "."), text)
    refused(Sealer(), text)
    refused(Sealer(), Sealer().seal({}, BIND))
    own = Sealer()
    assert own.open(own.seal({}, BIND), BIND) == {}


def test_a_seal_tells_nothing_and_is_another_each_time() -> None:
    sealer = Sealer(KEY)
    one, other = (sealer.seal({"state": "the upstream's own"}, BIND) for _ in range(2))
    assert one != other
    assert b"upstream" not in _bytes(one)


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
