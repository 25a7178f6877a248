"""What one server may ask clients, and how often: `may_ask`, `question_rate` and `questions` of its settings.

A server learns only of the kinds that it may ask for, in either era, so that one that goes by what was declared never
asks in vain. One that asks all the same is refused here, whichever way the question comes: as a request (legacy), in an
`input_required` result or in a task (modern), or as pages to visit before a call (-32042). Roots are no question to a
person or a model, so they are not counted against the rate; those that the configuration gives are always answered.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import Raw

from mcpbridge.base.log import get_logger
from mcpbridge.base.token_bucket import Bucket
from mcpbridge.base.units import Rate
from mcpbridge.core.elicitation import (
    ELICIT,
    LIST_ROOTS,
    SAMPLE,
    ClientCapabilities,
    Question,
    QuestionRefused,
)
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.questions")

_KINDS = {ELICIT: "elicitation", SAMPLE: "sampling", LIST_ROOTS: "roots"}
"""What `may_ask` calls them."""


MAX_SEEN = 1000
"""Questions of tasks that are remembered, so that each counts once; of those that are forgotten one may count again."""


class QuestionNotAllowed(QuestionRefused):
    """A server asks for what its settings do not allow. Nobody was asked."""

    advice = "Nobody was asked. Only the user can change this setting."


class QuestionsTooOften(QuestionRefused):
    """A server asks more often than its settings allow. Nobody was asked."""

    advice = "Nobody was asked. Try again later."


class QuestionLimits:
    """The bounds of one server's questions, over all its sessions."""

    def __init__(self, name: str, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that do not go backwards."""
        self._name, self._clock = name, clock
        self.refused = 0
        """Questions that were not put to anybody, since the start."""
        self._is_bursting = False
        self._seen: dict[tuple[str, str], None] = {}
        """Questions of tasks that were counted; the latest last."""
        self._rate: Rate = settings.question_rate
        self._bucket = Bucket(self._rate)
        self.configure(settings)

    def __repr__(self) -> str:
        return f"<QuestionLimits {self._name!r} {sorted(self._kinds)} {self._rate}, {self.refused} refused>"

    def configure(self, settings: ServerSettings) -> None:
        """Have these settings from now on. A rate that stays the same is counted on."""
        self._is_never = settings.questions == "never"
        kinds = set[str]() if self._is_never else set[str](settings.may_ask)
        kinds |= {"roots"} if settings.roots else set()  # the configuration answers
        self._kinds = frozenset(kinds)
        self.is_open = len(kinds) == len(_KINDS)
        """It may ask everything, so that `bounded` changes nothing."""
        if settings.question_rate != self._rate:
            self._rate, self._bucket = settings.question_rate, Bucket(settings.question_rate)

    def bounded(self, profile: ClientCapabilities) -> ClientCapabilities:
        """What the server is to know of a client that can be asked this."""
        return profile if self.is_open else profile.only(self._kinds)

    def refusal(self, question: Question) -> QuestionRefused | None:
        """Why this question is put to nobody; None when it may be put, which counts it."""
        kind = _KINDS.get(question.method, "")
        if kind and kind not in self._kinds:
            self.refused += 1
            key = f"servers.{self._name}.questions is `never`" if self._is_never else self._without(kind)
            return QuestionNotAllowed(f"Server '{self._name}' may not ask for {kind}: {key}", METHOD_NOT_FOUND)
        return self._too_often() if question.method in (ELICIT, SAMPLE) else None

    def admit(self, questions: Iterable[Question]) -> None:
        """Count questions that are about to be put.

        Raises:
            QuestionRefused: one of them must not be put, so none is to be.
        """
        for question in questions:
            if refused := self.refusal(question):
                log.info("question refused", upstream=self._name, method=question.method, reason=str(refused))
                raise refused

    def admit_in_task(self, task: str, questions: Mapping[str, Question]) -> None:
        """The same for the questions of a task by key, each of which is counted when it is seen first.

        Raises:
            QuestionRefused: one of them must not be put.
        """
        new = [key for key in questions if (task, key) not in self._seen]
        self.admit(questions[key] for key in new)
        self._seen |= dict.fromkeys((task, key) for key in new)
        while len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    def refusal_of_pages(self, *, can_open: bool) -> QuestionRefused | None:
        """Why pages that the server wants visited before a call are shown to nobody; None when they may be.

        `can_open`: the client would be asked to open them, which counts as a question.
        """
        if "elicitation" not in self._kinds or can_open:
            return self.refusal(Question(self._name, ELICIT, Raw()))
        return None

    def _without(self, kind: str) -> str:
        return f'servers.{self._name}.may_ask does not have "{kind}"'

    def _too_often(self) -> QuestionRefused | None:
        now = self._clock()
        wait = self._bucket.wait(now)
        if not wait:
            self._bucket.take(now)
            self._is_bursting = False
            return None
        self.refused += 1
        if not self._is_bursting:
            self._is_bursting = True
            log.warning("server asks too often; its questions are refused", upstream=self._name, limit=str(self._rate))
        limit = f"servers.{self._name}.question_rate is {self._rate}"
        text = f"Server '{self._name}' asks too often: {limit}; the next question may come in {wait:.3g} s"
        return QuestionsTooOften(text, INTERNAL_ERROR)
