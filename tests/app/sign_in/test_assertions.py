"""Identity assertions of an enterprise (ID-JAG): each rule is tried by one assertion that breaks this rule alone."""

import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from mcpbridge.app.sign_in.app import make_sign_in
from mcpbridge.app.sign_in.authorization_server import AuthorizationServer
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.settings import ResourceServerSettings
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.token_store import MemorySecrets
from support.token_issuer import Issuer, issuing

ORIGIN = "https://bridge.example.com"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SECRET = "s" * 40


class Place:
    """An authorization server that trusts `issuer`, and a client of it."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer, self.count = issuer, 0
        settings = ResourceServerSettings(
            resource=f"{ORIGIN}/mcp",
            issuers={"acme": {"issuer": issuer.url}},  # type: ignore[dict-item] - as the configuration has it
            scopes=["tools"],
            scopes_supported=["tools", "mail"],
        )
        digest = sha256(SECRET.encode()).hexdigest()
        clients = {
            "desktop": {"sha256": digest, "assertions": True},
            "plain": {"sha256": digest, "redirect_uris": ["https://plain.example/back"]},
        }
        sign_in = SignInSettings.model_validate({"provider": "google", "client_id": "x", "clients": clients})
        self.noted: list[tuple[str, dict[str, object]]] = []
        """What goes into the audit log."""
        self.server = AuthorizationServer(
            settings,
            sign_in,
            MemoryStore(),
            MemorySecrets(),
            path="/mcp",
            note=lambda kind, facts: self.noted.append((kind, dict(facts))),
        )
        app: Any = make_sign_in(self.server)
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN)

    def assertion(self, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        self.count += 1
        claims: dict[str, Any] = {
            "aud": ORIGIN,
            "client_id": "desktop",
            "resource": f"{ORIGIN}/mcp",
            "scope": "tools mail",
            "jti": f"id-{self.count}",
            "exp": int(time.time()) + 300,
            "nbf": ...,
            "email": "ann@example.com",
            **changes,
        }
        return self.issuer.token(header={"typ": "oauth-id-jag+jwt", **(header or {})}, **claims)

    async def exchange(
        self, assertion: str, client: str = "desktop", secret: str = SECRET, **more: str
    ) -> httpx2.Response:
        form = {"grant_type": GRANT, "assertion": assertion, **more}
        return await self.http.post("/oauth/token", data=form, auth=(client, secret))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with issuing() as issuer:
        here = Place(issuer)
        yield here
        await here.server.close()


async def test_an_assertion_is_exchanged_for_a_token_without_a_page(place: Place) -> None:
    answer = (await place.exchange(place.assertion())).json()
    assert answer["scope"] == "tools"
    assert "refresh_token" not in answer
    found = await place.server.grants.access(answer["access_token"])
    assert found is not None
    assert found.grant.person.principal == f"{place.issuer.url}#ann"
    assert found.grant.person.claims["email"] == "ann@example.com"
    [(kind, facts)] = place.noted
    assert (kind, facts["principal"], facts["oauth_client"]) == (
        "sign_in.began",
        f"{place.issuer.url}#ann",
        "desktop",
    )
    assert facts["detail"] == "by an identity assertion"


async def test_scopes_are_those_that_both_the_client_and_the_provider_name(place: Place) -> None:
    answer = (await place.exchange(place.assertion(scope="mail other"), scope="tools mail other")).json()
    assert answer["scope"] == "mail"


async def test_the_metadata_says_that_assertions_are_taken(place: Place) -> None:
    document = (await place.http.get("/.well-known/oauth-authorization-server")).json()
    assert GRANT in document["grant_types_supported"]
    assert document["authorization_grant_profiles_supported"] == ["urn:ietf:params:oauth:grant-profile:id-jag"]


@pytest.mark.parametrize(
    "change",
    [
        {"header": {"typ": "JWT"}},
        {"header": {"typ": "at+jwt"}},
        {"header": {"typ": ...}},
        {"header": {"kid": "unknown"}},
        {"header": {"alg": "none"}},
        {"header": {"jwk": {}}},
        {"aud": "https://other.example"},
        {"aud": f"{ORIGIN}/"},
        {"aud": f"{ORIGIN}/mcp"},
        {"aud": [ORIGIN, "https://other.example"]},
        {"aud": ...},
        {"client_id": "plain"},
        {"client_id": ...},
        {"iss": "https://other.example"},
        {"sub": ""},
        {"sub": ...},
        {"jti": ...},
        {"jti": ""},
        {"exp": ...},
        {"exp": 1},
        {"exp": int(time.time()) + 86_400},
        {"iat": int(time.time()) + 3600},
        {"cnf": {"jkt": "x"}},
    ],
)
async def test_an_assertion_that_breaks_a_rule_is_refused(place: Place, change: dict[str, Any]) -> None:
    answer = await place.exchange(place.assertion(**change))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant"), answer.text
    assert (await place.exchange(place.assertion())).status_code == 200


@pytest.mark.parametrize("resource", ["https://other.example/mcp", f"{ORIGIN}.evil.example/mcp", ..., 7])
async def test_an_assertion_for_another_resource_is_refused(place: Place, resource: object) -> None:
    answer = await place.exchange(place.assertion(resource=resource))
    assert answer.json()["error"] == "invalid_target"


async def test_a_request_names_the_resource_of_its_assertion_or_none(place: Place) -> None:
    assertion = place.assertion(resource=f"{ORIGIN}/servers/files/mcp")
    for other in (f"{ORIGIN}/mcp", "https://other.example/mcp", ""):
        answer = await place.exchange(assertion, resource=other)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_target"), answer.text
    same = f"{ORIGIN.replace('bridge', 'BRIDGE')}:443/servers/files/mcp"
    answer = await place.exchange(assertion, resource=same)
    assert answer.status_code == 200, "and the refused requests did not use it up"
    found = await place.server.grants.access(answer.json()["access_token"])
    assert found is not None
    assert found.grant.resource == f"{ORIGIN}/servers/files/mcp"


async def test_an_assertion_counts_once(place: Place) -> None:
    assertion = place.assertion()
    assert (await place.exchange(assertion)).status_code == 200
    assert (await place.exchange(assertion)).json()["error"] == "invalid_grant"


async def test_only_clients_that_may_can_exchange_them(place: Place) -> None:
    assert (await place.exchange(place.assertion(client_id="plain"), "plain")).json()["error"] == "unauthorized_client"
    assert (await place.exchange(place.assertion(), secret="wrong")).status_code == 401


async def test_a_provider_that_is_down_is_no_refusal(place: Place) -> None:
    await place.issuer.stop()
    answer = await place.exchange(place.assertion())
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
