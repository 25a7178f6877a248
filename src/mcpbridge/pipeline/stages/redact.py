"""Keeps secrets and personal data of results from models, and gives servers the values back that models pass on.

A value becomes a placeholder such as `‹secret:github-token:9f86d081884c7d65›`, with its kind if the format shows
it. Its digits are random, belong to one session, and are turned back only in arguments for the server that the
value came from. The innermost stage, so that all that is kept, cached, logged or shortened has placeholders.
"""

import re
import secrets
import threading
from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from msgspec import Raw

from mcpbridge.base.short_turns import short_turns
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import decode_exactly
from mcpbridge.protocol.jsonrpc import encode

MOST = 10_000
"""Placeholders of one session; the oldest are forgotten, so that they can no longer be turned back."""

_MAY_HOLD_ONE = re.compile(rb"\xe2\x80\xb9|\\u2039")
"""How a placeholder begins in JSON."""
_PLACEHOLDER = re.compile(r"‹(?:secret|pii):(?:[a-z-]{2,24}:)?[0-9a-f]{16}›")
LARGE = 4 * 1024
"""Bytes of a result from which on it is redacted in a thread: that takes a hundred times as long as reading it."""
_THREADS = 2


class Redact:
    """Makes the stages, and has the placeholders of all sessions."""

    def __init__(self, known: Callable[[str], str] = lambda text: text) -> None:
        """`known` masks the secrets of the configuration, wherever they occur."""
        self._sessions: WeakKeyDictionary[Session, Placeholders] = WeakKeyDictionary()
        self._known, self._threads = known, anyio.CapacityLimiter(_THREADS)

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools with `redact`: all others pay nothing."""
        if tool is None or not options.redact:
            return None
        return _Redact(tool.server, options.redact, self._sessions, self._known, self._threads)


class Placeholders:
    """Those of one session."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, str]] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()  # large results of one session are redacted in several threads

    def placeholder(self, kind: str, server: str, value: str) -> str:
        """The placeholder of a value that came from this server: the same each time."""
        with self._lock:
            name = self._names.get((server, value))
            if name is None:
                name = f"‹{kind}:{_kind_within(kind, value)}{secrets.token_hex(8)}›"
                self._names[server, value], self._values[name] = name, (server, value)
                if len(self._values) > MOST:
                    oldest = next(iter(self._values))
                    del self._names[self._values.pop(oldest)]
            return name

    def restored(self, server: str, text: str) -> str:
        """The text with the values of this server's placeholders; others stay."""

        def value(match: re.Match[str]) -> str:
            owner, found = self._values.get(match[0], ("", match[0]))
            return found if owner == server else match[0]

        return _PLACEHOLDER.sub(value, text)


def _kind_within(kind: str, value: str) -> str:
    """What a placeholder says of its value beside `secret` or `pii`, with a colon; empty: nothing is known."""
    if kind == "secret":
        from mcpbridge.base.masking.kinds import kind_of_secret

        within = kind_of_secret(value)
    else:
        from mcpbridge.pipeline.personal_data import kind_of_personal_data

        within = kind_of_personal_data(value)
    return f"{within}:" if within else ""


class _Redact:
    """The stage of one tool."""

    def __init__(
        self,
        server: str,
        kinds: tuple[str, ...],
        sessions: "WeakKeyDictionary[Session, Placeholders]",
        known: Callable[[str], str],
        threads: anyio.CapacityLimiter,
    ) -> None:
        self._server, self._kinds, self._sessions = server, kinds, sessions
        self._known, self._threads = known, threads

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        from mcpbridge.pipeline.redaction import each_text, redacted_json  # most bridges redact nothing

        placeholders = self._sessions.setdefault(call.caller.session, Placeholders())
        arguments, update = call.params.fields.get("arguments"), call.update

        def placeholder(kind: str, value: str) -> str:
            return placeholders.placeholder(kind, self._server, value)

        def redacted_update(method: str, params: Raw) -> None:
            update(method, Raw(redacted_json(bytes(params), self._kinds, placeholder, self._known)))

        call.update = redacted_update
        if arguments is not None and _MAY_HOLD_ONE.search(bytes(arguments)):
            restored = each_text(decode_exactly(arguments), lambda text: placeholders.restored(self._server, text))
            call.params.put("arguments", Raw(encode(restored)))
        try:
            result = await proceed(call)
        finally:
            call.update = update
            if arguments is not None:
                call.params.put("arguments", arguments)  # what is recorded, and tried again, has placeholders
        data = bytes(result.data)
        work = partial(redacted_json, data, self._kinds, placeholder, self._known)
        if len(data) <= LARGE:
            return Body(work())
        with short_turns():
            return Body(await anyio.to_thread.run_sync(work, limiter=self._threads))
