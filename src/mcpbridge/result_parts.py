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
from mcpbridge.result_settings import ResultDefaults, result_conduct
from mcpbridge.results.ledger import Ledger
from mcpbridge.results.shelf import RESULTS, Shelf
from mcpbridge.results.tokens import counter, estimated_tokens
from mcpbridge.sandbox.scripts import LazyScripts
from mcpbridge.storage.store import Store

if TYPE_CHECKING:  # loaded with the first large result
    from mcpbridge.builtin.recall_listing import LoggedCall
    from mcpbridge.pipeline.rewriting import Rewriter, Rewritten
    from mcpbridge.results.document import Document

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
        redact: Callable[[str], str],
        call_log: Path | None = None,
    ) -> None:
        """Touches nothing: no file, no process. `call_log`: the file that calls are written to, if they are.

        Raises:
            ConfigError: the tokenizer of the settings is not installed.
        """
        self._catalog, self._metrics = catalog, metrics
        store.bound(RESULTS, settings.max_bytes)
        self.shelf = Shelf(store, lifetime=settings.lifetime, redact=redact)
        self.ledger = Ledger(store)
        self._tasks = OwnedTasks()
        self._scripts = LazyScripts()
        self._large = LargeTools(store, self._tasks, catalog.expect_large)
        self._count = counter(settings.tokenizer)
        self._summaries = settings.summary
        self._stack = AsyncExitStack()
        self.compress = Compress(lambda: self._rewriter, self.ledger, self._rewrote)
        self.references = References(self.shelf)
        self._room = result_conduct(settings).budget
        recall = Recall(
            self.shelf,
            self._scripts,
            room=lambda call: self._room,
            recalled=self._recalled,
            read=_document_of,
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
        return Rewriter(
            self.shelf, self._scripts, summarizer, count=self._count, recall=lambda call: self._recall_name()
        )

    def _recall_name(self) -> str:
        """What clients call `recall`; empty where it is not listed."""
        try:
            return self._catalog.snapshot.tool(_RECALL).wire
        except UnknownName:
            return ""

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


def _document_of(data: bytes) -> "Document":
    from mcpbridge.results.contents import document_of

    return document_of(data)


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
