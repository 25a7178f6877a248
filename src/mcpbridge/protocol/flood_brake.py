"""How fast a server is read that sends more than the bridge should spend its time on.

What a server sends unasked (progress, log messages, changed resources, requests of its own) may take a fifth of the
event loop's time, and half a second at once. Beyond that, its stream is read with pauses. So all other servers and
clients keep the rest, and the server, whose pipe fills up, comes to a halt by itself. Nothing is dropped and the order
stays, so an answer behind a flood arrives five times as late as the bridge could have read it, but it arrives. Servers
that send less are never paused.
"""

SHARE = 0.2
"""Of the event loop's time, for what one server sends unasked."""
BURST = 0.5
"""Seconds of that time which a server may take at once."""
LONGEST_PAUSE = 0.5
"""Seconds; no pause is longer, so deadlines and pings are not missed for it."""
SHOWN_SECONDS = 5.0
"""For how long after its last pause a server counts as one that floods the bridge."""


class FloodBrake:
    """Decides when to read on. Pure: the time is passed in."""

    def __init__(self) -> None:
        self._credit, self._at, self._last_pause = BURST, float("-inf"), float("-inf")
        self.pauses = 0
        """How often reading was paused."""

    def took(self, now: float, seconds: float) -> float:
        """What came took so many seconds to handle, up to `now`. Returns the seconds to wait before reading on."""
        earned = min(BURST, self._credit + (now - self._at) * SHARE)
        self._credit, self._at = max(earned - seconds, -LONGEST_PAUSE * SHARE), now
        if self._credit >= 0:
            return 0.0
        self._last_pause = now
        self.pauses += 1
        return -self._credit / SHARE

    def is_on(self, now: float) -> bool:
        """Its stream was read with pauses a moment ago."""
        return now - self._last_pause < SHOWN_SECONDS
