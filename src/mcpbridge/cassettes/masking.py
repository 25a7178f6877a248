"""Takes out of what is recorded what must not stand in a file: secrets, and what servers name anew each time. Pure.

A secret is what the configuration says is one (`redact`), a text that stands under a name such as `password` or
`api_key`, and what addresses and authorization headers carry in the middle of a text. The same goes for a request that
is looked up, so that one that was masked when it was recorded is found again. What is masked is one text for all
secrets; see `resembles` for those that the program does not have any more when it is replayed.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.redaction import MASK, Redactor
from mcpbridge.wire.frame import encode

__all__ = ["MINTED", "Masker", "resembles"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = frozenset({"apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "csrf"}) | {
    *("dsn", "jwt", "otp", "passcode", "passphrase", "passwd", "password", "pat", "pwd", "secret", "secrets", "token")
}
"""One of these words in the name of a member, and its text is a secret."""
_PAIRS = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("signing", "key"), ("session", "id")})
_NO_SECRETS = frozenset({"next", "page", "continuation", "progress", "cancel", "max", "count", "type", "url", "uri"})
"""… unless one of these is in it as well: a `nextPageToken` names a page."""

_LOOKS_RANDOM = re.compile(r"(?=.*[0-9])\S{8,}")
"""A text under such a name that is looked for elsewhere too; others may be ordinary words."""

_USER_INFO = re.compile(r"(?<=://)[^/\s:@?#\"'<>]*:[^/\s@?#\"'<>]+(?=@)")
_HEADER = re.compile(r"\b(Bearer|Basic)(\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_QUERY = re.compile(r"(?<=[?&;])([A-Za-z0-9_.\[\]-]+)=([^&;\s\"'<>#]+)")

MINTED = {"taskId": "task", "requestState": "state", "elicitationId": "elicitation"}
"""Members with a name that the server made up for this once, and what such a name is of."""
_LONG_NAME = 16
"""Characters; a shorter text may be equal to such a name by chance."""

_NEVER = "1970-01-01T00:00:00Z"
_TIMES = ("createdAt", "lastUpdatedAt")
"""When a task was made and last changed: another time in each recording."""


def _exact(number: str) -> Raw:
    return Raw(number.encode())


_decode = msgspec.json.Decoder(float_hook=_exact).decode


class Masker:
    """Masks what crosses one cassette. It learns the secrets that it meets under their names."""

    def __init__(self, redact: Callable[[str], str] = lambda text: text) -> None:
        self.redact = redact
        """Masks what the configuration says is a secret."""
        self._found = Redactor()
        self.aliases: dict[str, str] = {}
        """What servers named anew, and what it is called here. A whole text is replaced, a short one only where it is
        such a name."""

    def raw(self, data: bytes | Raw, *, by_name: bool = True) -> Raw:
        """Some JSON without its secrets; the very same bytes if there are none.

        `by_name` False: it is a definition, in which `password` names a parameter, and an address is an example.
        """
        if not data:
            return Raw()
        try:
            value = _decode(data)
            shown = self._value(value, by_name=by_name, is_secret=False)
            text = bytes(data).decode()
            is_changed = shown is not value or self._known(text, by_name=by_name) != text
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return Raw(encode({"unreadable": True}))
        return Raw(encode(shown)) if is_changed else Raw(bytes(data))

    def text(self, text: str) -> str:
        """A text without its secrets."""
        return self._string(text, by_name=True)

    def _value(self, value: Any, *, by_name: bool, is_secret: bool) -> Any:
        """The same object if nothing in it changes."""
        if isinstance(value, str):
            return self._secret(value) if is_secret else self._string(value, by_name)
        if isinstance(value, dict):
            return self._members(cast("dict[str, Any]", value), by_name, is_secret)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            shown = [self._value(item, by_name=by_name, is_secret=is_secret) for item in items]
            return shown if any(new is not old for new, old in zip(shown, items, strict=True)) else items
        if value is None or isinstance(value, bool):
            return value
        number = bytes(value).decode() if isinstance(value, Raw) else str(value)
        return MASK if self.redact(number) != number else value

    def _members(self, members: dict[str, Any], by_name: bool, is_secret: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, value in members.items():
            under = by_name and (is_secret or _is_secret(name))
            shown[self.redact(name)] = self._value(value, by_name=by_name, is_secret=under)
        shown |= {name: self.aliases[old] for name in MINTED if (old := members.get(name)) in self.aliases}
        if isinstance(members.get("taskId"), str):
            shown |= {name: _NEVER for name in _TIMES if members.get(name, _NEVER) != _NEVER}
        is_same = shown.keys() == members.keys() and all(shown[name] is members[name] for name in members)
        return members if is_same else shown

    def _secret(self, text: str) -> str:
        if not text or text == MASK:
            return text
        if _LOOKS_RANDOM.fullmatch(text):
            self._found.know([text])
        return MASK

    def _string(self, text: str, by_name: bool) -> str:
        if len(text) >= _LONG_NAME and (alias := self.aliases.get(text)) is not None:
            return alias
        if not by_name:
            return self.redact(text)
        shown = self._embedded(text) if text[:1] in ("{", "[") else text  # results say the same twice
        shown = _USER_INFO.sub(MASK, self._known(shown, by_name=True))
        shown = _HEADER.sub(rf"\1\2{MASK}", shown)
        shown = _QUERY.sub(_of_query, shown)
        return text if shown == text else shown

    def _embedded(self, text: str) -> str:
        try:
            value = _decode(text)
            shown = self._value(value, by_name=True, is_secret=False)
        except (msgspec.DecodeError, RecursionError):
            return text
        return text if shown is value else encode(shown).decode()

    def _known(self, text: str, *, by_name: bool) -> str:
        return self._found(self.redact(text)) if by_name else self.redact(text)


def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if _NO_SECRETS.intersection(words):
        return False
    return not _SECRETS.isdisjoint(words) or any(pair in _PAIRS for pair in pairwise(words))


def _of_query(found: re.Match[str]) -> str:
    name = found[1]
    return f"{name}={MASK}" if _is_secret(name) or name.lower() in ("key", "sig", "code") else found[0]


def resembles(recorded: object, asked: object) -> bool:
    """Whether two JSON values are the same but for what was masked in the recorded one, which stands for any text."""
    if isinstance(recorded, str) and MASK in recorded:
        pattern = ".+".join(map(re.escape, recorded.split(MASK)))
        return recorded == MASK or (isinstance(asked, str) and re.fullmatch(pattern, asked, re.DOTALL) is not None)
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        mine, other = cast("Mapping[str, object]", recorded), cast("Mapping[str, object]", asked)
        return mine.keys() == other.keys() and all(resembles(mine[name], other[name]) for name in mine)
    if isinstance(recorded, list) and isinstance(asked, list):
        here, there = cast("list[object]", recorded), cast("list[object]", asked)
        return len(here) == len(there) and all(map(resembles, here, there))
    return recorded == asked and isinstance(recorded, bool) == isinstance(asked, bool)
