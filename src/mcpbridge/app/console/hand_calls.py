"""Calls that a person tries from a form: each runs in the background, and its page follows it until it is done.

A job of one visitor is seen and cancelled by that visitor alone. It ends with its call, with Cancel, or with the
bridge. What came of the last ones is kept for a while, so that a page that is loaded again finds it.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from mcpbridge.app.console.sign_in import Visit
from mcpbridge.app.console.tool_calls import Made, make_call, new_session
from mcpbridge.base.errors import BridgeError
from mcpbridge.base.json_values import decoded
from mcpbridge.core.context import Session
from mcpbridge.engine.requests import encoded
from mcpbridge.library.bridge import Bridge

State = Literal["running", "done", "failed", "cancelled"]
"""`failed`: it was answered with an error, or the tool says that it failed."""

MOST_RUNNING = 16
"""Calls of all visitors that run at a time."""
_MOST_KEPT = 32
_END_SECONDS = 5.0
_NEWS = 100
"""Messages of one call that are kept, the last ones."""


class TooManyCalls(Exception):
    """No more calls are taken from the console at the moment."""


class News(Struct, frozen=True):
    """Something that a call said of itself while it ran."""

    seconds: float
    """Since it began."""
    text: str
    share: float | None = None
    """How much of it is done, 0 to 1; None: it does not say."""


class HandCall:
    """One call that a person tries."""

    def __init__(self, tool: str, arguments: Mapping[str, Any], visit: Visit, session: Session) -> None:
        self.id = secrets.token_urlsafe(12)
        self.tool, self.arguments = tool, arguments
        self.visit, self.session = visit, session
        self.at = time.time()
        self.news: deque[News] = deque(maxlen=_NEWS)
        self.state: State = "running"
        self.outcome: Made | None = None
        self.problem = ""
        """Why it could not be made."""
        self.changed = 0
        """Counts what happened, so that a page knows whether it shows the last of it."""
        self._began = time.monotonic()
        self._seconds: float | None = None
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HandCall {self.tool} {self.state} after {self.seconds:.1f} s>"

    @property
    def seconds(self) -> float:
        """How long it has run, or took."""
        return time.monotonic() - self._began if self._seconds is None else self._seconds

    @property
    def share(self) -> float | None:
        """How much of it is done, as it said last."""
        return next((news.share for news in reversed(self.news) if news.share is not None), None)

    def hear(self, message: bytes) -> None:
        """Take a notification that belongs to it."""
        try:
            said = msgspec.json.decode(message, type=_Notification)
            params: object = decoded(bytes(said.params))
        except msgspec.DecodeError:
            return
        if isinstance(params, dict) and (news := _news_of(said.method, params, self.seconds)) is not None:  # pyright: ignore[reportUnknownArgumentType] - keys of decoded JSON are strings
            self.news.append(news)
            self.changed += 1

    def end(self, state: State, outcome: Made | None = None, problem: str = "") -> None:
        """It is over."""
        self.state, self.outcome, self.problem = state, outcome, problem
        self._seconds = self.seconds
        self.changed += 1


class HandCalls:
    """All calls that are tried from one console."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._calls: dict[str, HandCall] = {}

    def __repr__(self) -> str:
        return f"<HandCalls {self.running} running of {len(self._calls)}>"

    @property
    def running(self) -> int:
        """How many are not over."""
        return sum(call.state == "running" for call in self._calls.values())

    def start(self, visit: Visit, tool: str, arguments: Mapping[str, Any]) -> HandCall:
        """Begin a call of the tool with this name; it goes the way of every client's call.

        Raises:
            TooManyCalls: others run already.
            BridgeClosed: the bridge has ended.
        """
        self._bridge.require_running()
        if self.running >= MOST_RUNNING:
            raise TooManyCalls(f"{MOST_RUNNING} calls run from the console already: wait, or cancel one.")
        call = HandCall(tool, arguments, visit, new_session(visit))
        self._calls[call.id] = call
        for old in [one for one in self._calls.values() if one.state != "running"][: len(self._calls) - _MOST_KEPT]:
            del self._calls[old.id]
        call.task = asyncio.create_task(self._make(call))
        return call

    def find(self, id_: str, visit: Visit) -> HandCall | None:
        """The call of this visitor with this id; None: there is none, or not any more."""
        call = self._calls.get(id_)
        return call if call is not None and call.visit.digest == visit.digest else None

    def cancel(self, call: HandCall) -> None:
        """Withdraw the call, also at its server."""
        if call.task is not None and call.state == "running":
            call.task.cancel()

    async def ended(self, call: HandCall) -> None:
        """Wait for the end of a call that was withdrawn; a few seconds at most."""
        if call.task is not None:
            await asyncio.wait({call.task}, timeout=_END_SECONDS)

    def end(self) -> None:
        """The bridge stops, and with it all calls."""
        for call in self._calls.values():
            self.cancel(call)

    async def _make(self, call: HandCall) -> None:
        params = {
            "name": call.tool,
            "arguments": Raw(encoded(call.arguments)),
            "_meta": {"progressToken": call.id},
        }
        try:
            outcome = await make_call(
                self._bridge, call.visit, "tools/call", params, session=call.session, notify=call.hear
            )
        except asyncio.CancelledError:
            call.end("cancelled")
            raise
        except BridgeError as error:
            call.end("failed", problem=self._bridge.redact(error.full_message()))
        else:
            call.end("failed" if outcome.is_error else "done", outcome)


class _Notification(msgspec.Struct):
    method: str = ""
    params: Raw = Raw(b"{}")


def _news_of(method: str, params: Mapping[str, Any], seconds: float) -> News | None:
    """What a notification says; None: nothing for people."""
    if method != "notifications/progress":
        return None
    text = str(params.get("message") or "")[:2000]
    progress, total = _number(params.get("progress")), _number(params.get("total"))
    if progress is None:
        return News(seconds, text) if text else None
    share = min(1.0, max(0.0, progress / total)) if total else None
    of = f" of {total:g}" if total is not None else ""
    return News(seconds, text or (f"{progress:g}{of}" if progress >= 0 else ""), share)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
