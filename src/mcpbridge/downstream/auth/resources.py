"""The public addresses of the bridge: which resource an endpoint is, and what its metadata says (RFC 8707, 9728). Pure.

`auth.resource` is the address of the bridge as clients have it. The address of another endpoint is derived from it:
what is before `http.path` in it is the beginning of all. Where `auth.resource` lies above an endpoint (it is the
origin, say), it means that endpoint as well; else the endpoint is a resource of its own.
"""

import re
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from mcpbridge.protocol.jsonrpc import encode

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_ENDPOINT = re.compile(r"/(?:(?:servers|p)/[^/]+/)?(?:mcp|sse|ws)/?")
_PORTS = {"https": 443, "http": 80}


def canonical(url: str) -> str:
    """The URL of a resource in the form in which it is compared; what is no such URL stays as it is.

    Scheme and host are in lower case, without the port that the scheme has anyway and without a slash at the end (MCP,
    authorization, canonical server URI).
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        return url
    if url.endswith(("?", "#")):
        return url
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{shown}{parts.path.removesuffix('/')}"


class Resources:
    """The addresses of one bridge."""

    def __init__(self, resource: str, path: str) -> None:
        """`resource`: the public address of the bridge; `path`: that of its main endpoint."""
        self.main = canonical(resource)
        self._written, self._path = resource, path
        end = path.rstrip("/")
        self.base = self.main.removesuffix(end) if self.main.endswith(end) else self.main
        """What the path of an endpoint follows in its address."""
        parts = urlsplit(self.main)
        self._origin, self._prefix = f"{parts.scheme}://{parts.netloc}", parts.path
        self.host = parts.netloc

    @property
    def origin_and_prefix(self) -> str:
        """What all addresses of the bridge begin with: the issuer that it is where it signs people in itself."""
        return self.base.rstrip("/")

    def address(self, path: str) -> str:
        """The address of the endpoint at this path of the bridge."""
        return canonical(self.base + quote(path))

    def resource(self, path: str) -> str:
        """The resource that an endpoint is, as clients are to name it."""
        if path.rstrip("/") == self._path.rstrip("/"):
            return self._written
        address = self.address(path)
        return self._written if address.startswith(f"{self.main}/") or address == self.main else address

    def is_for(self, audiences: frozenset[str], path: str) -> bool:
        """Whether a token for these audiences is for the bridge, or for its endpoint at this path."""
        return self.main in audiences or self.address(path) in audiences

    def metadata_url(self, path: str) -> str:
        """Where the metadata of an endpoint is; for what is no endpoint, that of the bridge."""
        if not self.is_endpoint(path):
            return f"{self._origin}{WELL_KNOWN}{self._prefix}"
        if path.rstrip("/") == self._path.rstrip("/"):
            path = path.rstrip("/")
        base = urlsplit(self.base)
        return f"{self._origin}{WELL_KNOWN}{base.path}{quote(path)}"

    def is_endpoint(self, path: str) -> bool:
        """Whether an endpoint can be there. Whether there is one is nobody's to know before a token was checked."""
        return path.rstrip("/") == self._path.rstrip("/") or _ENDPOINT.fullmatch(path) is not None

    def described(self, path: str) -> str | None:
        """The resource that the metadata at this well-known path is about; None: nothing is described there.

        A proxy may have taken the beginning of the public path away, or not.
        """
        inner = path.removeprefix(WELL_KNOWN)
        prefix = urlsplit(self.base).path
        if prefix and inner.startswith(prefix):
            inner = inner.removeprefix(prefix)
        if inner in ("", "/") or inner == self._prefix:
            return self._written
        return self.resource(inner) if self.is_endpoint(inner) else None


def metadata(resource: str, issuers: Sequence[str], scopes: Sequence[str], name: str) -> bytes:
    """The document about a resource (RFC 9728, 2)."""
    document: dict[str, object] = {
        "resource": resource,
        "authorization_servers": list(issuers),
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    }
    if scopes:
        document["scopes_supported"] = list(scopes)
    return encode(document)
