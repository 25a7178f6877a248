"""A large result in its new form: kept whole, shown in a budget, with what it says in every part the same.

What is shown is decided in `results/`; here the parts come together: the store, the model that summarizes, the script
that the caller brought. Whatever fails on the way, the result of the call is never lost: it may have had effects, and
the caller must learn of them.

Work is done here, in a thread, or in a process, by the size of the result. Python's parsers hold on to the interpreter:
a list of ten million numbers in a thread would stop all other calls for a second. So huge results go to a process,
which also gives their memory back when it is done.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import anyio.lowlevel
import anyio.to_thread
from anyio import CapacityLimiter
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.base.short_turns import short_turns
from mcpbridge.core.call_options import ResultOptions
from mcpbridge.core.model import Call
from mcpbridge.pipeline.trifecta.session_labels import labels_of
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.revisions import FIRST_WITH_STRUCTURE
from mcpbridge.results.content import Contents, GivenResult, contents_of, structured_output, text_of
from mcpbridge.results.header_line import Form, defused, uri_of, words_may_hold_header_line
from mcpbridge.results.kept_results import KeptResults, ResultSummary
from mcpbridge.results.rewrite import (
    NewTexts,
    Parts,
    parts_of,
    smaller_block,
    spoofless,
    visible,
    with_new_texts,
)
from mcpbridge.results.shorten import (
    HeaderLine,
    ResultFacts,
    Shortened,
    result_facts,
    script_source,
    shorten,
    shorten_output,
    with_summary,
)
from mcpbridge.results.spoof_check import holds_spoof, parts_to_search
from mcpbridge.results.summary import Summarizer, SummaryFailed
from mcpbridge.results.token_count import Tokenizer, counter
from mcpbridge.sandbox.javascript.scripts import Scripts, TransformFailed
from mcpbridge.sandbox.worker_process import DataProcess, ProcessBroke, in_process, process_with

log = get_logger("mcpbridge.results")

LARGE = 16 * 1024
"""Bytes of a result from which on work on it is done in a thread: it would hold up all other calls."""
_LARGE_TO_READ = 256 * 1024
"""The same of work that reads it and no more: half a millisecond. A thread takes a tenth of one to be woken."""
HUGE = 2 * 1024**2
"""Bytes from which on it is done in a process, where the work can be handed to one."""

_THREADS, _PROCESSES = 4, 2

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Aside:
    """The places of one bridge for such work; further work waits, so that a burst of it cannot take all memory."""

    def __init__(self) -> None:
        self._threads, self._processes = CapacityLimiter(_THREADS), CapacityLimiter(_PROCESSES)

    async def __call__(self, size: int, work: Callable[[], _T], most: int = LARGE) -> _T:
        """Do the work here, or in a thread if it is about more than `most`."""
        if size <= most:
            return work()
        with short_turns():
            return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def far(self, size: int, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The same, and in a process if it is about very much; see `in_process`."""
        if size > HUGE:
            try:
                async with self._processes:
                    return await in_process(function, *args, **kwargs)
            except ProcessBroke as error:
                _log_broken(error)
        return await self(size, partial(function, *args, **kwargs))

    @asynccontextmanager
    async def on(self, data: bytes | Raw) -> "AsyncGenerator[_Work]":
        """Work on these bytes, by functions that get them first: here, in a thread, or in one process for all of it."""
        work = _Work(self, data)
        async with AsyncExitStack() as stack:
            if len(data) > HUGE:
                await stack.enter_async_context(self._processes)
                try:
                    work.process = await stack.enter_async_context(process_with(data))
                except ProcessBroke as error:
                    _log_broken(error)
            yield work


class _Work:
    """See `Aside.on`."""

    def __init__(self, aside: Aside, data: bytes | Raw) -> None:
        self._aside, self._data = aside, data
        self._contents: Contents | None = None
        self.process: DataProcess | None = None

    async def __call__(self, function: Callable[Concatenate[bytes, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of the function for the bytes."""
        return await self._result_of(LARGE, lambda: bytes(self._data), function, *args, **kwargs)

    async def with_contents(
        self, function: Callable[Concatenate[GivenResult, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """The same, for what is read of the bytes, once; a process reads them each time."""
        return await self._result_of(LARGE, self._read, function, *args, **kwargs)

    async def quickly(
        self, function: Callable[Concatenate[GivenResult, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """The same, of a function that does little with it."""
        return await self._result_of(_LARGE_TO_READ, self._read, function, *args, **kwargs)

    async def _result_of(
        self, most: int, given: Callable[[], GivenResult], function: Callable[..., _T], *args: object, **kwargs: object
    ) -> _T:
        if self.process is not None:
            try:
                return await self.process.run(function, *args, **kwargs)
            except ProcessBroke as error:
                _log_broken(error)
                self.process = None
        return await self._aside(len(self._data), lambda: function(given(), *args, **kwargs), most)

    def _read(self) -> Contents:
        if self._contents is None:
            self._contents = contents_of(Body(bytes(self._data)))
        return self._contents


def warm_up() -> None:
    """Make what the first result would make on the event loop: the patterns that count tokens."""
    counter("estimate")("one text")


def _log_broken(error: ProcessBroke) -> None:
    log.warning("a large result is read in the bridge itself", reason=str(error)[:200])


_LONGEST_ARGUMENTS, _LONGEST_ERROR = 2000, 400
_MOST_SMALLER = 4
"""Images of one result that are scaled down; further ones become links, since each takes up to a second."""
_SHOWN = "[mcpbridge: hidden characters are shown as ‹U+…›; the original has them]"
_WHOLE = 64_000
"""Characters of a result that passes whole where it cannot be kept; of a longer one the rest is lost, and that said."""


class Rewritten(Struct, frozen=True):
    """A result in its new form, and what that cost and saved in tokens."""

    result: Body
    form: Form
    came: int
    sent: int
    stored: int
    is_large: bool = True
    """It was rewritten since it is too large, not for another reason."""


class _Job(Struct, frozen=True):
    """One result on its way."""

    call: Call
    work: "_Work"
    """Calls functions with its bytes, as it came up: perhaps with what the stages below tell of it in `_meta`, and with
    hidden characters shown."""
    original: bytes | Raw
    """As the server sent it."""
    parts: Parts
    how: ResultOptions
    header: HeaderLine
    is_app: bool = False
    is_visible: bool = False
    """It had hidden characters, which are shown."""

    @property
    def handle(self) -> str:
        return self.header.handle

    @property
    def bytes_to_keep(self) -> bytes | memoryview:
        """The original; a large one is not copied, which would hold all others up."""
        original = self.original
        return memoryview(original) if len(original) > LARGE and isinstance(original, Raw) else bytes(original)

    @property
    def is_over(self) -> bool:
        """Its text is too long to be shown."""
        return self.how.strategy != "off" and self.parts.chars > self.how.threshold


class _Texts(Struct, frozen=True):
    """What is shown in place of the text of a result."""

    form: Form
    texts: Sequence[str] | None
    """None: its own."""
    facts: ResultFacts
    structured: object = None
    """In place of `structuredContent`, where there is one; None: it stays."""
    further: str = ""
    """A line of ours that comes after its own texts."""


class Rewriter:
    """Gives large results their new form."""

    def __init__(
        self,
        kept_results: KeptResults,
        scripts: Scripts,
        summarizer: Summarizer,
        *,
        tokenizer: Tokenizer,
        recall: Callable[[Call], str],
    ) -> None:
        """`recall`: what that tool is called for who makes a call; empty: it has none."""
        self._kept_results, self._scripts, self._summarizer = kept_results, scripts, summarizer
        self._tokenizer: Tokenizer = tokenizer
        self._recall = recall
        self._count, self._aside = counter(tokenizer), Aside()

    async def rewrite(
        self,
        call: Call,
        result: Body,
        how: ResultOptions,
        *,
        expression: str = "",
        problem: str = "",
        is_app: bool = False,
    ) -> Rewritten | None:
        """The result as it is to be shown; None: as it came.

        `expression`: what the caller brought as `_transform`; `problem`: why that cannot be evaluated. `is_app`: what
        is no text is for an app, and stays.
        """
        header, data, is_visible = HeaderLine(transforms=how.transforms), result.data, False
        if how.hidden_characters == "show":
            shown = await self._aside.far(len(data), visible, bytes(data))
            if shown is not None:
                data, is_visible = Raw(shown.data), True
                header = replace(header, error=_SHOWN)
                call.note("hidden_characters", shown.count)
                log.info("hidden characters of a result are shown", tool=_tool(call), count=shown.count)
        async with self._aside.on(data) as work:
            may_store = how.strategy != "off" and how.stores
            parts = await work.quickly(parts_of, how.media_limit if may_store else None)
            job = _Job(call, work, call.original or result.data, parts, how, header, is_app, is_visible)
            return await self._rewrite(job, expression, problem)

    async def _rewrite(self, job: "_Job", expression: str, problem: str) -> Rewritten | None:
        how, media = job.how, job.parts.large_blocks
        if expression and job.parts.is_error:
            expression, problem = "", "it is not run on the result of a failed call"
        if not job.is_over and not expression and not problem and not media and not job.is_visible:
            return None
        if how.stores:
            job = await self._keep(job)
            if not job.handle and not expression and not job.is_visible and job.parts.chars <= _WHOLE:
                return None  # better too long than lost
        if not job.handle:
            media = []
        texts = await self._texts(job, expression, problem)
        told = sum(self._count(text) for text in texts.texts or ()) + self._count(texts.further)
        came = texts.facts.came
        if texts.texts is None:
            told += came
        if told >= came and not media and not expression and not problem and not job.is_visible:
            return None  # never worse than what came
        if job.handle:
            await self._describe(job, texts.facts)
        smaller = await self._smaller(job, media)
        structured = None if texts.structured is None else Raw(encode(texts.structured))
        new = NewTexts(
            texts.form,
            texts.facts.kind,
            None if texts.texts is None else list(texts.texts),
            structured,
            texts.further,
        )
        data = await job.work.quickly(with_new_texts, new, job.handle, smaller, job.is_app)
        return Rewritten(Body(data), texts.form, came, told, came if job.handle else 0, is_large=job.is_over)

    async def honest(self, result: Body, *, own: Sequence[str] = (), is_ours: bool = False) -> Body:
        """The result, in which nothing but `own` looks like the bridge's word."""
        if result.words is not None and not own and not is_ours:
            may_hold = words_may_hold_header_line(result.words) and await _looks_like_ours(result.data)
            if not may_hold:
                return result
        async with self._aside.on(result.data) as work:
            changed = await work(spoofless, list(own), is_ours)
        return result if changed is None else Body(changed)

    # -- text

    async def _texts(self, job: _Job, expression: str, problem: str) -> _Texts:
        """What is shown in place of the text."""
        header = job.header
        if expression:
            try:
                return await self._transformed(job, expression)
            except TransformFailed as failed:
                problem = str(failed)
        if problem:
            problem = f"[mcpbridge: _transform failed: {defused(problem)[:_LONGEST_ERROR]}]"
            header = replace(header, error=f"{header.error}\n{problem}" if header.error else problem)
        if not job.is_over:
            note = await job.work.with_contents(result_facts, self._tokenizer)
            if not job.is_visible:
                return _Texts("as sent", None, note, further=problem)
            line = replace(header, error=problem).line("visible", note.headline, job.parts.chars)
            return _Texts("visible", None, note, further=line)
        if job.how.strategy == "summarize" and not job.parts.is_error:
            made = await self._summarized(job, header)
        else:
            made = await job.work.with_contents(shorten, job.how, header, self._tokenizer)
        is_large = job.parts.structured_size > job.how.budget
        return _Texts(made.form, [made.text], made.facts, {"text": made.text} if is_large else None)

    async def _summarized(self, job: _Job, header: HeaderLine) -> Shortened:
        text = await job.work(text_of)
        note = await job.work.with_contents(result_facts, self._tokenizer)
        room = job.how.budget - len(header.line("summary", note.headline, job.parts.chars)) - 1
        try:
            summary = await self._summarizer.summarize(job.call, text, room)
        except SummaryFailed as failed:
            log.info("no summary written", tool=_tool(job.call), reason=str(failed)[:200])
            job.call.note("summary", str(failed)[:200])
            return await job.work.with_contents(shorten, job.how, header, self._tokenizer)
        return with_summary(summary, note, header, job.parts.chars)

    async def _transformed(self, job: _Job, expression: str) -> _Texts:
        """What a script makes of a result: alone in its block, so that programs can read it, and where the rest is.

        What is too large is fitted as a result is.
        """
        how, call = job.how, job.call
        source, note = await job.work.with_contents(script_source, self._tokenizer)
        owner = f"{call.caller.principal}/{call.caller.session.id}"
        output = await self._scripts.evaluate(
            expression, source.text, binding=source.binding, rows=source.rows, owner=owner
        )
        has_structure = job.parts.structured_size >= 0 and how.strategy != "off"
        if len(output) <= how.threshold:
            texts = [defused(output), job.header.line("transformed", note.headline, job.parts.chars)]
            return _Texts("transformed", texts, note, structured_output(output) if has_structure else None)
        text = await self._aside.far(len(output), shorten_output, output, how, job.header)
        return _Texts("transformed", [text], note, {"text": text} if has_structure else None)

    # -- what is kept

    async def _keep(self, job: _Job) -> _Job:
        """The job with its handle; the original is kept before anything else is done with it, since that may take long.

        Without a handle if it cannot be kept.
        """
        principal = job.call.caller.principal
        try:
            handle = await self._kept_results.handle_of(job.bytes_to_keep, principal=principal)
            kept = replace(job, header=replace(job.header, handle=handle, recall=self._recall(job.call)))
            await self._put(kept, ResultFacts("", "", 0))
        except StoreFailed as failed:
            log.warning("a result cannot be stored", tool=_tool(job.call), reason=str(failed))
            return job
        job.call.note("kept", handle)
        return kept

    async def _describe(self, job: _Job, note: ResultFacts) -> None:
        """Write down what is known of the kept original now."""
        try:
            await self._put(job, note)
        except StoreFailed as failed:
            log.info("the description of a kept result cannot be stored", reason=str(failed))

    async def _put(self, job: _Job, note: ResultFacts) -> None:
        call = job.call
        arguments = call.params.get("arguments") or b""
        summary = ResultSummary(
            handle=job.handle,
            tool=_tool(call),
            arguments=str(memoryview(arguments)[:_LONGEST_ARGUMENTS], "utf-8", "replace"),
            outcome="tool_error" if job.parts.is_error else "ok",
            kind=note.kind,
            headline=note.headline,
            chars=job.parts.chars,
            at=time.time(),
            client=call.caller.name,
            labels=labels_of(call),
        )
        await self._kept_results.keep(job.bytes_to_keep, summary, principal=call.caller.principal)

    async def _smaller(self, job: _Job, places: Sequence[int]) -> dict[int, bytes]:
        """What stands in place of the blocks that are too large."""
        version = job.call.caller.version
        knows_links = not version or version >= FIRST_WITH_STRUCTURE
        smaller: dict[int, bytes] = {}
        for number, place in enumerate(places):
            uri = f"{uri_of(job.handle)}/content/{place}"
            side = job.how.image_side if number < _MOST_SMALLER else 0
            smaller[place] = await job.work(smaller_block, place, job.how.media_limit, uri, side, knows_links)
        return smaller


async def _looks_like_ours(data: bytes | Raw) -> bool:
    """Whether a large result may say something in the bridge's name; others have their turns meanwhile."""
    for part in parts_to_search(memoryview(data)):
        if holds_spoof(part):
            return True
        await anyio.lowlevel.checkpoint()
    return False


def _tool(call: Call) -> str:
    return call.tool.id if call.tool is not None else call.target
