"""Masks secrets in text that leaves the process: logs, error messages, the status document, recordings.

Two things make a secret. The configuration brought it in: such a value is masked wherever it occurs, also base64
encoded (alone, or inside a longer text such as `user:secret`), URL encoded or escaped for JSON. Or it looks like one,
which `text.py` decides. Results of calls that succeed are data: in them only the known values are masked
(`known_only`).
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, quote_plus

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import MASK

MIN_LENGTH = 6
"""Characters; a shorter value is not masked, because it would be found in half of all words."""

_LEARNED = 24
"""Secrets of one source that came while the process ran; the last ones are known."""

SECRET_NAME = late(r"token|key|secret|passw|auth|credential|cookie|bearer|session|dsn|_pat\b", re.IGNORECASE)
"""What names of variables, headers and options have in them whose values are secrets."""


_WORDS = late(r"[A-Za-z ,.'()/]{0,200}")
"""Texts in which nothing can look like a secret; most lines of logs are such."""
_MAY_NAME_ONE = late(
    "auth|bearer|contrasena|cookie|credential|csrf|cv[cv]|dsn|jwt|kennwort|key|otp|pass|pat(?![chit])|phrase|pin(?!g)"
    "|psk|pw|secret|senha|token|wif|session.?id|verifier|xsrf|(?:device|recovery|backup).?code",
    re.IGNORECASE,
)
"""What each name of a secret has in it. `names.py` is loaded with the first such name; most fields have none."""


class Redactor:
    """Replaces secrets in a text by `MASK`: those that are known, and what looks like one."""

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
        self._forms = tuple(longest_first)

    def __call__(self, text: str) -> str:
        """The same text without the secrets. Masking it again changes nothing."""
        return without_secrets(text, self.known)

    def known(self, text: str) -> str:
        """The same text without the secrets that are known; what only looks like one stays."""
        # Nearly no text has one, and to look for each takes a tenth of what the pattern takes.
        if self._pattern is None or not any(map(text.__contains__, self._forms)):
            return text
        # A secret may be a part of the mask itself.
        return MASK.join(self._pattern.sub(MASK, part) for part in text.split(MASK))

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


class Redactors:
    """Masks what any of several redactors knows, and what looks like a secret."""

    def __init__(self, *redactors: Callable[[str], str]) -> None:
        self._redactors = tuple(map(known_only, redactors))

    def __call__(self, text: str) -> str:
        """The same text without the secrets. See `Redactor`."""
        return without_secrets(text, self.known)

    def known(self, text: str) -> str:
        """The same text without the secrets that one of them knows. See `Redactor`."""
        for redact in self._redactors:
            text = redact(text)
        return text


def known_only(redact: Callable[[str], str]) -> Callable[[str], str]:
    """What masks the known secrets alone: for data, of which what looks like a secret may be what was asked for."""
    known: Callable[[str], str] = getattr(redact, "known", redact)
    return known


def without_secrets(text: str, known: Callable[[str], str] = lambda text: text) -> str:
    """The same text without what looks like a secret, and without what `known` masks."""
    if len(text) < MIN_LENGTH or _WORDS.fullmatch(text):
        return known(text)
    from mcpbridge.base.masking.text import without_secrets  # loaded with the first text that is masked

    return without_secrets(text, known)


def masked_fields(fields: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """The fields of a log line without secrets; also those under the name of one."""
    if all(
        (isinstance(one, int | float | None) or (isinstance(one, str) and _WORDS.fullmatch(one)))
        and not _MAY_NAME_ONE.search(name)
        for name, one in fields.items()
    ):
        return fields
    from mcpbridge.base.masking.values import without_secrets_in  # loaded with the first text that is masked

    return cast("dict[str, Any]", without_secrets_in(fields, redact))


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
