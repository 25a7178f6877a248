"""Keeps secrets and personal data of results from models, and gives servers the values back that models pass on.

By `redact_arguments` it also keeps those of arguments from servers, whose they are not.

A value becomes a placeholder such as `‹secret:github-token:9f86d081884c7d65›`, with its kind if the format shows
it. Its digits are random, belong to one session, and are turned back only in arguments for the server that the
value came from, and for those that may have its secrets (`secrets_to`). The innermost stage, so that all that is kept,
cached, logged or shortened has placeholders.
"""

import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from msgspec import Raw

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import PLACEHOLDER
from mcpbridge.base.short_turns import short_turns
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call, Caller, CallHandler, Tool
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import decode_exactly
from mcpbridge.protocol.jsonrpc import decode_array, encode
from mcpbridge.protocol.peer import Update

MOST = 10_000
"""Placeholders of one session; the oldest are forgotten, so that they can no longer be turned back."""

_MAY_HOLD_ONE = late(rb"\xe2\x80\xb9|\\u2039")
"""How a placeholder begins in JSON."""
LARGE = 4 * 1024
"""Bytes of a result from which on it is redacted in a thread: that takes a hundred times as long as reading it."""
_THREADS = 2
_READ_BY = frozenset({"prompts/get", "resources/read", "completion/complete", "tasks/result"})
"""Requests besides calls whose answers models see."""

REDACTED = "mcpbridge/redactedArguments"
"""In `_meta` of a result: how many values of the arguments its server did not get."""

Kinds = tuple[str, ...]
"""What is replaced: `secrets`, `pii`."""
Restriction = Callable[[Caller], Callable[[str], bool] | None]
"""Of which servers a caller may use secrets that it does not see; None: of all."""
_NOBODY = ""
"""Whose the values of arguments are: their placeholders are turned back for no server."""


def _no_placeholder(_kind: str, _value: str) -> str:
    """Only whether there is a value is asked."""
    return ""


def _unrestricted(caller: Caller) -> None:
    """Nobody is kept to roles."""


class Redact:
    """Makes the stages, and has the placeholders of all sessions."""

    def __init__(self, known: Callable[[str], str] = lambda text: text) -> None:
        """`known` masks the secrets of the configuration, wherever they occur."""
        self._sessions: WeakKeyDictionary[Session, Placeholders] = WeakKeyDictionary()
        self._known, self._threads = known, anyio.CapacityLimiter(_THREADS)
        self._read: Mapping[str, Kinds] = {}
        self._sent: Mapping[str, Kinds] = {}
        self._restriction: Restriction = _unrestricted
        self._givers: Mapping[str, frozenset[str]] = {}
        """Whose secrets a server may have besides its own."""

    def configure(
        self,
        read: Mapping[str, Kinds],
        sent: Mapping[str, Kinds],
        secrets_to: Mapping[str, Collection[str]],
        restriction: Restriction | None = None,
    ) -> None:
        """For plans that are compiled from now on.

        `read`: what is redacted of what is read of a server, by its name. `sent`: the same of the arguments for its
        prompts. `secrets_to`: which others may have the secrets of a server. `restriction`: by the roles of who calls.
        """
        self._restriction = restriction or _unrestricted
        self._read = {server: kinds for server, kinds in read.items() if kinds}
        self._sent = {server: kinds for server, kinds in sent.items() if kinds}
        self._givers = {
            to: frozenset(server for server, others in secrets_to.items() if to in others)
            for to in {to for others in secrets_to.values() for to in others}
        }

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools with `redact` and those that may have secrets of other servers: all others pay nothing."""
        if tool is None:
            return self._uncalled if self._read or self._sent or self._givers else None
        if not options.redact and not options.redact_arguments and tool.server not in self._givers:
            return None
        return self._of(tool.server, options.redact, options.redact_arguments)

    def _of(self, server: str, kinds: Kinds, sent: Kinds) -> "_Redact":
        givers = self._givers.get(server, frozenset())
        return _Redact(server, kinds, sent, givers, self._sessions, self._known, self._threads, self._restriction)

    def _uncalled(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """What is read without a tool."""
        kinds, sent = self._read.get(call.upstream, ()), self._sent.get(call.upstream, ())
        if call.method not in _READ_BY or not (kinds or sent or call.upstream in self._givers):
            return proceed(call)
        return self._of(call.upstream, kinds, sent)(call, proceed)


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

    def restored(
        self, server: str, text: str, givers: Collection[str] = (), may_use: Callable[[str], bool] | None = None
    ) -> str:
        """The text with the values of placeholders of this server, and with the secrets of `givers`; others stay.

        `may_use`: of which servers values may be turned back at all; None: of all.
        """

        def value(match: re.Match[str]) -> str:
            owner, found = self._values.get(match[0], ("", match[0]))
            is_given = owner in givers and match[0].startswith("‹secret:")
            is_open = may_use is None or may_use(owner)
            return found if is_open and (owner == server or is_given) else match[0]

        return PLACEHOLDER.sub(value, text)


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
        kinds: Kinds,
        sent: Kinds,
        givers: Collection[str],
        sessions: "WeakKeyDictionary[Session, Placeholders]",
        known: Callable[[str], str],
        threads: anyio.CapacityLimiter,
        restriction: Restriction,
    ) -> None:
        self._server, self._kinds, self._sent, self._givers, self._sessions = server, kinds, sent, givers, sessions
        self._known, self._threads, self._restriction = known, threads, restriction

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        from mcpbridge.pipeline.redaction import redacted_json  # most bridges redact nothing

        placeholders = self._sessions.setdefault(call.caller.session, Placeholders())
        arguments, update = call.params.fields.get("arguments"), call.update
        sent, redactions = (
            (None, 0) if arguments is None else await self._what_is_sent(arguments, placeholders, call.caller)
        )

        def placeholder(kind: str, value: str) -> str:
            return placeholders.placeholder(kind, self._server, value)

        if self._kinds:
            call.update = partial(self._update, call.caller, update)
        if sent is not arguments:
            call.params.put("arguments", sent)
        try:
            result = await proceed(call)
        finally:
            call.update = update
            if arguments is not None:
                call.params.put("arguments", arguments)  # what is recorded, and tried again, has placeholders
        if self._kinds:
            data = bytes(result.data)
            work = partial(redacted_json, data, self._kinds, placeholder, self._known)
            result = Body(await self._worked(work, len(data)))
        return _with_note(result, redactions, self._server) if redactions else result

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`. Plain are arguments that leave as they came."""
        data = bytes(arguments)
        if _MAY_HOLD_ONE.search(data) or not self._stays(data, self._sent, PLACEHOLDER):
            return False
        if self._kinds:
            call.update = partial(self._update, call.caller, call.update)
        return True

    def express_end(self, call: Call, result: Raw, seconds: float) -> bool:
        """The same of the result."""
        return self._stays(bytes(result), self._kinds)

    def _stays(self, data: bytes, kinds: Kinds, keep: re.Pattern[str] | None = None) -> bool:
        """Nothing of these kinds is in it, and finding that out takes no thread."""
        if not kinds:
            return True
        from mcpbridge.pipeline.redaction import redacted_json

        return len(data) <= LARGE and redacted_json(data, kinds, _no_placeholder, self._known, keep) is data

    def _update(self, caller: Caller, update: Update, method: str, params: Raw) -> None:
        """Pass on what the server says meanwhile."""
        from mcpbridge.pipeline.redaction import redacted_json

        placeholders = self._sessions.setdefault(caller.session, Placeholders())

        def placeholder(kind: str, value: str) -> str:
            return placeholders.placeholder(kind, self._server, value)

        update(method, Raw(redacted_json(bytes(params), self._kinds, placeholder, self._known)))

    async def _what_is_sent(self, arguments: Raw, placeholders: Placeholders, caller: Caller) -> tuple[Raw, int]:
        """The arguments that the server gets, and how many of their values it does not get."""
        from mcpbridge.pipeline.redaction import each_text, redacted_json

        values = 0

        def placeholder(kind: str, value: str) -> str:
            nonlocal values
            values += 1
            return placeholders.placeholder(kind, _NOBODY, value)

        sent = arguments
        if self._sent:
            data = bytes(arguments)
            work = partial(redacted_json, data, self._sent, placeholder, self._known, PLACEHOLDER)
            redacted = await self._worked(work, len(data))
            if redacted is not data:
                sent, values = Raw(redacted), max(values, 1)  # a number leaves no placeholder
        if _MAY_HOLD_ONE.search(bytes(sent)):
            may_use = self._restriction(caller)

            def restore(text: str) -> str:
                return placeholders.restored(self._server, text, self._givers, may_use)

            sent = Raw(encode(each_text(decode_exactly(sent), restore)))
        return sent, values

    async def _worked(self, work: Callable[[], bytes], size: int) -> bytes:
        """What the work gives: in a thread if it takes long."""
        if size <= LARGE:
            return work()
        with short_turns():
            return await anyio.to_thread.run_sync(work, limiter=self._threads)


def _with_note(result: Body, redactions: int, server: str) -> Body:
    """The result with how many values its server did not get; one that failed tells the model why that may be."""
    if needs_driving(result):
        return result
    noted = result.copy()  # others may hold the same result
    meta = noted.inner("_meta") or Body()
    meta.put(REDACTED, redactions)
    noted.put("_meta", meta)
    content, failed = noted.get("content"), noted.get("isError")
    if failed is not None and bytes(failed) == b"true" and content is not None and bytes(content).startswith(b"["):
        what = f"{redactions} values" if redactions > 1 else "1 value"
        text = f"[mcpbridge: {server} got placeholders for {what} of the arguments, by the setting redact_arguments]"
        noted.put("content", [*decode_array(content), {"type": "text", "text": text}])
    return noted
