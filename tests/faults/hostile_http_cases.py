"""What becomes of a call when its server over HTTP or WebSocket does one thing wrong: the cases, in the page's order.

Each is tried with a server on real sockets (`test_hostile_http.py`); `docs/reference/upstream-faults.md` shows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from faults.hostile_cases import AT_ONCE, DEADLINE, MOMENT, SERVED, START, Case

SECONDS_5 = "5 s"
SECONDS_10 = "10 s"
READY = "`ready`"
RETRYING = "`retrying`, with the reason"
RESTARTED = "`starting`, then `ready`"


@dataclass(frozen=True)
class WebCase(Case):
    """`error` is the class of the error, as callers get it in `mcpbridge/error`; empty: an error of the server's own.

    `arrivals`: how often the call came to the server. `recovers`: how many calls it takes until one is served again,
    once the server is well; 0: that is not tried.
    """

    error: str = ""
    arrivals: int = 1
    status: str = READY
    recovers: int = 1


def _call(error: str, outcome: str, *faults: str, within: str = AT_ONCE, arrivals: int = 1) -> list[WebCase]:
    return [WebCase("tools/call", fault, outcome, within, error, arrivals) for fault in faults]


def _served(moment: str, *faults: str, within: str = AT_ONCE, arrivals: int = 1) -> list[WebCase]:
    return [WebCase(moment, fault, SERVED, within, arrivals=arrivals) for fault in faults]


def _start(moment: str, outcome: str, *faults: str, within: str = AT_ONCE) -> list[WebCase]:
    return [WebCase(moment, fault, outcome, within, arrivals=0, status=RETRYING) for fault in faults]


def _statuses(moment: str, numbers: Iterable[int], words: str = "HTTP {}") -> list[WebCase]:
    return [case for number in numbers for case in _start(moment, words.format(number), f"status {number}")]


_GONE, _GARBLED, _HTTP = "UpstreamGone", "UpstreamGarbled", "UpstreamHttpError"
_LATE = "no answer within"
_LOST = "its answer cannot be read"
_EMPTY = "its answer is empty"
_CUT = "the connection was cut within the answer"
_CLOSED = "the connection was closed before an answer"
_NO_HTTP = "not an HTTP/1.1 answer"
_NO_ANSWER = "it took the request without answering it"
_LIMIT = "over the limit"
_UNPACK = "its answer cannot be decompressed"
_NOT_FOLLOWED = "which is not followed; set `url` to the new address"
_STREAM = "it closed the stream before the answer"
_SIGN_IN = "needs sign-in: run `mcpbridge login bad`"
_NEITHER = "neither a result nor an error"
_NOT_SSE = "nor does it speak SSE"

_PLAIN_STATUSES = (400, 402, 403, 405, 406, 408, 409, 410, 413, 415, 418, 421, 422, 429, 500, 501, 502, 503, 504, 599)
_OK_ANSWERS = (
    *("JSON called text", "JSON without a content type", "another charset named", "Latin-1", "byte order mark"),
    *("many lines", "batch", "id as text", "id missing", "id null", "no length, and the end", "HTTP/1.0"),
    *("100 Continue before", "answers twice", "head drips", "body drips", "closes the connection afterwards", "gzip"),
    *("unknown encoding", "events: answer", "events: answer, and no end", "events: answer twice"),
    *("events: comments and pings before", "events: no JSON before", "events: CR ends", "events: byte order mark"),
    "events: a spoiled notification before",
    *("events: unknown fields", "events: id missing", "events: id as text"),
    "events: broken off, answered at the resumption",
)
_BROKEN = ("closes before the answer", "closes within the head", "resets before the answer", "resets within the head")
_CUT_OFF = (
    *("a length that is too long", "chunks that end early", "chunks without the last", "resets within the body"),
    *("events: cut within an event", "events: reset"),
)
_NOT_HTTP = ("garbage", "another protocol", "HTTP/2", "two lengths", "a length that is no number")
_UNREADABLE = ("cut off", "no JSON", "null", "UTF-16", "nested", "an event stream called JSON", "gzip cut off")
_UNENDING = ("silent", "a head and no body", "half a body", "says continue for ever", "events: none, and no end")
_ELSEWHERE = ("301 to another path of its own", "301 to itself", "301 to another server", "301 to https")

HTTP_CASES: list[WebCase] = [
    *_served("tools/call", *_OK_ANSWERS),
    *_served("tools/call", "307 to another path of its own", "308 to another path of its own", arrivals=2),
    *_served("tools/call", "answers on the session's stream", "forgets the session once"),
    *[case for n in _PLAIN_STATUSES for case in _call(_HTTP, f"HTTP {n}", f"status {n}")],
    *_call("SignInNeeded", _SIGN_IN, "status 401", "status 401 with a bearer challenge"),
    *_call("SignInNeeded", _SIGN_IN, "status 401 with an unreadable challenge"),
    *_call("SignInNeeded", "mcpbridge login bad --scope write", "status 403 with missing rights"),
    *_call("SessionExpired", "the server ended the session", "status 404", arrivals=2),
    *_call("SessionExpired", "the server ended the session", "forgets each session", arrivals=0),
    *_call(_HTTP, "Try again in 7 s", "status 429 with Retry-After", "status 503 with Retry-After"),
    *_call(_HTTP, "Try again later", "status 429 with an unreadable Retry-After"),
    *_call(_HTTP, "HTTP 999", "status 999"),
    *_call(_HTTP, "HTTP 500", "status 500 whose body never ends", within=SECONDS_5),
    *_call("", "out of order", "status 400 with a JSON-RPC error", "status 500 with a JSON-RPC error", "error"),
    *_call(_HTTP, "Unsupported protocol version", "status 400 that does not know the revision"),
    *_call(_HTTP, _NOT_FOLLOWED, *_ELSEWHERE, *(name.replace("301", "302") for name in _ELSEWHERE)),
    *_call(_HTTP, _NOT_FOLLOWED, *(name.replace("301", "303") for name in _ELSEWHERE)),
    *_call(_HTTP, _NOT_FOLLOWED, "307 to another server", "307 to https", "308 to another server", "308 to https"),
    *_call(_HTTP, "a redirect to nowhere", "301 to a file", "302 to nowhere", "307 to a file", "308 to nowhere"),
    *_call(_HTTP, "a redirect to nowhere", "status 304"),
    *_call(_HTTP, "it redirects in a circle", "307 to itself", "308 to itself", arrivals=3),
    *_call(_HTTP, "it answers with text/html instead of JSON", "a web page"),
    *_call(_HTTP, "it answers with text/plain instead of JSON", "plain text"),
    *_call(_GARBLED, _EMPTY, "empty", "blanks"),
    *_call(_GARBLED, _NO_ANSWER, "status 202", "status 204", "status 206"),
    *_call(_GARBLED, _NO_ANSWER, "status 202, answers on the session's stream"),
    *_call(_GARBLED, _LOST, *_UNREADABLE, "a length that is too short", "events: no JSON"),
    *_call(_GARBLED, _LIMIT, "too large", "gzip bomb", "events: too large", "events: too large, without end"),
    *_call(_GARBLED, _UNPACK, "broken gzip", "gzip that is none"),
    *_call(_GARBLED, "which was not asked for", "unknown encoding of binary", "brotli"),
    *_call(_GARBLED, "its answer is not to this request", "id of another"),
    *_call(_GARBLED, "which no request has that waits", "events: id of another, and no end", within=MOMENT),
    *_call(_GARBLED, _NEITHER, "neither result nor error", "result null", "events: result null"),
    *_call(_GARBLED, "a result that is no object", "result a string"),
    *_call("", "an unreadable error", "error a string"),
    *_call(_GONE, _CLOSED, *_BROKEN),
    *_call(_GONE, _CUT, *_CUT_OFF),
    *_call(_GONE, _NO_HTTP, *_NOT_HTTP, "a chunk whose size is no number"),
    *_call(_GONE, "headers over the limit", "a head without end"),
    *_call(_GONE, "it wants to continue in another protocol", "status 101"),
    *_call(_GONE, _STREAM, "JSON called an event stream", "events: unknown kind", "events: id of another"),
    *_call(_GONE, _STREAM, "events: no blank line at the end", "events: none"),
    *_call(_GONE, "cannot be resumed (HTTP 405)", "events: broken off, the resumption refused"),
    *_call(_GONE, "cannot be resumed (HTTP 404)", "events: broken off, the resumption unknown"),
    *_call(_GONE, "could not be resumed", "events: broken off, the resumption fails", within=SECONDS_5),
    *_call("UpstreamTimeout", _LATE, *_UNENDING, within=DEADLINE),
    *_call("UpstreamTimeout", _LATE, "events: notifications without end", within=DEADLINE),
    *_call("UpstreamTimeout", _LATE, "events: broken off, the resumption empty", within=DEADLINE),
    *_call("UpstreamTimeout", _LATE, "events: broken off, the resumption silent", within=DEADLINE),
    *_call("UpstreamTimeout", _LATE, "events: broken off, the resumption without end", within=DEADLINE),
    *_served("initialize", *_OK_ANSWERS, "307 to another path of its own", "no session id"),
    *_served("initialize", "a session id with illegal characters", "a session id of 5,000 characters"),
    *_start("initialize", _NOT_SSE, "status 400", "status 404", "status 405"),
    *_statuses("initialize", (402, 403, 406, 408, 410, 415, 429, 500, 502, 503, 504)),
    *_start("initialize", _SIGN_IN, "status 401", "status 401 with an unreadable challenge"),
    *_start("initialize", "HTTP 429", "status 429 with Retry-After"),
    *_start("initialize", _NOT_FOLLOWED, *_ELSEWHERE, "307 to another server", "308 to https"),
    *_start("initialize", "it redirects in a circle", "307 to itself"),
    *_start("initialize", "instead of JSON or an event stream: is the URL right?", "a web page", "plain text"),
    *_start("initialize", _EMPTY, "empty"),
    *_start("initialize", _NO_ANSWER, "status 202", "status 204"),
    *_start("initialize", _LOST, "cut off", "no JSON", "UTF-16", "nested", "events: no JSON"),
    *_start("initialize", _LIMIT, "too large", "gzip bomb", "events: too large"),
    *_start("initialize", _UNPACK, "broken gzip"),
    *_start("initialize", _NEITHER, "result null"),
    *_start("initialize", "a result that is no object", "result a string"),
    *_start("initialize", "it refused to begin: out of order (-32603)", "error"),
    *_start("initialize", "it refused to begin: Session not found (-32001)", "forgets each session"),
    *_start("initialize", "it wants protocol revision", "revision unknown", "revision of the other era"),
    *_start("initialize", "is not valid", "revision missing", "capabilities a list"),
    *_start("initialize", _CLOSED, *_BROKEN),
    *_start("initialize", _CUT, *_CUT_OFF),
    *_start("initialize", _NO_HTTP, *_NOT_HTTP),
    *_start("initialize", _STREAM, "events: none"),
    *_start("initialize", "not ready within", *_UNENDING, within=START),
    *_statuses("all", (403, 406, 410, 429, 500, 502, 503, 504)),
    *_start("all", _NOT_SSE, "status 400", "status 404", "status 405"),
    *_start("all", _SIGN_IN, "status 401"),
    *_start("all", "instead of JSON or an event stream: is the URL right?", "a web page"),
    *_start("all", _NO_HTTP, "garbage"),
    *_start("all", _CLOSED, "closes before the answer"),
    *_start("all", "not ready within", "silent", within=START),
    *_served("all", "307 to another path of its own", arrivals=2),
    *_served(
        "server/discover", "status 400", "status 404", "status 405", "status 422", "empty", "cut off", "result null"
    ),
    *_served("server/discover", "error", "status 202", "id of another", "too large", "gzip bomb"),
    *_statuses("server/discover", (403, 429, 500, 503)),
    *_start("server/discover", _CLOSED, "closes before the answer"),
    *_start("server/discover", "not ready within", "silent", within=START),
    *_served("notifications/initialized", "status 400", "status 404", "status 429", "status 500", "a web page"),
    *_served("notifications/initialized", "307 to another path of its own", "closes before the answer", "garbage"),
    *_served("notifications/initialized", "events: none, and no end", "gzip bomb", "a head and no body"),
    *_served("notifications/initialized", "silent", within=SECONDS_5),
    *_start("tools/list", "HTTP 500", "status 500"),
    *_start("tools/list", _SIGN_IN, "status 401"),
    *_start("tools/list", "the server ended the session", "status 404"),
    *_start("tools/list", "instead of JSON or an event stream: is the URL right?", "a web page"),
    *_start("tools/list", "its answer has the wrong shape", "tools a string"),
    *_start("tools/list", _LOST, "cut off"),
    *_start("tools/list", _LIMIT, "too large", "gzip bomb"),
    *_start("tools/list", _CLOSED, "closes before the answer"),
    *_start("tools/list", _STREAM, "events: none"),
    *_start("tools/list", _LATE, "silent", within=START),
    *_served("GET", "status 400", "status 401", "status 403", "status 404", "status 406", "status 429", "status 500"),
    *_served("GET", "302 to another server", "307 to itself", "a web page", "garbage", "closes before the answer"),
    *_served("GET", "gzip bomb", "broken gzip", "events: none", "events: no JSON", "events: too large"),
    *_served("GET", "events: id of another", "events: notifications without end", "events: reset"),
    *_served("GET", "silent", within=MOMENT),
    *(
        WebCase("DELETE", fault, SERVED, recovers=0)
        for fault in ("status 405", "status 500", "closes before the answer", "garbage")
    ),
    WebCase("DELETE", "silent", SERVED, "2 s", recovers=0),
]
"""Streamable HTTP."""

CONNECT_CASES: list[WebCase] = [
    WebCase("connect", fault, outcome, within, arrivals=0, status=RETRYING, recovers=0)
    for fault, outcome, within in (
        ("listens no more", "connection refused", AT_ONCE),
        ("expects TLS", _CLOSED, AT_ONCE),
        ("expects no TLS", "no connection to", SECONDS_10),
        ("a certificate that nobody trusts", "its TLS certificate is not trusted", AT_ONCE),
    )
]
"""Streamable HTTP, before anything is said."""

_SSE_CUT = ("stream: is cut", "stream: is cut in an event", "stream: is reset")


def _lost(*cases: WebCase) -> list[WebCase]:
    """The connection ends with the call: the server is connected to anew."""
    return [
        WebCase(case.moment, case.fault, case.outcome, case.within, case.error, case.arrivals, RESTARTED)
        for case in cases
    ]


SSE_CASES: list[WebCase] = [
    *_served("tools/call", "never answers the POST, but on the stream", "closes the POST, and answers on the stream"),
    *_served("tools/call", "answers in the body of the POST", "stream: answer twice", "stream: comments before"),
    *_served("tools/call", "stream: id as text", "stream: id missing", "stream: answers, and is reset"),
    *[
        case
        for number in (400, 403, 405, 410, 429, 500, 502, 503, 504)
        for case in _call(_HTTP, f"HTTP {number}", f"status {number}")
    ],
    *_call(_HTTP, "a redirect to nowhere", "status 301"),
    *_call("SignInNeeded", _SIGN_IN, "status 401"),
    *_call("SessionExpired", "the server ended the session", "status 404", arrivals=2),
    *_call(_HTTP, "Try again in 7 s", "status 429 with Retry-After"),
    *_call(_HTTP, "it answers a message with a web page", "a web page"),
    *_call(_GONE, _CLOSED, "closes before the answer"),
    *_call(_GONE, _NO_HTTP, "garbage"),
    *_call(_GARBLED, _LOST, "stream: text before", "stream: no JSON", "stream: cut off", "stream: too large"),
    *_call(_GARBLED, "which no request has that waits", "stream: id of another", within=MOMENT),
    *_call(_GARBLED, _NEITHER, "stream: result null"),
    *_call("", "out of order", "stream: error"),
    *_lost(*_call(_GONE, "it ended its event stream", "stream: ends")),
    *_lost(*_call(_GONE, "its event stream was cut", *_SSE_CUT)),
    *_call("UpstreamTimeout", _LATE, "silent", "stream: nothing", within=DEADLINE),
    *_served("initialize", "closes the POST, and answers on the stream", "answers in the body of the POST"),
    *_served("initialize", "stream: answer twice", "stream: comments before", "stream: id as text"),
    *_statuses("initialize", (400, 403, 404, 405, 410, 429, 500, 502, 503, 504)),
    *_start("initialize", _SIGN_IN, "status 401"),
    *_start("initialize", "it answers a message with a web page", "a web page"),
    *_start("initialize", _CLOSED, "closes before the answer"),
    *_start("initialize", _LOST, "stream: no JSON", "stream: cut off", "stream: too large"),
    *_start("initialize", _NEITHER, "stream: result null"),
    *_start("initialize", "it refused to begin: out of order (-32000)", "stream: error"),
    *_start("initialize", "it wants protocol revision", "stream: revision unknown"),
    *_start("initialize", "it ended its event stream", "stream: ends"),
    *_start("initialize", "its event stream was cut", *_SSE_CUT, "stream: answers, and is reset"),
    *_start("initialize", "not ready within", "silent", "stream: nothing", within=START),
    *_start("tools/list", "HTTP 500", "status 500"),
    *_start("tools/list", _LOST, "stream: cut off", "stream: too large"),
    *_start("tools/list", "it ended its event stream", "stream: ends"),
    *_start("tools/list", _LATE, "stream: nothing", within=START),
    *_statuses("GET", (400, 403, 404, 405, 410, 429, 500, 502, 503, 504)),
    *_start("GET", "a redirect to nowhere", "status 301"),
    *_start("GET", _SIGN_IN, "status 401"),
    *_start("GET", "HTTP 429", "status 429 with Retry-After"),
    *_start("GET", "instead of an event stream: is the URL right?", "a web page"),
    *_start("GET", _CLOSED, "closes before the answer"),
    *_start("GET", _NO_HTTP, "garbage"),
    *_start("GET", _CUT, "no endpoint, and the end"),
    *_start("GET", "on another origin", "an endpoint elsewhere"),
    *_start("GET", "it names an endpoint that is no URL", "an endpoint that is no URL"),
    *_start("GET", "no answer within", "silent", within=SECONDS_10),
    *_start("GET", "names no endpoint", "no endpoint", within=SECONDS_10),
    *_start("GET", "names no endpoint", "another event than the endpoint", "an endless line", within=SECONDS_10),
]
"""HTTP+SSE of 2024-11-05."""

_CODES = (1000, 1001, 1003, 1008, 1009, 1011, 1012, 1013, 4000)
_FRAMES = ("a frame that is masked", "a frame of an unknown kind", "a frame with reserved bits", "garbage")

WS_CASES: list[WebCase] = [
    *_served("tools/call", "answer in binary", "answer in fragments", "a ping between fragments"),
    *_served("tools/call", "a pong that nobody asked for", "answer twice", "an empty message before"),
    *_served("tools/call", "id as text", "id missing", "answers, and closes with 1000"),
    *_call(_GARBLED, _LOST, "text before", "no JSON", "cut off", "binary that is no JSON", "text that is no UTF-8"),
    *_call(_GARBLED, "larger than the limit", "too large", "too large, in fragments"),
    *_call(_GARBLED, "which no request has that waits", "id of another", within=MOMENT),
    *_call(_GARBLED, _NEITHER, "result null"),
    *_call("", "out of order", "error"),
    *_lost(*(c for n in _CODES for c in _call(_GONE, f"it closed the connection with {n}", f"closes with {n}"))),
    *_lost(*_call(_GONE, "it closed the connection with 1005 (no code)", "closes without a code")),
    *_lost(*_call(_GONE, "the connection was cut", "is cut")),
    *_lost(*_call(_GONE, "it broke the WebSocket protocol", *_FRAMES)),
    *_call("UpstreamTimeout", _LATE, "silent", within=DEADLINE),
    # Its next message breaks the protocol, and with it the call that waits for it.
    WebCase("tools/call", "fragments without end", _LATE, DEADLINE, "UpstreamTimeout", recovers=2),
    *_served("initialize", "answer in binary", "answer in fragments", "a ping between fragments", "answer twice"),
    *_served("initialize", "id as text", "id missing", "an empty message before"),
    *_start("initialize", _LOST, "no JSON", "cut off", "binary that is no JSON", "too large"),
    *_start("initialize", _NEITHER, "result null"),
    *_start("initialize", "it refused to begin: out of order (-32000)", "error"),
    *_start("initialize", "it wants protocol revision", "revision unknown"),
    *[c for n in _CODES for c in _start("initialize", f"it closed the connection with {n}", f"closes with {n}")],
    *_start("initialize", "the connection was cut", "is cut"),
    *_start("initialize", "it broke the WebSocket protocol", *_FRAMES),
    *_start("initialize", "not ready within", "silent", "fragments without end", within=START),
    *_start("tools/list", _LOST, "cut off", "too large"),
    *_start("tools/list", "it closed the connection with 1011", "closes with 1011"),
    *_start("tools/list", _LATE, "silent", within=START),
    *_served("upgrade", "no subprotocol"),
    *_statuses("upgrade", (403, 404, 426, 429, 500, 503)),
    *_start("upgrade", _SIGN_IN, "status 401"),
    *_start("upgrade", "instead of opening a WebSocket: is the URL right?", "a web page"),
    *_start("upgrade", _NOT_FOLLOWED, "redirects elsewhere"),
    *_start("upgrade", "it does not speak WebSocket", "another subprotocol", "a wrong key"),
    *_start("upgrade", _CLOSED.removesuffix(" answer"), "closes before the answer", "garbage"),
    *_start("upgrade", "no connection to", "silent", within=SECONDS_10),
]
"""WebSocket."""
