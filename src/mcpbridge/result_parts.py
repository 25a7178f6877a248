"""All that large results need, built from the settings: the shelf, the ledger, scripts, summaries, and `recall`."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from mcpbridge.builtin.recall import Recall
from mcpbridge.builtin.tool import Builtin
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.errors import StoreFailed, UnknownName
from mcpbridge.model import BRIDGE, Call
from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.pipeline.compress import Compress
from mcpbridge.pipeline.large_tools import LargeTools
from mcpbridge.pipeline.metrics import Metrics
from mcpbridge.pipeline.references import References
from mcpbridge.policy.decide import Policy
from mcpbridge.result_settings import ResultDefaults, ResultSettings, result_conduct
from mcpbridge.results.ledger import Ledger
from mcpbridge.results.shelf import RESULTS, Shelf
from mcpbridge.results.tokens import Tokenizer, counter, estimated_tokens
from mcpbridge.sandbox.scripts import LazyScripts
from mcpbridge.storage.store import Store
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:  # loaded with the first large result
    from mcpbridge.builtin.recall_listing import LoggedCall
    from mcpbridge.pipeline.rewriting import Rewriter, Rewritten

__all__ = ["ResultParts"]

_RECALL = f"{BRIDGE}/recall"
_LOGGED = 5000
"""Calls of the log that are looked at, the newest."""


class ResultParts:
    """The parts of one bridge."""

    def __init__(
        self,
        settings: ResultDefaults,
        store: Store,
        catalog: Catalog,
        metrics: Metrics,
        *,
        servers: Mapping[str, ServerSettings],
        policy: Policy,
        redact: Callable[[str], str],
        call_log: Path | None = None,
    ) -> None:
        """Touches nothing: no file, no process. `call_log`: the file that calls are written to, if they are.

        Raises:
            ConfigError: the tokenizer of the settings is not installed.
        """
        self._catalog, self._metrics, self._policy = catalog, metrics, policy
        store.bound(RESULTS, settings.max_bytes)
        self.shelf = Shelf(store, lifetime=settings.lifetime, redact=redact)
        self.ledger = Ledger(store)
        self._tasks = OwnedTasks()
        self._scripts = LazyScripts()
        self._large = LargeTools(store, self._tasks, catalog.expect_large)
        self._tokenizer: Tokenizer = settings.tokenizer
        counter(self._tokenizer)  # whether it is installed
        self._summaries = settings.summary
        self._stack = AsyncExitStack()
        self.compress = Compress(
            lambda: self._rewriter, self.ledger, self._rewrote, is_used=_is_used(settings, servers)
        )
        self.references = References(self.shelf)
        self._room = result_conduct(settings).budget
        recall = Recall(
            self.shelf,
            self._scripts if result_conduct(settings).transforms else None,
            room=lambda call: self._room,
            recalled=self._recalled,
            logged=None if call_log is None else partial(_logged, call_log),
        )
        self.builtins: Mapping[str, Builtin] = {"recall": recall}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns what goes on beside calls."""
        async with self._stack as stack:
            stack.push_async_callback(self._scripts.close)
            await stack.enter_async_context(self.ledger.running())
            await stack.enter_async_context(self._tasks.running())
            self._tasks.spawn(self._large.load())
            yield

    @cached_property
    def _rewriter(self) -> "Rewriter":
        from mcpbridge.pipeline.rewriting import Rewriter
        from mcpbridge.results.summary import Summarizer

        summarizer = Summarizer(self._summaries)
        self._stack.push_async_callback(summarizer.close)
        return Rewriter(self.shelf, self._scripts, summarizer, tokenizer=self._tokenizer, recall=self._recall_name)

    def _recall_name(self, call: Call) -> str:
        """What who calls knows `recall` as; empty where it is not listed."""
        catalog = self._catalog.view("", self._policy.audience(call.caller.name, call.caller.principal))
        try:
            wire = catalog.tool(_RECALL).wire
        except UnknownName:
            return ""
        return wire if wire in catalog.tools else ""

    def _rewrote(self, call: Call, rewritten: "Rewritten") -> None:
        if call.tool is None:
            return
        self._metrics.rewrote(
            call.upstream,
            call.tool.id,
            call.caller.name,
            rewritten.form,
            came=rewritten.came,
            shown=rewritten.shown,
            stored=rewritten.stored,
        )
        if rewritten.is_large:
            self._large.met(f"{call.tool.server}/{call.tool.name}")

    def _recalled(self, call: Call, chars: int) -> None:
        tokens = estimated_tokens(chars)
        self.ledger.line(BRIDGE, _RECALL, call.caller.name).recalled += tokens
        self._metrics.recalled(BRIDGE, _RECALL, call.caller.name, tokens)


def _is_used(settings: ResultDefaults, servers: Mapping[str, ServerSettings]) -> bool:
    """Whether results of some tool may be rewritten."""
    levels: list[tuple[ResultSettings | None, ResultSettings | None]] = [(None, None)]
    levels += [(None, server.results) for server in servers.values()]
    levels += [(tool.results, server.results) for server in servers.values() for tool in server.tool.values()]
    return any(result_conduct(tool, server, settings).strategy != "off" for tool, server in levels)


async def _logged(path: Path, principal: str, search: str) -> "list[LoggedCall]":
    """The newest calls of this principal in the log that have all these words."""
    from mcpbridge.builtin.recall_listing import LoggedCall
    from mcpbridge.storage.call_log_reading import Filter, read_calls

    words = search.casefold().split()
    try:
        rows = await anyio.to_thread.run_sync(partial(read_calls, path, Filter(), limit=_LOGGED))
    except StoreFailed:
        return []
    return [
        LoggedCall(row["tool"], row["outcome"], row.get("error", ""), row["at"])
        for row in reversed(rows)
        if row.get("principal", "") == principal
        and row["method"] == "tools/call"
        and all(
            word in f"{row['tool']} {row['outcome']} {row.get('error', '')} {row['client']}".casefold()
            for word in words
        )
    ]
