"""What was used of quotas, counted by bridges on several machines together. See `storage/quotas.py`, which it follows.

What is used is taken by one script for a call. Somebody who calls a lot gets more at once, from which the bridge then
takes by itself: at most a sixteenth of what is left, for all bridges together, and nothing where little is left. What
was borrowed counts as used until it is given back, so no quota is ever exceeded. Corrections are sent in the
background. Layout, with one hash tag:

    PREFIX:{v1/#quotas}:names                  `SUBJECT/COUNTED` by when all of it counts no more
    PREFIX:{v1/#quotas}:u:SUBJECT/COUNTED      a hash: amounts by slot

Subjects and what is counted are percent-encoded.
"""

import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote, unquote

import anyio
from msgspec import Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.quotas import Full, Taken, Used, Wanted
from mcpbridge.storage.redis.connections import Connections, script
from mcpbridge.storage.redis.shares import COMMAND_SECONDS, SharedCounts
from mcpbridge.storage.settings import RedisAddress

_PARTS, _MOST = 16, 64
"""The part of what is left that all bridges borrow at most, and how many times what a call takes one bridge does."""
_UNUSED_SECONDS = 2.0
"""After which what was borrowed goes back."""

_ALWAYS = "#!lua flags=allow-oom\n"
_TAKE = script(
    _ALWAYS
    + """
-- KEYS: the names, then what each wants of. ARGV: whether room is looked for; then of each: name, group, slot, first
-- slot that counts, when it counts no more, limit, amount, at least, more that it may borrow, parts of what is left
-- Returns of each: whether it has room, whether it was taken, amount, what was borrowed, sum, and slots if it is full
local is_checked, all, has_room = ARGV[1] == '1', {}, {}
for at = 1, #KEYS - 1 do
  local a = {unpack(ARGV, (at - 1) * 10 + 2, at * 10 + 1)}
  local one = {name = a[1], group = a[2], slot = a[3], expires = a[5], sum = 0, slots = {}, key = KEYS[at + 1]}
  one.limit, one.amount, one.more, one.parts = tonumber(a[6]), tonumber(a[7]), tonumber(a[9]), tonumber(a[10])
  local held = redis.call('HGETALL', one.key)
  for i = 1, #held, 2 do
    if tonumber(held[i]) < tonumber(a[4]) then
      redis.call('HDEL', one.key, held[i])
    elseif tonumber(held[i + 1]) > 0 then
      one.sum = one.sum + held[i + 1]
      one.slots[#one.slots + 1] = held[i]
      one.slots[#one.slots + 1] = held[i + 1]
    end
  end
  one.fits = not is_checked or one.limit - one.sum >= tonumber(a[8])
  has_room[one.group] = has_room[one.group] ~= false and one.fits
  all[at] = one
end
local found = {}
for at, one in ipairs(all) do
  local taken, amount, more = 0, one.amount, 0
  if has_room[one.group] then
    taken = 1
    if is_checked then
      amount = math.min(amount, one.limit - one.sum)
      more = math.max(0, math.min(one.more, math.floor((one.limit - one.sum - amount) / one.parts)))
    end
    redis.call('HINCRBY', one.key, one.slot, amount + more)
    local ends = tonumber(redis.call('ZSCORE', KEYS[1], one.name) or 0)
    if tonumber(one.expires) > ends then
      redis.call('ZADD', KEYS[1], one.expires, one.name)
      redis.call('EXPIREAT', one.key, math.ceil(tonumber(one.expires)) + 60)
    end
  end
  found[at] = {one.fits and 1 or 0, taken, amount, more, one.sum + amount, one.fits and {} or one.slots}
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', redis.call('TIME')[1] - 60)
return found
"""
)
_CORRECT = script(
    _ALWAYS
    + """
-- KEYS: what was used. ARGV of each: slot, and what is added. What has gone meanwhile stays so
for at, key in ipairs(KEYS) do
  local slot = ARGV[at * 2 - 1]
  if redis.call('HEXISTS', key, slot) == 1 and redis.call('HINCRBY', key, slot, ARGV[at * 2]) < 0 then
    redis.call('HSET', key, slot, 0)
  end
end
return 1
"""
)

_Place = tuple[str, str, float]
"""Subject, what is counted, and slot."""


class _Borrowed(Struct):
    """What this bridge may use of one slot without asking."""

    amount: int = 0
    size: int = 0
    """What it borrowed at a time the last time."""
    used: int = 0
    """All that was used, as far as this bridge knows."""
    touched: float = float("-inf")


class RedisQuotas:
    """Keeps what was used. See `QuotaLedger`. For one event loop."""

    def __init__(self, address: RedisAddress, prefix: str, counts: SharedCounts) -> None:
        """`counts` knows how many bridges share, and whether the server is away; it runs."""
        self._server = Connections(address, seconds=COMMAND_SECONDS)
        self._begin = _begin_of(prefix)
        self._counts = counts
        self._borrowed: dict[_Place, _Borrowed] = {}
        self._corrections = Counter[_Place]()
        self._is_correcting = False
        counts.also = self.beat

    is_shared = True

    def __repr__(self) -> str:
        return f"<RedisQuotas: {len(self._borrowed)} borrowed, {len(self._corrections)} to correct>"

    async def beat(self) -> None:
        """Give back what is not used."""
        self._give_back(time.monotonic() - _UNUSED_SECONDS)
        await self._correct()

    async def take(
        self, groups: Sequence[Sequence[Wanted]], now: float, *, is_checked: bool = True
    ) -> list[Taken] | list[Full]:
        """Take what is wanted of each group that has room for all of it. Cancelling is not safe: it may be taken.

        Raises:
            StoreFailed: this bridge has borrowed nothing, and the server is away.
        """
        wanted = [(number, one) for number, group in enumerate(groups) for one in group]
        held = [self._borrowed.get((one.subject, one.counted, one.slot)) for _, one in wanted]
        if is_checked and all(
            own is not None and own.amount >= max(1, one.amount) for own, (_, one) in zip(held, wanted, strict=True)
        ):
            return [_from(own, one) for own, (_, one) in zip(held, wanted, strict=True) if own is not None]
        if self._counts.is_away:
            raise StoreFailed("the server of the store is away")
        keys = [f"{self._begin}names", *(self._key(one.subject, one.counted) for _, one in wanted)]
        arguments: list[str | int] = [int(is_checked)]
        for number, one in wanted:
            name = _name(one.subject, one.counted)
            arguments += [name, number, repr(one.slot), repr(one.first), repr(one.expires), one.limit, one.amount]
            arguments += [one.at_least, self._more(one), _PARTS * self._counts.bridges]
        try:
            reply = await self._server.run(_TAKE, keys, *arguments, until="on a replica that is up")
        except StoreFailed as error:
            self._counts.lost(error)
            raise
        taken, full = list[Taken](), list[Full]()
        for (_, one), (fits, is_taken, amount, more, used, slots) in zip(wanted, reply, strict=True):
            if is_taken:
                taken.append(Taken(one, amount, used))
                self._lend(one, more, used)
            if not fits:
                full.append(Full(one, _slots(slots)))
        return taken or full

    def settle(self, charges: Sequence[Taken], amounts: Sequence[int]) -> None:
        """These amounts were used in truth. What cannot be written now is written later."""
        for one, amount in zip(charges, amounts, strict=True):
            wanted, more = one.wanted, amount - one.amount
            place = wanted.subject, wanted.counted, wanted.slot
            own = self._borrowed.get(place)
            if own is not None and own.amount >= more:  # also what was not used: it is there for the next call
                own.amount -= more
                own.used += more
            elif more:
                self._corrections[place] += more
        if self._corrections and not self._is_correcting:
            self._counts.spawn(self._correct())

    async def used(self, now: float) -> list[Used]:
        """All that may still count. Cancelling is safe.

        Raises:
            StoreFailed: the server cannot be asked.
        """
        return await _read_used(self._server, self._begin, now)

    async def close(self) -> None:
        """Give back what was borrowed, write what waits, and close the connections."""
        with anyio.move_on_after(2 * COMMAND_SECONDS, shield=True):
            self._give_back(float("inf"))
            await self._correct()
            await self._server.close()

    # -- what is borrowed

    def _more(self, one: Wanted) -> int:
        """How much is asked for beside what the call takes: twice as much as before while it is used up quickly."""
        own = self._borrowed.get((one.subject, one.counted, one.slot))
        if own is None or time.monotonic() - own.touched > _UNUSED_SECONDS:
            return 0
        return min(_MOST * one.amount, max(one.amount, own.size * 2))

    def _lend(self, one: Wanted, more: int, used: int) -> None:
        own = self._borrowed.setdefault((one.subject, one.counted, one.slot), _Borrowed())
        own.amount += more
        own.size, own.used, own.touched = more, used, time.monotonic()

    def _give_back(self, unused_since: float) -> None:
        for place in [place for place, own in self._borrowed.items() if own.touched <= unused_since]:
            if back := self._borrowed.pop(place).amount:
                self._corrections[place] -= back

    async def _correct(self) -> None:
        """Write the corrections; those that fail wait for the next time."""
        if self._is_correcting:
            return
        self._is_correcting = True
        try:
            while self._corrections and not self._counts.is_away:
                now, self._corrections = self._corrections, Counter[_Place]()
                arguments: list[str | int] = []
                for (_, _, slot), more in now.items():
                    arguments += [repr(slot), more]
                try:
                    keys = [self._key(subject, counted) for subject, counted, _ in now]
                    await self._server.run(_CORRECT, keys, *arguments)
                except StoreFailed as error:
                    # It may have been written: what makes it more is safe to add again.
                    self._corrections.update({place: more for place, more in now.items() if more > 0})
                    self._counts.lost(error)
        finally:
            self._is_correcting = False

    def _key(self, subject: str, counted: str) -> str:
        return f"{self._begin}u:{_name(subject, counted)}"


def _name(subject: str, counted: str) -> str:
    return f"{quote(subject, safe='', errors='surrogatepass')}/{quote(counted, safe='')}"


def _from(own: _Borrowed, one: Wanted) -> Taken:
    own.amount -= one.amount
    own.used += one.amount
    own.touched = time.monotonic()
    return Taken(one, one.amount, own.used)


def _slots(pairs: list[bytes]) -> list[tuple[float, int]]:
    return [(float(slot), int(amount)) for slot, amount in zip(pairs[::2], pairs[1::2], strict=True)]


async def read_used(address: RedisAddress, prefix: str, now: float) -> list[Used]:
    """The same as `RedisQuotas.used`, for whoever counts nothing."""
    server = Connections(address, seconds=COMMAND_SECONDS)
    try:
        return await _read_used(server, _begin_of(prefix), now)
    finally:
        await server.close()


async def _read_used(server: Connections, begin: str, now: float) -> list[Used]:
    found: list[Used] = []
    for name in await server.call("ZRANGE", f"{begin}names", repr(now), "+inf", "BYSCORE"):
        subject, _, counted = name.decode().partition("/")
        held = await server.call("HGETALL", f"{begin}u:{name.decode()}")
        own = unquote(subject, errors="surrogatepass"), unquote(counted)
        pairs = zip(held[::2], held[1::2], strict=True)
        found += [(*own, float(slot), int(amount)) for slot, amount in pairs if int(amount) > 0]
    return found


def _begin_of(prefix: str) -> str:
    return f"{prefix}:{{v1/#quotas}}:"
