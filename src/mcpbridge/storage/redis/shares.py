"""Rates and budgets that bridges on several machines count together, of which each bridge borrows shares.

The server has what all may use. A bridge takes some of it at once, a share, and counts calls against that without
asking. Whoever calls a lot borrows more at a time, at most 2 % of a rate for all bridges together, and small amounts
singly. What is left of a share after a second or some is given back. What a bridge has borrowed counts as used from
then on, so that a bridge that dies uses nothing twice: of a rate it comes back by itself, as all tokens do; of a budget
it does not, since nobody knows whether its calls were made.

While the server is away, a rate is divided by the bridges that were there last. A budget is not: who has no share left
is refused, since nobody knows what the others use. Of runs (`chains.py`) nothing is borrowed.
"""

import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.base.token_bucket import Bucket
from mcpbridge.base.units import Rate
from mcpbridge.storage.redis.chains import SharedChain
from mcpbridge.storage.redis.connections import Connections, script
from mcpbridge.storage.settings import RedisAddress

log = get_logger("mcpbridge.storage")

COMMAND_SECONDS = 1.0
"""How long a call waits for the server, once; then the server counts as away."""
BEAT_SECONDS = 1.0
"""Between two times that a bridge says that it is there, and gives back what it does not use."""
_THERE_SECONDS = 5
"""Without a word, after which a bridge is not counted any more."""
_PART_OF_RATE = 0.02
"""All shares of a rate together are no more than this part of it."""
_RATE_SHARE_SECONDS = 1.0
"""After which what is left of a share of a rate is no longer used."""
_BUDGET_SHARE, _PARTS_OF_BUDGET = 16, 8
"""Calls of a budget that a bridge borrows at most, and the part of what is left that all bridges borrow at most."""
_BUDGET_SHARE_SECONDS = 5.0
"""After which a share of a budget that is not used goes back."""
_BUDGET_DAYS = 7
"""After the last call of a conversation, it is forgotten."""
_MOST = 10_000
"""Rates, and budgets, that a bridge remembers; the same number as for clients that are not shared."""

_ALWAYS = "#!lua flags=allow-oom\n"
_BEAT = script(
    _ALWAYS
    + """
-- KEYS: the bridges. ARGV: this one, seconds. Returns how many there are
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
redis.call('EXPIRE', KEYS[1], ARGV[2] * 2)
return redis.call('ZCARD', KEYS[1])
"""
)
_TAKE_TOKENS = script(
    _ALWAYS
    + """
-- KEYS: rates. ARGV of each: microseconds of one token, those of all but one, tokens wanted, tokens given back, and how
-- long it takes at least until the bucket is full. Tokens are given only if there is one of each.
-- Returns of each: tokens, microseconds until there is one, and until the bucket is full
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local full_at, is_refused = {}, false
for at, key in ipairs(KEYS) do
  local first = (at - 1) * 5
  local gap, reach = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  local full = tonumber(redis.call('GET', key) or 0) - ARGV[first + 4] * gap
  full_at[at] = math.max(full, now + ARGV[first + 5])
  is_refused = is_refused or full_at[at] - reach - now > 1
end
local found = {}
for at, key in ipairs(KEYS) do
  local first, given, full = (at - 1) * 5, 0, full_at[at]
  local gap, reach = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  local wait = math.max(0, math.ceil(full - reach - now))
  if wait <= 1 then wait = 0 end
  if not is_refused then
    given = math.max(1, math.min(tonumber(ARGV[first + 3]), math.floor((now + reach - full) / gap + 0.000001) + 1))
    full = full + given * gap
  end
  redis.call('SET', key, string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000) + 1000)
  found[#found + 1] = given
  found[#found + 1] = wait
  found[#found + 1] = math.floor(full - now)
end
return found
"""
)
_TAKE_CALLS = script(
    _ALWAYS
    + """
-- KEYS: a budget. ARGV: calls that there may be, parts of what is left, calls at a time, seconds to keep it
-- Returns the calls that it gave
local left = ARGV[1] - tonumber(redis.call('GET', KEYS[1]) or 0)
if left <= 0 then return 0 end
local given = math.max(1, math.min(tonumber(ARGV[3]), math.floor(left / ARGV[2])))
redis.call('INCRBY', KEYS[1], given)
redis.call('EXPIRE', KEYS[1], ARGV[4])
return given
"""
)
_GIVE_BACK_TOKENS = script(
    _ALWAYS
    + """
-- KEYS: a rate. ARGV: microseconds of the tokens that are given back
local full = redis.call('GET', KEYS[1])
if full then redis.call('SET', KEYS[1], string.format('%.0f', full - ARGV[1]), 'KEEPTTL') end
return 1
"""
)
_GIVE_BACK_CALLS = script(
    _ALWAYS
    + """
-- KEYS: a budget. ARGV: calls that are given back
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if used > 0 then redis.call('SET', KEYS[1], math.max(0, used - ARGV[1]), 'KEEPTTL') end
return 1
"""
)


class RateShare:
    """What this bridge has of one rate. Times are seconds of one clock that does not go backwards."""

    __slots__ = ("_away", "_lag_ends", "_owner", "_refused_until", "_size", "ends", "key", "rate", "tokens")

    def __init__(self, owner: "SharedCounts", key: str, rate: Rate) -> None:
        self._owner, self.key, self.rate = owner, key, rate
        self.tokens, self.ends = 0, 0.0
        self._size = 1
        self._refused_until = self._lag_ends = float("-inf")
        self._away: tuple[int, Bucket] | None = None

    def __repr__(self) -> str:
        return f"<RateShare of {self.rate}: {self.tokens} tokens>"

    def has(self, now: float) -> bool:
        """Whether a call may begin without asking the server."""
        if self._owner.is_away:
            return not self._alone(now).wait(now)
        return self.tokens > 0 and now < self.ends

    def take(self, now: float) -> None:
        """Take a token. Only when there is one."""
        if self._owner.is_away:
            self._alone(now).take(now)
        else:
            self.tokens -= 1

    def wait(self, now: float) -> float:
        """Seconds until it is worth asking."""
        if self._owner.is_away:
            return self._alone(now).wait(now)
        return max(0.0, self._refused_until - now)

    def _alone(self, now: float) -> Bucket:
        """This bridge's fair part of the rate, while the server is away. It begins as full as all of it was last."""
        away = self._owner.times_away
        if self._away is None or self._away[0] != away:
            bridges = self._owner.bridges
            times = max(1, self.rate.times // bridges)
            bucket = Bucket(Rate(times, times * bridges * self.rate.seconds / self.rate.times))
            bucket.full_at = self._lag_ends
            self._away = away, bucket
        return self._away[1]

    def wanted(self, now: float) -> list[int | str]:
        """What the server is asked for, as arguments of the script."""
        gap = self.rate.seconds * 1e6 / self.rate.times
        most = max(1, int(self.rate.times * _PART_OF_RATE / self._owner.bridges))
        is_busy = not self.tokens and now < self.ends
        self._size = min(most, self._size * 2) if is_busy else 1
        back, self.tokens = self.tokens, 0
        lag = 0.0
        if self._away is not None:  # the others see what was used meanwhile
            lag, self._away = max(0.0, self._away[1].full_at - now), None
        return [f"{gap:.6f}", f"{self.rate.seconds * 1e6 - gap:.6f}", self._size, back, round(lag * 1e6)]

    def got(self, now: float, tokens: int, wait: int, lag: int) -> None:
        """The server gave so many tokens, or none for so many microseconds."""
        self.tokens += tokens
        self.ends = now + _RATE_SHARE_SECONDS
        self._refused_until = now + wait / 1e6
        self._lag_ends = now + lag / 1e6


class BudgetShare:
    """What this bridge has of the budget of one conversation."""

    __slots__ = ("_owner", "calls", "key", "used_at")

    def __init__(self, owner: "SharedCounts", key: str) -> None:
        self._owner, self.key = owner, key
        self.calls, self.used_at = 0, 0.0

    def __repr__(self) -> str:
        return f"<BudgetShare: {self.calls} calls>"

    async def take(self, most: int) -> bool:
        """Count a call. False: as many as `most` were made, by way of whatever bridge.

        Raises:
            StoreFailed: there is no share left, and the server is away.
        """
        if not self.calls:
            return await self._owner.take_call(self, most)
        self.calls -= 1
        self.used_at = monotonic()
        return True

    def give_back(self) -> None:
        """A call that was counted was not made."""
        self.calls += 1


_Share = TypeVar("_Share")


class SharedCounts:
    """What bridges count together at one server. For one event loop."""

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self.server = Connections(address, seconds=COMMAND_SECONDS)
        """Where what is shared is."""
        self._begin = f"{prefix}:{{v1/#shares}}:"
        self.id = secrets.token_hex(8)
        """Names this bridge among those that share."""
        self._rates = OrderedDict[tuple[str, Rate], RateShare]()
        self._budgets = OrderedDict[str, BudgetShare]()
        self._chains = WeakValueDictionary[str, SharedChain]()  # held by its calls
        self._tasks = OwnedTasks()
        self.bridges = 1
        """How many there were the last time that the server said so, this one among them."""
        self.is_away = False
        self.times_away = 0
        self.also: Callable[[], Awaitable[None]] | None = None
        """Called with each beat while the server answers."""

    def __repr__(self) -> str:
        return f"<SharedCounts: {self.bridges} bridges, {'away' if self.is_away else 'there'}>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Be one of those who share, until the end; then all shares go back."""
        try:
            async with self._tasks.running():
                await self._beat()
                self._tasks.spawn(self._keep())
                try:
                    yield
                finally:
                    with anyio.move_on_after(2 * COMMAND_SECONDS, shield=True):
                        await self._leave()
        finally:
            with anyio.CancelScope(shield=True):
                await self.server.close()

    # -- rates

    def rate(self, name: str, rate: Rate) -> RateShare:
        """This bridge's part of the rate that has this name."""
        return _recent(self._rates, (name, rate), lambda: RateShare(self, self._key("r", f"{name}\n{rate}"), rate))

    async def take_tokens(self, shares: Sequence[RateShare]) -> list[float]:
        """Take a token of each, unless one has none: seconds to wait for each. Cancelling loses tokens at most."""
        now = monotonic()
        waits = [share.wait(now) for share in shares]
        if any(waits):
            return waits
        own = [share for share in shares if share.has(now)]
        asked = [share for share in shares if share not in own]
        for share in own:
            share.take(now)
        if not asked:
            return waits
        is_taken = False
        try:
            arguments = [one for share in asked for one in share.wanted(now)]
            reply = await self.server.run(_TAKE_TOKENS, [share.key for share in asked], *arguments)
            now = monotonic()
            is_taken = bool(reply[0])
            for at, share in enumerate(asked):
                share.got(now, *reply[at * 3 : at * 3 + 3])
                if is_taken:
                    share.tokens -= 1
        except StoreFailed as error:
            self.lost(error)
        finally:
            if not is_taken:
                for share in own:
                    share.tokens += 1
        if self.is_away and not is_taken:
            return await self.take_tokens(shares)  # from what it has alone
        return [0.0 if is_taken else share.wait(now) for share in shares]

    # -- budgets

    def budget(self, name: str) -> BudgetShare:
        """This bridge's part of the budget that has this name."""
        return _recent(self._budgets, name, lambda: BudgetShare(self, self._key("b", name)))

    async def take_call(self, share: BudgetShare, most: int) -> bool:
        """Borrow some for a budget, and count a call. See `BudgetShare.take`."""
        if self.is_away:
            raise StoreFailed("the server of the store is away")
        parts = _PARTS_OF_BUDGET * self.bridges
        arguments = (most, parts, _BUDGET_SHARE, _BUDGET_DAYS * 86400)
        try:
            given = await self.server.run(_TAKE_CALLS, [share.key], *arguments, until="on a replica that is up")
        except StoreFailed as error:
            self.lost(error)
            raise
        if not given:
            return False
        share.calls += given - 1
        share.used_at = monotonic()
        return True

    # -- runs

    def chain(self, name: str) -> SharedChain:
        """The run of calls that has this name, the same for all bridges."""
        found = self._chains.get(name)
        if found is None:
            found = self._chains[name] = SharedChain(self, self._key("c", name), f"{self._begin}bridges")
        return found

    # -- in the background

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it in the background, while this runs."""
        self._tasks.spawn(work)

    async def _keep(self) -> None:
        await repeat(BEAT_SECONDS, self._beat)

    async def _beat(self) -> None:
        try:
            bridges = await self.server.run(_BEAT, [f"{self._begin}bridges"], self.id, _THERE_SECONDS)
        except StoreFailed as error:
            self.lost(error)
            return
        self.bridges = max(1, bridges)
        if self.is_away:
            self.is_away = False
            log.info("limits are counted together again")
        now = monotonic()
        try:
            await self._give_back(now - _BUDGET_SHARE_SECONDS, now)
            if self.also is not None:
                await self.also()
        except StoreFailed as error:
            self.lost(error)

    async def _give_back(self, unused_since: float, ended: float) -> None:
        for rate in [share for share in self._rates.values() if share.tokens and share.ends <= ended]:
            back, rate.tokens = rate.tokens, 0
            size = round(back * rate.rate.seconds * 1e6 / rate.rate.times)
            await self.server.run(_GIVE_BACK_TOKENS, [rate.key], size)
        for budget in [share for share in self._budgets.values() if share.calls and share.used_at <= unused_since]:
            back, budget.calls = budget.calls, 0
            await self.server.run(_GIVE_BACK_CALLS, [budget.key], back)

    async def _leave(self) -> None:
        try:
            await self._give_back(float("inf"), float("inf"))
            await self.server.call("ZREM", f"{self._begin}bridges", self.id)
        except StoreFailed:  # it ends by itself
            pass

    def lost(self, error: StoreFailed) -> None:
        """The server does not answer; `is_away` until it does."""
        if not self.is_away:
            self.is_away = True
            self.times_away += 1
            log.warning(
                "limits cannot be counted together: of rates this bridge has its part, budgets and runs are refused",
                reason=str(error),
                bridges=self.bridges,
            )

    def _key(self, kind: str, name: str) -> str:
        return f"{self._begin}{kind}:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _recent(known: OrderedDict[Any, _Share], key: object, make: Callable[[], _Share]) -> _Share:
    found = known.get(key)
    if found is None:
        found = known[key] = make()
        if len(known) > _MOST:
            known.popitem(last=False)
    else:
        known.move_to_end(key)
    return found
