"""What a request costs whose access token was checked before: the whole decision, from its header to the identity.

`python -m benchmarks.access_tokens` prints microseconds of processor time a request, for tokens of usual lengths, and
what the first check of a token takes (its signature). Issue 23 allows 15 µs for a token that is remembered.
"""

import asyncio
import hashlib
import json
import sys
import time
from typing import Any

from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.auth.resource_server import ResourceServer
from mcpbridge.downstream.settings import ResourceServerSettings, TokenSettings

RESOURCE = "https://bridge.example.com/mcp"
ISSUER = "https://login.example.com"
_ROUNDS, _REPEATS = 20_000, 5


def signed(key: RSAKey | ECKey, alg: str, padding: int) -> bytes:
    """A good access token, longer by so many characters."""
    from base64 import urlsafe_b64encode

    now = int(time.time())
    claims = {"iss": ISSUER, "sub": "ann", "aud": RESOURCE, "exp": now + 3600, "iat": now, "client_id": "c"}
    head = {"alg": alg, "kid": key.kid, "typ": "at+jwt"}
    parts = [json.dumps(part).encode() for part in (head, {**claims, "more": "x" * padding})]
    text = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return text + b"." + urlsafe_b64encode(JWSRegistry.algorithms[alg].sign(text, key)).rstrip(b"=")


def microseconds(work: Any, rounds: int) -> float:
    """Of processor time a call: the best of some repeats."""
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.process_time()
        for _ in range(rounds):
            work()
        best = min(best, (time.process_time() - began) / rounds * 1e6)
    return best


async def measure(rounds: int) -> dict[str, float]:
    """Microseconds a request."""
    key = RSAKey.generate_key(2048, {"kid": "one"})
    curve = ECKey.generate_key("P-256", {"kid": "two"})
    issuer = {"issuer": ISSUER}
    settings = ResourceServerSettings.model_validate({"resource": RESOURCE, "issuers": {"acme": issuer}})
    server = ResourceServer(settings, path="/mcp")
    service = TokenSettings(name="job", sha256=hashlib.sha256(b"job").hexdigest())
    auth = Authenticator([service] * 3, resource_server=server)
    keys = server.tokens.issuers[ISSUER].keys
    keys.know([key, curve])
    found: dict[str, float] = {}
    for name, padding in (("remembered, 0.6 KB", 0), ("remembered, 2 KB", 1000), ("remembered, 8 KB", 5500)):
        header = b"Bearer " + signed(key, "RS256", padding)
        await server.check("/mcp", header)

        def request(header: bytes = header) -> None:
            assert server.caller("/mcp", b"", header) is not None

        found[name] = microseconds(request, rounds)
    plain = Authenticator([service] * 3)
    found["a token of http.tokens"] = microseconds(lambda: plain.principal(b"Bearer job"), rounds)
    assert auth.resource_server is server
    for alg, signer in (("RS256", key), ("ES256", curve)):
        token = signed(signer, alg, 0)
        began = time.process_time()
        for _ in range(200):
            server.tokens.forget(f"{ISSUER}#ann")
            await server.tokens.check(token)
        found[f"first check, {alg}"] = (time.process_time() - began) / 200 * 1e6
    await server.close()
    return found


def main() -> None:
    """Print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    for name, figure in asyncio.run(measure(rounds)).items():
        print(f"{figure:8.1f} µs  {name}")


if __name__ == "__main__":
    main()
