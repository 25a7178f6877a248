"""The capabilities that both sides of a session declared, and what follows from them: which clients may use it.

A session of the handshake era declares once what can be asked (MCP 2025-11-25, Lifecycle, Capability Negotiation). So
the profile of an instance decides which clients may use it, and whether their calls take turns. A modern session
declares with each request, and fits everybody.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.session.asking_history import AskingHistory, suits
from mcpbridge.upstream.session.question_limits import QuestionLimits
from mcpbridge.upstream.settings import ServerSettings


class DeclaredProfile:
    """What the sessions of one instance declare that its clients can be asked."""

    def __init__(
        self,
        settings: ServerSettings,
        transport: Transport,
        history: AskingHistory,
        profile: ClientCapabilities,
        *,
        is_primary: bool,
        is_spare: bool,
        replace_session: Callable[[], None],
        limits: QuestionLimits,
    ) -> None:
        """`profile` is declared, or more, where that lets other clients share the session.

        `is_spare`: no session is opened before `assign`. `replace_session` ends an open session that declared another
        profile. `limits`: what the server may ask.
        """
        self.question_limits = limits
        """What the server may ask clients."""
        self._transport, self._replace_session = transport, replace_session
        self._is_shared, self._has_roots = settings.is_shared, bool(settings.roots)
        self._is_joined = is_primary and settings.share != "session" and settings.questions == "auto"
        self.history = history
        """What the server was seen to ask."""
        history.followers.add(self)
        self.profile = profile
        self.plain_profile: ClientCapabilities | None = None
        """Calls of clients that can be asked exactly this go to this instance without a further look: the usual case,
        a shared legacy session whose calls need not take turns. None while there is none, or it is not as simple."""
        self.fits_all = False
        """Calls of whatever client go to this instance without a further look: a shared session of the modern era."""
        self.takes_turns = False
        """Calls of one client at a time, since questions of the server would name no call."""
        self.learns_of: ClientCapabilities | None = None
        """What the session declared, while calls that pass without a question of the server tell something new."""
        self.assigned = asyncio.Event()
        """Set once a session may be opened."""
        if not is_spare:
            self.assigned.set()
        self.modern = False
        """The last session was of the modern era."""
        self._has_agreed = False
        self._quiet = self._quiet_still = NO_CAPABILITIES
        self.widen()

    def adopt(self, profile: ClientCapabilities) -> None:
        """Declare this profile from now on. An open session of another one, which nobody may use yet, is replaced."""
        if profile is self.profile:
            return
        self._use(profile)
        self._replace_session()

    def assign(self, profile: ClientCapabilities) -> None:
        """Open the spare for such clients."""
        self._use(profile)
        self.assigned.set()

    def widen(self) -> None:
        """No session holds anything yet: declare what suits as many clients as can be."""
        self._use(self.history.declared(self.profile) if self._is_joined else self.profile)

    def agreed(self, *, modern: bool) -> None:
        """A session has agreed on a revision of this era."""
        self.modern, self._has_agreed = modern, True
        self._settle()

    def recall(self, *, modern: bool) -> None:
        """Its last session, of an earlier run, was of this era."""
        self.modern = modern
        self._settle()

    def ended(self) -> None:
        """There is no session any more."""
        self._has_agreed = False
        self._settle()

    def suits(self, profile: ClientCapabilities) -> bool:
        """Clients that can be asked this may use its sessions of the handshake era.

        That is those that can be asked what it declares; and of a server that was known not to ask, when this session
        was opened, those that can be asked less.
        """
        if profile is self.profile:
            return True
        bounded = self.question_limits.bounded
        return suits(bounded(self.profile), bounded(profile), self._quiet_still)

    @property
    def for_handshake(self) -> ClientCapabilities:
        """What a session of the handshake era declares: also what the configuration answers."""
        profile = self.question_limits.bounded(self.profile)
        return profile.with_roots() if self._has_roots else profile

    def history_changed(self) -> None:
        """The server was found not to ask something, or it asked."""
        self._settle()

    def _use(self, profile: ClientCapabilities) -> None:
        self.profile, self._quiet = profile, self.history.quiet
        self._settle()

    def _settle(self) -> None:
        """What follows for calls from the profile, the era and whether there is a session.

        Calls take turns where the server may ask somebody and a question of it names no call, since its transport has
        one stream. That holds for an instance of one client as well: each call of a modern one is asked by itself
        (`Elicitor.owner`).
        """
        history, is_legacy = self.history, not self.modern
        profile = self.question_limits.bounded(self.profile)
        can_ask = is_legacy and bool(profile.without(history.quiet))
        self.takes_turns = can_ask and self._transport.kind != "streamable-http"
        self.learns_of = profile if is_legacy and history.learns_of(profile) else None
        self._quiet_still = self._quiet.without(self._quiet.without(history.quiet))
        is_plain = self._has_agreed and self._is_shared and not self.takes_turns
        self.plain_profile = self.profile if is_plain and is_legacy else None
        self.fits_all = is_plain and self.modern


def declared_capability(capabilities: object, *path: str) -> object:
    """What a server's capabilities say of this member, at any depth; None: nothing."""
    for name in path:
        capabilities = cast("dict[str, object]", capabilities).get(name) if isinstance(capabilities, dict) else None
    return capabilities
