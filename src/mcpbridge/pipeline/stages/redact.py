"""Keeps secrets and personal data of results from models, and gives servers the values back that models pass on.

A value becomes a placeholder such as `‹secret:9f86d081884c7d65›`. Its name is random, belongs to one session, and is
turned back only in arguments for the server that the value came from. The innermost stage, so that all that is kept,
cached, logged or shortened has placeholders.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from mcpbridge.base.masking.mask import MASK
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode

MOST = 10_000
"""Placeholders of one session; the oldest are forgotten, so that they can no longer be turned back."""

_PLACEHOLDER = re.compile(r"‹(?:secret|pii):[0-9a-f]{16}›")
_LOOKS_ALIKE = re.compile(r"‹(?=(?:secret|pii):)")
_PERSONAL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])"
    r"|(?<![\w+])\+\d{1,3}(?:[ .()/-]{0,2}\d){6,13}(?!\w)"
    r"|(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"
    r"|(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"
    r"|(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"
)


class Redact:
    """Makes the stages, and has the placeholders of all sessions."""

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[Session, Placeholders] = WeakKeyDictionary()

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools with `redact`: all others pay nothing."""
        return None if tool is None or not options.redact else _Redact(tool.server, options.redact, self._sessions)


class Placeholders:
    """Those of one session."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, str]] = {}
        self._names: dict[tuple[str, str], str] = {}

    def placeholder(self, kind: str, server: str, value: str) -> str:
        """The placeholder of a value that came from this server: the same each time."""
        name = self._names.get((server, value))
        if name is None:
            name = f"‹{kind}:{secrets.token_hex(8)}›"
            self._names[server, value], self._values[name] = name, (server, value)
            if len(self._values) > MOST:
                oldest = next(iter(self._values))
                del self._names[self._values.pop(oldest)]
        return name

    def restored(self, server: str, text: str) -> str:
        """The text with the values of this server's placeholders; others stay."""

        def value(match: re.Match[str]) -> str:
            owner, found = self._values.get(match[0], ("", match[0]))
            return found if owner == server else match[0]

        return _PLACEHOLDER.sub(value, text)


class _Redact:
    """The stage of one tool."""

    def __init__(
        self, server: str, kinds: tuple[str, ...], sessions: "WeakKeyDictionary[Session, Placeholders]"
    ) -> None:
        self._server, self._kinds, self._sessions = server, kinds, sessions

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        placeholders = self._sessions.setdefault(call.caller.session, Placeholders())
        arguments, update = call.params.fields.get("arguments"), call.update

        def placeholder(kind: str, value: str) -> str:
            return placeholders.placeholder(kind, self._server, value)

        def redacted_update(method: str, params: Raw) -> None:
            update(method, Raw(redacted_json(bytes(params), self._kinds, placeholder)))

        call.update = redacted_update
        if arguments is not None and "‹".encode() in (sent := _unescaped(bytes(arguments))):
            restored = _each_text(msgspec.json.decode(sent), lambda text: placeholders.restored(self._server, text))
            call.params.put("arguments", Raw(encode(restored)))
        try:
            result = await proceed(call)
        finally:
            call.update = update
            if arguments is not None:
                call.params.put("arguments", arguments)  # what is recorded, and tried again, has placeholders
        return Body(redacted_json(bytes(result.data), self._kinds, placeholder))


def _unescaped(raw: bytes) -> bytes:
    return json.dumps(json.loads(raw), ensure_ascii=False).encode() if b"\\u" in raw else raw


def redacted(text: str, kinds: tuple[str, ...], placeholder: Callable[[str, str], str]) -> str:
    """The text with placeholders for values of these kinds. What only looks like a placeholder is escaped."""
    text = _LOOKS_ALIKE.sub("‹\\\\", text)
    if "secrets" in kinds:
        text = _with_placeholders(text, lambda value: placeholder("secret", value))
    if "pii" in kinds:
        text = _PERSONAL.sub(lambda one: placeholder("pii", one[0]) if _is_personal(one[0]) else one[0], text)
    return text


def _with_placeholders(text: str, placeholder: Callable[[str], str]) -> str:
    from mcpbridge.base.masking.known_values import without_secrets

    if MASK in text:
        return without_secrets(text)  # it cannot be known any more which of them was there before
    masked = without_secrets(text)
    if masked == text:
        return text
    first, *others = masked.split(MASK)
    parts, at = [first], len(first)
    for number, part in enumerate(others):
        is_last = number == len(others) - 1
        end = len(text) - len(part) if is_last else text.find(part, at + 1)
        if end < at:
            return masked
        parts += [placeholder(text[at:end]), part]
        at = end + len(part)
    return "".join(parts)


def _is_personal(text: str) -> bool:
    if "@" in text or text.startswith("+") or re.fullmatch(r"\d{3}-\d{2}-\d{4}", text):
        return True
    plain = re.sub(r"[ -]", "", text)
    if plain.isdecimal():
        doubled = [int(one) * (1 + place % 2) for place, one in enumerate(reversed(plain))]
        return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0  # Luhn
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1  # ISO 13616


def redacted_json(raw: bytes, kinds: tuple[str, ...], placeholder: Callable[[str, str], str]) -> bytes:
    """The JSON value with redacted texts, also where only the name says that a value is a secret."""
    from mcpbridge.base.masking.values import without_secrets_in

    def redact(text: str) -> str:
        return redacted(text, kinds, placeholder)

    try:
        value: object = _exact(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return encode(redact(raw.decode(errors="replace")))
    changed = _each_text(value, redact)
    if "secrets" in kinds:
        named = without_secrets_in(value, lambda text: text)
        changed = _merged(value, changed, named, lambda text: placeholder("secret", text))
    return raw if changed == value else encode(changed)


def _merged(value: object, changed: object, named: object, placeholder: Callable[[str], str]) -> object:
    """What texts have lost, and what is lost for its name: `named` has `MASK` there."""
    if isinstance(value, str):
        return placeholder(value) if named == MASK and value != MASK else changed
    if isinstance(value, Mapping) and isinstance(changed, Mapping) and isinstance(named, Mapping):
        values, ours = cast("Mapping[str, object]", value), cast("Mapping[str, object]", changed)
        theirs = cast("Mapping[str, object]", named)
        return {name: _merged(one, ours[name], theirs[name], placeholder) for name, one in values.items()}
    if isinstance(value, list) and isinstance(changed, list) and isinstance(named, list):
        lists = cast("list[object]", value), cast("list[object]", changed), cast("list[object]", named)
        return [_merged(*one, placeholder) for one in zip(*lists, strict=True)]
    return MASK if named == MASK else cast("object", changed)


def _each_text(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return {
            name: inner
            if name == "data" and isinstance(inner, str) and len(inner) > _MEDIA
            else _each_text(inner, change)
            for name, inner in members
        }
    if isinstance(value, list):
        return [_each_text(inner, change) for inner in cast("list[object]", value)]
    return value


_MEDIA = 4096
_exact = cast("Callable[[bytes], Any]", msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode)
