"""Secrets in places that are no assignment: words of other languages, phrases of wallets, lines of files. Pure.

Each search is left out where a word that it cannot do without is not there. `text.py` decides what else is one.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import is_place, looks_random, secret_of
from mcpbridge.base.masking.no_values import end_of_value, says_nothing

_PASSWORDS = (
    *("passwort", "kennwort", "mot de passe", "contraseña", "senha", "parola d'ordine", "wachtwoord", "hasło", "heslo"),
    *("lösenord", "adgangskode", "salasana", "пароль", "密码", "密碼", "パスワード", "비밀번호", "pass", "passwd"),
)
"""`password` in other languages, and in short."""
_AFTER_WORD = late(
    r"(?:[ \t]{0,3}(?:[:=：]|は|为|為|lautet|ist|est|es|é|is|to|är|er|on|jest|je|то)){0,2}[ \t]{0,3}[\"'`«„]?"
    r"[ \u00a0\u202f]?([^\s\"'`«»„“,;(){}\[\]<>|]{6,128}+)",
    re.IGNORECASE,
)
_REST = late(r"[^\s\"'`«»„“,;(){}\[\]<>|]*+")
"""What of a longer one is left; see `sentences.py`."""
_IN_WORD = late(r"[^\W_]")
_ALL_KINDS = late(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=\D*\d)\S{8,}")

_PHRASE = late(
    r"(?<!\w)((?:mnemonic|(?:seed|recovery|backup|wallet)[ _-]?(?:phrase|words))"
    r"[\"']?[ \t]{0,3}(?:[:=]|is)[ \t]{0,3}[\"']?)"
    r"([a-z]{3,8}(?:[ ,]{1,2}[a-z]{3,8}){11,23}(?![a-z]))",
    re.IGNORECASE,
)
"""Twelve to twenty-four words open a wallet (BIP 39)."""
_WALLETS = ("seed", "recovery", "backup", "wallet")
WORDS_BEFORE_SECRETS = (*_PASSWORDS, "mnemonic", "phrase", "words", "pass", "auth", "secret", "token", "key")
"""All that is found here has one of these before it, in small letters, but for what is long and has no blank."""
_PASSWORD_FILE = late(
    r"^((?:[\w.*-]{1,253}+:)(?:\d{2,5}|\*):[\w*.-]{1,64}+:[\w*.-]{1,64}+:)([^\s:]{6,8192}+)$", re.MULTILINE
)
"""A line of `.pgpass`."""
_LINE = late(r"^([ \t]{0,8}([A-Za-z][\w-]{3,40}+)[ \t]{1,8})([^\s:=(){}\"',;<>]{8,256}+)[ \t]*$", re.MULTILINE)
"""A name and a value, as configuration files of many servers have them."""
_ENCODED = late(r"(?<![\w/+.-])eyJ[A-Za-z0-9+/_-]{24,8000}+={0,2}(?![\w/+.-])")


def without_secrets_by_context(text: str, lower: str) -> str:
    """The same text without them. `lower`: the text in small letters."""
    has = lower.__contains__
    if words := [word for word in _PASSWORDS if has(word)]:
        text = _without_passwords(text, lower, words)
    if "mnemonic" in lower or (("phrase" in lower or "words" in lower) and any(map(has, _WALLETS))):
        text = _PHRASE.sub(rf"\1{MASK}", text)
    if text.count(":") > 3:
        text = _PASSWORD_FILE.sub(_of_password_file, text)
    if any(map(has, ("pass", "auth", "secret", "token", "key"))):
        text = _LINE.sub(_of_line, text)
    if "eyJ" in text:
        text = _ENCODED.sub(_of_encoded, text)
    return text


def _without_passwords(text: str, lower: str, words: Sequence[str]) -> str:
    """Without what follows these words; a text is searched for the words alone, which is fast."""
    if len(lower) != len(text):
        return text
    spans: list[tuple[int, int]] = []
    for word in words:
        at = lower.find(word)
        while at >= 0:
            end = at + len(word)
            if not _IN_WORD.match(lower, end) and not _IN_WORD.match(lower, max(0, at - 1), at):
                spans += _password_at(text, end, is_short=word.startswith("pass") and len(word) < len("password"))
            at = lower.find(word, end)
    parts: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            parts += [text[done:start], MASK]
            done = end
    return "".join([*parts, text[done:]])


def _password_at(text: str, at: int, *, is_short: bool) -> Iterator[tuple[int, int]]:
    match = _AFTER_WORD.match(text, at)
    if match is None:
        return
    value = match[1].rstrip(".:!?")
    is_one = (_ALL_KINDS.fullmatch(value) if is_short else looks_random(value)) and not is_place(value)
    if is_one and not says_nothing(value):
        yield match.start(1), end_of_value(text, match.start(1), match.end(), _REST)


def _of_password_file(match: re.Match[str]) -> str:
    is_one = (looks_random(match[2]) or _ALL_KINDS.fullmatch(match[2])) and not is_place(match[2])
    return f"{match[1]}{MASK}" if is_one else match[0]


def _of_line(match: re.Match[str]) -> str:
    secret, value = secret_of(match[2]), match[3]
    is_one = secret is not None and secret.has(value) and looks_random(value) and not is_place(value)
    return f"{match[1]}{MASK}" if is_one and not says_nothing(value) else match[0]


def _of_encoded(match: re.Match[str]) -> str:
    """A JSON object in base64, in which a member is a secret."""
    padded = match[0].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        value: object = json.loads(base64.b64decode(padded + "=" * (-len(padded) % 4)))
    except (ValueError, RecursionError):
        return match[0]
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return MASK if any(_is_secret(name, one) for name, one in members.items()) else match[0]


def _is_secret(name: str, value: object) -> bool:
    if not isinstance(value, str) or says_nothing(value):
        return False
    secret = secret_of(name)
    return looks_random(value) if name == "k" else secret is not None and secret.has(value)
