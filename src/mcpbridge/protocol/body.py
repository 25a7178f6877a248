"""The bytes of one JSON object: parsed at the first look inside, encoded again only if changed.

Params and results travel as bodies. Whoever only passes one on pays nothing; whoever looks at one member pays for
splitting the top level, and the members stay bytes themselves. So what nobody changes leaves as it came.
"""

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, Fields, decode_fields, decode_text, encode, encode_fields
from mcpbridge.protocol.payload import Payload, Pieces

SEARCHED = 4096
"""Bytes up to which a look for one name is a search: to split a larger body takes as long, and serves the next look."""
LARGE = 1 << 20
"""Bytes from which on a body is split at once: a search copies it, and each look inside is a search of its own."""


class Body:
    """One JSON object. Every look inside raises msgspec.DecodeError when the bytes are no object.

    `data` and `fields` are slots, of which at least one is set. The other is made when it is first read
    (`__getattr__`), so every later read costs no function: each call of a tool reads them twenty times.
    """

    __slots__ = ("data", "fields", "words")

    data: bytes | Raw
    """The bytes: those that came, or their encoding anew if something was changed. Not to be set from outside."""
    fields: Fields
    """The members in order, unparsed. Change them through `put` and `drop` only."""
    words: frozenset[bytes] | None
    """Of a body that was read in slices, what was found in it (`large_messages.py`); None: nobody looked."""

    def __init__(self, data: bytes | Raw = EMPTY_OBJECT) -> None:
        self.data = data
        self.words = None

    def __getattr__(self, name: str) -> Any:
        # Python comes here only for a slot that is not set.
        if name == "fields":
            self.fields = decode_fields(self.data)
            return self.fields
        if name == "data":
            self.data = encode_fields(self.fields)
            return self.data
        raise AttributeError(name)

    @classmethod
    def split(cls, data: Raw, fields: Fields, words: frozenset[bytes]) -> "Body":
        """A body whose members are known already: it is large, and splitting it takes long."""
        body = cls(data)
        body.fields, body.words = fields, words
        return body

    def copy(self) -> "Body":
        """One that can be changed while others hold this."""
        if self.words is None:
            return Body(self.data)
        return Body.split(Raw(self.data), dict(self.fields), self.words)

    def payload(self) -> Payload:
        """The bytes. Those of a large body that was changed are not joined for it: that takes long."""
        try:
            return object.__getattribute__(self, "data")
        except AttributeError:
            fields = self.fields
            if sum(map(len, fields.values())) < LARGE:
                return self.data
            parts: list[bytes | Raw] = []
            for name, value in fields.items():
                parts += (b"%b%b:" % (b"," if parts else b"{", encode(name)), value)
            return Pieces(*parts, b"}")

    @property
    def is_object(self) -> bool:
        """The bytes begin as an object does; cheap."""
        return bytes(memoryview(self.data)[:1]) == b"{"

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def get(self, name: str) -> Raw | None:
        """The bytes of a member; None when there is none."""
        return self.fields.get(name)

    def text(self, name: str) -> str:
        """A member that must be a string. Raises KeyError when it is missing, msgspec.DecodeError when it is none."""
        return decode_text(self.fields[name])

    def inner(self, name: str) -> "Body | None":
        """A member that is an object, as a body of its own; None when there is none or it is not an object.

        A change of it must be `put` back.
        """
        raw = self.fields.get(name)
        if raw is None:
            return None
        body = Body(raw)
        return body if body.is_object else None

    def value(self) -> Any:
        """Everything parsed, as Python values."""
        return msgspec.json.decode(self.data)

    def put(self, name: str, value: object) -> None:
        """Set a member to a JSON value, a `Body`, or a `Raw` that is spliced as it is. A new one comes last."""
        fields = self.fields
        if isinstance(value, Body):
            data = value.data
            fields[name] = data if isinstance(data, Raw) else Raw(data)
        else:
            fields[name] = value if isinstance(value, Raw) else Raw(encode(value))
        try:  # every call comes here, and `suppress` costs two calls more
            del self.data
        except AttributeError:  # it was not encoded since the last change
            pass

    def remove_duplicate_members(self) -> None:
        """Encode it anew unless its bytes are known to say nothing but its members, each once.

        Of a member named twice the last counts here, while whoever gets the bytes may take the first.
        """
        shortest = 1 + sum([len(name) + len(value) + 4 for name, value in self.fields.items()])
        if len(self.data) != shortest:  # blanks, escapes, or more members
            self._changed()

    def drop(self, *names: str) -> None:
        """Take these members out, as far as they are there."""
        fields = self.fields
        for name in names:
            if fields.pop(name, None) is not None:
                try:  # `_changed`, which every result of a modern server would enter here
                    del self.data
                except AttributeError:
                    pass

    def _changed(self) -> None:
        with suppress(AttributeError):
            del self.data
