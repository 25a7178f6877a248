"""Who is calling: static bearer tokens, of which only SHA-256 digests are kept.

A token has at least the strength of a random key, so a plain fast hash is enough; comparing digests in
constant time leaves nothing to measure. Tokens are read from the `Authorization` header only (spec,
authorization: never from the query string), and are never logged.
"""

import hashlib
import hmac
from collections.abc import Iterable

from mcpbridge.downstream.http_exchange import Refused
from mcpbridge.downstream.settings import TokenSettings

__all__ = ["Authenticator"]


class Authenticator:
    """Turns an `Authorization` header into a principal."""

    def __init__(self, tokens: Iterable[TokenSettings], extra_token: str | None = None) -> None:
        """`extra_token` is a plain token (from the environment) whose principal is `token`."""
        self._known = [(token.name, bytes.fromhex(token.sha256)) for token in tokens]
        if extra_token is not None:
            self._known.append(("token", hashlib.sha256(extra_token.encode()).digest()))

    @property
    def is_open(self) -> bool:
        """No token is configured: everyone is let in, as the local user."""
        return not self._known

    def principal(self, authorization: bytes | None) -> str:
        """The name of the token's holder; empty when no token is needed.

        Raises:
            Refused: 401.
        """
        if not self._known:
            return ""
        if authorization is None:
            raise _unauthorized("This server needs a token: send `Authorization: Bearer <token>`", b"Bearer")
        scheme, _, token = authorization.strip().partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        found = ""
        for name, known in self._known:  # all of them, always: how long it takes tells nothing
            if hmac.compare_digest(digest, known):
                found = name
        if not found or scheme.lower() != b"bearer":
            raise _unauthorized("This token is not valid here", b'Bearer error="invalid_token"')
        return found


def _unauthorized(message: str, challenge: bytes) -> Refused:
    return Refused(401, message, headers=((b"www-authenticate", challenge),))
