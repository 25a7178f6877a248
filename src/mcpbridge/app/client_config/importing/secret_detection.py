"""What looks like a secret: by the name it goes under, or by its own shape. Pure.

A name decides where it can: `API_KEY`, `--token`, `Authorization`. Shapes are those of well-known issuers (`ghp_…`,
`sk-…`, `eyJ…`) and long random text. A wrong yes costs a variable to set, a wrong no leaves a secret in one file more.
"""

import math
import re
from collections import Counter
from itertools import pairwise
from typing import cast

from mcpbridge.base.masking.issued_keys import ISSUED_KEYS, PRIVATE_KEYS
from mcpbridge.base.masking.mask import MASK

_STRONG = {"PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "SECRET", "TOKEN", "AUTHORIZATION", "COOKIE", "BEARER"}
_WEAK = {"KEY", "APIKEY", "AUTH", "CREDENTIAL", "CREDENTIALS", "PAT", "DSN", "SESSION", "SIGNATURE", "ACCESSKEY"}
_STRONG_PAIRS = {(kind, "KEY") for kind in ("API", "ACCESS", "SECRET", "PRIVATE", "ENCRYPTION", "SIGNING", "LICENSE")}
_NO_SECRET = (
    {"URL", "URI", "PATH", "FILE", "DIR", "DIRECTORY", "HOST", "PORT", "NAME", "ID", "IDS", "TYPE", "MODE", "ENABLED"}
    | {"TTL", "TIMEOUT", "LIMIT", "ENDPOINT", "METHOD", "PROVIDER", "SCOPE", "SCOPES", "USER", "USERNAME", "REGION"}
    | {"COUNT", "LENGTH", "SIZE", "HEADER", "PREFIX", "FORMAT", "VERSION", "ENV", "VAR", "EXPIRY", "LEVEL"}
)
"""Last words of names whose values are about a secret and none themselves."""
_NOTHING = {
    "",
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "none",
    "null",
    "auto",
    "default",
    "basic",
    "bearer",
    "oauth",
}
ISSUED = re.compile(f"{ISSUED_KEYS}|{PRIVATE_KEYS}")
"""Secrets that say who issued them."""
URL_PASSWORD = re.compile(r"(?<=://)([^/?#\s:@]*):([^/?#\s]*)(?=@)")
"""User and password in an address."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_secret_name(name: str) -> bool:
    """Whether values under this name (of a variable, header, option or member) are secrets, as names go."""
    words = _words(name)
    return bool(words) and words[-1] not in _NO_SECRET and any(map(_tells, words))


def is_secret_value(name: str, value: str) -> bool:
    """Whether this value under this name is a secret, and not about one: a path, a switch, an address, a number."""
    if has_secret_shape(value):
        return True
    if not is_secret_name(name) or value.strip().lower() in _NOTHING:
        return False
    if re.match(r"[~/]|\.\.?/|[A-Za-z]:\\", value) or re.match(r"[a-z+]+://", value):
        return False
    words = _words(name)
    if any(word in _STRONG or word.endswith(("PASSWORD", "SECRET", "TOKEN", "APIKEY")) for word in words):
        return True
    if any(pair in _STRONG_PAIRS for pair in pairwise(words)):
        return True
    return len(value) >= 16 or (len(value) >= 8 and not value.isalpha())


def has_secret_shape(value: str) -> bool:
    """Whether a text holds a secret of a known issuer or a password in an address, or is long and random."""
    return bool(ISSUED.search(value) or _has_password(value) or _is_random(value))


def is_opaque(segment: str) -> bool:
    """Whether one name in the path of an address is too long and too random to be a word: an address that is a key."""
    piece = max(re.split(r"[-_.~]", segment), key=len)
    return bool(re.fullmatch(r"[A-Za-z0-9+=]{32,512}", piece)) and _bits(piece) > 3.5


def masked(value: object, name: str = "") -> object:
    """The value without what looks like a secret in it; for comments and reports."""
    if isinstance(value, str):
        if is_secret_value(name, value):
            return MASK
        return URL_PASSWORD.sub(rf"\1:{MASK}", ISSUED.sub(MASK, value))
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {key: masked(member, key) for key, member in members.items()}
    if isinstance(value, list):
        return [masked(item, name) for item in cast("list[object]", value)]
    return value


def _words(name: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return [word.upper() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]


def _tells(word: str) -> bool:
    return word in _STRONG or word in _WEAK or word.endswith(("PASSWORD", "SECRET", "TOKEN", "APIKEY"))


def _has_password(value: str) -> bool:
    found = URL_PASSWORD.search(value)
    return bool(found and found[2] and "${" not in found[2])


def _is_random(value: str) -> bool:
    if not re.fullmatch(r"[A-Za-z0-9_+/=.~-]{24,512}", value) or _UUID.fullmatch(value) or value.count("/") > 1:
        return False
    piece = max(re.split(r"[-_./]", value), key=len)
    if len(piece) < 16:
        return False
    bits = _bits(piece)
    if re.fullmatch(r"[0-9a-f]{32,}", piece):
        return bits > 3
    kinds = [re.search(kind, piece) for kind in ("[a-z]", "[A-Z]", "[0-9]")]
    return all(kinds) and bits > 3.5


def _bits(text: str) -> float:
    """How much each character says, by how often it occurs."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
