"""Whether a server asks its clients anything, as far as its calls have shown.

Most servers of the handshake era never do. One that often enough could have asked, and did not, is quiet in that:
clients share it whatever they can be asked, and their calls run side by side. The first question ends that for good.
The counts are kept with what the server offers (`manifest`); where nothing is kept, nothing is concluded from it.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Protocol
from weakref import WeakSet

from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, NO_CAPABILITIES, SAMPLE, ClientCapabilities

ENOUGH = 10
"""Calls of tools that a server answered without a question that it could have asked, until it is taken for quiet."""

_HAS_ASKED = -1
_KINDS = {ELICIT: ("form", "url"), SAMPLE: ("sampling",), LIST_ROOTS: ("roots",)}
"""What is counted apart, by the question that it allows."""
_ALONE = frozenset({ELICIT, SAMPLE})
"""Questions to a person or a model. Roots are asked for once, most often when a session begins."""


class Follower(Protocol):
    """Who goes by the history of a server."""

    def history_changed(self) -> None:
        """`quiet` is another one now."""
        ...


class AskingHistory:
    """What one server was seen to ask, over all its instances."""

    def __init__(self, counts: Mapping[str, int] | None = None, *, learns: bool = False) -> None:
        """`counts`: as kept. `learns`: it may be found to be quiet, since what it does is kept."""
        self.counts = dict(counts or {})
        """By kind of question: calls that passed without one; -1 once it has asked."""
        self.keep: Callable[[], None] = _nowhere
        """Called when `counts` are to be kept."""
        self.followers = WeakSet[Follower]()
        self.quiet = NO_CAPABILITIES
        """What it could have asked often enough, and did not."""
        self._learns = learns
        self._look()

    @property
    def has_asked(self) -> bool:
        """It asked a person or a model something."""
        return any(self.counts.get(kind) == _HAS_ASKED for method in _ALONE for kind in _KINDS[method])

    def learns_of(self, profile: ClientCapabilities) -> bool:
        """A call in a session that declared this profile may show something new."""
        return self._learns and any(0 <= self.counts.get(kind, 0) < ENOUGH for kind in _kinds(profile))

    def passed(self, profile: ClientCapabilities) -> None:
        """A call of a tool ended well, in a session that declared this profile."""
        for kind in _kinds(profile):
            if 0 <= (count := self.counts.get(kind, 0)) < ENOUGH:
                self.counts[kind] = count + 1
        self.keep()
        self._look()

    def asked(self, method: str) -> None:
        """It asks."""
        kinds = _KINDS[method]
        if any(self.counts.get(kind) != _HAS_ASKED for kind in kinds):
            self.counts.update(dict.fromkeys(kinds, _HAS_ASKED))
            self.keep()
            self._look()

    def declared(self, profile: ClientCapabilities) -> ClientCapabilities:
        """What a session for clients of this profile declares, so that it suits as many others as can be."""
        return profile.joined(self.quiet)

    def _look(self) -> None:
        never_asked = {kind for kind, count in self.counts.items() if count >= ENOUGH} if self._learns else set[str]()
        is_model = "sampling" in never_asked
        quiet = NO_CAPABILITIES.joined(
            ClientCapabilities(
                form="form" in never_asked,
                url="url" in never_asked,
                sampling=is_model,
                sampling_tools=is_model,
                sampling_context=is_model,
                roots="roots" in never_asked,
            )
        )
        if quiet is not self.quiet:
            self.quiet = quiet
            for follower in list(self.followers):
                follower.history_changed()


@cache
def suits(declared: ClientCapabilities, client: ClientCapabilities, quiet: ClientCapabilities) -> bool:
    """A session that declared this may serve a client that can be asked that, at a server quiet in so much.

    Of what the client cannot be asked, only what the server does not ask anyway is declared to it.
    """
    is_superset = declared.joined(client) == declared
    return is_superset and declared.without(quiet) == client.without(quiet)


def _kinds(profile: ClientCapabilities) -> list[str]:
    return [kind for kinds in _KINDS.values() for kind in kinds if getattr(profile, kind)]


def _nowhere() -> None:
    """Where nothing is kept."""
