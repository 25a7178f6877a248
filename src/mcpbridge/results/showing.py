"""All the work on one large result in one function: what is shown of it, and what is noted of it; pure.

In one piece, since for large results it happens in a thread, and for huge ones in a process: Python's parsers hold on
to the interpreter, so that in a thread a result of 100 MB would still stop everything else for seconds. What goes in
and comes out can be pickled.
"""

from msgspec import Struct

from mcpbridge.result_settings import ResultConduct
from mcpbridge.results.collecting import uncollected
from mcpbridge.results.contents import contents_of, document_of
from mcpbridge.results.document import Document, read
from mcpbridge.results.fit import Fitted, fit, fit_error
from mcpbridge.results.frame import Form, defused, frame
from mcpbridge.results.preview import headline
from mcpbridge.results.scripts import Source, script_input
from mcpbridge.results.tokens import Tokenizer, counter
from mcpbridge.wire.body import Body

__all__ = ["Frame", "Noted", "Shown", "noted", "script_source", "shown", "shown_output", "shown_summary"]


class Frame(Struct, frozen=True):
    """What the line above a result says besides what the result is."""

    handle: str = ""
    recall: str = ""
    transforms: bool = True
    error: str = ""
    """A line of its own, about what went wrong on the way; empty: nothing."""

    def line(self, form: Form, told: str, chars: int) -> str:
        """The line; see `frame`."""
        line = frame(form, told, chars, handle=self.handle, recall=self.recall, transforms=self.transforms)
        return f"{line}\n{self.error}" if self.error else line


class Noted(Struct, frozen=True):
    """What is written down of a result."""

    kind: str
    headline: str
    came: int
    """Tokens that came."""


class Shown(Struct, frozen=True):
    """A text in place of a result."""

    form: Form
    text: str
    noted: Noted


@uncollected()
def noted(data: bytes, tokenizer: Tokenizer) -> Noted:
    """What there is to note of a result."""
    return _noted(data, document_of(data), tokenizer)


@uncollected()
def shown(data: bytes, how: ResultConduct, above: Frame, tokenizer: Tokenizer) -> Shown:
    """What is shown of a result in its budget. A summary is not made here: its stand-in is."""
    document = document_of(data)
    note = _noted(data, document, tokenizer)
    contents = contents_of(Body(data))
    chars = contents.chars

    def room(form: Form) -> int:
        return how.budget - len(above.line(form, note.headline, chars)) - 1

    fitted = fit_error(document, room) if contents.is_error else fit(document, how, room)
    return Shown(fitted.form, _whole(above, fitted, note.headline, chars), note)


def shown_summary(summary: str, note: Noted, above: Frame, chars: int) -> Shown:
    """What a model wrote in place of a result."""
    return Shown("summary", _whole(above, Fitted("summary", defused(summary)), note.headline, chars), note)


@uncollected()
def shown_output(output: str, how: ResultConduct, above: Frame) -> str:
    """What is shown of what a script gave, if that is too large itself."""
    made = read(output)
    told = f"_transform gave {headline(made)}"

    def room(form: Form) -> int:
        return how.budget - len(above.line(form, told, len(output))) - 1

    return _whole(above, fit(made, how, room), told, len(output))


@uncollected()
def script_source(data: bytes, tokenizer: Tokenizer) -> tuple[Source, Noted]:
    """What a script gets of a result, and what is noted of it."""
    document = document_of(data)
    return script_input(document), _noted(data, document, tokenizer)


def _whole(above: Frame, fitted: Fitted, told: str, chars: int) -> str:
    return f"{above.line(fitted.form, told, chars)}\n{fitted.body}"


def _noted(data: bytes, document: Document, tokenizer: Tokenizer) -> Noted:
    contents = contents_of(Body(data))
    says = contents.structured is not None and contents.repeated_as is None
    if not contents.texts and not says:
        return Noted("media", f"{len(contents.blocks)} blocks, none of them text", 0)
    texts = "".join(block.text or "" for block in contents.texts)
    raw = contents.structured
    structured = "" if raw is None or not says or len(raw) <= len(texts) else str(memoryview(raw), "utf-8", "replace")
    return Noted(document.kind, headline(document), counter(tokenizer)(structured or texts))
