"""A model chooses tools for a request: the client's own, by sampling, or that of a configured service.

It is a help that may always fail: then the ranker chooses, and where that finds nothing all tools are the answer. The
outcome says who chose. A model can only choose among the tools that it is given, so it opens nothing to anybody.
"""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import islice
from time import monotonic
from typing import Literal

from msgspec import Struct

from mcpbridge.interaction import NOBODY, Asker
from mcpbridge.logs import get_logger
from mcpbridge.models.asking import Model
from mcpbridge.models.prompt import ModelFailed
from mcpbridge.models.service import Account
from mcpbridge.routing.model_router_answer import chosen_in
from mcpbridge.routing.model_router_kept import Chosen, Kept
from mcpbridge.routing.model_router_prompt import prompt_for
from mcpbridge.routing.ranker import Ranker
from mcpbridge.routing.settings import RouterSettings
from mcpbridge.routing.tool_text import ToolText

__all__ = ["Choice", "ModelRouter"]

log = get_logger("mcpbridge.routing")

AGAIN = 30.0
"""Seconds after which a model that failed is asked the same again."""
MOST_FAILURES = 3
"""Failures of a service in a row, with whatever it was asked, after which it is asked nothing for `AGAIN` seconds."""


class Choice(Struct, frozen=True):
    """The tools for a request."""

    names: tuple[str, ...]
    """The most needed first; with `all` in the order of the catalog."""
    by: Literal["model", "ranker", "all"]
    """Who chose; `all`: nobody."""
    reason: str = ""
    """Why not the model; empty where it chose. It may be shown."""


class _Question(Struct, frozen=True):
    """One request about one catalog."""

    request: str
    tools: Mapping[str, ToolText]
    ranker: Ranker
    asker: Asker
    digest: bytes
    """By what it is known again."""

    def ranked(self, limit: int) -> tuple[str, ...]:
        """The names of the tools that the ranker puts first."""
        names = {tool.id: name for name, tool in self.tools.items()}
        hits = self.ranker.rank(self.request, limit, among=names)
        return tuple(names[hit.id] for hit in hits[:limit] if hit.id in names)

    def told(self, most: int) -> Mapping[str, ToolText]:
        """The tools that a model is told of: all, or of more than `most` those that the ranker puts first."""
        if len(self.tools) <= most:
            return self.tools
        return {name: self.tools[name] for name in self.ranked(most) or islice(self.tools, most)}


class ModelRouter:
    """Chooses with one model. Choices are kept, and who asks the same at the same time waits for the one answer."""

    def __init__(self, settings: RouterSettings, *, clock: Callable[[], float] = monotonic) -> None:
        """Nothing is contacted before the first choice. `clock`: seconds, for how long failures count."""
        self._settings, self._clock = settings, clock
        self._model = None if settings.provider == "none" else Model(_account(settings))
        self._kept = Kept()
        self._failures, self._rests_until = 0, 0.0

    async def choose(
        self, request: str, tools: Mapping[str, ToolText], ranker: Ranker, *, key: str, asker: Asker = NOBODY
    ) -> Choice:
        """The tools that a request needs, at most `max_tools`; all of them if nothing can be told. Never raises.

        `tools`: those that may be chosen, in canonical order, by the names that the choice is made of. `ranker`: knows
        them by their `ToolText.id`. `key`: other tools, or other texts of theirs, have another one. `asker`: the
        client; it is asked if its own model chooses.
        """
        most = self._settings.max_tools
        if len(tools) <= most:
            return Choice(tuple(tools), "all", f"there are no more than {most} tools")
        question = _Question(request, tools, ranker, asker, self._digest(key, request, asker))
        try:
            return Choice(await self._names(question), "model")
        except ModelFailed as failed:
            if ranked := question.ranked(most):
                return Choice(ranked, "ranker", str(failed))
            return Choice(tuple(tools), "all", f"{failed}; the ranker found nothing")

    async def close(self) -> None:
        """Let go of connections; for those who wait the ranker chooses."""
        if self._model is not None:
            await self._model.close()

    def _digest(self, key: str, request: str, asker: Asker) -> bytes:
        # What the model of one user chose is for that user alone.
        whose = asker.principal if self._model is not None and self._model.is_clients else ""
        parts = "".join(f"{len(part)}:{part}" for part in (key, whose, request))
        return sha256(parts.encode("utf-8", "surrogatepass")).digest()

    async def _names(self, question: _Question) -> tuple[str, ...]:
        """What the model chooses, or has chosen.

        Raises:
            ModelFailed: it cannot be asked, failed, or chose too few.
        """
        if self._model is None:
            raise ModelFailed("no model is configured")
        if not question.request.strip():
            raise ModelFailed("there is no request")
        chosen = self._kept.of(question.digest, self._clock())
        if chosen is None:
            if reason := self._model.why_not(question.asker):
                raise ModelFailed(reason)
            chosen = await self._asked_once(question, self._model)
        if chosen.failure:
            raise ModelFailed(chosen.failure)
        names = tuple(name for name in chosen.names if name in question.tools)
        least = self._settings.min_tools
        if len(names) < least:
            raise ModelFailed(f"the model chose {len(names)} tools, not {least} or more")
        return names

    async def _asked_once(self, question: _Question, model: Model) -> Chosen:
        """What comes of asking, or came of it while this waited for somebody who asked the same.

        Nobody waits for long: who came first gives up first, and who is cancelled leaves the turn to the next.
        """
        until = asyncio.get_running_loop().time() + self._settings.timeout
        # Nobody waits for another client's model either: its answer would be lost with that client.
        whose = id(question.asker.owner) if model.is_clients else 0
        async with self._kept.turn((question.digest, whose)):
            chosen = self._kept.of(question.digest, self._clock())
            if chosen is None:
                chosen = await self._asked(question, model, until)
                self._kept.keep(question.digest, chosen)
            return chosen

    async def _asked(self, question: _Question, model: Model, until: float) -> Chosen:
        """What comes of asking, failures included."""
        if self._clock() < self._rests_until:
            return Chosen(failure="the router service failed time and again", until=self._rests_until)
        settings = self._settings
        told = question.told(settings.max_index)
        prompt = prompt_for(
            question.request,
            told,
            most=settings.max_tools,
            least=settings.min_tools,
            temperature=settings.temperature,
            is_whole=len(told) == len(question.tools),
        )
        try:
            written = await model.write(prompt, question.asker, settings.timeout, deadline=until)
        except ModelFailed as failed:
            return self._failed(failed, is_services=not model.is_clients)
        self._failures = 0
        try:
            return Chosen(chosen_in(written.text, told, settings.max_tools))
        except ModelFailed as failed:
            return self._failed(failed, is_services=False)

    def _failed(self, failed: ModelFailed, *, is_services: bool) -> Chosen:
        log.info("no choice by a model", provider=self._settings.provider, reason=str(failed)[:200])
        until = self._clock() + AGAIN
        if is_services:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                self._rests_until = until
        return Chosen(failure=str(failed), until=until)


def _account(settings: RouterSettings) -> Account:
    return Account(
        settings.provider,
        "router",
        "router",
        model=settings.model or "",
        url=settings.url or "",
        key=settings.api_key or "",
    )
