"""Every error of the bridge, as one tree.

    BridgeError
    ├── CallRefused              the bridge refused the call; the upstream saw nothing
    │   ├── BadRequest             the client's message breaks the protocol (carries the JSON-RPC code)
    │   ├── UnknownName            no tool, prompt or resource has this name; suggests the nearest
    │   ├── ArgumentsRefused       the arguments do not fit the tool's schema
    │   ├── NotPermitted           a rule denies the call
    │   │   └── InsufficientScope    the role allows it, but not the token: it lacks scopes
    │   ├── ApprovalRefused        a person said no, or did not answer in time
    │   ├── ApprovalUnavailable    the call needs a person's approval, and nobody can be asked
    │   ├── HookRefused            a hook refused the call
    │   ├── ToolInactive           a tool of the bridge lacks a key, a program or a sandbox
    │   ├── AddressRefused         the address may not be fetched for a model
    │   ├── PathRefused            the file may not be used by tools
    │   ├── AlreadyResumed         the paused call was answered before, or is being answered now
    │   └── Overloaded             a queue or limit is full
    │       ├── RateLimited          too many calls in too short a time; says when to try again
    │       ├── BudgetSpent          this conversation has made as many calls as it may
    │       └── LimitUnavailable     a limit that several bridges count together cannot be counted now
    ├── UpstreamError            the call failed at one upstream, or on the way to it
    │   ├── UpstreamUnavailable    it is not connected; the call was not sent
    │   │   └── UpstreamResting      it failed many calls in a row and gets none for a while; says when to try again
    │   ├── UpstreamGone           the connection ended during the call
    │   ├── UpstreamTimeout        no answer came by the deadline
    │   ├── UpstreamGarbled        an answer came that cannot be read
    │   ├── UpstreamHttpError      an HTTP error status came instead of an answer
    │   │   ├── SessionExpired       the server forgot the session; nothing was executed
    │   │   └── SignInNeeded         a person has to sign in to the server first
    │   ├── TaskLost               the server ran the call as a task, which ended without a result
    │   ├── UrlRequired            the server wants pages visited first, and this client opens none
    │   └── UpstreamAnswered       the upstream's own JSON-RPC error, to be passed on as it is
    ├── AnswerTooLarge           the call ran, but its answer does not fit into the client's event stream
    ├── CallFailed               a program asked for the value of a result that is an error, or is not there yet
    ├── FormatError              a model API's format is unknown, or a message is not in it
    ├── BridgeClosed             the bridge does not run, or this thread cannot wait for it
    ├── NoBridge                 a server was asked for what only bridges have
    ├── NotConnected             nothing answers at the URL, the token is refused, or no MCP server is there
    ├── ContextRefused           a value does not fit the type of its context, or is too large
    ├── StoreFailed              the store cannot keep or read a value
    │   └── ValueTooLarge          the value is larger than the whole store may be
    └── ConfigError              the configuration is wrong: file, key, what was expected

Errors carry facts as attributes and build their own message: what failed and, in `advice`, what to
do next. Secrets and third-party text stay in the log.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from math import ceil
from types import MappingProxyType

RETRY_AFTER = "mcpbridge/retryAfter"
"""In `_meta` of a refused call: seconds until it may pass."""
ERROR_NAME = "mcpbridge/error"
"""In `_meta` of a failed call, or `data` of an error: the name of the bridge's own error, for programs."""

SCOPES = "mcpbridge/scopes"
"""In `_meta` of a call whose token has too few rights: the scopes that it needs."""


class BridgeError(Exception):
    """The root of all errors that the bridge raises on purpose."""

    advice: str = ""
    """What the reader (often a model) should do next; a sentence, or empty."""

    facts: Mapping[str, object] = MappingProxyType({})
    """Facts for programs, as JSON values by `_meta` key; they go into the result beside the text."""

    tries: int = 1
    """How often the call was tried before it failed."""

    docs_page: str = "docs/reference/errors.md"
    """The page of the docs that explains the error, with its anchor. People are shown it, models are not."""

    def __init_subclass__(cls) -> None:
        """Each public class has its place on the page."""
        super().__init_subclass__()
        if not cls.__name__.startswith("_"):
            cls.docs_page = f"{BridgeError.docs_page}#{cls.__name__.lower()}"

    def full_message(self) -> str:
        """The message, then the advice: what the caller of a tool reads."""
        text = f"{self} (tried {self.tries} times)" if self.tries > 1 else str(self)
        return f"{text}. {self.advice}" if self.advice else text


class CallRefused(BridgeError):
    """The bridge refused the call. No upstream saw it."""


class BadRequest(CallRefused):
    """A client sent a message that breaks the protocol. `code` is the JSON-RPC error code of the answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class UnknownName(CallRefused):
    """No upstream offers a tool, prompt or resource of this name."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        candidates: Iterable[str] | Callable[[], Iterable[str]] = (),
        ambiguous: bool = False,
    ) -> None:
        """`candidates` that take time to find are given as a function: most of these errors are never shown."""
        super().__init__(kind, name)
        self.kind, self.name = kind, name
        self._candidates, self.is_ambiguous = candidates, ambiguous

    @cached_property
    def candidates(self) -> list[str]:
        """The names that come nearest, best first."""
        return list(self._candidates() if callable(self._candidates) else self._candidates)

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= 200 else f"{self.name[:200]}…"
        text = f"Ambiguous {self.kind} name: {shown}" if self.is_ambiguous else f"Unknown {self.kind}: {shown}"
        if self.candidates:
            ask = "it could be" if self.is_ambiguous else "did you mean"
            text += f" ({ask} {', '.join(self.candidates)}?)"
        return text


class Overloaded(CallRefused):
    """A limit is reached. Nothing was sent."""

    advice = "Nothing was sent to the server. Try again when earlier calls have finished."


class RateLimited(Overloaded):
    """Too many calls were made in too short a time. `retry_after` is in seconds."""

    def __init__(self, what: str, limit: str, retry_after: float) -> None:
        """`what` is limited to `limit`: "Server 'x'", "30/min"."""
        wait = max(1, ceil(retry_after))
        super().__init__(f"{what} is limited to {limit}")
        self.retry_after = retry_after
        self.facts = {RETRY_AFTER: wait}
        self.advice = f"Nothing was sent. Try again in {wait} s."


class AlreadyResumed(CallRefused):
    """The paused call was answered before, or somebody else is answering it at this moment."""


class BudgetSpent(Overloaded):
    """This conversation has made as many calls as it may."""

    advice = "Nothing was sent. Continue without further calls, or tell the user that the limit is reached."


class LimitUnavailable(Overloaded):
    """What bridges count together cannot be counted: their server (`store.url`) does not answer."""

    advice = "Nothing was sent. Try again in a few seconds; whoever runs the bridge has to look at the store's server."
    facts = MappingProxyType({RETRY_AFTER: 5})


class ArgumentsRefused(CallRefused):
    """The arguments do not fit the tool's schema. The message says what is wrong, and what would fit."""

    def tell_signature(self, signature: str) -> None:
        """Add the tool's signature, for a caller who may not have its definition."""
        self.advice = f"{self.advice} It is called so: {signature}".strip()


class NotPermitted(CallRefused):
    """A permission rule denies this call to this client."""

    advice = "Nothing was sent. Do not try to reach the same by other means; tell the user if it matters."


class InsufficientScope(NotPermitted):
    """The caller may do this, but not with this token: it lacks scopes. Over HTTP the answer is 403 (RFC 6750)."""

    advice = "Sign in again with these scopes."

    def __init__(self, scopes: Iterable[str]) -> None:
        """`scopes`: all that the request needs, those that the token has included."""
        self.scopes = frozenset(scopes)
        super().__init__(f"this needs a token with the scopes: {' '.join(sorted(self.scopes))}")
        self.facts = {SCOPES: sorted(self.scopes)}


class ApprovalRefused(CallRefused):
    """A person was asked and said no, or did not answer in time."""

    advice = "Nothing was sent. Do not repeat the call unless the user asks for it."


class ApprovalUnavailable(CallRefused):
    """The call needs a person's approval, and nobody can be asked."""

    advice = "Nothing was sent. Whoever runs the bridge can set who is asked: `approval.ask`."


class HookRefused(CallRefused):
    """A hook of the configuration or of the program refused the call, or failed."""

    advice = "Nothing was sent."


class ToolInactive(CallRefused):
    """A tool of the bridge lacks something that it needs. The message names it."""

    def __init__(self, tool: str, missing: str, fix: str) -> None:
        """`missing` completes "it is inactive: …"; `fix` says who can do what about it, a sentence."""
        super().__init__(f"{tool} is inactive: {missing}")
        self.advice = f"Do not retry. {fix}".strip()
        self.why = f"{missing}. {fix}".rstrip(" .")
        """The same for people, without the tool's name."""


class AddressRefused(CallRefused):
    """The address may not be fetched for a model. The message names it without its query, and says why."""

    advice = "Nothing was sent there. Do not try other spellings of the same address."


class PathRefused(CallRefused):
    """The file may not be used by tools. The message names it as it was given, and says why."""

    advice = "Nothing was read or changed."


class UpstreamError(BridgeError):
    """The call failed at one upstream, or on the way to it."""

    def __init__(self, upstream: str, what: str) -> None:
        super().__init__(f"{'Tool' if '/' in upstream else 'Server'} '{upstream}': {what}")
        self.upstream = upstream
        """The server's name; the tool's id if no server has it."""
        self.what = what

    def rename(self, upstream: str) -> None:
        """Replace the name of the upstream in the message."""
        UpstreamError.__init__(self, upstream, self.what)


class UpstreamUnavailable(UpstreamError):
    """The upstream is not connected. The call was not sent."""

    advice = "Nothing was sent; other servers still work. Try again later, or see `mcpbridge status`."
    is_tried_again = True  # where calls have several tries; set on the error itself

    def __init__(self, upstream: str, what: str, *, start_in: float | None = None) -> None:
        """`start_in`: seconds after which a call starts it again; None if that is not known."""
        super().__init__(upstream, what)
        if start_in is not None:
            wait = max(1, ceil(start_in))
            self.facts = {RETRY_AFTER: wait}
            self.advice = f"Nothing was sent; other servers still work. A call in {wait} s or later starts it again."


class UpstreamResting(UpstreamUnavailable):
    """The upstream failed many calls in a row, so it gets none for a while. `retry_after` is in seconds."""

    def __init__(self, upstream: str, retry_after: float, *, is_probed: bool) -> None:
        """`is_probed`: one call is testing right now whether it works again."""
        wait = max(1, ceil(retry_after))
        if is_probed:
            what = "it failed many calls in a row, and one call is finding out whether it works again"
        else:
            what = f"it failed many calls in a row and is left alone for {wait} s more"
        super().__init__(upstream, what)
        self.retry_after = retry_after
        self.facts = {RETRY_AFTER: wait}
        self.advice = f"Nothing was sent; other servers still work. Try again in {wait} s, or see `mcpbridge status`."


class UpstreamGone(UpstreamError):
    """The connection ended during the call. The call may have taken effect."""

    advice = "The server is being restarted. Check whether the action took effect before you repeat it."

    def __init__(self, upstream: str, what: str, *, is_restarted: bool = True) -> None:
        """`is_restarted`: the connection to the server ended and is opened again, not only that of one HTTP request."""
        super().__init__(upstream, what)
        self.is_restarted = is_restarted
        if not is_restarted:
            self.advice = "Check whether the action took effect before you repeat it."


class UpstreamTimeout(UpstreamError, TimeoutError):
    """An upstream did not answer in time. The call may still take effect there."""

    advice = "It was asked to cancel. Check whether the action took effect before you repeat it."

    def __init__(self, upstream: str, seconds: float) -> None:
        super().__init__(upstream, f"no answer within {seconds:g} s")
        self.seconds = seconds


class CallCancelled(UpstreamError):
    """A person who looks after the bridge cancelled the call while it ran. The call may have taken effect."""

    advice = "Do not make the call again unless you are asked to; it may have taken effect."

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, "a person cancelled this call")


class UpstreamGarbled(UpstreamError):
    """An answer came that cannot be read as JSON-RPC. The call probably took effect."""

    advice = "The call probably ran, but its answer is lost. This is a fault of the server."


class UpstreamHttpError(UpstreamError):
    """The server answered with an HTTP error status. `retry_after` is in seconds, None if the server named no time."""

    def __init__(self, upstream: str, status: int, what: str, *, retry_after: float | None = None) -> None:
        super().__init__(upstream, what)
        self.status = status
        self.retry_after = retry_after
        if retry_after is not None:
            self.facts = {RETRY_AFTER: ceil(retry_after)}
        if status == 401:
            self.advice = (
                "The server requires credentials: set `headers.Authorization` of this server in the configuration."
            )
        elif status == 403:
            self.advice = "The server knows the credentials and refuses them this action."
        elif status == 429:
            wait = f"in {ceil(retry_after)} s" if retry_after is not None else "later"
            self.advice = f"The server limits the rate of calls. Try again {wait}."
        elif status == 503:
            wait = f"in {ceil(retry_after)} s" if retry_after is not None else "later"
            self.advice = f"The server cannot serve calls now. Try again {wait}."
        elif status >= 500:
            self.advice = "The fault is at the server. Check whether the action took effect before you repeat it."


class SessionExpired(UpstreamHttpError):
    """The server does not know the session any more. It did not run the call."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, 404, "the server ended the session")
        self.advice = "It did not run the call, nor did it in a new session. Try again later."


class SignInNeeded(UpstreamHttpError):
    """A person has to sign in to the server first. Nothing was executed. `why` is empty before the first sign-in."""

    page = ""
    """Where a user connects an account of their own; empty: it is another sign-in, or the page is not known."""
    is_own = False
    """It is about an account of this user alone."""
    was_asked = False
    """The client was asked to open the page, and did not."""

    def __init__(self, upstream: str, why: str = "", *, scope: str = "", page: str | None = None) -> None:
        """`scope` names the rights that are missing; empty when it is not a matter of rights.

        `page`: where the user connects an account of their own; None: the account is everybody's.
        """
        if page is not None:
            self._ask_for_own_account(upstream, why, scope, page)
            return
        command = " ".join(["mcpbridge login", upstream, *(f"--scope {word}" for word in scope.split())])
        status = 403 if scope else 401
        text = f"HTTP {status}, needs sign-in: run `{command}`"
        super().__init__(upstream, status, f"{text} ({why})" if why else text)
        self.why, self.page = why, ""
        self.by_asking: Callable[[Callable[[str], Awaitable[bool]]], Awaitable[None]] | None = None
        """Signs in during the call, by a function that shows a person an address and returns whether they open it."""
        self.advice = (
            f"A person has to run `{command}` on the machine of the bridge; then try again, without a "
            "restart. If the server takes a fixed key instead, set its `headers.Authorization` in the configuration."
        )

    def _ask_for_own_account(self, upstream: str, why: str, scope: str, page: str) -> None:
        what = "more rights of your account there" if scope else "an account of your own there"
        text = f"needs {what}: open {page}" if page else f"needs {what}"
        super().__init__(upstream, 403 if scope else 401, f"{text} ({why})" if why else text)
        self.why, self.page, self.by_asking = why, page, None
        self.is_own, self.was_asked = True, False
        self.advice = (
            "Nothing was executed. Ask the user to open this page in a browser and to sign in there; then call again. "
            "The page works for this user alone."
            if page
            else "Nothing was executed. Ask the user to connect it at `/connections` of the bridge; then call again."
        )


class UpstreamAnswered(UpstreamError):
    """The upstream answered with a JSON-RPC error. `error` holds the error object's bytes as they came.

    `asked` is the URI that the client asked for, as it spelled it; empty for other requests. `is_masked`: secrets were
    taken out; what the bridge puts in since, such as its own name of a task, is none.
    """

    def __init__(self, upstream: str, error: bytes) -> None:
        super().__init__(upstream, "answered with an error")
        self.error, self.asked, self.is_masked = error, "", False


class TaskLost(UpstreamError):
    """The upstream ran the call as a task, and the task was cancelled there, was forgotten, or expired."""

    advice = "Check whether the action took effect before you repeat it."


class UrlRequired(UpstreamError):
    """The upstream wants the user to visit pages before it runs the call, and the client opens none."""

    def __init__(self, upstream: str, urls: list[str]) -> None:
        super().__init__(upstream, f"it asks the user to visit {', '.join(urls)} first")
        self.urls = urls
        self.advice = "Nothing was run. Ask the user to open the page, then call again."


class AnswerTooLarge(BridgeError):
    """The call ran, but its answer is larger than an event that the client takes. Sizes are in bytes."""

    advice = (
        "The call ran, so do not repeat it unchanged: ask for less (fewer items, a smaller range, a filter). "
        "If the client takes larger events, whoever runs the bridge can raise `http.max_event`."
    )

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"The answer has {size / 2**20:.1f} MiB; an event of the stream that carries it may have "
            f"{limit / 2**20:.3g} MiB (`http.max_event`)"
        )
        self.size, self.limit = size, limit


class CallFailed(BridgeError):
    """A program asked for the value of a result that is an error, or that does not exist yet."""


class FormatError(BridgeError):
    """The format of a model API is unknown, a message is not in that format, or it holds more than the API takes."""


class BridgeClosed(BridgeError):
    """The bridge was used before it was opened, after it was closed, or from a thread that cannot wait for it."""


class NoBridge(BridgeError):
    """The server at the URL does not offer what was asked: it is no bridge, or has that switched off."""

    advice = "Look at the URL: it is that of a bridge's `/mcp`; and in its configuration, whether this is switched on."

    def __init__(self, tool: str, server: str) -> None:
        super().__init__(f"{server} has no `mcpbridge/{tool}` for this client: it is no mcpbridge, or has that off")
        self.tool, self.server = tool, server


class NotConnected(BridgeError):
    """A client could not connect to the URL, or lost it. `status` is that of HTTP; None if there was no answer."""

    def __init__(self, url: str, why: str, advice: str, *, status: int | None = None) -> None:
        """`url`: without what may be a secret. `why`: completes "URL: …". `advice`: a sentence of the message."""
        super().__init__(f"{url}: {why}. {advice}")
        self.url, self.why, self.status = url, why, status


class ContextRefused(BridgeError, ValueError):
    """A value does not fit the type of its context, is too large to keep, or does not exist yet."""

    def __init__(self, where: str, why: str) -> None:
        """`where`: such as `the context of tools/search`; `why`: without the value."""
        super().__init__(f"{where}: {why}")
        self.where, self.why = where, why


class StoreFailed(BridgeError):
    """The store cannot keep or read a value: its file cannot be used, or the disk is full."""

    def __init__(self, what: str, *, file: str = "") -> None:
        super().__init__(f"{file}: {what}" if file else what)
        self.what, self.file = what, file


class ValueTooLarge(StoreFailed):
    """The value is larger than the whole store may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a value of {size} bytes does not fit into a store of {limit}")
        self.size, self.limit = size, limit


class ConfigError(BridgeError):
    """The configuration is wrong. The message names file, key, what is wrong and what was expected."""

    def __init__(self, what: str, *, file: str | None = None, key: str | None = None, hint: str | None = None) -> None:
        place = ": ".join(part for part in (file, key) if part)
        text = f"{place}: {what}" if place else what
        super().__init__(f"{text}\n  {hint}" if hint else text)
        self.what, self.file, self.key, self.hint = what, file, key, hint
