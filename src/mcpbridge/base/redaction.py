"""Masks known secrets in text that leaves the process: logs, error messages, the status document.

Only values that the configuration brought in are known here; each is also found where it stands base64 encoded
(alone, or inside a longer text such as `user:secret`), URL encoded or escaped for JSON.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import quote, quote_plus

MASK = "[redacted]"

MIN_LENGTH = 6
"""Characters; a shorter value is not masked, because it would be found in half of all words."""

_LEARNED = 24
"""Secrets of one source that came while the process ran; the last ones are known."""

SECRET_NAME = re.compile(r"token|key|secret|passw|auth|credential|cookie|bearer|session|dsn|_pat\b", re.IGNORECASE)
"""What names of variables, headers and options have in them whose values are secrets."""

ISSUED_KEYS = (
    r"(?<![A-Za-z0-9_])(?:"
    r"sk-[\w-]{16,}|[spr]k_(?:live|test)_\w{10,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|(?<!-)eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?|hf_\w{16,}|npm_\w{20,}|pypi-[\w-]{30,}|(?:ntn|secret)_\w{20,}"
    r"|lin_api_\w{16,}|figd_[\w-]{16,}|tvly-[\w-]{10,}|fc-[0-9a-f]{20,}|(?:gsk|r8|pcsk|whsec|shpat|dop_v1)_\w{16,}"
    r"|nvapi-[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|ATATT[\w=-]{20,}|dapi[0-9a-f]{30,}|GOCSPX-[\w-]{16,}"
    r"|ctx7sk-[\w-]{16,}|sntry[su]_[\w=+/-]{20,}|ph[cx]_\w{20,}"
    r")|-----BEGIN [A-Z ]*PRIVATE KEY[^$]*"
)
"""The pattern of secrets that say who issued them. Compiled by those that look for them."""


class Redactor:
    """Replaces every known secret in a text by `MASK`. Without secrets it returns the text as it is."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = set(secrets)
        self._learned: dict[str, dict[str, None]] = {}
        """By source, oldest first."""
        self._compile()

    def learn(self, source: str, secrets: Iterable[str]) -> None:
        """Mask these too from now on; tokens come while the process runs. The oldest of a source are forgotten in time.

        `source`: whose they are, such as the name of a server.
        """
        known = self._learned.setdefault(source, {})
        before = set(known)
        for secret in secrets:
            if len(secret) >= MIN_LENGTH:
                known.pop(secret, None)  # what still comes is in use, however old it is
                known[secret] = None
        while len(known) > _LEARNED:
            del known[next(iter(known))]
        if known.keys() != before:
            self._compile()

    def know(self, secrets: Iterable[str]) -> None:
        """Mask these too from now on, for good: a configuration that was read again brings them."""
        before = len(self._secrets)
        self._secrets.update(secrets)
        if len(self._secrets) > before:
            self._compile()

    def _compile(self) -> None:
        secrets = self._secrets.union(*self._learned.values())
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= MIN_LENGTH}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))  # a secret may contain another
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __call__(self, text: str) -> str:
        """The same text without the secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def values_of(self, document: Mapping[str, object]) -> dict[str, object]:
        """The same JSON object without the secrets in its strings, at any depth. Keys and numbers are left alone."""
        return {key: self._value(value) for key, value in document.items()}

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return self.values_of(cast("Mapping[str, object]", value))
        if isinstance(value, list | tuple):
            return [self._value(item) for item in cast("Sequence[object]", value)]
        return value


def masked(value: object, redact: Callable[[str], str]) -> object:
    """The same JSON value without the secrets in its strings and keys, at any depth: what users' code makes."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {redact(key) if isinstance(key, str) else key: masked(one, redact) for key, one in members.items()}
    if isinstance(value, list | tuple):
        return [masked(one, redact) for one in cast("Sequence[object]", value)]
    return value


def _forms(secret: str) -> Iterator[str]:
    """The spellings in which `secret` may appear."""
    if len(secret) < MIN_LENGTH:
        return
    yield secret
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            # Which letters stand for the secret depends on its place in its group of three bytes. Those that it
            # shares with a neighbour are left out: 0, 2 or 3 letters in front, and those of an incomplete last group.
            raw = b"\0" * before + secret.encode()
            letters = encode(raw).rstrip(b"=")[(0, 2, 3)[before] :].decode()
            yield letters[:-1] if len(raw) % 3 else letters
