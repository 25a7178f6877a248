"""What one HTTP answer means: its messages for the receiver, or an error in a few words.

Each answer belongs to one request (or to none: the stream of a GET). So an answer that lost its id still finds its
caller, and an answer that cannot be read fails just that request.

Every failure also says whether the server can have acted on the request. A refusal by status means that it did not; a
connection that broke after the request was written means that nobody knows. No I/O.
"""

import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from http import HTTPStatus
from time import perf_counter

import httpx2
import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.errors import (
    BridgeError,
    SessionExpired,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamUnavailable,
)
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.http.bearer_auth import Unauthorized
from mcpbridge.protocol.http.connect import connection_failure
from mcpbridge.protocol.jsonrpc import Frame, LargeFrame, decode_arriving_frame, one_line
from mcpbridge.protocol.reading.repair import Item, Unfinished, salvage
from mcpbridge.protocol.reading.unreadable import Spoiled
from mcpbridge.protocol.transport import Receiver

log = get_logger("mcpbridge.http")

_NOISE_EXCERPT = 80
"""Characters that are repeated of what is no message."""


def is_same_id(answered: bytes, id_: bytes) -> bool:
    """Whether an answer to `answered` is one to the request `id_`: some servers answer `"7"` to `7`."""
    return answered == id_ or (answered == b'"%b"' % id_ and id_.isdigit())


class Answers:
    """The messages that come for one request; `via` is its id, empty when they come for none.

    `on_other` gets the raw id of each answer that came here and belongs to another request.
    """

    def __init__(
        self,
        receiver: Receiver,
        via: bytes,
        *,
        on_other: Callable[[bytes], None],
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._receiver = receiver
        self._via = via
        self._on_other = on_other
        self._redact = redact
        self.is_answered = False
        """The request has its answer, or has been told that it is spoiled; nothing more needs to come."""
        self.noise = ""
        """What came that is no message, in words; empty when all was one."""

    def take(self, data: bytes, *, is_whole_body: bool = False) -> None:
        """One message, or a batch of them. `is_whole_body`: nothing else comes, so this must be the answer."""
        try:
            self.take_frame(decode_arriving_frame(one_line(data)))
        except (msgspec.DecodeError, RecursionError):
            self._take_salvaged(salvage(one_line(data)), data, is_whole_body)

    def pause_after(self, began: float) -> float:
        """Seconds for which nothing more is to be read, after a chunk that came at `began` (of `perf_counter`)."""
        receiver = self._receiver
        return receiver.pause_after(perf_counter() - began) if receiver.has_unasked else 0.0

    def take_answer(self, frame: Frame) -> None:
        """The answer to this request, whatever id it carries."""
        self._answer(frame)

    def take_frame(self, frame: Frame) -> None:
        """One message that is read already."""
        if frame.method:
            self._receiver.frame(frame, self._via)
            return
        id_ = bytes(frame.id)
        if self._via and (id_ in {b"", b"null"} or is_same_id(id_, self._via)):
            self._answer(frame)
            return
        self._receiver.frame(frame, self._via)
        self._on_other(id_)

    def _answer(self, frame: Frame) -> None:
        if bytes(frame.id) != self._via:
            # Servers leave the id out of an error that they meet early; on this stream only one request waits.
            if isinstance(frame, LargeFrame):
                frame = replace(frame, id=Raw(self._via))
            else:
                frame = Frame(id=Raw(self._via), result=frame.result, error=frame.error)
        self.is_answered = True
        self._receiver.frame(frame, self._via)

    def _take_salvaged(self, salvaged: list[Item] | Unfinished, data: bytes, is_whole_body: bool) -> None:
        items = salvaged if isinstance(salvaged, list) else [Spoiled([], "cut off in the middle")]
        for item in items:
            if isinstance(item, Frame):
                self.take_frame(item)
            elif isinstance(item, Batch):
                for member in item.members:
                    if isinstance(member, Frame):
                        self.take_frame(member)
                    else:
                        self._spoiled(member.ids, member.reason, is_whole_body, data)
            elif isinstance(item, Spoiled):
                self._spoiled(item.ids, item.reason, is_whole_body, data)
            else:
                reason = f"no JSON-RPC message: {self._redact(item.text)[:_NOISE_EXCERPT]!r}"
                if is_whole_body or data.lstrip()[:1] in {b"{", b"["}:
                    self._spoiled([], reason, is_whole_body, data)
                else:  # text beside the messages, as on stdio: the answer may follow
                    self.noise = self.noise or reason

    def _spoiled(self, ids: list[bytes], reason: str, is_whole_body: bool, data: bytes) -> None:
        is_named = any(is_same_id(id_, self._via) for id_ in ids)
        is_own = bool(self._via) and (is_whole_body or is_named or (not ids and b'"method"' not in data))
        if is_own:
            ids = [self._via]
            self.is_answered = True
        elif not ids:
            # A notification, or the stream is no request's: the one request that waits may not be meant.
            log.warning("spoiled message beside the answers", reason=reason)
            return
        self._receiver.spoiled(ids, reason, self._via)
        for id_ in ids:
            if not is_own:
                self._on_other(id_)


_EXCERPT = 200
"""Characters of a server's own words that are repeated."""
_LOOKED_AT = 8192
"""Characters of a body in which its words are looked for."""
_REFUSED = frozenset({400, 401, 402, 403, 404, 405, 406, 411, 413, 415, 421, 426, 429, 431})
"""Statuses that say the request was turned away, so that nothing can have run."""
_SESSION = re.compile(rb"session|not initialized", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_DROPPED = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_MESSAGES = [
    re.compile(rf'"{member}"\s*:\s*"((?:[^"\\]|\\.)+)"')
    for member in ("message", "error_description", "detail", "error", "title")
]
"""Where JSON bodies say what is wrong, the best message first."""


class Failure(Struct, frozen=True):
    """Why a request got no answer, and whether the server may have acted on it."""

    error: BridgeError
    sent: bool


def failure_of_exception(upstream: str, error: httpx2.HTTPError) -> Failure:
    """The failure behind an exception of the HTTP client."""
    what = _without_jargon(error) or str(error) or type(error).__name__
    match error:
        case Unauthorized():
            return Failure(error.reason, sent=False)
        case httpx2.TooManyRedirects():
            return Failure(UpstreamHttpError(upstream, 308, what), sent=False)
        case (
            httpx2.ConnectError()
            | httpx2.ConnectTimeout()
            | httpx2.PoolTimeout()
            | httpx2.ProxyError()
            | httpx2.UnsupportedProtocol()
            | httpx2.LocalProtocolError()
        ):
            return Failure(UpstreamUnavailable(upstream, what), sent=False)
        case httpx2.DecodingError():
            return Failure(UpstreamGarbled(upstream, f"its answer cannot be decompressed: {what}"), sent=True)
        case _:
            return Failure(UpstreamGone(upstream, what, is_restarted=False), sent=True)


def _without_jargon(error: BaseException) -> str:
    """What the TLS library says, in our words; empty when the error is of another kind or in our words already."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return connection_failure(cause) if isinstance(cause, ssl.SSLError) and "[SSL" in str(error) else ""


def failure_of_status(
    upstream: str, response: httpx2.Response, body: bytes, *, had_session: bool, redact: Callable[[str], str]
) -> Failure:
    """The failure that a status other than success stands for. `body` may be only the beginning of it."""
    status, headers = response.status_code, response.headers
    if had_session and (status == 404 or (status == 400 and _SESSION.search(body))):
        return Failure(SessionExpired(upstream), sent=False)
    if 300 <= status < 400:
        return Failure(UpstreamHttpError(upstream, status, _redirect_text(response)), sent=False)
    text = f"HTTP {status}"
    try:
        text += f" {HTTPStatus(status).phrase}"
    except ValueError:
        pass  # an unregistered status has no phrase
    if status == 405:
        text += " (does the URL name an MCP endpoint?)"
    own_words = excerpt(body, redact)
    if own_words:
        text += f": {own_words}"
    retry_after = seconds_to_wait(headers.get("retry-after", ""), datetime.now(UTC))
    return Failure(UpstreamHttpError(upstream, status, text, retry_after=retry_after), sent=status not in _REFUSED)


def _redirect_text(response: httpx2.Response) -> str:
    status, url = response.status_code, response.request.url
    location = response.headers.get("location", "")
    try:
        target = url.join(location)
    except httpx2.InvalidURL:
        target = url
    if not location or not target.host:
        return f"HTTP {status}: a redirect to nowhere"
    place = (
        f"{target.scheme}://{target.host}" if (target.scheme, target.host) != (url.scheme, url.host) else target.path
    )
    return f"HTTP {status}: it redirects to {place}, which is not followed; set `url` to the new address"


LONGEST_RETRY_AFTER = 86_400.0
"""Seconds; a server that asks for more means: not today."""


def seconds_to_wait(retry_after: str, now: datetime) -> float | None:
    """The value of a `Retry-After` header in seconds, a day at most; None when there is none that can be read."""
    value = retry_after.strip()
    if value.isdecimal() and len(value) < 10:
        return min(float(value), LONGEST_RETRY_AFTER)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(0.0, (when - now).total_seconds()), LONGEST_RETRY_AFTER)


def excerpt(body: bytes, redact: Callable[[str], str]) -> str:
    """The server's own words in a body, on one line and short: a JSON message, a page's title, or plain text.

    Secrets are masked before anything is cut: half a secret would be known as none.
    """
    text = redact(body.decode("utf-8", "replace"))[:_LOOKED_AT].strip()
    if text[:1] in {"{", "["}:
        match = next((match for pattern in _MESSAGES if (match := pattern.search(text))), None)
        text = match.group(1) if match else text
    elif text[:1] == "<":
        title = _TITLE.search(text)
        text = unescape(title.group(1) if title else _DROPPED.sub(" ", text))
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    text = redact(text)  # again: a tag or an entity may have hidden one
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"


def is_answer_to(frame: Frame, id_: bytes, status: int) -> bool:
    """Whether a JSON-RPC answer in the body of an error status is the answer to the request `id_`."""
    if frame.method or not (bytes(frame.error) or bytes(frame.result)):
        return False
    if status in {401, 403, 429}:
        return False  # the status says more than the body: credentials, or when to come back
    own = bytes(frame.id)
    return is_same_id(own, id_) or (status < 500 and own in {b"", b"null"})


def answer_in(body: bytes, id_: bytes, status: int) -> Frame | None:
    """The JSON-RPC answer to the request `id_` in the body of an error status, if it is one."""
    try:
        frame = decode_arriving_frame(one_line(body))
    except (msgspec.DecodeError, RecursionError):
        return None
    return frame if is_answer_to(frame, id_, status) else None
