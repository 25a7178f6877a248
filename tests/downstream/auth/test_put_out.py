"""Whoever is put out is written down as soon as the store takes it, whatever happens meanwhile."""

import asyncio
from collections import defaultdict

import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.downstream.auth.put_out import PutOut
from support.harness import eventually


class Book:
    """What is written, by a store that can be away, or hang."""

    def __init__(self) -> None:
        self.is_away = False
        self.goes_on = defaultdict[str, asyncio.Event](asyncio.Event)
        self.begun = defaultdict[str, asyncio.Event](asyncio.Event)
        self.hangs = set[str]()
        self.written: dict[str, float] = {}
        self.late: list[str] = []
        self.times = iter(range(1, 1000))
        self.put_out = PutOut(self._write, lambda: float(next(self.times)))
        self.put_out.on_written = self.late.append

    async def _write(self, principal: str, at: float) -> int:
        if self.is_away:
            raise StoreFailed("away")
        self.begun[principal].set()
        if principal in self.hangs:
            await self.goes_on[principal].wait()
        if principal == "damaged":
            raise ValueError("what is there cannot be read")
        self.written[principal] = max(at, self.written.get(principal, 0.0))
        return 1

    async def until(self, *principals: str) -> None:
        """These are written down."""

        async def all_written() -> bool:
            return all(self.put_out.since(one) is None and one in self.written for one in principals)

        await eventually(all_written, bool, 60)


async def test_it_is_written_down_later_and_whoever_must_know_learns_of_it() -> None:
    book = Book()
    async with book.put_out.running():
        book.is_away = True
        assert await book.put_out.add("alice") is None
        assert book.put_out.since("alice") == 1
        book.is_away = False
        await book.until("alice")
        assert book.late == ["alice"]
        assert await book.put_out.add("bob") == 1
        assert (book.written, book.late) == ({"alice": 1, "bob": 2}, ["alice"])


async def test_whoever_asks_may_leave_while_the_store_hangs() -> None:
    book = Book()
    async with book.put_out.running():
        book.hangs.add("alice")
        asking = asyncio.ensure_future(book.put_out.add("alice"))
        await book.begun["alice"].wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        book.goes_on["alice"].set()
        await book.until("alice")


async def test_somebody_who_is_put_out_once_more_meanwhile_keeps_nobody_else_from_being_written_down() -> None:
    book = Book()
    async with book.put_out.running():
        book.is_away = True
        for name in ("alice", "bob", "carol"):
            await book.put_out.add(name)
        book.is_away = False
        book.hangs.add("alice")
        await book.begun["alice"].wait()  # later, by itself
        assert await book.put_out.add("bob") == 1  # bob is written down now
        book.goes_on["alice"].set()
        await book.until("alice", "bob", "carol")
        assert book.written == {"alice": 1, "bob": 4, "carol": 3}


async def test_a_record_that_cannot_be_read_keeps_nobody_else_from_being_written_down() -> None:
    book = Book()
    async with book.put_out.running():
        book.is_away = True
        for name in ("damaged", "alice"):
            await book.put_out.add(name)
        book.is_away = False
        await book.until("alice")
        assert book.put_out.since("damaged") == 1, "here it holds"


async def test_where_nobody_would_write_it_later_it_fails() -> None:
    book = Book()
    book.is_away = True
    with pytest.raises(StoreFailed):
        await book.put_out.add("alice")
    assert book.put_out.since("alice") is None
