"""How often calls may come: for each client, each server, each tool. Whoever comes too soon learns when to come back.

A call passes when each of its buckets has a token, and only then takes one of each: one that is refused costs nobody
anything. Later rounds of a call, and its retries, count no further. Reading resources and getting prompts counts for
the client and the server as well.

The algorithm is a token bucket (`base/token_bucket.py`). Where bridges count together (`SharedRates`), a call for which
this bridge has no tokens left waits for an answer of their server.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Raw

from mcpbridge.base.errors import RateLimited
from mcpbridge.base.token_bucket import Bucket, all_have_tokens, take_of_all
from mcpbridge.base.units import Rate
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, Caller, CallHandler, Tool
from mcpbridge.pipeline.per_client import Recent, payer_of, shared_payer_of
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body

_MOST_RATES = 100
_COUNTED = frozenset({"tools/call", "prompts/get", "resources/read"})


class RateShare(Protocol):
    """What this bridge has of a rate that several count together."""

    def has(self, now: float) -> bool:
        """Whether a call may begin without asking the others."""
        ...

    def take(self, now: float) -> None:
        """Take a token. Only when there is one."""
        ...


class SharedRates(Protocol):
    """Rates that several bridges count together."""

    def rate(self, name: str, rate: Rate) -> RateShare:
        """This bridge's part of the rate that has this name, the same for all bridges."""
        ...

    async def take_tokens(self, shares: Sequence[Any], /) -> Sequence[float]:
        """Take a token of each of these of `rate`, unless one has none: seconds to wait for each.

        Cancelling loses tokens at most.
        """
        ...


class _Shared:
    """A bucket that all clients share, and how refusals name what it is for."""

    __slots__ = ("bucket", "rate", "what")

    def __init__(self, what: str, rate: Rate) -> None:
        self.what, self.rate, self.bucket = what, rate, Bucket(rate)


class Buckets:
    """The buckets, whatever the rates are at the time."""

    def __init__(self, together: SharedRates | None = None) -> None:
        """`together`: what counts for several bridges; None: this one counts alone."""
        self.together = together
        self._rate: Rate | None = None
        self._clients: Recent[Bucket] | None = None
        self._shared: dict[tuple[str, Rate], _Shared] = {}
        self._by_roles: dict[Rate, Recent[Bucket]] = {}

    def by_role(self, rate: Rate) -> Recent[Bucket]:
        """A bucket for each client of those whose roles give them this rate."""
        known = self._by_roles.get(rate)
        if known is None:
            if len(self._by_roles) >= _MOST_RATES:
                self._by_roles.clear()
            known = self._by_roles[rate] = Recent(partial(Bucket, rate))
        return known

    def by_clients(self, rate: Rate) -> Recent[Bucket]:
        """A bucket for each client; those of the last rate that was asked for are known."""
        if self._clients is None or rate != self._rate:
            self._rate, self._clients = rate, Recent(partial(Bucket, rate))
        return self._clients

    def shared(self, what: str, rate: Rate) -> _Shared:
        """The one bucket of all clients for this, at this rate."""
        key = what, rate
        known = self._shared.get(key)
        if known is None:
            known = self._shared[key] = _Shared(what, rate)
        return known


class RateLimit:
    """Makes the stages: the buckets of all clients, servers and tools."""

    def __init__(
        self,
        client: Rate | None,
        servers: Mapping[str, Rate],
        clock: Callable[[], float] = time.monotonic,
        *,
        buckets: "Buckets | None" = None,
        rate_of: Callable[[Caller], Rate | None] | None = None,
    ) -> None:
        """`client`: what each client may; `servers`: how often each server may be called, where that is limited.

        `buckets`: those before the settings changed; a rate that stays the same is counted on. `rate_of`: what the
        roles of a caller give it in place of `client`; None: no role gives any.
        """
        self._rate_of = rate_of
        self._buckets = buckets or Buckets()
        self._rate = client
        self._clients = self._buckets.by_clients(client) if client is not None else None
        self._servers, self.clock = servers, clock

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """Nothing where no rate is set. Without a tool, the server is known with the call only."""
        if tool is None:
            return self._uncalled if self._counts_clients or self._servers else None
        rates = (f"Tool '{tool.id}'", options.rate_limit), (f"Server '{tool.server}'", options.server_rate_limit)
        limited = [(what, rate) for what, rate in rates if rate is not None]
        return self._rated(limited) if limited or self._counts_clients else None

    def _rated(self, limited: Sequence[tuple[str, Rate]]) -> "_Rated | _RatedTogether":
        if (together := self._buckets.together) is not None:
            return _RatedTogether(self, together, [(*one, together.rate(*one)) for one in limited])
        return _Rated(self, [self._buckets.shared(what, rate) for what, rate in limited])

    @property
    def _counts_clients(self) -> bool:
        return self._clients is not None or self._rate_of is not None

    def _uncalled(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        if call.method not in _COUNTED:
            return proceed(call)
        rate = self._servers.get(call.upstream)
        return self._rated([(f"Server '{call.upstream}'", rate)] if rate is not None else [])(call, proceed)

    def client_rate(self, call: Call) -> Rate | None:
        """How often the client that calls may; None: clients are not limited."""
        given = self._rate_of(call.caller) if self._rate_of is not None else None
        return self._rate if given is None else given

    def of_client(self, call: Call) -> Bucket | None:
        """The bucket of the client that calls; None: clients are not limited."""
        if self._rate_of is not None and (rate := self._rate_of(call.caller)) is not None:
            return self._buckets.by_role(rate).of(payer_of(call))
        return self._clients.of(payer_of(call)) if self._clients is not None else None

    def take(self, shared: list[_Shared], call: Call) -> None:
        """A token of each.

        Raises:
            RateLimited: one has none; names the one that takes longest.
        """
        now, own = self.clock(), self.of_client(call)
        longest, refused = 0.0, ("", self._rate)
        if own is not None and (wait := own.wait(now)):
            given = self._rate_of(call.caller) if self._rate_of is not None else None
            longest, refused = wait, ("This client", given or self._rate)
        for one in shared:
            if (wait := one.bucket.wait(now)) > longest:
                longest, refused = wait, (one.what, one.rate)
        if longest:
            raise RateLimited(refused[0], str(refused[1]), longest)
        if own is not None:
            own.take(now)
        for one in shared:
            one.bucket.take(now)


class _Rated:
    """Stage: the rates of one tool's calls."""

    __slots__ = ("_buckets", "_limit", "_next", "_now", "_shared")

    def __init__(self, limit: RateLimit, shared: list[_Shared]) -> None:
        self._limit, self._shared = limit, shared
        self._buckets = [one.bucket for one in shared]
        self._next, self._now = self._buckets, 0.0
        """The buckets of the call that is about to be sent on the express lane, and when it came."""

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own: every call would pay for it."""
        if not call.continues and call.sent is None:  # one that was sent has its tokens
            self._limit.take(self._shared, call)
        return proceed(call)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        now, own = self._limit.clock(), self._limit.of_client(call)
        self._next = buckets = self._buckets if own is None else [own, *self._buckets]
        self._now = now
        return all_have_tokens(buckets, now)

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        take_of_all(self._next, self._now)


class _RatedTogether:
    """Stage: the same where several bridges count."""

    __slots__ = ("_limit", "_next", "_shared", "_together")

    def __init__(self, limit: RateLimit, together: SharedRates, shared: Sequence[tuple[str, Rate, RateShare]]) -> None:
        self._limit, self._together, self._shared = limit, together, shared
        self._next: Sequence[tuple[str, Rate, RateShare]] = ()
        """Of the call that is about to be sent on the express lane."""

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        if call.continues or call.sent is not None:
            return proceed(call)
        if not self.express_begin(call, Raw()):
            return self._asked(call, proceed)
        self.express_sent(call, 0.0)
        return proceed(call)

    async def _asked(self, call: Call, proceed: CallHandler) -> Body:
        of = self._of(call)
        waits = await self._together.take_tokens([share for _, _, share in of])
        longest, what, rate = max(
            ((wait, what, rate) for wait, (what, rate, _) in zip(waits, of, strict=True)), key=lambda one: one[0]
        )
        if longest:
            raise RateLimited(what, str(rate), longest)
        return await proceed(call)

    def _of(self, call: Call) -> Sequence[tuple[str, Rate, RateShare]]:
        rate = self._limit.client_rate(call)
        if rate is None:
            return self._shared
        return [("This client", rate, self._together.rate(f"Client {shared_payer_of(call)}", rate)), *self._shared]

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        now = self._limit.clock()
        self._next = self._of(call)
        return all(share.has(now) for _, _, share in self._next)

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        now = self._limit.clock()
        for _, _, share in self._next:
            share.take(now)
