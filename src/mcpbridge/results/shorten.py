"""All the work on one large result: what is shown of it, and what is recorded of it. Pure.

A document is shown whole in a lossless form if that fits, else as the strategy says: a preview, its beginning
(`truncate.py`) or a summary (`summary.py`). Of a failure the message is kept wherever it is, then as much of the
rest as there is room for: it may be the first line, the last one of a trace, in the middle of a log, or a member of an
object.

This is one function, since large results are read in a thread and huge ones in a process: Python's parsers hold the
interpreter, so in a thread a result of 100 MB would still stop everything else for seconds. Arguments and results are
of types that msgspec can write and read.

The garbage collector pauses meanwhile (`uncollected`): reading a result makes a million small values, none of them
garbage, and the collector would look through all of them again and again, a third to a half of the time (measured on
1 MB of JSON, CSV and tables). The pause is for the whole process and ends with the last who wants it.
"""

import gc
import re
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

from msgspec import Struct

from mcpbridge.core.call_options import ResultOptions
from mcpbridge.results.content import Contents, GivenResult, contents_in
from mcpbridge.results.document import Document, read
from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.header_line import Form, defused, header_line
from mcpbridge.results.lossless.encode import shortest
from mcpbridge.results.preview.preview import headline, preview
from mcpbridge.results.query.script_input import Source, script_input
from mcpbridge.results.token_count import Tokenizer, counter
from mcpbridge.results.truncate import shorten_error, truncate

_lock = threading.Lock()
_paused = 0
_was_on = False


@contextmanager
def uncollected() -> Generator[None]:
    """Nothing is collected meanwhile; may be entered by several threads at once."""
    global _paused, _was_on
    with _lock:
        if not _paused:
            _was_on = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused and _was_on:
                gc.enable()


_MEMBERS = re.compile(
    r"(?:.*_)?(?:err(?:or)?s?|msg|messages?|details?|reasons?|causes?|code|status|title|stderr|exception|problem|hint)",
    re.IGNORECASE,
)
_LOUD = re.compile(
    r"error|exception|fail|fatal|denied|refused|forbidden|no such|not found|cannot|can't|unable|invalid|time[d ]?-?out"
    r"|panic|unauthorized|unexpected|missing|abort|caused by|rejected|conflict",
    re.IGNORECASE,
)
_MOST_LINES, _LONGEST_LINE, _MOST_NODES = 50_000, 300, 20_000
_SHARE = 0.6
"""Of the room, at most, for what looks like the message."""
_LEAST = 100
"""Characters in which the rest says anything."""


def shorten_failure(document: Document, room: int) -> str:
    """A failure in at most `room` characters."""
    if len(document.text) <= room:
        return document.text
    found = _members(document.value) if document.kind in ("json", "repr") else _lines(document.text)
    message = _within(found, int(room * _SHARE))
    left = room - len(message) - 1
    if message and left < _LEAST:
        return message[:room]
    rest = _rest(document, left if message else room)
    return f"{message}\n{rest}"[:room] if message else rest


def _rest(document: Document, room: int) -> str:
    text = truncate(document, room) if document.is_structured else ""
    return text if text and len(text) <= room else shorten_error(document.text, room)


def _within(candidates: Iterator[str], room: int) -> str:
    """So many of these lines as fit; each once."""
    lines: dict[str, None] = {}
    used = 0
    for line in candidates:
        if line in lines:
            continue
        used += len(line) + 1
        if used > room:
            break
        lines[line] = None
    return "\n".join(lines)


def _members(value: Any) -> Iterator[str]:
    """The members that are called like a message, the outermost first."""
    level: list[tuple[str, Any]] = [("", value)]
    seen = 0
    while level and seen < _MOST_NODES:
        below: list[tuple[str, Any]] = []
        for path, node in level:
            seen += 1
            if isinstance(node, dict):
                for name, inner in cast("dict[str, Any]", node).items():
                    at = f"{path}.{name}" if path else name
                    if isinstance(inner, dict | list):
                        below.append((at, cast("Any", inner)))
                    elif inner is not None and _MEMBERS.fullmatch(name):
                        yield f"{at[-80:]}: {_message_text(inner)}"
            elif isinstance(node, list):
                items = cast("list[Any]", node)[:100]
                below += [(f"{path}[{place}]", item) for place, item in enumerate(items)]
        level = below[:_MOST_NODES]


def _message_text(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else write_json(value)
    except NotReadable:
        text = "?"
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"


def _lines(text: str) -> Iterator[str]:
    """The lines that sound like a failure, with their numbers."""
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], 1):
        if _LOUD.search(line[:2000]):
            shown = line.strip()
            yield f"L{number}: {shown[:_LONGEST_LINE]}{'…' if len(shown) > _LONGEST_LINE else ''}"


SMALLEST_ROOM = 150
"""Characters that a preview needs to say anything."""


class FittedText(Struct, frozen=True):
    """A document in its new form."""

    form: Form
    body: str
    """What is below the line that announces it."""


def fit(document: Document, how: ResultOptions, room: Callable[[Form], int]) -> FittedText:
    """The document as `how` wants it. `room`: characters for the body, if it takes a form (its line takes some)."""
    if how.strategy in ("truncate", "summarize"):
        return FittedText("truncated", defused(truncate(document, _at_least(room("truncated")))))
    whole = shortest(document, room("table"))
    if len(whole.text) <= room(whole.form) and defused(whole.text) == whole.text:
        return FittedText(whole.form, whole.text)
    return FittedText("preview", defused(preview(document, _at_least(room("preview")), how.items)))


def fit_error(document: Document, room: Callable[[Form], int]) -> FittedText:
    """The text of a failure: what looks like its message, and of the rest the beginning and the end."""
    return FittedText("truncated", defused(shorten_failure(document, _at_least(room("truncated")))))


def _at_least(room: int) -> int:
    return max(room, SMALLEST_ROOM)


class HeaderLine(Struct, frozen=True):
    """What the line above a result says besides what the result is."""

    handle: str = ""
    recall: str = ""
    transforms: bool = True
    error: str = ""
    """Lines of their own, about what went wrong on the way and what is shown otherwise; empty: nothing."""

    def line(self, form: Form, description: str, chars: int) -> str:
        """The line; see `header_line`."""
        line = header_line(form, description, chars, handle=self.handle, recall=self.recall, transforms=self.transforms)
        return f"{line}\n{self.error}" if self.error else line


class ResultFacts(Struct, frozen=True):
    """What is written down of a result."""

    kind: str
    headline: str
    came: int
    """Tokens that came."""


class Shortened(Struct, frozen=True):
    """A text in place of a result."""

    form: Form
    text: str
    facts: ResultFacts


@uncollected()
def result_facts(result: GivenResult, tokenizer: Tokenizer) -> ResultFacts:
    """What there is to note of a result."""
    contents = contents_in(result)
    return _facts_of(contents, contents.document(), tokenizer)


@uncollected()
def shorten(result: GivenResult, how: ResultOptions, header: HeaderLine, tokenizer: Tokenizer) -> Shortened:
    """What is shown of a result in its budget. A summary is not made here: its replacement is."""
    contents = contents_in(result)
    document = contents.document()
    note = _facts_of(contents, document, tokenizer)
    chars = contents.chars

    def room(form: Form) -> int:
        return how.budget - len(header.line(form, note.headline, chars)) - 1

    fitted = fit_error(document, room) if contents.is_error else fit(document, how, room)
    return Shortened(fitted.form, _with_header(header, fitted, note.headline, chars), note)


def with_summary(summary: str, note: ResultFacts, header: HeaderLine, chars: int) -> Shortened:
    """What a model wrote in place of a result."""
    return Shortened(
        "summary", _with_header(header, FittedText("summary", defused(summary)), note.headline, chars), note
    )


@uncollected()
def shorten_output(output: str, how: ResultOptions, header: HeaderLine) -> str:
    """What is shown of what a script gave, if that is too large itself."""
    made = read(output)
    told = f"_transform gave {headline(made)}"

    def room(form: Form) -> int:
        return how.budget - len(header.line(form, told, len(output))) - 1

    return _with_header(header, fit(made, how, room), told, len(output))


@uncollected()
def script_source(result: GivenResult, tokenizer: Tokenizer) -> tuple[Source, ResultFacts]:
    """What a script gets of a result, and the facts to record of it."""
    contents = contents_in(result)
    document = contents.document()
    return script_input(document), _facts_of(contents, document, tokenizer)


def _with_header(header: HeaderLine, fitted: FittedText, description: str, chars: int) -> str:
    return f"{header.line(fitted.form, description, chars)}\n{fitted.body}"


def _facts_of(contents: Contents, document: Document, tokenizer: Tokenizer) -> ResultFacts:
    says = contents.structured is not None and contents.repeated_as is None
    if not contents.texts and not says:
        return ResultFacts("media", f"{len(contents.blocks)} blocks, none of them text", 0)
    texts = "".join(block.text or "" for block in contents.texts)
    raw = contents.structured
    structured = "" if raw is None or not says or len(raw) <= len(texts) else str(memoryview(raw), "utf-8", "replace")
    return ResultFacts(document.kind, headline(document), counter(tokenizer)(structured or texts))
