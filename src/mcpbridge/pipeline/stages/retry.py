"""Try a failed call again, where that is safe: which errors, how often, after which wait.

What the server certainly did not run is tried again whatever the tool does: it was not connected, or it turned the call
away and said when to come back. A call that was sent and got no answer may have taken effect; that is tried again only
where doing it twice is doing it once (reading counts). Never tried again: what got an answer, an error too; what ran
out of time; a call that asked somebody something or became a task, since that cannot be taken back; and nothing beyond
the call's deadline, or beyond the budget of its server.

The wait has full jitter (after AWS), the budget is that of Envoy and Finagle: clients that fail at once must not come
back at once, and a server that is down must not get several times the calls that it could not bear.

The last error is true of all tries: if one of them was sent, the call may have taken effect, whatever kept the last one
back.
"""

import asyncio
import random
from collections import defaultdict, deque

from mcpbridge.base.errors import (
    BridgeError,
    CallRefused,
    SignInNeeded,
    UpstreamError,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamResting,
    UpstreamUnavailable,
)
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import RetrySettings
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body

WINDOW, PARTS = 60.0, 6
"""Seconds that the budget looks back, and in how many parts they are counted."""
SHARE, AT_LEAST = 0.2, 3
"""Retries in the window: this share of the calls, and so many more."""


def pause(settings: RetrySettings, failures: int, chance: float) -> float:
    """Seconds before the next try, after so many `failures` (1 or more). `chance` is uniform in [0, 1)."""
    return chance * min(settings.max_backoff, settings.backoff * 2.0 ** min(failures - 1, 60))


class RetryBudget:
    """Bounds the retries at one server by a share of its calls."""

    def __init__(self) -> None:
        self._parts: deque[list[float]] = deque()
        """Beginning, calls and retries of each part of the window; the newest last."""

    def called(self, now: float) -> None:
        """A call begins."""
        parts = self._parts
        if not parts or parts[0][0] <= now - WINDOW or now - parts[-1][0] >= WINDOW / PARTS:
            self._part(now)[1] += 1
        else:  # the usual case, without a further call
            parts[-1][1] += 1

    def may_retry(self, now: float) -> bool:
        """Whether one more retry is within the budget; it is counted then."""
        part = self._part(now)
        calls, retries = (sum(part[at] for part in self._parts) for at in (1, 2))
        if retries >= AT_LEAST + SHARE * calls:
            return False
        part[2] += 1
        return True

    def _part(self, now: float) -> list[float]:
        """The part of the window that it is now; those that are over are forgotten."""
        while self._parts and self._parts[0][0] <= now - WINDOW:
            self._parts.popleft()
        if not self._parts or now - self._parts[-1][0] >= WINDOW / PARTS:
            self._parts.append([now, 0, 0])
        return self._parts[-1]


log = get_logger("mcpbridge.retry")

_SENT = "It may have taken effect: an earlier try was sent. Check that before you repeat it."

_READ = "An earlier try was sent. The tool only reads, so that does no harm, and the call may be repeated later."
_MAY_HAVE_RUN = (500, 502, 504)
"""Statuses after which a call of a tool that changes something has to be looked after."""


class Retry:
    """Makes the stage of each tool that is tried again, and keeps the budgets of their servers."""

    def __init__(self) -> None:
        self.budgets: defaultdict[str, RetryBudget] = defaultdict(RetryBudget)

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for tools with more than one try."""
        if tool is None or options.retry.tries <= 1:
            return None
        return _Retried(
            options.retry,
            self.budgets[tool.server],
            is_idempotent=options.is_idempotent,
            only_reads=options.effect == "read",
        )


class _Retried:
    """Stage: the tries of one tool's calls."""

    def __init__(self, settings: RetrySettings, budget: RetryBudget, *, is_idempotent: bool, only_reads: bool) -> None:
        self._settings, self._budget, self._is_idempotent = settings, budget, is_idempotent
        self._only_reads = only_reads
        """No try has an effect that one would have to look for."""
        self._clock = asyncio.get_running_loop().time

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        if call.sent is None:  # else `express_sent` did that
            self._budget.called(self._clock())
        deadline, tries, was_sent = call.deadline, 1, False
        while True:
            try:
                return await proceed(call)
            except (UpstreamError, CallRefused) as error:
                error.tries = tries
                why = why_again(call, error, is_idempotent=self._is_idempotent) if tries < self._settings.tries else ""
                wait = self._wait(error, tries) if why else 0.0
                now = self._clock()
                is_too_late = bool(deadline) and now + wait >= deadline
                if not why or is_too_late or not self._budget.may_retry(now):
                    if not was_sent or (told := self._of_all_tries(call, error)) is error:
                        raise
                    raise told from error
                was_sent = was_sent or why == "harmless"
                log.info("retrying", upstream=call.upstream, tool=call.target, reason=str(error), wait=wait)
            await asyncio.sleep(wait)
            call.deadline = deadline
            call.note("retries", tries)
            tries += 1

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`: a call that fails is tried again in the full lane."""
        self._budget.called(self._clock())

    def _of_all_tries(self, call: Call, error: BridgeError) -> BridgeError:
        if not self._only_reads:
            return of_all_tries(call.upstream, error)
        if isinstance(error, UpstreamHttpError):
            if error.status in _MAY_HAVE_RUN:
                error.advice = "The fault is at the server. Try again later."
            return error
        told = of_all_tries(call.upstream, error)
        if told is not error:
            told.advice = _READ
        return told

    def _wait(self, error: BridgeError, tries: int) -> float:
        """Seconds before the next try."""
        asked = error.retry_after if isinstance(error, UpstreamHttpError) else None
        return (asked or 0.0) + pause(self._settings, tries, random.random())


def of_all_tries(upstream: str, error: BridgeError) -> BridgeError:
    """The error of the last try, as it is reported where an earlier one may have taken effect."""
    if isinstance(error, UpstreamUnavailable | CallRefused):  # both say, by their kind too, that nothing was sent
        what = (
            error.what if isinstance(error, UpstreamUnavailable) else str(error).removeprefix(f"Server '{upstream}' ")
        )
        gone = UpstreamGone(upstream, what)
        gone.advice, gone.facts, gone.tries = _SENT, error.facts, error.tries
        return gone
    if isinstance(error, UpstreamHttpError):
        error.advice = f"{_SENT} {error.advice}".rstrip()
    return error


def why_again(call: Call, error: BridgeError, *, is_idempotent: bool) -> str:
    """Why a failed call may be sent once more: `unsent`, or `harmless`; empty when it may not. Pure."""
    if call.begun or isinstance(error, SignInNeeded | UpstreamResting):
        return ""  # a person is needed first, or the server is to be left alone
    if isinstance(error, UpstreamUnavailable):
        return "unsent" if error.is_tried_again else ""
    if _is_turned_away(error):
        return "unsent"
    is_unknown = isinstance(error, UpstreamGone) or (isinstance(error, UpstreamHttpError) and _is_passing(error.status))
    may_make_task = call.needs_task or call.takes_task
    if is_unknown and is_idempotent and not may_make_task and "requestState" not in call.params:
        return "harmless"
    return ""


def _is_turned_away(error: BridgeError) -> bool:
    """The server did not take the call, and says when to come back (RFC 9110, Retry-After)."""
    return isinstance(error, UpstreamHttpError) and error.status in (429, 503) and error.retry_after is not None


def _is_passing(status: int) -> bool:
    """A status that may be another one in a moment."""
    return status in (408, 429) or (status >= 500 and status not in (501, 505))
