"""Looks in a definition for what tries to steer a model: each finding names a rule, a place and the words.

Rules look at words alone: a finding is a reason to look, and silence is no proof.
"""

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from mcpbridge.base.hidden_text import hidden_in, without_hidden
from mcpbridge.catalog.definitions.scanner.finding import OTHER_SERVERS_TOOL, Finding, Scanned
from mcpbridge.catalog.definitions.scanner.rules import RULES
from mcpbridge.catalog.tool_names import DRAWN_ALIKE

OTHER_RULES: Mapping[str, str] = {
    "hidden-text": "Has characters that a person does not see.",
    "encoded-text": "Has orders in base64, hexadecimal or percent signs.",
    OTHER_SERVERS_TOOL: "Names a tool of another server.",
    "look-alike-name": "Its name has letters that are drawn like others.",
    "asking-parameter": "Has a parameter that asks for the model's context or for secrets.",
}
"""The rules that are no single pattern: what each finds."""

LONGEST = 64 * 1024
"""Characters of one text that are looked at."""
_EXCERPT = 120


MAX_SCANNED = 20_000
"""Definitions that are remembered, so that they are not read again while they stay the same."""

_scanned: dict[bytes, Scanned] = {}


def scan(definition: bytes | Mapping[str, Any], others: Collection[str] = ()) -> tuple[Finding, ...]:
    """What is suspicious in a definition, or in instructions as `{"instructions": "…"}`. Never raises.

    `others`: names of the tools of other servers. Bytes that were read before are not read again.
    """
    if isinstance(definition, Mapping):
        return read(definition).beside(others)
    key = blake2b(definition, digest_size=16).digest()
    scanned = _scanned.get(key)
    if scanned is None:
        while len(_scanned) >= MAX_SCANNED:
            del _scanned[next(iter(_scanned))]
        scanned = _scanned[key] = read(definition)
    return scanned.beside(others)


def read(definition: bytes | Mapping[str, Any]) -> Scanned:
    """What is suspicious in a definition, whatever other servers offer. Never raises."""
    if isinstance(definition, Mapping):
        value: object = definition
    else:
        try:
            value = msgspec.json.decode(definition)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return Scanned()
    found: dict[tuple[str, str], Finding] = {}
    mentions: dict[tuple[str, str], None] = {}
    for where, text, is_key in _texts(value, ""):
        for rule, excerpt in _of_text(where, text, is_key=is_key):
            found.setdefault((rule, where), Finding(rule, where, _shortened(excerpt)))
        if not is_key and where != "name":
            mentions |= dict.fromkeys((where, word) for word in _mentions(where, text))
    return Scanned(tuple(found.values()), tuple(mentions))


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


_LINE_ENDS = re.compile("[\x0b\x0c\x85\u2028\u2029]")
"""What ends a line here and not there, so that people see another text than a model."""
_KEYWORD = re.compile(r"[\w.$/-]{0,64}")
_ASKING = re.compile(
    r"(?:system_?prompt|conversation(?:_?(?:history|log|context))?|chat_?(?:history|log)|full_?context|side_?notes?"
    r"|(?:user_?)?(?:credentials|secrets?)_?(?:dump|file|content)s?|ssh_?(?:private_?)?keys?(?:_?contents?)?"
    r"|env_?(?:file_?)?(?:dump|contents?)"
    r"|(?:model|assistant|llm|agent)_?(?:reasoning|thoughts|context|memory|instructions)|chain_?of_?thought"
    r"|previous_?messages|tool_?results|id_?rsa|seed_?phrase|mnemonic)",
    re.IGNORECASE,
)


_ASKING_WITHIN = re.compile(
    r"(?:^|_)(?:id_rsa|conversation_history|bash_history|env_file_contents?|dotenv_contents?"
    r"|system_prompt_of)(?:_|$)",
    re.IGNORECASE,
)


def _is_asking(name: str) -> bool:
    return _ASKING.fullmatch(name) is not None or _ASKING_WITHIN.search(name) is not None


def _of_text(where: str, text: str, *, is_key: bool) -> Iterator[tuple[str, str]]:
    for hidden in hidden_in(text):
        around = text[max(0, hidden.start - 20) : hidden.start] + text[hidden.end : hidden.end + 20]
        yield "hidden-text", f"{hidden.kind}: {hidden.message or around}"
        if hidden.message:
            for rule, _ in _by_rules(hidden.message):
                yield rule, hidden.message
    if (end := _LINE_ENDS.search(text)) is not None:
        yield "hidden-text", f"end of a line: U+{ord(end[0]):04X}"
    is_name = is_key or where == "name"
    if is_name and _mixes_scripts(text):
        yield "look-alike-name", text
    elif where == "title" and (word := next((one for one in text.split() if _mixes_scripts(one)), "")):
        yield "look-alike-name", word
    if is_key and where.startswith("inputSchema") and _is_asking(re.sub(r"[-. ]", "_", text)):
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


def _mentions(where: str, text: str) -> list[str]:
    """Words that could be names of tools, in a text that steers."""
    if len(text) < _SHORTEST or where.endswith((".default", ".enum", ".examples")):
        return []
    words = [word for word in _TOOL_NAME.findall(text) if len(word) <= _LONGEST_TOOL_NAME]
    return words[:_MOST_MENTIONS] if words and _STEERS.search(text.lower()) else []


_LONGEST_TOOL_NAME, _MOST_MENTIONS = 128, 200


_SHORTEST, _SHORTEST_ENCODED = 8, 24
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-]+[A-Za-z0-9]+)+")
_STEERS = re.compile(
    r"\b(?:must|always|never|instead|before|after (?:each|every|any)|whenever|when|do not|don't|only|overrid"
    r"|replac|prefer|should"
    r"|deprecated|insecure|broken|first|pass (?:all|the|it|what)|(?:output|result|content)s? of|use|call"
    r"|otherwise|belongs?)\b"
)
_ENCODED = re.compile(
    r"(?:[01]{8}[ ,]?){8,}|[A-Za-z0-9+/_-]{24,}={0,2}|(?:[0-9a-fA-F]{2}[ :]?){16,}|(?:\\x[0-9a-fA-F]{2}){8,}"
    r"|(?:%[0-9a-fA-F]{2}[^"
    r"%\s]?){8,}|(?:\\u[0-9a-fA-F]{4}){8,}|(?:&#x?[0-9a-fA-F]{2,6};){8,}"
)
_ROT13 = re.compile(r"rot[- ]?13", re.IGNORECASE)
_READABLE = 0.9


def _decoded(text: str) -> Iterator[str]:
    if _ROT13.search(text):
        yield codecs.decode(text, "rot13")
    for match in _ENCODED.finditer(text):
        token = match[0]
        for raw in _bytes_of(token):
            try:
                plain = raw.decode()
            except UnicodeDecodeError:
                continue
            if len(plain) >= _SHORTEST and sum(map(str.isprintable, plain)) >= _READABLE * len(plain):
                yield plain


_BITS = re.compile("(?:[01]{8}[ ,]?)+")


def _bytes_of(token: str) -> Iterator[bytes]:
    if token.startswith("%"):
        yield unquote(token).encode(errors="replace")
    elif token.startswith("&#"):
        import html

        yield html.unescape(token).encode(errors="replace")
    elif _BITS.fullmatch(token):
        yield bytes(int(one, 2) for one in re.findall("[01]{8}", token))
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


_ACCENTS = re.compile("(?<=[A-Za-z])[\u0300-\u036f]+")


def _folded(text: str) -> str:
    text = without_hidden(text)
    if not text.isascii():
        # Accents of Latin letters alone: marks of other scripts make other letters, as in "й" and "が".
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
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
            for match in one.pattern.finditer(text):
                if not (
                    match[0].startswith("with") and _FORBIDS.search(text, max(0, match.start() - 80), match.start())
                ):
                    yield rule, match[0]
                    break


_FORBIDS = re.compile(r"\b(?:never|do not|don't|must not|should not|cannot)\b[^.\n]*$")
"""Before "without asking the user": then it says the opposite."""


def _mixes_scripts(name: str) -> bool:
    if name.isascii():
        return False
    letters = [one for one in without_hidden(name) if one.isalpha() or unicodedata.category(one) in ("Nl", "No")]
    is_latin = any(one.isascii() for one in letters)
    drawn = [one for one in letters if ord(one) in DRAWN_ALIKE or unicodedata.normalize("NFKC", one) != one]
    return bool(drawn) and (is_latin or len(drawn) == len(letters))
