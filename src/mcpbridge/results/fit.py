"""What is shown of a document in so many characters: all of it without loss if that fits, else what the strategy says.

Pure. Of large documents it takes a while: call it in a thread.
"""

from collections.abc import Callable

from msgspec import Struct

from mcpbridge.result_settings import ResultConduct
from mcpbridge.results.document import Document
from mcpbridge.results.failures import shorten_failure
from mcpbridge.results.frame import Form, defused
from mcpbridge.results.lossless import shortest
from mcpbridge.results.preview import preview
from mcpbridge.results.truncate import truncate

__all__ = ["Fitted", "fit", "fit_error"]

SMALLEST_ROOM = 150
"""Characters that a preview needs to say anything."""


class Fitted(Struct, frozen=True):
    """A document in its new form."""

    form: Form
    body: str
    """What stands below the line that announces it."""


def fit(document: Document, how: ResultConduct, room: Callable[[Form], int]) -> Fitted:
    """The document as `how` wants it. `room`: characters for the body, if it takes a form (its line takes some)."""
    if how.strategy in ("truncate", "summarize"):
        return Fitted("truncated", defused(truncate(document, _at_least(room("truncated")))))
    whole = shortest(document, room("table"))
    body = defused(whole.text)
    if len(whole.text) <= room(whole.form) and body == whole.text:
        return Fitted(whole.form, body)
    return Fitted("preview", defused(preview(document, _at_least(room("preview")), how.items)))


def fit_error(document: Document, room: Callable[[Form], int]) -> Fitted:
    """The text of a failure: what looks like its message, and of the rest the beginning and the end."""
    return Fitted("truncated", defused(shorten_failure(document, _at_least(room("truncated")))))


def _at_least(room: int) -> int:
    return max(room, SMALLEST_ROOM)
