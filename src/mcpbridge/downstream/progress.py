"""What a client hears while its call runs: progress and log messages, filtered and throttled.

Progress has the client's own token. MCP says: the value of progress must increase, only tokens of open requests may
be named, and frequent notifications should be throttled. A call that asked for nothing has no such object at all.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import PLACEHOLDER
from mcpbridge.core.failure_masking import masked_log
from mcpbridge.downstream.client import Notify
from mcpbridge.protocol.jsonrpc import decode_fields, decode_text, encode, encode_fields, encode_notification
from mcpbridge.protocol.log_levels import LEVELS

BURST = 20
PER_SECOND = 10
"""Progress notifications: so many at once, then so many in a second."""

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_decode_number = msgspec.json.Decoder(float).decode


_REDACT = Redactor()


class CallUpdates:
    """The `update` of one call."""

    __slots__ = (
        *("_allowed", "_allowed_at", "_clock", "_held", "_last", "_log_level", "_notify", "_redact", "_token"),
        "_upstream",
    )

    def __init__(
        self,
        notify: Notify,
        upstream: str,
        token: Raw | None,
        log_level: str,
        clock: Callable[[], float],
        redact: Callable[[str], str] = _REDACT,
    ) -> None:
        """`clock` returns the time in seconds. `redact` masks secrets in messages of progress and logs."""
        self._redact = redact
        self._notify, self._upstream, self._token, self._log_level = notify, upstream, token, log_level
        self._clock = clock
        self._last = float("-inf")
        self._held = b""
        """The newest notification that was held back."""
        self._allowed, self._allowed_at = float(BURST), clock()

    def go_to(self, notify: Notify) -> None:
        """Use another stream from now on: a task outlives the one of its call."""
        self._notify = notify

    def __call__(self, method: str, params: Raw) -> None:
        """Pass on one notification of the upstream, if the client wants it."""
        if method == "notifications/progress":
            if self._token is not None:
                self._progress(self._token, params)
        elif method == "notifications/message" and self._log_level:
            message = log_notification(self._upstream, params, self._log_level, self._redact)
            if message is not None:
                self._notify(message)

    def _progress(self, token: Raw, params: Raw) -> None:
        try:
            fields = decode_fields(params)
            value = _decode_number(fields["progress"])
        except (msgspec.DecodeError, KeyError):
            return
        now = self._clock()
        self._allowed = min(float(BURST), self._allowed + (now - self._allowed_at) * PER_SECOND)
        self._allowed_at = now
        if value <= self._last:
            return
        self._last = value
        fields["progressToken"] = token
        if "message" in fields:
            fields["message"] = masked_log(fields["message"], self._masked)
        self._held = encode_notification("notifications/progress", encode_fields(fields))
        if self._allowed >= 1:
            self._allowed -= 1
            self.flush()

    def _masked(self, text: str) -> str:
        """The text without secrets; placeholders stay, which clients give back."""
        parts: list[str] = []
        done = 0
        for match in PLACEHOLDER.finditer(text):
            parts += [self._redact(text[done : match.start()]), match[0]]
            done = match.end()
        return "".join([*parts, self._redact(text[done:])])

    def flush(self) -> None:
        """Send what was held back: the answer follows, and the last word of the progress comes before it."""
        if self._held:
            self._notify(self._held)
            self._held = b""


def own_log(notify: Notify, upstream: str, redact: Callable[[str], str], method: str, params: Raw) -> None:
    """The `update` of a call whose legacy client never set a level: then servers may send what they see fit.

    Only what surely belongs to the call comes here: anything else might reveal another client's.
    """
    if method == "notifications/message":
        message = log_notification(upstream, params, LEVELS[0], redact)
        if message is not None:
            notify(message)


def log_notification(upstream: str, params: Raw, least: str, redact: Callable[[str], str] = _REDACT) -> bytes | None:
    """The log message for a client, the server's name in its `logger`; None when it is less severe than `least`.

    `redact` masks secrets in it.
    """
    try:
        fields = decode_fields(params)
        level = decode_text(fields["level"])
        logger = decode_text(fields["logger"]) if "logger" in fields else ""
    except (msgspec.DecodeError, KeyError):
        return None
    if _RANK.get(level, 0) < _RANK.get(least, 0):
        return None
    fields["logger"] = Raw(encode(f"{upstream}/{redact(logger)}" if logger else upstream))
    if "data" in fields:
        fields["data"] = masked_log(fields["data"], redact)
    return encode_notification("notifications/message", encode_fields(fields))
