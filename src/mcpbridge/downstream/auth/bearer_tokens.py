"""Who is calling: static bearer tokens, compared by their SHA-256 digests.

Where none is configured it is the local user's own (`storage/http_token.py`), unless `--no-auth` lets everyone in. With
`[auth]` the tokens of its issuers count as well (`downstream/auth/resource_server.py`).

A token is as strong as a random key, so a fast hash is enough. Digests are compared in constant time, so their timing
reveals nothing. Tokens are read from the `Authorization` header only, never from the query string (MCP, authorization),
and are never logged.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from mcpbridge.downstream.http.exchange import Refused
from mcpbridge.downstream.settings import TokenSettings

if TYPE_CHECKING:  # loaded where there is an issuer
    from mcpbridge.downstream.auth.resource_server import ResourceServer


class Authenticator:
    """Turns an `Authorization` header into a principal."""

    def __init__(
        self,
        tokens: Iterable[TokenSettings],
        extra_token: str | None = None,
        admin_token: str | None = None,
        local_token: str | None = None,
        *,
        resource_server: "ResourceServer | None" = None,
    ) -> None:
        """Plain tokens from the environment: `extra_token`, whose principal is `token`, and `admin_token`.

        The latter, whose principal is `admin`, locks nobody out: without others everyone is let in as before.
        `local_token`: that of the local user, whose principal is empty, as on stdio. `resource_server`: who decides
        about tokens of issuers; `principal` then knows the static ones only.
        """
        self.resource_server = resource_server
        if resource_server is not None:
            resource_server.holder = self.holder
        tokens = list(tokens)
        self._known = [(token.name, bytes.fromhex(token.sha256)) for token in tokens]
        self._is_local = local_token is not None
        if local_token is not None:
            self._known.append(("", hashlib.sha256(local_token.encode()).digest()))
        if extra_token is not None:
            self._known.append(("token", hashlib.sha256(extra_token.encode()).digest()))
        self._lookers = [(token.name, bytes.fromhex(token.sha256)) for token in tokens if token.console]
        self._admins = [(token.name, bytes.fromhex(token.sha256)) for token in tokens if token.admin]
        if admin_token is not None:
            digest = hashlib.sha256(admin_token.encode()).digest()
            self._admins.append(("admin", digest))
            if self._known or resource_server is not None:
                self._known.append(("admin", digest))

    @property
    def is_open(self) -> bool:
        """No token is configured: everyone is let in, as the local user."""
        return not self._known and self.resource_server is None

    def holder(self, digest: bytes) -> str | None:
        """Whose static token has this SHA-256; None: nobody's."""
        return _holder(self._known, digest)

    def principal(self, authorization: bytes | None) -> str:
        """The name of the token's holder; empty when no token is needed.

        Raises:
            Refused: 401.
        """
        if not self._known:
            return ""
        if authorization is None:
            where = "; `mcpbridge status` names the file with yours" if self._is_local else ""
            raise _unauthorized(f"This server needs a token: send `Authorization: Bearer <token>`{where}", b"Bearer")
        holder = _holder(self._known, _digest_of(authorization))
        if holder is None:
            raise _unauthorized("This token is not valid here", b'Bearer error="invalid_token"')
        return holder

    def is_admin(self, authorization: bytes | None) -> bool:
        """Whether this is the token of somebody who may administer the bridge. Without a token nobody may."""
        if authorization is None:
            return False
        return _holder(self._admins, _digest_of(authorization)) is not None

    def console_role(self, token: str) -> tuple[Literal["admin", "read"], str] | None:
        """What the holder of a token may do in the console, and the holder's name; None: nothing."""
        digest = hashlib.sha256(token.strip().encode()).digest()
        admin, looker = _holder(self._admins, digest), _holder(self._lookers, digest)
        if admin is not None:
            return "admin", admin
        return ("read", looker) if looker is not None else None


def _holder(tokens: Iterable[tuple[str, bytes]], digest: bytes) -> str | None:
    """Whose token has this digest. All are compared, always: how long it takes tells nothing."""
    holder: str | None = None
    for name, known in tokens:
        if hmac.compare_digest(digest, known):
            holder = name
    return holder


def _digest_of(authorization: bytes) -> bytes:
    """The digest of a bearer token; of another scheme what no token has."""
    scheme, _, token = authorization.strip().partition(b" ")
    return hashlib.sha256(token.strip()).digest() if scheme.lower() == b"bearer" else b""


def _unauthorized(message: str, challenge: bytes) -> Refused:
    return Refused(401, message, headers=((b"www-authenticate", challenge),))
