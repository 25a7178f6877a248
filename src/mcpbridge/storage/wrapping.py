"""A value as it is written: compressed, sealed if there is a key, with what is known of it; and back. Pure functions.

They take long for large values: for a worker thread.
"""

from dataclasses import replace

from mcpbridge.storage.packing import PLAIN, OtherKey, Unreadable, pack, unpack
from mcpbridge.storage.sealing import Seal
from mcpbridge.storage.sqlite_rows import ROOM, Name, Row

__all__ = ["is_plain", "number_of", "open_label", "unwrap", "wrap", "wrap_label"]


def wrap(name: Name, body: bytes, label: bytes, seal: Seal | None) -> tuple[Row, bytes]:
    """The row of a value, without its times, and the bytes to write."""
    form, data = pack(body)
    if seal is not None:
        data = seal.close(data, "body", *name, str(form), str(len(body)))
    kept_label = wrap_label(name, label, seal)
    kind, principal, handle = name
    room = ROOM + len(data) + len(kept_label)
    return Row(None, kind, principal, handle, len(body), room, 0, 0, 0, form, number_of(seal), kept_label), data


def unwrap(row: Row, data: bytes, seal: Seal | None) -> bytes:
    """The value of a row.

    Raises:
        OtherKey: it was sealed with another key.
        Unreadable: it is damaged.
    """
    if row.seal:
        data = _seal_of(row, seal).open(data, "body", *row.name, str(row.form), str(row.size))
    return unpack(row.form, data, row.size)


def wrap_label(name: Name, label: bytes, seal: Seal | None) -> bytes:
    """A label to write; an empty one tells nothing and stays empty."""
    return label if seal is None or not label else seal.close(label, "label", *name)


def open_label(row: Row, seal: Seal | None) -> Row:
    """The row with its label readable, empty if it is damaged.

    Raises:
        OtherKey: it was sealed with another key.
    """
    if not row.seal:
        return row
    opener = _seal_of(row, seal)
    if not row.label:
        return row
    try:
        return replace(row, label=opener.open(row.label, "label", *row.name))
    except Unreadable:
        return replace(row, label=b"")


def number_of(seal: Seal | None) -> int:
    """What `Row.seal` is of rows that are written with this seal."""
    return 0 if seal is None else seal.id


def is_plain(row: Row) -> bool:
    """Whether its bytes are the value, and its label the label."""
    return row.form == PLAIN and not row.seal


def _seal_of(row: Row, seal: Seal | None) -> Seal:
    if seal is None:
        raise OtherKey("some were written with a key, and none is configured")
    if row.seal != seal.id:
        raise OtherKey("some were written with another key")
    return seal
