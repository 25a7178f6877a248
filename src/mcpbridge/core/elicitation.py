"""What clients can be asked while a call of theirs runs, and the questions themselves.

A legacy upstream sends a real request in the middle of a call, a modern one answers `input_required`; a legacy client
takes a real request, a modern one takes `input_required` and comes back (MCP 2025-11-25, Elicitation; MCP 2026-07-28,
Multi Round-Trip Requests). In between there is one thing only: a `Question`, put to the `Elicitor` that came with the
call.
"""

from collections.abc import Awaitable, Collection, Mapping
from functools import cache, lru_cache
from typing import Any, Protocol, cast

from msgspec import DecodeError, Raw, Struct
from msgspec.structs import astuple, replace

from mcpbridge.base.errors import BridgeError
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcpbridge.protocol.jsonrpc import encode

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
LIST_ROOTS = "roots/list"
QUESTIONS = frozenset({ELICIT, SAMPLE, LIST_ROOTS})
"""Every request that an upstream may make of a client."""

ELICITATION_SINCE = "2025-06-18"
URL_SINCE = TOOLS_SINCE = "2025-11-25"


class ClientCapabilities(Struct, frozen=True):
    """What a client can be asked: what it declared, as far as the bridge relays it. False when that is nothing.

    An upstream session of the handshake era is opened with exactly one profile, since what it declares is fixed.
    """

    form: bool = False
    url: bool = False
    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    roots: bool = False

    def __bool__(self) -> bool:
        return self.form or self.url or self.sampling or self.roots

    @classmethod
    def declared(cls, capabilities: Mapping[str, Any], version: str) -> "ClientCapabilities":
        """The profile of a client that declared `capabilities` and speaks revision `version`.

        What came with a later revision than the client's is left out: it has no way to take such a request.
        """
        elicitation = _object(capabilities, "elicitation")
        sampling = _object(capabilities, "sampling")
        knows_url, knows_tools = version >= URL_SINCE, version >= TOOLS_SINCE
        return _interned(
            cls(
                # An empty declaration means forms: URLs came later (2025-11-25, elicitation).
                form=elicitation is not None
                and version >= ELICITATION_SINCE
                and ("form" in elicitation or "url" not in elicitation or not knows_url),
                url=elicitation is not None and "url" in elicitation and knows_url,
                sampling=sampling is not None,
                sampling_tools=sampling is not None and "tools" in sampling and knows_tools,
                sampling_context=sampling is not None and ("context" in sampling or not knows_tools),
                roots=_object(capabilities, "roots") is not None,
            )
        )

    def with_roots(self) -> "ClientCapabilities":
        """The same, and its roots can be asked for (the bridge knows them itself)."""
        return self if self.roots else _interned(replace(self, roots=True))

    def joined(self, other: "ClientCapabilities") -> "ClientCapabilities":
        """What one of the two can be asked."""
        return _interned(ClientCapabilities(*(a or b for a, b in zip(astuple(self), astuple(other), strict=True))))

    def without(self, other: "ClientCapabilities") -> "ClientCapabilities":
        """What the other cannot be asked of it."""
        return _interned(ClientCapabilities(*(a and not b for a, b in zip(astuple(self), astuple(other), strict=True))))

    def only(self, kinds: Collection[str]) -> "ClientCapabilities":
        """What of it is of these kinds: `elicitation`, `sampling`, `roots`."""
        elicits, samples = "elicitation" in kinds, "sampling" in kinds
        return _interned(
            ClientCapabilities(
                form=self.form and elicits,
                url=self.url and elicits,
                sampling=self.sampling and samples,
                sampling_tools=self.sampling_tools and samples,
                sampling_context=self.sampling_context and samples,
                roots=self.roots and "roots" in kinds,
            )
        )

    def capabilities(self, *, modern: bool) -> dict[str, object]:
        """As `capabilities` of the handshake, or as `clientCapabilities` of a modern request."""
        declared: dict[str, object] = {}
        if self.roots:
            declared["roots"] = {} if modern else {"listChanged": True}
        if self.sampling:
            flags = (("tools", self.sampling_tools), ("context", self.sampling_context))
            declared["sampling"] = {name: {} for name, on in flags if on}
        if self.form or self.url:
            declared["elicitation"] = {name: {} for name, on in (("form", self.form), ("url", self.url)) if on}
        return declared

    def refusal(self, method: str, params: Body) -> str:
        """Why a question cannot be put to such a client; empty when it can. Raises DecodeError: `mode` is no text."""
        if method == ELICIT:
            mode = elicitation_mode(params)
            can = {"form": self.form, "url": self.url}.get(mode, False)
            return "" if can else f"The client did not declare elicitation of the mode {mode[:20]!r}"
        if method == SAMPLE:
            if not self.sampling:
                return "The client did not declare sampling"
            uses_tools = "tools" in params or "toolChoice" in params
            return "The client did not declare sampling with tools" if uses_tools and not self.sampling_tools else ""
        if method == LIST_ROOTS:
            return "" if self.roots else "The client did not declare roots"
        return f"Method not found: {method[:100]}"


class Question(Struct, frozen=True):
    """One request of an upstream to whoever is behind a call."""

    upstream: str
    """Name of the server that asks; people see it."""
    method: str
    """One of `QUESTIONS`."""
    params: Raw
    """As the upstream sent them; empty when it sent none."""
    is_own: bool = False
    """The bridge asks for itself, and knows what page it wants opened."""


class QuestionRefused(BridgeError):
    """A question of a server got no answer. `error` is the encoded JSON-RPC error object for that server."""

    advice = "The client that called could not or would not answer it."

    def __init__(self, message: str, code: int = INTERNAL_ERROR, *, error: bytes = b"") -> None:
        super().__init__(message)
        self.error = error or encode({"code": code, "message": message})


class Unreachable(QuestionRefused):
    """The client cannot be reached from where the question came, so it was not asked."""


def question_refusal(question: Question, profile: ClientCapabilities) -> QuestionRefused | None:
    """Why this question must not be put to a client with these capabilities; None when it may be."""
    try:
        params = Body(question.params)
        if reason := profile.refusal(question.method, params):
            return QuestionRefused(reason, METHOD_NOT_FOUND)
        if question.method == ELICIT:
            params.text("message")
    except KeyError:
        return QuestionRefused(f"{ELICIT} needs a message", INVALID_PARAMS)
    except (DecodeError, RecursionError) as error:
        return QuestionRefused(f"Invalid params of {question.method}: {error}", INVALID_PARAMS)
    return None


class Elicitor(Protocol):
    """The client behind a call, as far as it can be asked something."""

    @property
    def capabilities(self) -> ClientCapabilities:
        """What it can be asked."""
        ...

    @property
    def owner(self) -> object:
        """Who it is: calls of one owner may share an upstream session whose questions name no call."""
        ...

    @property
    def principal(self) -> str:
        """Who was authenticated; empty for the local user."""
        ...

    @property
    def home(self) -> object:
        """Whose session its calls go to at a server that keeps clients apart; None: everybody's."""
        ...

    @property
    def relays(self) -> bool:
        """It takes the `input_required` of a modern upstream as it is and comes back with the answers."""
        ...

    def ask(self, question: Question) -> Awaitable[Raw]:
        """Put the question and wait; returns the result object of the answer.

        Raises:
            QuestionRefused: it cannot be asked this, answered with an error, or gave no answer in time.
        """
        ...

    def finished(self, question: Question) -> None:
        """What a URL question was about is done (`notifications/elicitation/complete`)."""
        ...

    def give_way(self, server: str) -> bool:
        """End the call at this server that has waited longest for an answer that may never come. False: none has."""
        ...

    async def project(self) -> str:
        """The URI of the directory that it works in, its first root; empty when that is not known."""
        ...


def elicitation_mode(params: Body) -> str:
    """How people are asked: `form`, `url`, or what a later revision brings. Raises DecodeError: that is no text."""
    return params.text("mode") if "mode" in params else "form"


@cache
def _interned(profile: ClientCapabilities) -> ClientCapabilities:
    """The one object for equal profiles, so that they are compared by identity."""
    return profile


NO_CAPABILITIES = _interned(ClientCapabilities())


class _NobodyToAsk:
    """Whoever cannot be asked anything."""

    capabilities = NO_CAPABILITIES
    principal = ""
    owner: object = None
    home: object = None
    relays = False

    async def ask(self, question: Question) -> Raw:
        raise QuestionRefused(f"Nobody can be asked: {question.method[:100]}", METHOD_NOT_FOUND)

    def finished(self, question: Question) -> None:
        pass

    def give_way(self, server: str) -> bool:
        return False

    async def project(self) -> str:
        return ""


NOBODY: Elicitor = _NobodyToAsk()


class ElicitorWrapper:
    """An `Elicitor` in front of another one. It passes to that one all that it does not do itself."""

    __slots__ = ()

    @property
    def elicitor(self) -> Elicitor:
        """The one behind it."""
        raise NotImplementedError

    @property
    def capabilities(self) -> ClientCapabilities:
        """See `Elicitor`, as for the rest."""
        return self.elicitor.capabilities

    @property
    def owner(self) -> object:  # noqa: D102 - as in `Elicitor`
        return self.elicitor.owner

    @property
    def principal(self) -> str:  # noqa: D102 - as in `Elicitor`
        return self.elicitor.principal

    @property
    def home(self) -> object:  # noqa: D102 - as in `Elicitor`
        return self.elicitor.home

    @property
    def relays(self) -> bool:  # noqa: D102 - as in `Elicitor`
        return self.elicitor.relays

    def ask(self, question: Question) -> Awaitable[Raw]:  # noqa: D102 - as in `Elicitor`
        return self.elicitor.ask(question)

    def finished(self, question: Question) -> None:  # noqa: D102 - as in `Elicitor`
        self.elicitor.finished(question)

    def give_way(self, server: str) -> bool:  # noqa: D102 - as in `Elicitor`
        return self.elicitor.give_way(server)

    async def project(self) -> str:  # noqa: D102 - as in `Elicitor`
        return await self.elicitor.project()


def encoded_capabilities(profile: ClientCapabilities, extensions: bytes = b"") -> bytes:
    """The `clientCapabilities` of a modern request, on the wire. `extensions`: the map to add, encoded."""
    if len(extensions) > _LONGEST_CACHED:
        return _encode_capabilities(profile, extensions)
    return _cached_capabilities(profile, extensions)


def _encode_capabilities(profile: ClientCapabilities, extensions: bytes) -> bytes:
    declared = profile.capabilities(modern=True)
    if extensions:
        declared["extensions"] = Raw(extensions)
    return encode(declared)


_LONGEST_CACHED = 512
"""Bytes of extensions whose encoding is remembered: they are the client's own, and may be as long as a request."""

_cached_capabilities = lru_cache(maxsize=256)(_encode_capabilities)


def _object(capabilities: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = capabilities.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
