"""Looks in a definition for what tries to steer a model: each finding names a rule, a place and the words.

Rules look at words alone: a finding is a reason to look, and silence is no proof.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from mcpbridge.base.hidden_text import hidden_in, without_hidden
from mcpbridge.catalog.definitions.scanner.rules import RULES
from mcpbridge.catalog.tool_names import DRAWN_ALIKE

OTHER_RULES: Mapping[str, str] = {
    "hidden-text": "Has characters that a person does not see.",
    "encoded-text": "Has orders in base64, hexadecimal or percent signs.",
    "other-servers-tool": "Names a tool of another server.",
    "look-alike-name": "Its name has letters that are drawn like others.",
    "asking-parameter": "Has a parameter that asks for the model's context or for secrets.",
}
"""The rules that are no single pattern: what each finds."""

LONGEST = 64 * 1024
"""Characters of one text that are looked at."""
_EXCERPT = 120


class Finding(Struct, frozen=True):
    """Something suspicious."""

    rule: str
    where: str
    """The member, such as `description` or `inputSchema.properties.path.description`."""
    text: str
    """The words, shortened, with hidden characters shown."""


def scan(definition: bytes | Mapping[str, Any], others: Collection[str] = ()) -> tuple[Finding, ...]:
    """What is suspicious in a definition, or in instructions as `{"instructions": "…"}`. Never raises.

    `others`: names of the tools of other servers.
    """
    if isinstance(definition, Mapping):
        value: object = definition
    else:
        try:
            value = msgspec.json.decode(definition)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ()
    found: dict[tuple[str, str], Finding] = {}
    for where, text, is_key in _texts(value, ""):
        for rule, excerpt in _of_text(where, text, others, is_key=is_key):
            found.setdefault((rule, where), Finding(rule, where, _shortened(excerpt)))
    return tuple(found.values())


def _shortened(text: str) -> str:
    shown = " ".join(text.split())
    return without_hidden(shown if len(shown) <= _EXCERPT else f"{shown[: _EXCERPT - 1]}…")


_DEEPEST = 64
_NOT_READ = frozenset({"_meta", "icons"})


def _texts(value: object, where: str, depth: int = 0) -> Iterator[tuple[str, str, bool]]:
    if isinstance(value, str):
        yield where, value[:LONGEST], False
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, object]", value).items():
            if depth or name not in _NOT_READ:
                place = f"{where}.{name}" if where else str(name)
                if where.endswith("properties"):
                    yield place, str(name), True
                yield from _texts(inner, place, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            yield from _texts(inner, where, depth + 1)


_KEYWORD = re.compile(r"[\w.$/-]{0,64}")
_ASKING = re.compile(
    r"(?:system_?prompt|conversation(?:_?(?:history|log|context))?|chat_?(?:history|log)|full_?context|side_?notes?"
    r"|(?:user_?)?(?:credentials|secrets?)_?(?:dump|file|content)s?|ssh_?(?:private_?)?keys?(?:_?contents?)?"
    r"|env_?(?:file_?)?(?:dump|contents?)"
    r"|(?:model|assistant|llm|agent)_?(?:reasoning|thoughts|context|memory|instructions)|chain_?of_?thought"
    r"|previous_?messages|tool_?results|id_?rsa|seed_?phrase|mnemonic)",
    re.IGNORECASE,
)


def _of_text(where: str, text: str, others: Collection[str], *, is_key: bool) -> Iterator[tuple[str, str]]:
    for hidden in hidden_in(text):
        around = text[max(0, hidden.start - 20) : hidden.start] + text[hidden.end : hidden.end + 20]
        yield "hidden-text", f"{hidden.kind}: {hidden.message or around}"
        if hidden.message:
            for rule, _ in _by_rules(hidden.message):
                yield rule, hidden.message
    is_name = is_key or where == "name"
    if is_name and _mixes_scripts(text):
        yield "look-alike-name", text
    if is_key and where.startswith("inputSchema") and _ASKING.fullmatch(re.sub(r"[-. ]", "_", text)):
        yield "asking-parameter", text
    if len(text) < _SHORTEST or (_KEYWORD.fullmatch(text) and len(text) < _SHORTEST_ENCODED):
        if is_name:
            yield from _by_rules(re.sub(r"[_.-]+", " ", text))
        return
    yield from _by_rules(re.sub(r"[_.-]+", " ", text) if is_name else text)
    for decoded in _decoded(text):
        for rule, words in _by_rules(decoded):
            yield "encoded-text", words
            yield rule, words
    if others and not is_key and where in ("description", "title", "instructions"):
        for word in _TOOL_NAME.findall(text):
            if word in others and _STEERS.search(text.lower()):
                yield "other-servers-tool", word


_SHORTEST, _SHORTEST_ENCODED = 8, 24
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-]+[A-Za-z0-9]+)+")
_STEERS = re.compile(
    r"\b(?:must|always|never|instead of|before|whenever|do not|don't|only|overrid|replac|prefer|should)"
)
_ENCODED = re.compile(
    r"[A-Za-z0-9+/_-]{24,}={0,2}|(?:[0-9a-fA-F]{2}[ :]?){16,}|(?:\\x[0-9a-fA-F]{2}){8,}|(?:%[0-9a-fA-F]{2}[^"
    r"%\s]?){8,}|(?:\\u[0-9a-fA-F]{4}){8,}|(?:&#x?[0-9a-fA-F]{2,6};){8,}"
)
_READABLE = 0.9


def _decoded(text: str) -> Iterator[str]:
    for match in _ENCODED.finditer(text):
        token = match[0]
        for raw in _bytes_of(token):
            try:
                plain = raw.decode()
            except UnicodeDecodeError:
                continue
            if len(plain) >= _SHORTEST and sum(map(str.isprintable, plain)) >= _READABLE * len(plain):
                yield plain


def _bytes_of(token: str) -> Iterator[bytes]:
    if token.startswith("%"):
        yield unquote(token).encode(errors="replace")
    elif token.startswith("&#"):
        import html

        yield html.unescape(token).encode(errors="replace")
    elif token.startswith("\\u"):
        yield "".join(chr(int(one, 16)) for one in token.split("\\u")[1:]).encode(errors="replace")
    else:
        plain = re.sub(r"[ :]|\\x", "", token)
        if re.fullmatch(r"(?:[0-9a-fA-F]{2})+", plain):
            yield bytes.fromhex(plain)
        bare = token.rstrip("=").replace("-", "+").replace("_", "/")
        try:
            yield base64.b64decode(bare + "=" * (-len(bare) % 4))
        except (binascii.Error, ValueError):
            return


def _folded(text: str) -> str:
    text = without_hidden(text)
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in folded if not unicodedata.combining(one))
        text = unicodedata.normalize("NFC", text)
    return re.sub(r"[^\S\n]+", " ", text.lower().replace("\u2019", "'").replace("\u2018", "'"))


def _by_rules(text: str) -> Iterator[tuple[str, str]]:
    folded = _folded(text)
    yield from _matches(folded)
    alike = folded.translate(DRAWN_ALIKE) if not folded.isascii() and _has_latin(folded) else folded
    joined = re.sub(r"\n+", " ", alike)
    if joined != folded:
        yield from _matches(joined)
    spaced = _SPACED.sub(lambda one: one[0].replace(" ", "").replace(".", "").replace("-", ""), joined)
    if spaced != joined:
        yield from _matches(spaced)
    if any(one in joined for one in "013457@$"):
        plain = re.sub(r"(?<=[a-z])[013457@$](?=[a-z])|(?<=[a-z])[013457@$]\b|\b[013457@$](?=[a-z])", _leet, joined)
        if plain != joined:
            yield from ((rule, words) for rule, words in _matches(plain) if rule in _WITHOUT_SIGNS)


_WITHOUT_SIGNS = ("ignore-instructions", "hide-from-user")
_SPACED = re.compile(r"\b(?:[a-z][ .-]){4,}[a-z]\b")
_LEET = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s"}


def _leet(match: re.Match[str]) -> str:
    return _LEET[match[0]]


def _has_latin(text: str) -> bool:
    return re.search(r"[a-z]", text) is not None


def _matches(text: str) -> Iterator[tuple[str, str]]:
    for rule, one in RULES.items():
        if not one.hints or any(hint in text for hint in one.hints):
            match = one.pattern.search(text)
            if match is not None:
                yield rule, match[0]


def _mixes_scripts(name: str) -> bool:
    if name.isascii():
        return False
    letters = [one for one in without_hidden(name) if one.isalpha()]
    is_latin = any(one.isascii() for one in letters)
    drawn = [one for one in letters if ord(one) in DRAWN_ALIKE or unicodedata.normalize("NFKC", one) != one]
    return bool(drawn) and (is_latin or len(drawn) == len(letters))
