"""The `requestState` that a client brings back with its answers: its format, and what it belongs to (MCP 2026-07-28).

The bridge must not trust what a client brings back (MCP 2026-07-28, multi round-trip requests), so AES-256-GCM hides
the content and proves that it is ours. Principal, OAuth client, method, target and arguments are bound in as
associated data: a state does not open with any other request. Task ids are sealed in the same way
(`downstream/tasks/tasks.py`).

In a fleet all bridges open each other's seals. One that is about what lives in its bridge begins with that bridge's
name, so that the others send whoever comes with it there. The name is no secret, and it is in the seal once more.
"""

import base64
import binascii
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Protocol

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


def bridge_of(text: str) -> str:
    """The bridge that has what a seal is about, by what it begins with; empty: any bridge can take it."""
    return text.partition(_AT)[0] if _AT in text else ""


class SharedSeals(Protocol):
    """The bridges of a fleet, which open each other's seals."""

    @property
    def me(self) -> str:
        """The name of this bridge."""
        ...

    async def is_first_use(self, seal: bytes, seconds: float) -> bool:
        """Whether nobody in the fleet has used this seal, which is good for so many seconds; from now on it is used.

        Raises:
            StoreFailed: that cannot be known now.
        """
        ...


_AT = "."
"""What follows the name of a bridge; seals have no such letter."""
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
        self.shared: SharedSeals | None = None
        """The fleet of this bridge; None: it has none."""
        self._used: dict[bytes, float] = {}
        """Seals that may open no second time, by nonce, and when they expire."""
        self._prune_at = _PRUNE_ABOVE

    def seal(
        self, claims: Mapping[str, Any], bind: tuple[str, ...], *, seconds: float | None = None, is_here: bool = False
    ) -> str:
        """The claims as URL-safe text that opens with the same `bind` only.

        `is_here`: they are about what this bridge alone has.
        """
        nonce = secrets.token_bytes(_NONCE)
        claims = {**claims, "until": self._clock() + (self.seconds if seconds is None else seconds)}
        begin = ""
        if is_here and self.shared is not None:
            claims["at"] = self.shared.me
            begin = f"{self.shared.me}{_AT}"
        sealed = self._cipher().encrypt(nonce, encode(claims), encode(bind))
        return begin + base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()

    def is_elsewhere(self, claims: Mapping[str, Any]) -> bool:
        """Whether they are about what another bridge of the fleet has, or had."""
        return claims.get("at") is not None and (self.shared is None or claims["at"] != self.shared.me)

    def open(self, text: str, bind: tuple[str, ...]) -> dict[str, Any]:
        """The claims.

        Raises:
            BadRequest: forged, changed, expired, or made for something else; it does not say which.
        """
        return self._read(text, bind)[0]

    async def open_once(self, text: str, bind: tuple[str, ...]) -> dict[str, Any]:
        """The claims of a seal that opens no second time, as far as this process knows, or the fleet.

        Raises:
            BadRequest: as `open`; opened before, or about what another bridge has, or had.
            StoreFailed: the fleet's records cannot be reached; it may still be opened.
        """
        claims, nonce, until = self._read(text, bind)
        if self.is_elsewhere(claims):
            raise BadRequest(INVALID_PARAMS, GONE)
        now = self._clock()
        if self.shared is None or "at" in claims:
            is_first = self._first_use(nonce, until, now)
        else:
            is_first = await self.shared.is_first_use(nonce, until - now)
        if not is_first:
            raise BadRequest(INVALID_PARAMS, GONE)
        return claims

    def _read(self, text: str, bind: tuple[str, ...]) -> tuple[dict[str, Any], bytes, float]:
        from cryptography.exceptions import InvalidTag

        text = text.rpartition(_AT)[2]
        try:
            data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            claims = msgspec.json.decode(self._cipher().decrypt(data[:_NONCE], data[_NONCE:], encode(bind)))
        except (InvalidTag, ValueError, binascii.Error):
            raise BadRequest(INVALID_PARAMS, GONE) from None
        until = claims.pop("until")
        if until < self._clock():
            raise BadRequest(INVALID_PARAMS, GONE)
        return claims, data[:_NONCE], until

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
