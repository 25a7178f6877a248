"""Which values are secrets by the name that they have: `password`, `api_key`, `Authorization`. Pure.

`password` and `api_key` are certain. `token` usually is one, but `"token": 5` is a count, as `max_tokens` is, and
`nextPageToken` names a page. A `pin` is a secret if it is digits; `token_type` only describes a secret.
"""

import re
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from mcpbridge.base.late_pattern import late

NEVER = 1 << 30
"""Digits that no number has."""


class Secret(NamedTuple):
    """Which values under a name are secrets."""

    texts: Literal["all", "random", "digits", "key"]
    digits: int
    """A number of at least so many is one."""

    def has(self, value: str, *, is_number: bool = False) -> bool:
        """Whether this value is one; a number as it is spelled."""
        digits = sum(map(str.isdigit, value))
        if is_number:
            return digits >= self.digits
        if self.texts == "all":
            return bool(value)
        if self.texts == "key":
            return is_key(value)
        is_code = bool(value) and digits == len(value)
        return is_code and digits >= self.digits if self.texts == "digits" else not is_code and is_random(value)


SURE = Secret("all", 1)
LIKELY = Secret("all", 4)
"""A shorter number is an index or a switch."""
COUNTED = Secret("random", NEVER)
"""Numbers are counts, and words are words."""
CODE = Secret("digits", 3)
KEY = Secret("key", NEVER)
"""There are keys of many kinds, most of which are no secrets; a long random text is one."""

_WORD = late(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SURE = frozenset({"apikey", "authorization", "bearer", "jwt", "otp", "totp", "passcode", "passphrase", "passwd"}) | {
    *("password", "pwd", "secret", "psk", "requirepass", "masterauth", "passwort", "kennwort", "contrasena", "senha")
}
_LIKELY = frozenset({"auth", "cookie", "credential", "csrf", "dsn", "pat", "pw", "token", "wif", "xsrf"})
_KEYS = frozenset({"api", "access", "account", "private", "signing", "encryption", "secret", "subscription"}) | {
    *("shared", "preshared", "auth", "master", "license", "consumer", "storage", "webhook", "deploy", "session")
}
"""Of which kinds keys are secrets."""
_PAIRS = (
    {(kind, "key") for kind in _KEYS}
    | {("session", "id"), ("key", "data"), ("code", "verifier")}
    | {
        *(("device", "code"), ("recovery", "code"), ("backup", "code"), ("recovery", "phrase"), ("seed", "phrase")),
    }
)
_PLACES = frozenset(
    {"public", "primary", "foreign", "sort", "cache", "partition", "object", "idempotency", "routing"}
) | {
    *("order", "group", "row", "hash", "host", "unique", "index", "translation", "message", "document", "file", "etag"),
}
"""Of which kinds keys are none, however random they look."""
_ENDS = ("password", "passwd", "passphrase", "secret", "apikey")
"""Of words that are written as one: `dbpassword`."""
_PAGES = ("next", "page", "continuation", "progress", "cancel", "prev")
"""With one of these a token names a place, or a request."""
_COUNTS = frozenset({"max", "min", "total", "count", "num", "input", "output", "prompt", "completion"})
_ORDINALS = frozenset({"first", "second", "third", "last", "next", "single", "test", "by", "one", "two"})
"""With one of these a pass is a round."""
_RESOURCES = frozenset({"existing", "pull", "tls"})
"""With one of these a secret is named, not shown: charts for Kubernetes say `existingSecret: shop-db`."""
_CODES = frozenset({"pin", "cvv", "cvc"})
_PARTS = {*_SURE, *_LIKELY, *_CODES, *_ENDS, "key", "pass", *(first for first, second in _PAIRS if second != "key")}
IN_SECRET_NAMES = tuple(part for part in sorted(_PARTS) if not any(other in part for other in _PARTS - {part}))
"""Each name of a secret has one of these in it, in small letters: a text without them names none."""
_ABOUT = frozenset({"type", "url", "uri", "endpoint", "path", "file", "dir", "name", "count", "limit", "length"}) | {
    *("size", "policy", "method", "mode", "enabled", "required", "expiry", "ttl", "timeout", "version", "algorithm"),
    *("provider", "scope", "format", "level", "statu", "at", "in", "left", "used", "usage", "budget", "port"),
    *("backend", "manager", "engine", "hasher"),
}
"""Last words of names whose values are about a secret and none themselves; without their `s`."""

_RANDOM = late(r"(?=\S*[0-9])\S{8,}")


def is_random(text: str) -> bool:
    """A text that is no ordinary word."""
    return _RANDOM.fullmatch(text) is not None


_KEY = late(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = late(r"(?:0x)?(?:[0-9a-f]{32,}|[0-9A-F]{32,})")
_LEAST_CHANGES = 0.3
"""Of a random text's characters, how many are of another kind than the one before; names in camel case have less."""


def is_key(text: str) -> bool:
    """A long text without a word in it, such as a generated key; no UUID, no path and no name."""
    text = text.removeprefix("base64:")
    if _HEX.fullmatch(text):
        return True
    return _KEY.fullmatch(text) is not None and text[0] != "/" and is_mixed(text)


def is_mixed(text: str) -> bool:
    """Upper case, lower case and digits follow one another as if by chance."""
    kinds = ["0" if char.isdigit() else "a" if char.islower() else "A" if char.isupper() else "-" for char in text]
    changes = sum(one != other for one, other in pairwise(kinds))
    return {"0", "a", "A"} <= set(kinds) and changes >= _LEAST_CHANGES * len(text)


@lru_cache(maxsize=4096)
def secret_of(name: str) -> Secret | None:
    """What is a secret under this name; None: nothing."""
    spelled = [word.lower() for word in _WORD.findall(name)]
    words = [_singular(word) for word in spelled]
    if not words or words[-1] in _ABOUT:
        return None
    if words[-1] == "secret" and len(words) > 1 and words[-2] in _RESOURCES:
        return COUNTED
    if any(word in _SURE or word.endswith(_ENDS) for word in words) or any(pair in _PAIRS for pair in pairwise(words)):
        return COUNTED if _COUNTS.intersection(words) else SURE
    if any(word == "token" or word.endswith("token") for word in words):
        if any(word.startswith(_PAGES) for word in words):
            return None
        return COUNTED if "tokens" in spelled or _COUNTS.intersection(words) else LIKELY
    if not _LIKELY.isdisjoint(words):
        return LIKELY
    if words[-1] == "key" and len(words) > 1 and _PLACES.isdisjoint(words):
        return KEY
    if words[-1] == "pass":
        return COUNTED if len(words) == 1 or words[-2] in _ORDINALS else LIKELY
    return None if _CODES.isdisjoint(words) else CODE


@lru_cache(maxsize=4096)
def is_about(name: str) -> bool:
    """A number under this name, among secrets, is about them: when they expire, how many there are."""
    words = [_singular(word.lower()) for word in _WORD.findall(name)]
    return bool(words) and (words[-1] in _ABOUT or words[0] in ("expire", "expiration", "exp", "iat", "nbf"))


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


SAID = ("password", "passwd", "passphrase", "passcode", "secret", "token", "key", "credential", "pin", "otp")
"""The words for secrets in sentences."""
_IN_WORD = late(r"\w")


def words_for_secrets(lower: str) -> list[tuple[int, int]]:
    """Where sentences in small letters may name a secret: from where to where."""
    places: list[tuple[int, int]] = []
    for word in SAID:
        at = lower.find(word)
        while at >= 0:
            end = at + len(word)
            if not _IN_WORD.match(lower, end) or word == "credential":
                places.append((at, end))
            at = lower.find(word, end)
    return places


_COUNTED_WORDS = late(r"(?:[a-z]*[\d.,]+(?:st|nd|rd|th|k|m|s|ms|b|kb|mb|px|x)?|[a-z]+\d{1,2})", re.IGNORECASE)
"""Numbers, and words with a number at their end (`sha256`, `v2`, `user1`) are named after such a word in sentences."""


def looks_random(bare: str) -> bool:
    """Whether a word of a sentence is none, but a generated key or code."""
    if _LONG_KEY.fullmatch(bare) or (len(bare) >= 20 and bare.isalnum() and is_mixed(bare)):
        return True
    digits = sum(map(str.isdigit, bare))
    return len(bare) >= 8 and digits >= 2 and digits < len(bare) and not _COUNTED_WORDS.fullmatch(bare)


_LONG_KEY = late(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])[A-Za-z0-9+/]{32,128}+={0,2}")
"""A key may have slashes, as those of AWS have, but no path is so long without a sign between its words."""


def is_place(bare: str) -> bool:
    """A path, a file and its line, an address, a time."""
    if _LONG_KEY.fullmatch(bare):
        return False
    return (
        "/" in bare
        or "\\" in bare
        or "::" in bare
        or bool(re.search(r"\.[A-Za-z]{1,5}(?::\d+)*$|^\d[\d:.TZ+-]*$|^0x", bare))
    )


def is_unlike_words(bare: str) -> bool:
    """Whether a text of at least six characters has a digit, or a capital letter within a word."""
    return len(bare) >= 6 and bool(re.search(r"[0-9]|[a-z][A-Z]", bare))
