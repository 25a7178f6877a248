"""Rewrite a large result: the steps that need its bytes. Pure.

Each takes the bytes first, so that it can be done where these are: here, in a thread, or in a process that has them.
Here and in a thread, most take what was read of them before instead.
Arguments and results are of types that msgspec can write and read.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from mcpbridge.base.hidden_json import without_hidden_in
from mcpbridge.base.hidden_text import hidden_in, with_hidden_shown
from mcpbridge.protocol.apps import app_uris
from mcpbridge.protocol.body import Body
from mcpbridge.results.content import (
    GivenResult,
    contents_in,
    contents_of,
    large_blocks,
    small_block,
    text_of_block,
    with_blocks,
)
from mcpbridge.results.header_line import Form, uri_of
from mcpbridge.results.spoof_check import without_spoofs


class Parts(Struct, frozen=True):
    """What a result consists of."""

    is_error: bool
    chars: int
    """Characters that a client is shown."""
    structured_size: int
    """Bytes of `structuredContent`; -1: there is none."""
    large_blocks: list[int]
    """The places of blocks that are no text and larger than media may be."""


class Visible(Struct, frozen=True):
    """A result in which hidden characters are shown."""

    data: bytes
    count: int
    """Hidden characters that it had."""


def visible(data: bytes) -> Visible | None:
    """The result with each hidden character of its texts and names as `‹U+200B›`; None: it has none."""
    count = 0

    def with_count(text: str) -> str:
        nonlocal count
        if hidden := hidden_in(text):
            count += sum(one.end - one.start for one in hidden)
            return with_hidden_shown(text)
        return text

    changed = without_hidden_in(data, with_count)
    return None if changed is data else Visible(changed, count)


class NewTexts(Struct, frozen=True):
    """What is shown in place of the text of a result."""

    form: Form
    kind: str
    """See `Document.kind`."""
    texts: list[str] | None
    """None: its own."""
    structured: msgspec.Raw | None = None
    """JSON in place of `structuredContent`, where there is one; None: it stays."""
    further: str = ""
    """A line of ours that comes after its own texts."""


def parts_of(result: GivenResult, media_limit: int | None) -> Parts:
    """What a result consists of. `media_limit`: bytes that a block of media may have; None: any number."""
    contents = contents_in(result)
    size = -1 if contents.structured is None else len(contents.structured)
    large = [] if media_limit is None else large_blocks(contents, media_limit)
    return Parts(contents.is_error, contents.chars, size, large)


def smaller_block(data: bytes, place: int, limit: int, uri: str, side: int, knows_links: bool) -> bytes:
    """What stands for the block at a place; see `small_block`."""
    block = contents_of(Body(data)).blocks[place]
    return small_block(block, place, limit, uri, side=side, knows_links=knows_links)


def with_new_texts(result: GivenResult, new: NewTexts, handle: str, smaller: dict[int, bytes], is_app: bool) -> bytes:
    """The result with these texts, and these blocks at their places. `handle` empty: it is not kept.

    `is_app`: what is no text is for an app, and stays.
    """
    contents = contents_in(result)
    blocks: list[bytes] | None = None
    if new.texts is not None:
        like = contents.texts if len(new.texts) == 1 else ()
        blocks = [text_of_block(text, like) for text in new.texts]
    after = [text_of_block(new.further)] if new.further and new.texts is None else []
    keeps_structure = is_app or _names_app(contents.result)
    structured = None if contents.structured is None else new.structured
    facts = {"handle": handle, "uri": uri_of(handle), "form": new.form, "kind": new.kind, "chars": contents.chars}
    changed = with_blocks(
        contents, blocks, smaller, structured, facts if handle else None, after, keeps_structure=keeps_structure
    )
    own: Sequence[str] = [*(new.texts or ()), *([new.further] if new.further else [])]
    whole = bytes(changed.data)
    honest = without_spoofs(whole, own, is_ours=bool(handle))
    return whole if honest is None else honest


def spoofless(data: bytes, own: list[str], is_ours: bool) -> bytes | None:
    """See `without_spoofs`."""
    return without_spoofs(data, own, is_ours=is_ours)


def _names_app(result: Body) -> bool:
    """Whether the result itself names an app that shows it (MCP Apps 2026-01-26)."""
    meta = result.inner("_meta")
    try:
        return meta is not None and bool(app_uris(meta.value()))
    except (msgspec.DecodeError, RecursionError):
        return False
