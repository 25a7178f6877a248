"""What a client keeps for the bridge and brings back: sealed, so that only the bridge can read or make it.

A modern server must take a client's `requestState` for an attacker's (MCP 2026-07-28, multi round-trip requests).
AES-256-GCM keeps and proves the content; what it belongs to (principal, method, target, arguments) is bound in as
associated data, so a state that is shown with any other request does not open.
"""

import base64
import binascii
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from mcpbridge.errors import BadRequest
from mcpbridge.wire.codes import INVALID_PARAMS
from mcpbridge.wire.frame import encode

__all__ = ["Sealer"]

_NONCE = 12
_INVALID = "Invalid or expired requestState"
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
        """The claims. `once`: this seal opens no second time, as far as this process can tell.

        Raises:
            BadRequest: forged, changed, expired, opened before, or made for something else; it does not say which.
        """
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            claims = msgspec.json.decode(self._cipher().decrypt(data[:_NONCE], data[_NONCE:], encode(bind)))
        except (InvalidTag, ValueError, binascii.Error):
            raise BadRequest(INVALID_PARAMS, _INVALID) from None
        now = self._clock()
        until = claims.pop("until")
        if until < now:
            raise BadRequest(INVALID_PARAMS, _INVALID)
        if once and not self._first_use(data[:_NONCE], until, now):
            raise BadRequest(INVALID_PARAMS, _INVALID)
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
