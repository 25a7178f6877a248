"""An issuer of tokens on a real socket, which does what a test says: metadata, keys, introspection.

It signs anything, so that each rule is tried by one token that breaks this rule alone. Real providers are in
`tests/identity_provider/`.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

RESOURCE = "https://bridge.example.com/mcp"
EVERYBODY = [{"name": "everybody", "principals": "*", "servers": "*"}]
"""The `roles` of tests that are about something else: people sign in only where there are some."""
Key = RSAKey | ECKey | OKPKey | OctKey


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(header: Mapping[str, Any] | bytes, claims: Mapping[str, Any] | bytes, key: Key | None, alg: str) -> str:
    """A token with exactly this header and these claims."""
    head, body = (part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims))
    text = f"{b64(head)}.{b64(body)}"
    signature = b"" if key is None else JWSRegistry.algorithms[alg].sign(text.encode(), key)
    return f"{text}.{b64(signature)}"


KEY = RSAKey.generate_key(2048, {"kid": "one"})
"""One for all tests of a process: making one takes long."""


class Issuer:
    """The issuer. Change its attributes at will."""

    def __init__(self) -> None:
        self.url = ""
        self.resource = RESOURCE
        self.keys: dict[str, Key] = {"one": KEY}
        self.requests: list[str] = []
        """Paths that were asked for."""
        self.active: dict[str, dict[str, Any]] = {}
        """What introspection says of opaque tokens."""
        self.metadata: dict[str, Any] = {}
        """What its metadata says otherwise."""
        self.status = 200
        self.hold: asyncio.Event | None = None
        """Answers wait for it."""
        self.published: list[dict[str, Any]] | None = None
        """The keys that it names; None: all."""
        self._server: asyncio.Server | None = None
        self._port = 0

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "ann",
            "aud": self.resource,
            "exp": now + 3600,
            "iat": now,
            "nbf": now,
            "client_id": "a-client",
            "scope": "tools read",
            "jti": "1",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not ...}

    def token(
        self, *, kid: str = "one", alg: str = "RS256", header: Mapping[str, Any] | None = None, **changes: Any
    ) -> str:
        """A good token, but for what is changed; `...` leaves a claim out."""
        head = {"alg": alg, "kid": kid, "typ": "at+jwt", **(header or {})}
        head = {name: value for name, value in head.items() if value is not ...}
        return signed(head, self.claims(**changes), self.keys[kid], alg)

    def settings(self, **more: Any) -> dict[str, Any]:
        """The section `auth` with this issuer."""
        own = more.pop("own", {})
        return {"resource": self.resource, "issuers": {"acme": {"issuer": self.url, **own}}, **more}

    async def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = self.url or f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Be down."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def document(self, path: str, body: bytes) -> object:
        if path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
            return {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "introspection_endpoint": f"{self.url}/introspect",
                **self.metadata,
            }
        if path == "/keys":
            public = [key.as_dict(private=False) for key in self.keys.values() if not isinstance(key, OctKey)]
            return {"keys": public if self.published is None else self.published}
        if path == "/introspect":
            return self.active.get(parse_qs(body.decode())["token"][0], {"active": False})
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0])) if lengths else b""
            path = head.split(" ")[1]
            self.requests.append(path)
            if self.hold is not None:
                await self.hold.wait()
            document = self.document(path, body)
            status = 404 if document is None else self.status
            answer = json.dumps(document).encode()
            writer.write(
                b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (status, len(answer), answer)
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """An issuer that listens."""
    issuer = Issuer()
    await issuer.start()
    try:
        yield issuer
    finally:
        await issuer.stop()
