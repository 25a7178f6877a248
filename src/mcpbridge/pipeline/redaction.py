"""Puts placeholders in the place of secrets and personal data of JSON values. Pure, so that it may run in a thread.

A long text is looked at in slices, so that no search holds the interpreter for long. Slices overlap, and what is found
in two of them is one: a secret across their border is found as a whole.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import msgspec
from msgspec import Raw

from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.rule_out import holds_no_secret
from mcpbridge.protocol.canonical_json import decode_exactly
from mcpbridge.protocol.jsonrpc import encode

SLICE = 32 * 1024
"""Characters of a text that are searched at once."""
SMALL = 4 * 1024
"""Bytes up to which the usual case, that a text holds nothing, is recognised before anything is searched for."""
_SECRETS = ("secrets",)
OVERLAP = 4 * 1024
"""Characters that two slices share: more than any secret has but private keys, which are found before."""

Placeholder = Callable[[str, str], str]
"""The placeholder for a kind (`secret`, `pii`) and a value."""
Known = Callable[[str], str]
"""Masks the secrets that the configuration brought in."""


def nothing_known(text: str) -> str:
    """No secret is known."""
    return text


def redacted_json(
    raw: bytes,
    kinds: tuple[str, ...],
    placeholder: Placeholder,
    known: Known = nothing_known,
    keep: re.Pattern[str] | None = None,
) -> bytes:
    """The JSON value with redacted texts and names, also where only the name says that a value is a secret.

    `keep`: the placeholders that it may have already. They stay, and nothing is escaped.
    """
    if kinds == _SECRETS and len(raw) <= SMALL and holds_no_secret(raw, known):
        return raw

    def redact(text: str) -> str:
        if keep is None:
            return redacted(text, kinds, placeholder, known)
        return _redacted_between(text, keep, kinds, placeholder, known)

    def mask(text: str) -> str:
        return text if keep is not None and keep.fullmatch(text.strip()) else placeholder("secret", text)

    try:
        value: object = decode_exactly(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return encode(redact(raw.decode(errors="replace")))
    _set_media_aside(value)
    if "secrets" in kinds:
        from mcpbridge.base.masking.values import without_secrets_in

        changed = without_secrets_in(value, redact, mask=mask)
    else:
        changed = each_text(value, redact)
    if "pii" in kinds:
        changed = _without_named_numbers(changed, lambda text: placeholder("pii", text))
    return raw if changed is value else encode(changed)


def each_text(value: object, change: Callable[[str], str]) -> object:
    """The value with changed texts and names; the very same object if nothing in it changes."""
    if isinstance(value, str):
        new = change(value)
        return value if new == value else new
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        changed = {change(name): each_text(inner, change) for name, inner in members.items()}
        is_same = changed.keys() == members.keys() and all(changed[name] is members[name] for name in members)
        return members if is_same else changed
    if isinstance(value, list):
        items = cast("list[object]", value)
        new_items = [each_text(inner, change) for inner in items]
        return items if all(new is old for new, old in zip(new_items, items, strict=True)) else new_items
    return value


def redacted(text: str, kinds: tuple[str, ...], placeholder: Placeholder, known: Known = nothing_known) -> str:
    """The text with placeholders for values of these kinds. What only looks like a placeholder is escaped."""
    if len(text) < _SHORTEST:
        return text
    return _replaced(_LOOKS_ALIKE.sub("‹\\\\", text) if "‹" in text else text, kinds, placeholder, known)


def _redacted_between(
    text: str, keep: re.Pattern[str], kinds: tuple[str, ...], placeholder: Placeholder, known: Known
) -> str:
    parts: list[str] = []
    at = 0
    for match in keep.finditer(text):
        parts += [_replaced(text[at : match.start()], kinds, placeholder, known), match[0]]
        at = match.end()
    return "".join([*parts, _replaced(text[at:], kinds, placeholder, known)])


def _replaced(text: str, kinds: tuple[str, ...], placeholder: Placeholder, known: Known) -> str:
    if len(text) < _SHORTEST:
        return text
    spans: list[tuple[int, int, str]] = []
    if "secrets" in kinds:
        found = secret_spans(text, known)
        if "\x1b" in text:
            from mcpbridge.base.masking.text import without_colours

            plain = without_colours(text)  # colours may stand between a name and its value
            if in_plain := secret_spans(plain, known):
                text, found = plain, in_plain
        spans += [(start, end, "secret") for start, end in found]
    if "pii" in kinds:
        spans += [(start, end, "pii") for start, end in personal_spans(text)]
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for start, end, kind in _apart(spans):
        parts += [text[at:start], placeholder(kind, text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


_SHORTEST = 6
_LOOKS_ALIKE = re.compile(r"‹(?=(?:secret|pii):)")


def _apart(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """In order; those that overlap are one, and of the first kind."""
    united: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans):
        if united and start < united[-1][1]:
            first, last, its_kind = united[-1]
            united[-1] = (first, max(last, end), "secret" if "secret" in (kind, its_kind) else kind)
        else:
            united.append((start, end, kind))
    return united


# -- slices


def slices(text: str) -> Iterator[tuple[int, int]]:
    """Where each slice begins and ends: at blanks if there are any, so that no word is cut."""
    at = 0
    while (end := _cut(text, at + SLICE)) < len(text):
        yield at, end
        blank = _LAST_BLANK.search(text, max(at + 1, end - 2 * OVERLAP), end - OVERLAP)
        at = blank.end() if blank is not None else end - OVERLAP
    yield at, len(text)


def _cut(text: str, wanted: int) -> int:
    if wanted >= len(text):
        return len(text)
    for blank in ("\n", " "):
        if (at := text.rfind(blank, wanted - OVERLAP, wanted)) >= 0:
            return at + 1
    following = _BREAK.search(text, wanted)
    return following.end() if following is not None else len(text)


_LAST_BLANK = re.compile(r"\s(?=\S*\Z)")
_BREAK = re.compile(r"[\s\",;<>{}]")


# -- secrets


def secret_spans(text: str, known: Known = nothing_known) -> list[tuple[int, int]]:
    """Where secrets are: those that are known, and what looks like one."""
    text = text.replace(MASK, _STAND_IN)  # of the same length, and no secret either
    spans = _private_keys(text)
    for start, end in slices(text) if len(text) > SLICE else ((0, len(text)),):
        spans += [(start + first, start + last) for first, last in _spans_of_slice(text[start:end], known)]
    return [(start, end) for start, end, _ in _apart([(*span, "secret") for span in spans])]


_STAND_IN = "<redacted>"
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}(?:-----)?")


def _private_keys(text: str) -> list[tuple[int, int]]:
    """They may be longer than what slices share."""
    spans: list[tuple[int, int]] = []
    at = 0
    while (begins := _KEY_BEGINS.search(text, at)) is not None:
        ends = _KEY_ENDS.search(text, begins.end())
        at = ends.end() if ends is not None else len(text)
        spans.append((begins.start(), at))
    return spans


def _spans_of_slice(text: str, known: Known) -> list[tuple[int, int]]:
    from mcpbridge.base.masking.known_values import without_secrets

    masked = without_secrets(text, known)
    if masked == text:
        return []
    first, *others = masked.split(MASK)
    spans: list[tuple[int, int]] = []
    at = len(first)
    for number, part in enumerate(others):
        end = len(text) - len(part) if number == len(others) - 1 else text.find(part, at + 1)
        if end < at:
            return [(0, len(text))]
        spans.append((at, end))
        at = end + len(part)
    return spans


# -- personal data


def personal_spans(text: str) -> list[tuple[int, int]]:
    """Where mail addresses, and numbers of phones, accounts, cards and citizens are."""
    from mcpbridge.pipeline.personal_data import personal_spans_of

    spans: list[tuple[int, int]] = []
    for start, end in slices(text) if len(text) > SLICE else ((0, len(text)),):
        spans += personal_spans_of(text, start, end)
    return spans


def _without_named_numbers(value: object, placeholder: Callable[[str], str], *, is_named: bool = False) -> object:
    """The value without numbers that are personal by the name of their member; the same object if nothing changes.

    `is_named`: it is under such a name.
    """
    if isinstance(value, dict):
        from mcpbridge.pipeline.personal_data import names_a_person

        members = cast("dict[str, object]", value)
        new: dict[str, object] = {}
        for name, inner in members.items():
            is_personal = names_a_person(name) or (is_named and name in _OF)
            new[name] = _without_named_numbers(inner, placeholder, is_named=is_personal)
        return members if all(new[name] is members[name] for name in members) else new
    if isinstance(value, list):
        items = cast("list[object]", value)
        new_items = [_without_named_numbers(inner, placeholder, is_named=is_named) for inner in items]
        return items if all(one is old for one, old in zip(new_items, items, strict=True)) else new_items
    if not is_named or isinstance(value, bool) or not isinstance(value, str | int | Raw):
        return value
    text = bytes(value).decode() if isinstance(value, Raw) else str(value)
    is_number = _NUMBER.fullmatch(text) and (isinstance(value, str) or text.isdecimal())
    return placeholder(text) if is_number else value


_OF = frozenset({"value", "number", "e164", "national", "formatted", "raw"})
"""Members of an object under such a name that have the number itself."""
_NUMBER = re.compile(r"\+?\(?\d(?:[ ./()-]{0,2}\d){5,18}")


# -- media


def _set_media_aside(value: object) -> None:
    """What is no text: the data of images, sounds and files. It is written as it came."""
    if isinstance(value, list):
        for inner in cast("list[object]", value):
            _set_media_aside(inner)
    elif isinstance(value, dict):
        members = cast("dict[str, object]", value)
        if isinstance(members.get("mimeType"), str):
            name = "data" if members.get("type") in ("image", "audio") else "blob" if "uri" in members else ""
            data = members.get(name)
            if isinstance(data, str) and _BASE64.fullmatch(data):
                members[name] = Raw(encode(data))
        for inner in members.values():
            _set_media_aside(inner)


_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]*+={0,2}\s*")
