"""Build what large results need: the kept results, the token ledger, scripts, summaries, and the tool `recall`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
from msgspec import Struct

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed, UnknownName
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.core.call_options import ResultOptions
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.core.result_settings import ResultDefaults, SummarySettings
from mcpbridge.core.settings_precedence import result_options
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.engine.leases import Lease, until_closed
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.stages.compress import Compress, LargeTools
from mcpbridge.pipeline.stages.references import References
from mcpbridge.results.kept_results import RESULTS, KeptResults
from mcpbridge.results.token_count import Tokenizer, counter, estimated_tokens
from mcpbridge.results.token_ledger import TokenLedger
from mcpbridge.sandbox.javascript.scripts import LazyScripts, Scripts
from mcpbridge.storage.store import Store
from mcpbridge.tools.builtin.builtin import Builtin
from mcpbridge.tools.builtin.recall.recall import Recall

if TYPE_CHECKING:  # loaded with the first large result
    from mcpbridge.pipeline.compress_result import Rewriter, Rewritten
    from mcpbridge.results.summary import Summarizer
    from mcpbridge.tools.builtin.recall.arguments import LoggedCall


_RECALL = f"{BRIDGE}/recall"
_LOGGED = 5000
"""Calls of the log that are looked at, the newest."""


class ResultStages(Struct, frozen=True):
    """The stages and tools for large results, by one reading of the settings."""

    settings: ResultDefaults
    compress: Compress
    references: References
    builtins: Mapping[str, Builtin]
    """The bridge's own tools for kept results, by name."""
    kept_results: KeptResults


class LargeResults:
    """What one bridge has for large results for all its life; builds the stages from settings."""

    def __init__(
        self, store: Store, catalog: Catalog, metrics: Metrics, *, lifetime: float, redact: Callable[[str], str]
    ) -> None:
        """Touches nothing: no file, no process. `lifetime`: see `KeptResults`."""
        self._store, self._catalog, self._metrics = store, catalog, metrics
        self.kept_results = KeptResults(store, lifetime=lifetime, redact=redact, restriction=catalog.restriction_of)
        self.ledger = TokenLedger(store)
        self._tasks = OwnedTasks()
        self._scripts = LazyScripts(_javascript)
        self._large = LargeTools(store, self._tasks, catalog.expect_large)
        self.loaded = asyncio.Event()
        """Set once it is known which tools had large results, so that they are listed as they were before a restart."""

    def build(
        self, settings: ResultDefaults, servers: Mapping[str, OfferSettings], lease: Lease, call_log: Path | None
    ) -> ResultStages:
        """Build the stages of these settings. Nothing changes before `take_effect`; `lease` holds what runs.

        `call_log`: the file that calls are written to, if they are.

        Raises:
            ConfigError: the tokenizer of the settings is not installed.
        """
        counter(settings.tokenizer)  # whether it is installed
        summary, tokenizer = settings.summary, settings.tokenizer
        rewriting = lease.hold(
            "rewriting", (summary, tokenizer), lambda: _Rewriting(self, summary, tokenizer), run=until_closed
        )
        options = result_options(settings)
        every = list(_every(settings, servers))
        shows_hidden = any(how.hidden_characters == "show" for how in every)
        compress = Compress(
            lambda: rewriting.rewriter,
            self.ledger,
            self._count_rewritten,
            is_used=shows_hidden or any(how.strategy != "off" for how in every),
            shows_hidden=shows_hidden,
        )
        recall = Recall(
            self.kept_results,
            self._scripts if options.transforms else None,
            room=lambda call: options.budget,
            recalled=self._count_recalled,
            logged=None if call_log is None else partial(_find_logged, call_log),
        )
        return ResultStages(settings, compress, References(self.kept_results), {"recall": recall}, self.kept_results)

    def take_effect(self, stages: ResultStages) -> None:
        """Keep results as these settings say from now on."""
        self._store.bound(RESULTS, stages.settings.max_bytes)
        self.kept_results.lifetime = stages.settings.lifetime

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns what runs beside calls."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._scripts.close)
            await stack.enter_async_context(self.ledger.running())
            await stack.enter_async_context(self._tasks.running())
            self._tasks.spawn(self._load())
            yield

    async def _load(self) -> None:
        try:
            await self._large.load()
        finally:
            self.loaded.set()

    def rewriter(self, summarizer: "Summarizer", tokenizer: Tokenizer) -> "Rewriter":
        """What makes large results short, with what this bridge keeps."""
        from mcpbridge.pipeline.compress_result import Rewriter

        return Rewriter(self.kept_results, self._scripts, summarizer, tokenizer=tokenizer, recall=self._recall_name)

    def _recall_name(self, call: Call) -> str:
        """What who calls knows `recall` as; empty where it is not listed."""
        caller = call.caller
        catalog = self._catalog.view("", self._catalog.audience(caller.name, caller.principal, caller.identity))
        try:
            wire = catalog.tool(_RECALL).wire
        except UnknownName:
            return ""
        return wire if wire in catalog.tools else ""

    def _count_rewritten(self, call: Call, rewritten: "Rewritten") -> None:
        if call.tool is None:
            return
        self._metrics.rewrote(
            call.upstream,
            call.tool.id,
            call.caller.name,
            rewritten.form,
            came=rewritten.came,
            sent=rewritten.sent,
            stored=rewritten.stored,
        )
        if rewritten.is_large:
            self._large.met(f"{call.tool.server}/{call.tool.name}")

    def _count_recalled(self, call: Call, chars: int) -> None:
        tokens = estimated_tokens(chars)
        self.ledger.line(BRIDGE, _RECALL, call.caller.name).recalled += tokens
        self._metrics.recalled(BRIDGE, _RECALL, call.caller.name, tokens)


class _Rewriting:
    """A rewriter and its summarizer, loaded with the first large result."""

    def __init__(self, results: LargeResults, summary: SummarySettings, tokenizer: Tokenizer) -> None:
        self._results, self._settings = results, summary
        self._tokenizer: Tokenizer = tokenizer

    @cached_property
    def rewriter(self) -> "Rewriter":
        return self._results.rewriter(self._summarizer, self._tokenizer)

    async def close(self) -> None:
        if "_summarizer" in self.__dict__:
            await self._summarizer.close()

    @cached_property
    def _summarizer(self) -> "Summarizer":
        from mcpbridge.results.summary import Summarizer

        return Summarizer(self._settings)


def _javascript() -> Scripts:
    from mcpbridge.sandbox.javascript.engine import JavaScript  # loaded with the first script

    return JavaScript()


def _every(settings: ResultDefaults, servers: Mapping[str, OfferSettings]) -> Iterator[ResultOptions]:
    """The options of results of all servers and tools that have settings, and those of all others."""
    yield result_options(settings)
    for server in servers.values():
        yield result_options(server.results, settings)
        for tool in server.tool.values():
            yield result_options(tool.results, server.results, settings)


async def _find_logged(path: Path, principal: str, search: str) -> "list[LoggedCall]":
    """The newest calls of this principal in the log that have all these words."""
    from mcpbridge.storage.call_log.reader import Filter, read_calls
    from mcpbridge.tools.builtin.recall.arguments import LoggedCall

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
