"""What each session has called so far, for those who ask how things stand (`pulse`)."""

import time
from collections import OrderedDict

from msgspec import Struct

from mcpbridge.results.tokens import estimated_tokens
from mcpbridge.storage.records import CallRecord

__all__ = ["Tallies", "Tally"]

MOST = 2000
"""Sessions that are remembered; those that were silent for longest go first."""


class Tally(Struct):
    """What one session called."""

    began: float
    """Seconds since 1970 of its first call."""
    calls: int = 0
    errors: int = 0
    """Calls that failed, were refused, or whose tool said so."""
    sent: int = 0
    """Bytes of arguments."""
    received: int = 0
    """Bytes of results, as they went to the client."""
    last_error: str = ""
    """Tool and kind of the last error."""

    @property
    def tokens(self) -> int:
        """An estimate of what calls and results took of the model's context."""
        return estimated_tokens(self.sent + self.received)


class Tallies:
    """The tallies of all sessions, by session id."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Tally] = OrderedDict()

    def ended(self, record: CallRecord) -> None:
        """A call has ended."""
        if record.method != "tools/call" or record.outcome == "asked":
            return
        tally = self._known.get(record.session)
        if tally is None:
            if len(self._known) >= MOST:
                self._known.popitem(last=False)
            tally = self._known[record.session] = Tally(record.at)
        self._known.move_to_end(record.session)
        tally.calls += 1
        tally.sent += record.sent
        tally.received += record.received
        if record.outcome != "ok":
            tally.errors += 1
            tally.last_error = f"{record.tool}: {record.error or record.outcome}"

    def of(self, session: str) -> Tally:
        """What a session called; nothing, for one that called nothing yet."""
        return self._known.get(session) or Tally(time.time())
