"""Take out of a recording what must not be in a file: secrets, and ids that servers choose anew each time. Pure.

Which names and texts are secrets is decided in `base/masking/`; the configuration names further values (`redact`). Here
that is applied to JSON: a value under the name of a secret is one, and is looked for everywhere else, too.

Requests that are looked up are masked in the same way, so a masked recording still matches. All secrets are masked by
one text; `resembles` matches those that the program no longer has in replay.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.masking.issued_keys import without_keys
from mcpbridge.base.masking.known_values import Redactor, known_only
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import NEVER, SURE, Secret, is_about, is_random, secret_of
from mcpbridge.base.masking.text import without_secrets
from mcpbridge.protocol.canonical_json import canonical, decode_exactly
from mcpbridge.protocol.jsonrpc import encode

_ROUNDS = 4
"""What is masked may let something else be seen, such as JSON in a text that was none before."""

MINTED = {"taskId": "task", "requestState": "state", "elicitationId": "elicitation"}
"""Members with a name that the server made up for this once, and what such a name is of."""
_LONG_NAME = 16
"""Characters; a shorter text may be equal to such a name by chance."""

_NEVER = "1970-01-01T00:00:00Z"
_TIMES = ("createdAt", "lastUpdatedAt")
"""When a task was made and last changed: another time in each recording."""


class Masker:
    """Masks what crosses one cassette. It learns the secrets that it meets under their names."""

    def __init__(self, redact: Callable[[str], str] = lambda text: text) -> None:
        self.redact = known_only(redact)
        """Masks what the configuration says is a secret."""
        self._discovered = Redactor()
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
            return self._raw(bytes(data), by_name)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return Raw(encode({"unreadable": True}))

    def _raw(self, data: bytes, by_name: bool) -> Raw:
        value = shown = decode_exactly(data)
        for _ in range(_ROUNDS):  # secrets that are met late stand earlier, too
            before, shown = shown, self._value(shown, by_name=by_name, under=None)
            if shown is before:
                break
        text = data.decode()
        # Equal to its one spelling, it is spelled so, or names a member twice, of which one was not looked at.
        is_changed = shown is not value or self._known(text, by_name=by_name) != text or canonical(data) == data
        return Raw(encode(shown)) if is_changed else Raw(data)

    def text(self, text: str) -> str:
        """A text without its secrets."""
        return self._string(text, by_name=True)

    def _value(self, value: Any, *, by_name: bool, under: Secret | None) -> Any:
        """The same object if nothing in it changes. `under`: what is a secret in it, by the names that it is under."""
        if isinstance(value, str):
            return self._under(value, under) if under is not None else self._string(value, by_name)
        if isinstance(value, dict):
            return self._members(cast("dict[str, Any]", value), by_name, under)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            befores = [None, *items][: len(items)]
            shown = [
                self._value(item, by_name=by_name, under=_option_secret(before, item) or under if by_name else under)
                for before, item in zip(befores, items, strict=True)
            ]
            return shown if any(new is not old for new, old in zip(shown, items, strict=True)) else items
        if value is None or isinstance(value, bool):
            return value
        number = bytes(value).decode() if isinstance(value, Raw) else str(value)
        if under is not None and under.has(number, is_number=True):
            self._learn(number, under)
            return MASK
        return MASK if self._known(number, by_name=by_name) != number else value

    def _members(self, members: dict[str, Any], by_name: bool, under: Secret | None) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, value in members.items():
            own = secret_of(_label(members) if name == "value" else name) if by_name else None
            inner = own or (under._replace(digits=NEVER) if under is not None and is_about(name) else under)
            said = self._known(without_keys(name, MASK), by_name=True) if by_name else self.redact(name)
            shown[said] = self._value(value, by_name=by_name, under=inner)
        minted = {name: old for name in MINTED if isinstance(old := members.get(name), str)}
        shown |= {name: self.aliases[old] for name, old in minted.items() if old in self.aliases}
        if "taskId" in minted:
            shown |= {name: _NEVER for name in _TIMES if members.get(name, _NEVER) != _NEVER}
        is_same = shown.keys() == members.keys() and all(shown[name] is members[name] for name in members)
        return members if is_same else shown

    def _under(self, text: str, under: Secret) -> str:
        if text == MASK:
            return text
        if not under.has(text):
            return self._string(text, by_name=True)
        self._learn(text, under)
        return MASK

    def _learn(self, secret: str, under: Secret) -> None:
        """Look for it elsewhere too, unless it may be an ordinary word or number."""
        if is_random(secret) and (under is SURE or not secret.isdecimal()):
            self._discovered.know([secret])

    def _string(self, text: str, by_name: bool) -> str:
        if len(text) >= _LONG_NAME and (alias := self.aliases.get(text)) is not None:
            return alias
        if not by_name:
            return self.redact(text)
        shown = text
        for _ in range(_ROUNDS):
            before = shown
            shown = self._embedded(shown) if shown[:1] in ("{", "[") else shown  # results say the same twice
            shown = without_secrets(shown, self._known_text)
            if shown == before:
                break
        return text if shown == text else shown

    def _embedded(self, text: str) -> str:
        try:
            value = decode_exactly(text)
            shown = self._value(value, by_name=True, under=None)
            return text if shown is value else encode(shown).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return text

    def _known_text(self, text: str) -> str:
        return self._known(text, by_name=True)

    def _known(self, text: str, *, by_name: bool) -> str:
        return self._discovered.known(self.redact(text)) if by_name else self.redact(text)


def _label(members: Mapping[str, Any]) -> str:
    """What `value` in an object is the value of, as in lists of headers and variables."""
    return next((str(members[name]) for name in ("name", "key") if isinstance(members.get(name), str)), "")


def _option_secret(before: object, item: object) -> Secret | None:
    """What is a secret after this item of a command line."""
    if not (isinstance(before, str) and isinstance(item, str)) or item[:1] == "-":
        return None
    return secret_of(before) if before.startswith("--") and len(before) < 80 and "=" not in before else None


def resembles(recorded: object, asked: object) -> bool:
    """Whether two JSON values are the same but for what was masked in the recorded one, which stands for any text."""
    if isinstance(recorded, str) and MASK in recorded:
        return recorded == MASK or (isinstance(asked, str) and _text_resembles(recorded, asked))
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        mine, other = cast("Mapping[str, object]", recorded), cast("Mapping[str, object]", asked)
        return mine.keys() == other.keys() and all(resembles(mine[name], other[name]) for name in mine)
    if isinstance(recorded, list) and isinstance(asked, list):
        here, there = cast("list[object]", recorded), cast("list[object]", asked)
        return len(here) == len(there) and all(map(resembles, here, there))
    return recorded == asked and isinstance(recorded, bool) == isinstance(asked, bool)


def _text_resembles(recorded: str, asked: str) -> bool:
    """At least one character for each mask. The first place that each part is found at is as good as any later one."""
    first, *parts = recorded.split(MASK)
    last, at = parts.pop(), len(first)
    if not (asked.startswith(first) and asked.endswith(last)):
        return False
    for part in parts:
        found = asked.find(part, at + 1)
        if found < 0:
            return False
        at = found + len(part)
    return len(asked) - len(last) > at
