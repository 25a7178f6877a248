"""Take out of a recording what must not be in a file: secrets, and ids that servers choose anew each time. Pure.

Three things mark a secret: the configuration names it (`redact`), it stands under a name such as `password` or
`api_key`, or the text around it shows it (addresses, header lines, assignments, the shape of known keys).

Names: `password` and `api_key` are certain. `token` usually is one, but `"token": 5` is a count, as `max_tokens` is,
and `nextPageToken` names a page. A `pin` is a secret if it is digits; `token_type` only describes a secret.

Texts: prose and code stay readable. A value counts as a secret if it is quoted or assigned, or looks like no word. The
patterns take time in proportion to the text, since servers write it.

Requests that are looked up are masked in the same way, so a masked recording still matches. All secrets are masked by
one text; `resembles` matches those that the program no longer has in replay.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.redaction import ISSUED_KEYS, MASK, Redactor
from mcpbridge.protocol.json_values import canonical
from mcpbridge.protocol.jsonrpc import encode

NEVER = 1 << 30
"""Digits that no number has."""


class Secret(NamedTuple):
    """Which values under a name are secrets."""

    texts: Literal["all", "random", "digits"]
    digits: int
    """A number of at least so many is one."""

    def has(self, value: str, *, is_number: bool = False) -> bool:
        """Whether this value is one; a number as it is spelled."""
        digits = sum(map(str.isdigit, value))
        if is_number:
            return digits >= self.digits
        if self.texts == "all":
            return bool(value)
        is_code = bool(value) and digits == len(value)
        return is_code and digits >= self.digits if self.texts == "digits" else not is_code and is_random(value)


SURE = Secret("all", 1)
LIKELY = Secret("all", 4)
"""A shorter number is an index or a switch."""
COUNTED = Secret("random", NEVER)
"""Numbers are counts, and words are words."""
CODE = Secret("digits", 3)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SURE = frozenset({"apikey", "authorization", "bearer", "jwt", "otp", "totp", "passcode", "passphrase", "passwd"}) | {
    *("password", "pwd", "secret")
}
_LIKELY = frozenset({"auth", "cookie", "credential", "csrf", "dsn", "pat", "token", "xsrf"})
_PAIRS = {(kind, "key") for kind in ("api", "access", "account", "private", "signing", "encryption", "secret")} | {
    ("session", "id")
}
_ENDS = ("password", "passwd", "passphrase", "secret", "apikey")
"""Of words that are written as one: `dbpassword`."""
_PAGES = ("next", "page", "continuation", "progress", "cancel", "prev")
"""With one of these a token names a place, or a request."""
_COUNTS = frozenset({"max", "min", "total", "count", "num", "input", "output", "prompt", "completion"})
_ORDINALS = frozenset({"first", "second", "third", "last", "next", "single", "test", "by", "one", "two"})
"""With one of these a pass is a round."""
_CODES = frozenset({"pin", "cvv", "cvc"})
_ABOUT = frozenset({"type", "url", "uri", "endpoint", "path", "file", "dir", "name", "count", "limit", "length"}) | {
    *("size", "policy", "method", "mode", "enabled", "required", "expiry", "ttl", "timeout", "version", "algorithm"),
    *("provider", "scope", "format", "level", "statu", "at", "in", "left", "used", "usage", "budget", "port"),
}
"""Last words of names whose values are about a secret and none themselves; without their `s`."""

_RANDOM = re.compile(r"(?=\S*[0-9])\S{8,}")


def is_random(text: str) -> bool:
    """A text that is no ordinary word."""
    return _RANDOM.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def secret_of(name: str) -> Secret | None:
    """What is a secret under this name; None: nothing."""
    spelled = [word.lower() for word in _WORD.findall(name)]
    words = [_singular(word) for word in spelled]
    if not words or words[-1] in _ABOUT:
        return None
    if any(word in _SURE or word.endswith(_ENDS) for word in words) or any(pair in _PAIRS for pair in pairwise(words)):
        return COUNTED if _COUNTS.intersection(words) else SURE
    if any(word == "token" or word.endswith("token") for word in words):
        if any(word.startswith(_PAGES) for word in words):
            return None
        return COUNTED if "tokens" in spelled or _COUNTS.intersection(words) else LIKELY
    if not _LIKELY.isdisjoint(words):
        return LIKELY
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


_USER_INFO = re.compile(r"(?<=://)([^/\s:@?#\"'<>]*)(:[^/\s?#\"'<>]+)?(?=@)")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_COOKIES = re.compile(r"(?<!\w)((?:Set-)?Cookie2?:[ \t]{0,8})[^\s=;,\"']{1,64}+=[^\r\n\"'\\]*+", re.IGNORECASE)
_SCHEME = re.compile(r"\b(Bearer|Basic)(\s{1,3})([A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE)
_QUERY = re.compile(r"(?<=[?&;])([A-Za-z0-9_.\[\]-]++)=([^&;\s\"'<>#]++)")
_ELEMENT = re.compile(r"<([A-Za-z_][\w.-]{0,79})>([^<>]++)(?=</\1>)")

_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]{0,79}+)([ \t]{1,3})([^\s\"'`<>|;&$-][^\s\"'`<>|;&]*+)")
_NAME = re.compile(r"(?<!\w)([A-Za-z_][\w.-]{0,79}+)(\\*+[\"']?\s{0,3}(=>|:=|[=:])\s{0,3})")
_VALUE = re.compile(
    r'(?P<escaped>\\+")(?P<in_escaped>(?:[^"\\\n]|\\+[^"\\\n])*+)'
    r'|"(?P<double>(?:[^"\\\n]|\\.)*+)'
    r"|'(?P<single>(?:[^'\\\n]|\\.)*+)"
    r"|(?P<scheme>(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)[ \t]{1,3})?"
    r"(?P<bare>[^\s\"'`<>,;&(){}\[\]|\\]{1,128}+)",
    re.IGNORECASE,
)
_REST = re.compile(r"[^\s\"'`<>,;&(){}\[\]|\\]*+")
"""What of a longer value is left. Not searched at once: texts may be full of names that are followed by long values."""
_HEADER_NAME = re.compile(r"[Xx]-[\w-]+|[A-Z][\w]*(?:-[A-Z]\w*)+|(?:Proxy-)?Authorization")
_CODE_LIKE = re.compile(r"[A-Za-z_]+(?:[._]+[A-Za-z_]+)+")
_GOES_ON = re.compile(r"[ \t]+[\w(]")
_NO_VALUES = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "undefined", "auto"}) | {
    *("default", "basic", "bearer", "oauth", "oauth2", "required", "optional", "missing", "invalid", "expired"),
    *("given", "set", "unset", "ok", "wrong", "incorrect", "unknown", "empty", "valid", "denied", "failed"),
    *("str", "string", "secretstr", "int", "integer", "number", "float", "bool", "boolean", "bytes", "any", "object"),
    *("text", "list", "dict", "array", "varchar", "type", "token", "digest", "apikey", "negotiate"),
}
"""What a text says of a secret without telling it."""

_KEYS = re.compile(ISSUED_KEYS)
_SHORT_KEYS = re.compile(
    r"(?<![A-Za-z0-9_-])(?:(?:sk-|gh[pousr]_|github_pat_|xox[a-z]-)[\w-]{8,}+|eyJ[\w-]{6,}+\.[\w-]{2,}+(?:\.[\w-]*+)?)"
)
"""The best known ones, shortened as examples and tests have them."""
_WORDS = re.compile(r"(?:sk-(?!proj-|ant-|or-|svcacct-)|secret_|npm_|hf_)[a-z]+(?:[-_][a-z]+)+")


def without_secrets(text: str) -> str:
    """The same text with its secrets masked."""
    text = _PEM.sub(MASK, text)
    text = _USER_INFO.sub(_of_user_info, text)
    text = _COOKIES.sub(rf"\1{MASK}", text)
    text = _QUERY.sub(_of_query, text)
    text = _ELEMENT.sub(_of_element, text)
    text = _of_settings(_OPTION.sub(_of_option, text))
    text = _SCHEME.sub(_of_scheme, text)
    return without_keys(text)


def without_keys(text: str) -> str:
    """The same text without keys and tokens that show what they are."""
    return _SHORT_KEYS.sub(_of_key, _KEYS.sub(_of_key, text))


def _of_key(found: re.Match[str]) -> str:
    return found[0] if _WORDS.fullmatch(found[0]) else MASK


def _of_user_info(found: re.Match[str]) -> str:
    user = found[1]
    is_token = without_keys(user) != user or (len(user) >= 16 and is_random(user))
    return MASK if found[2] or is_token else found[0]


def _of_query(found: re.Match[str]) -> str:
    name, value = found.groups()
    secret = SURE if name.lower() in ("key", "sig", "code", "signature", "x-amz-signature") else secret_of(name)
    return f"{name}={MASK}" if secret and secret.has(value, is_number=value.isdecimal()) else found[0]


def _of_element(found: re.Match[str]) -> str:
    secret, value = secret_of(found[1]), found[2].strip()
    return f"<{found[1]}>{MASK}" if secret and _is_quoted_secret(secret, value) else found[0]


def _of_option(found: re.Match[str]) -> str:
    secret, value = secret_of(found[1]), found[3]
    is_one = secret is not None and value != MASK and secret.has(value) and _is_unlike_words(value)
    return f"{found[1]}{found[2]}{MASK}" if is_one else found[0]


def _of_scheme(found: re.Match[str]) -> str:
    value = found[3]
    is_word = not re.search(r"[0-9]|[a-z][A-Z]|=$", value)
    return found[0] if is_word else f"{found[1]}{found[2]}{MASK}"


def _of_settings(text: str) -> str:
    """Without the values of `name=value`, `name: value` and `"name": "value"`."""
    parts: list[str] = []
    done = at = 0
    while (found := _NAME.search(text, at)) is not None:
        at = found.end()
        secret = secret_of(found[1])
        value = _VALUE.match(text, at) if secret is not None else None
        if secret is None or value is None:
            continue
        where = _secret_in(text, found, value, secret)
        if where is not None:
            parts += [text[done : where[0]], MASK]
            done = at = where[1]
    return "".join([*parts, text[done:]])


def _secret_in(text: str, name: re.Match[str], value: re.Match[str], secret: Secret) -> tuple[int, int] | None:
    """From where to where a value is one."""
    for kind in ("in_escaped", "double", "single"):
        if (quoted := value[kind]) is not None:
            is_one = _is_quoted_secret(secret, quoted)
            return value.span(kind) if is_one else None
    start, end = value.span("bare")
    if not _is_bare_secret(text, name, value, secret):
        return None
    rest = _REST.match(text, end)
    end = rest.end() if rest is not None else end
    return start, end - 1 if text[end - 1] in ".:!?" and end - start > 1 else end


def _is_quoted_secret(secret: Secret, value: str) -> bool:
    if value == MASK or value.lower() in _NO_VALUES or value.startswith(("$", "{{", "<", "%(")):
        return False
    return secret.has(value, is_number=value.isdecimal() and secret is not SURE)


def _is_bare_secret(text: str, name: re.Match[str], value: re.Match[str], secret: Secret) -> bool:
    """Whether what stands there without quotes is one, and no word of a sentence, no code and no variable."""
    bare = value["bare"].rstrip(".:!?")
    is_number = bare.replace(".", "", 1).isdecimal()
    if bare.lower() in _NO_VALUES or bare.startswith("$") or not any(map(str.isalnum, bare)):
        return False
    if not secret.has(bare, is_number=is_number):
        return False
    after = value.end()
    if text.startswith(("(", "["), after):  # a function, or what was masked already
        return False
    if bare.startswith("/") and name[1].lower().endswith("pwd"):  # a directory
        return False
    if value["scheme"] or secret.texts != "all":
        return True
    is_colon, is_spaced = name[3] == ":", name[2][-1:].isspace()
    if not is_spaced:
        return not is_colon or secret is SURE or _is_unlike_words(bare)
    if _CODE_LIKE.fullmatch(bare) and not is_colon:
        return False
    if is_number:
        return secret is SURE or not _GOES_ON.match(text, after)
    if _HEADER_NAME.fullmatch(name[1]):
        return not _GOES_ON.match(text, after) or _is_unlike_words(bare)
    if _GOES_ON.match(text, after):
        return _is_unlike_words(bare)
    return secret is not LIKELY or _is_unlike_words(bare) or len(bare) >= 12


def _is_unlike_words(bare: str) -> bool:
    return len(bare) >= 6 and bool(re.search(r"[0-9]|[a-z][A-Z]", bare))


_ROUNDS = 4
"""What is masked may let something else be seen, such as JSON in a text that was none before."""

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
            return self._raw(bytes(data), by_name)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return Raw(encode({"unreadable": True}))

    def _raw(self, data: bytes, by_name: bool) -> Raw:
        value = shown = _decode(data)
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
            said = self._known(without_keys(name), by_name=True) if by_name else self.redact(name)
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
            self._found.know([secret])

    def _string(self, text: str, by_name: bool) -> str:
        if len(text) >= _LONG_NAME and (alias := self.aliases.get(text)) is not None:
            return alias
        if not by_name:
            return self.redact(text)
        shown = text
        for _ in range(_ROUNDS):
            before = shown
            shown = self._embedded(shown) if shown[:1] in ("{", "[") else shown  # results say the same twice
            shown = without_secrets(self._known(shown, by_name=True))
            if shown == before:
                break
        return text if shown == text else shown

    def _embedded(self, text: str) -> str:
        try:
            value = _decode(text)
            shown = self._value(value, by_name=True, under=None)
            return text if shown is value else encode(shown).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return text

    def _known(self, text: str, *, by_name: bool) -> str:
        return self._found(self.redact(text)) if by_name else self.redact(text)


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
