"""A large result in its new form: kept whole, shown in a budget, with what it says in every part the same.

What is shown is decided in `results/`; here the parts come together: the store, the model that summarizes, the script
that the caller brought. Whatever fails on the way, the result of the call is never lost: it may have had effects, and
the caller must learn of them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import anyio.to_thread
import msgspec
import structlog
from msgspec import Raw

from mcpbridge.catalog.apps import app_uris
from mcpbridge.errors import StoreFailed
from mcpbridge.model import Call
from mcpbridge.result_settings import ResultConduct
from mcpbridge.results.card import Card
from mcpbridge.results.contents import Contents, contents_of
from mcpbridge.results.document import Document, read
from mcpbridge.results.fit import Fitted, fit, fit_error
from mcpbridge.results.frame import Form, defused, frame, uri_of
from mcpbridge.results.preview import headline
from mcpbridge.results.rebuilt import (
    large_blocks,
    said_in,
    small_block,
    structured_output,
    text_of_block,
    with_blocks,
    without_lies,
)
from mcpbridge.results.scripts import script_input
from mcpbridge.results.shelf import Shelf
from mcpbridge.results.summary import Summarizer, SummaryFailed
from mcpbridge.sandbox.scripts import Scripts, TransformFailed
from mcpbridge.wire.body import Body
from mcpbridge.wire.revisions import FIRST_WITH_STRUCTURE

__all__ = ["LARGE_WORK", "Rewriter", "Rewritten"]

log = structlog.get_logger("mcpbridge.results")

LARGE_WORK = 256 * 1024
"""Bytes of a result from which on work on it is done in a thread: it would hold up all other calls."""

_LONGEST_ARGUMENTS, _LONGEST_ERROR = 2000, 400

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A result in its new form, and what that cost and saved in tokens."""

    result: Body
    form: Form
    came: int
    shown: int
    stored: int
    is_large: bool = True
    """It was rewritten since it is too large, not for another reason."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One result on its way."""

    call: Call
    data: bytes
    contents: Contents
    how: ResultConduct
    handle: str = ""
    """Under which the original is kept; empty: it is not."""
    recall: str = ""
    """What that tool is called for who calls; empty: it has none."""

    @property
    def is_over(self) -> bool:
        """Its text is too long to be shown."""
        return self.how.strategy != "off" and self.contents.chars > self.how.threshold


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is shown of the text of a result."""

    form: Form
    blocks: Sequence[bytes | Raw] | None = None
    """None: its own."""
    structured: object = None
    """In place of `structuredContent`, where there is one and it is too large."""


class Rewriter:
    """Gives large results their new form."""

    def __init__(
        self,
        shelf: Shelf,
        scripts: Scripts,
        summarizer: Summarizer,
        *,
        count: Callable[[str], int],
        recall: Callable[[Call], str],
    ) -> None:
        """`count`: tokens of a text. `recall`: what that tool is called for who makes a call; empty: it has none."""
        self._shelf, self._scripts, self._summarizer = shelf, scripts, summarizer
        self._count, self._recall = count, recall

    async def rewrite(
        self, call: Call, result: Body, how: ResultConduct, *, expression: str = "", is_app: bool = False
    ) -> Rewritten | None:
        """The result as it is to be shown; None: as it came.

        `expression`: what the caller brought as `_transform`. `is_app`: what is no text is for an app, and stays.
        """
        data = bytes(result.data)
        contents = await _aside(len(data), partial(contents_of, Body(data)))
        job = _Job(call, data, contents, how)
        media: Sequence[int] = ()
        if how.strategy != "off" and how.stores:
            media = await _aside(len(data), partial(large_blocks, contents, how.media_limit))
        if contents.is_error:
            expression = ""
        if not job.is_over and not expression and not media:
            return self._without_lies(job)
        if how.stores:
            try:
                handle = await self._shelf.handle_of(data, principal=call.caller.principal)
            except StoreFailed as failed:
                return _unkept(call, failed)
            job = replace(job, handle=handle, recall=self._recall(call))
        document = await _aside(len(data), contents.document)
        shown = await self._shown(job, document, expression)
        tokens = await self._tokens(job, shown)
        if tokens[1] >= tokens[0] and not media and not expression:
            return None  # never worse than what came
        if job.handle and not await self._kept(job, document):
            return None
        keeps_structure = is_app or _names_app(result) or contents.structured is None
        new = with_blocks(
            data,
            contents,
            shown.blocks,
            await self._smaller(job, media),
            None if keeps_structure else shown.structured,
            _facts(job, document, shown.form),
        )
        return Rewritten(new, shown.form, *tokens, tokens[0] if job.handle else 0, is_large=job.is_over)

    async def _shown(self, job: _Job, document: Document, expression: str) -> _Shown:
        """What is shown of the text."""
        error = ""
        if expression:
            try:
                return await self._transformed(job, document, await self._evaluated(document, expression))
            except TransformFailed as failed:
                error = f"[mcpbridge: _transform failed: {defused(str(failed))[:_LONGEST_ERROR]}]"
        contents = job.contents
        if job.is_over:
            fitted, text = await self._fitted(job, document, error)
            structured = {"text": text} if len(contents.structured or b"") > job.how.budget else None
            return _Shown(fitted.form, [text_of_block(text, contents.texts)], structured)
        if error:
            return _Shown("as sent", [*(block.raw for block in contents.texts), text_of_block(error)])
        return _Shown("as sent")

    async def _tokens(self, job: _Job, shown: _Shown) -> tuple[int, int]:
        """Tokens that came, and that are shown in their place."""
        contents = job.contents
        structured = "" if contents.structured is None else str(memoryview(contents.structured), "utf-8", "replace")
        texts = "".join(block.text or "" for block in contents.texts)
        before = texts if len(texts) >= len(structured) else structured
        came = await _aside(len(before), partial(self._count, before))
        return came, came if shown.blocks is None else sum(self._count(said_in(block)) for block in shown.blocks)

    # -- text

    async def _fitted(self, job: _Job, document: Document, error: str) -> tuple[Fitted, str]:
        """The document in its budget, and the whole text with the line above."""
        how, size = job.how, len(job.data)
        told = await _aside(size, partial(headline, document))

        def line(form: Form) -> str:
            above = _line(job, form, told, job.contents.chars)
            return f"{above}\n{error}" if error else above

        def room(form: Form) -> int:
            return how.budget - len(line(form)) - 1

        if job.contents.is_error:
            fitted = await _aside(size, partial(fit_error, document.text, room))
        elif how.strategy == "summarize":
            fitted = await self._summarized(job, document, room)
        else:
            fitted = await _aside(size, partial(fit, document, how, room))
        return fitted, f"{line(fitted.form)}\n{fitted.body}"

    async def _summarized(self, job: _Job, document: Document, room: Callable[[Form], int]) -> Fitted:
        try:
            text = await self._summarizer.summarize(job.call, document.text, room("summary"))
        except SummaryFailed as failed:
            log.info("no summary", tool=_tool(job.call), reason=str(failed)[:200])
            job.call.note("summary", str(failed)[:200])
            return await _aside(len(job.data), partial(fit, document, job.how, room))
        return Fitted("summary", defused(text))

    # -- scripts

    async def _evaluated(self, document: Document, expression: str) -> str:
        source = await _aside(len(document.text), partial(script_input, document))
        return await self._scripts.evaluate(expression, source.text, binding=source.binding, rows=source.rows)

    async def _transformed(self, job: _Job, document: Document, output: str) -> _Shown:
        """What a script made of a result: alone in its block, so that programs can read it, and where the rest is.

        What is too large is fitted as a result is, and what was asked for in the first place is said above it.
        """
        how, structure = job.how, job.contents.structured
        if len(output) <= how.threshold:
            told = await _aside(len(job.data), partial(headline, document))
            blocks = [defused(output), _line(job, "transformed", told, job.contents.chars)]
            structured = structured_output(output) if structure is not None else None
            return _Shown("transformed", [text_of_block(text) for text in blocks], structured)
        made = await _aside(len(output), partial(read, output))
        told = f"_transform gave {await _aside(len(output), partial(headline, made))}"

        def room(form: Form) -> int:
            return how.budget - len(_line(job, form, told, len(output))) - 1

        fitted = await _aside(len(output), partial(fit, made, how, room))
        text = f"{_line(job, fitted.form, told, len(output))}\n{fitted.body}"
        return _Shown("transformed", [text_of_block(text)], {"text": text} if structure is not None else None)

    # -- what is kept

    async def _kept(self, job: _Job, document: Document) -> bool:
        """Keep the original. False: it cannot be kept, so it must be shown."""
        call, contents = job.call, job.contents
        arguments = call.params.get("arguments") or b""
        is_text = bool(contents.texts) or contents.structured is not None
        card = Card(
            handle=job.handle,
            tool=_tool(call),
            arguments=str(memoryview(arguments)[:_LONGEST_ARGUMENTS], "utf-8", "replace"),
            outcome="tool_error" if contents.is_error else "ok",
            kind=document.kind if is_text else "media",
            headline=headline(document) if is_text else f"{len(contents.blocks)} blocks, none a text",
            chars=contents.chars,
            at=time.time(),
            client=call.caller.name,
        )
        try:
            await self._shelf.keep(job.data, card, principal=call.caller.principal)
        except StoreFailed as failed:
            _unkept(call, failed)
            return False
        call.note("kept", job.handle)
        return True

    async def _smaller(self, job: _Job, places: Sequence[int]) -> Mapping[int, bytes]:
        """What stands in place of the blocks that are too large."""
        version = job.call.caller.version
        knows_links = not version or version >= FIRST_WITH_STRUCTURE
        smaller: dict[int, bytes] = {}
        for place in places:
            block, uri = job.contents.blocks[place], f"{uri_of(job.handle)}/content/{place}"
            make = partial(
                small_block, block, place, job.how.media_limit, uri, side=job.how.image_side, knows_links=knows_links
            )
            smaller[place] = await anyio.to_thread.run_sync(make)
        return smaller

    def _without_lies(self, job: _Job) -> Rewritten | None:
        """A small result that holds lines like the bridge's own, with those spelled otherwise."""
        result = without_lies(job.data, job.contents)
        if result is None:
            return None
        tokens = sum(self._count(block.text or "") for block in job.contents.texts)
        return Rewritten(result, "as sent", tokens, tokens, 0, is_large=False)


def _line(job: _Job, form: Form, told: str, chars: int) -> str:
    return frame(form, told, chars, handle=job.handle, recall=job.recall, transforms=job.how.transforms)


def _facts(job: _Job, document: Document, form: Form) -> Mapping[str, object] | None:
    """What programs are told of it."""
    if not job.handle:
        return None
    facts = {"handle": job.handle, "uri": uri_of(job.handle), "form": form, "kind": document.kind}
    return {**facts, "chars": job.contents.chars}


def _names_app(result: Body) -> bool:
    """Whether the result itself names an app that shows it (spec 2.11)."""
    meta = result.inner("_meta")
    try:
        return meta is not None and bool(app_uris(meta.value()))
    except (msgspec.DecodeError, RecursionError):
        return False


def _unkept(call: Call, failed: StoreFailed) -> None:
    log.warning("a result cannot be kept, so it is passed whole", tool=_tool(call), reason=str(failed))


def _tool(call: Call) -> str:
    return call.tool.id if call.tool is not None else call.target


async def _aside(size: int, work: Callable[[], _T]) -> _T:
    """Do the work here, or in a thread if it is about much."""
    return await anyio.to_thread.run_sync(work) if size > LARGE_WORK else work()
