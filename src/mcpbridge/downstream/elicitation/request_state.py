"""The `requestState` that a client brings back with its answers: its format, and what it belongs to (MCP 2026-07-28).

The bridge must not trust what a client brings back (MCP 2026-07-28, multi round-trip requests), so AES-256-GCM hides
the content and proves that it is ours. Principal, OAuth client, method, target and arguments are bound in as
associated data: a state does not open with any other request. Task ids are sealed in the same way
(`downstream/tasks/tasks.py`).
"""

import base64
import binascii
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest
from mcpbridge.core.identity import application_of
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import encode

GONE = "Invalid or expired requestState"

_NOT_BOUND = frozenset({"_meta", "inputResponses", "requestState"})


class Binding:
    """What a state belongs to: whoever calls what with which arguments. Their order and spacing may differ.

    Numbers are compared as they are written; a member that is named twice is not the same as either alone.
    Most calls end without a state, so it is worked out at the first use; what it is of is kept as it came.
    """

    __slots__ = ("_fields", "_target", "_value")

    def __init__(self, client: Client, call: Call) -> None:
        application = application_of(client.identity)
        self._target = client.principal, application, call.method, call.upstream, call.target
        self._fields = {name: value for name, value in call.params.fields.items() if name not in _NOT_BOUND}
        self._value: tuple[str, ...] | None = None

    @property
    def value(self) -> tuple[str, ...]:
        """As `Sealer` takes it."""
        if self._value is None:
            digests = {name: canonical_digest(value) for name, value in sorted(self._fields.items())}
            self._value = (*self._target, canonical_digest(encode(digests)))
        return self._value


def read_state(raw: Raw) -> str:
    """A `requestState`. Raises BadRequest: it is no string."""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        raise BadRequest(INVALID_PARAMS, GONE) from None


_NONCE = 12
_PRUNE_ABOVE = 4096


class Sealer:
    """Seals and opens. One key for all replicas of a bridge makes their seals exchangeable."""

    def __init__(self, key: str = "", *, seconds: float = 600, clock: Callable[[], float] = time.time) -> None:
        """`key`: any secret text; without one a key is made that dies with the process.

        `seconds`: how long a seal lasts.
        """
        self._key = sha256(b"mcpbridge seal " + key.encode()).digest() if key else secrets.token_bytes(32)
        self.seconds, self._clock = seconds, clock
        self._used: dict[bytes, float] = {}
        """Seals that may open no second time, by nonce, and when they expire."""
        self._prune_at = _PRUNE_ABOVE

    def seal(self, claims: Mapping[str, Any], bind: tuple[str, ...], *, seconds: float | None = None) -> str:
        """The claims as URL-safe text that opens with the same `bind` only."""
        nonce = secrets.token_bytes(_NONCE)
        until = self._clock() + (self.seconds if seconds is None else seconds)
        sealed = self._cipher().encrypt(nonce, encode({**claims, "until": until}), encode(bind))
        return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()

    def open(self, text: str, bind: tuple[str, ...], *, once: bool = False) -> dict[str, Any]:
        """The claims. `once`: this seal opens no second time, as far as this process knows.

        Raises:
            BadRequest: forged, changed, expired, opened before, or made for something else; it does not say which.
        """
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            claims = msgspec.json.decode(self._cipher().decrypt(data[:_NONCE], data[_NONCE:], encode(bind)))
        except (InvalidTag, ValueError, binascii.Error):
            raise BadRequest(INVALID_PARAMS, GONE) from None
        now = self._clock()
        until = claims.pop("until")
        if until < now:
            raise BadRequest(INVALID_PARAMS, GONE)
        if once and not self._first_use(data[:_NONCE], until, now):
            raise BadRequest(INVALID_PARAMS, GONE)
        return claims

    def _first_use(self, nonce: bytes, until: float, now: float) -> bool:
        if nonce in self._used:
            return False
        if len(self._used) >= self._prune_at:
            self._used = {known: end for known, end in self._used.items() if end >= now}
            self._prune_at = max(_PRUNE_ABOVE, 2 * len(self._used))
        self._used[nonce] = until
        return True

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 30 ms that few need to pay

        return AESGCM(self._key)
