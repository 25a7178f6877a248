"""Real clients sign somebody in: the whole bridge as a process, a real provider, and the OAuth clients of the SDKs."""

import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from html import unescape
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from mcp import Client as SdkClient
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl

from support.harness import Place, python_server
from support.identity_providers import MockProvider, answer_in, mock_provider
from support.ports import free_port
from support.token_issuer import EVERYBODY, issuing

BACK = "http://127.0.0.1:1/callback"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALL = {"name": "up__journal", "arguments": {}, "_meta": META}


@pytest.fixture(scope="module")
def provider() -> Iterator[MockProvider]:
    with mock_provider() as running:
        yield running


class Storage:
    """What the SDK's client keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Somebody with a browser, who agrees and signs in."""

    def __init__(self, provider: MockProvider, subject: str) -> None:
        self.provider, self.subject, self.result = provider, subject, AuthorizationCodeResult(code="")

    async def visit(self, page: str) -> None:
        async with httpx2.AsyncClient(headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}) as http:
            shown = await http.get(page)
            assert shown.status_code == 200, shown.text
            found = re.search(r'name="request" value="([^"]+)"', shown.text)
            assert found, shown.text
            origin = page.partition("/oauth/")[0]
            agreed = await http.post(
                f"{origin}/oauth/consent",
                data={"request": found[1], "answer": "yes"},
                headers={"origin": origin, "sec-fetch-site": "same-origin"},
            )
            onward = re.search(r'content="0; url=([^"]+)"', agreed.text)
            assert onward, agreed.text
            back = await self.provider.sign_in(unescape(onward[1]), self.subject)
            sent = await http.get(back)
            assert sent.status_code == 302, sent.text
        answer = answer_in(sent.headers["location"])
        self.result = AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    async def answer(self) -> AuthorizationCodeResult:
        return self.result


@asynccontextmanager
async def bridge(
    place: Place, provider: MockProvider, *, sections: dict[str, Any] | None = None, **auth: Any
) -> AsyncGenerator[str]:
    """The address of a bridge that signs people in at this provider."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    sign_in = {"issuer": provider.issuer, "client_id": "bridge", "client_secret": "s3cret"}
    config = place.config(
        {"up": python_server("plain"), "other": python_server("plain")},
        auth={"resource": f"{origin}/mcp", "sign_in": sign_in, **auth},
        **{"roles": EVERYBODY, **(sections or {})},
    )
    async with place.started("serve", "--config", str(config), "--http", f"127.0.0.1:{port}") as command:
        await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        yield origin


@asynccontextmanager
async def signed_in(origin: str, person: Person, storage: Storage) -> AsyncGenerator[SdkClient]:
    metadata = OAuthClientMetadata(
        client_name="SDK",
        redirect_uris=[AnyUrl(BACK)],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(f"{origin}/mcp", metadata, storage, person.visit, person.answer)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        SdkClient(streamable_http_client(f"{origin}/mcp", http_client=http)) as client,
    ):
        yield client


async def test_the_sdk_signs_a_person_in_and_calls_a_tool(place: Place, provider: MockProvider) -> None:
    async with bridge(place, provider, sections={"audit": {"enabled": True}}) as origin:
        storage = Storage()
        async with signed_in(origin, Person(provider, "alice"), storage) as client:
            tools = await client.list_tools()
            assert any(tool.name.startswith("up__") for tool in tools.tools)
        assert storage.tokens is not None
        assert storage.tokens.access_token.startswith("mcpb_at_")
        async with httpx2.AsyncClient() as http:
            refused = await http.post(f"{origin}/mcp", json={}, headers={"authorization": "Bearer mcpb_at_guess"})
            assert refused.status_code == 401
            described = await http.get(f"{origin}/.well-known/oauth-protected-resource/mcp")
            assert described.json()["authorization_servers"] == [origin]
    config = str(place.folder / "servers.toml")
    shown = await place.run("audit", "show", "--json", "--kind", "sign_in.*", "--config", config)
    [line] = [json.loads(line) for line in shown.out.splitlines()]
    assert line["principal"] == f"{provider.issuer}#alice"
    assert line["client"] == "SDK"
    assert line["address"] == "127.0.0.1"


async def test_a_client_of_2025_03_26_signs_in_by_the_root_of_the_host_and_names_no_resource(
    place: Place, provider: MockProvider
) -> None:
    """MCP 2025-03-26, authorization, server metadata discovery: it knows no metadata of the resource (RFC 9728)."""
    old, alice = {"mcp-protocol-version": "2025-03-26"}, Person(provider, "alice")
    verifier = "v" * 64
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    async with bridge(place, provider) as origin, httpx2.AsyncClient(timeout=60) as http:
        assert (await http.post(f"{origin}/mcp", json={})).status_code == 401
        found = await http.get(f"{origin}/.well-known/oauth-authorization-server", headers=old)
        assert found.status_code == 200, found.text
        metadata = found.json()
        wanted = {"client_name": "Old", "redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
        client = (await http.post(metadata["registration_endpoint"], json=wanted, headers=old)).json()["client_id"]
        asked = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": BACK,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "its state",
        }
        await alice.visit(f"{metadata['authorization_endpoint']}?{urlencode(asked)}")
        form = {
            "grant_type": "authorization_code",
            "client_id": client,
            "code": alice.result.code,
            "redirect_uri": BACK,
            "code_verifier": verifier,
        }
        tokens = (await http.post(metadata["token_endpoint"], data=form, headers=old)).json()
        again = {"grant_type": "refresh_token", "client_id": client, "refresh_token": tokens["refresh_token"]}
        renewed = (await http.post(metadata["token_endpoint"], data=again, headers=old)).json()
        begin = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-03-26",
                "capabilities": {},
                "clientInfo": {"name": "Old", "version": "1"},
            },
        }
        for token in (tokens["access_token"], renewed["access_token"]):
            headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
            begun = await http.post(f"{origin}/mcp", json=begin, headers=headers)
            assert begun.status_code == 200, begun.text
            assert "2025-03-26" in begun.text


async def test_the_sdk_comes_in_by_an_identity_assertion_without_a_page(place: Place, provider: MockProvider) -> None:
    secret = "s" * 40
    clients = {"desktop": {"sha256": sha256(secret.encode()).hexdigest(), "assertions": True}}
    sign_in = {"issuer": provider.issuer, "client_id": "bridge", "client_secret": "s3cret", "clients": clients}
    async with (
        issuing() as issuer,
        bridge(place, provider, sign_in=sign_in, issuers={"acme": {"issuer": issuer.url}}) as origin,
    ):
        asked: list[tuple[str, str]] = []

        async def vouch(audience: str, resource: str) -> str:
            asked.append((audience, resource))
            own = {"client_id": "desktop", "jti": f"id-{len(asked)}", "exp": int(time.time()) + 300}
            return issuer.token(header={"typ": "oauth-id-jag+jwt"}, aud=audience, resource=resource, **own)

        storage = Storage()
        for method in ("client_secret_basic", "client_secret_post"):
            auth = IdentityAssertionOAuthProvider(
                f"{origin}/mcp", storage, "desktop", secret, origin, vouch, token_endpoint_auth_method=method
            )
            async with (
                httpx2.AsyncClient(auth=auth, timeout=60) as http,
                SdkClient(streamable_http_client(f"{origin}/mcp", http_client=http)) as client,
            ):
                assert (await client.call_tool("up__journal", {})).content
            assert storage.tokens is not None
            assert storage.tokens.access_token.startswith("mcpb_at_")
            storage.tokens = None
        assert asked == [(origin, f"{origin}/mcp")] * 2
        listed = await place.run("users", "list", "--config", str(place.folder / "servers.toml"), "--json")
        assert [one["user"] for one in json.loads(listed.out)["users"]] == [f"{issuer.url}#ann"]


async def test_who_is_signed_in_is_listed_and_can_be_put_out(place: Place, provider: MockProvider) -> None:
    principal = f"{provider.issuer}#bob"
    async with bridge(place, provider) as origin:
        storage = Storage()
        async with signed_in(origin, Person(provider, "bob"), storage) as client:
            await client.list_tools()
            config = str(place.folder / "servers.toml")
            listed = json.loads((await place.run("users", "list", "--config", config, "--json")).out)
            [bob] = listed["users"]
            expected = {"user": principal, "origin": "auth.sign_in", "accounts": [], "sign_ins": 1}
            assert {name: bob[name] for name in expected} == expected
            revoked = json.loads((await place.run("users", "revoke", principal, "--config", config, "--json")).out)
            assert revoked["sign_ins"] == 1
            assert storage.tokens is not None
            async with httpx2.AsyncClient() as http:
                headers = {"authorization": f"Bearer {storage.tokens.access_token}"}
                refused = await http.post(f"{origin}/mcp", json={}, headers=headers)
                assert refused.status_code == 401
                form = {
                    "grant_type": "refresh_token",
                    "client_id": storage.client.client_id if storage.client else "",
                    "refresh_token": storage.tokens.refresh_token,
                }
                assert (await http.post(f"{origin}/oauth/token", data=form)).json()["error"] == "invalid_grant"


async def names_of(origin: str, person: Person) -> set[str]:
    """The tools that somebody is listed; of each server the first."""
    async with signed_in(origin, person, Storage()) as client:
        return {
            tool.name for tool in (await client.list_tools()).tools if tool.name.endswith(("__journal", "file-read"))
        }


async def test_each_person_sees_what_their_groups_open(place: Place, provider: MockProvider) -> None:
    await provider.claims("ann", groups=["eng-core"])
    await provider.claims("ben", groups=["support"])
    await provider.claims("eve", groups=[])
    roles = [
        {"name": "engineering", "groups": "eng-*", "servers": "*"},
        {"name": "support", "groups": "support", "tools": "other/journal"},
    ]
    async with bridge(place, provider, sections={"roles": roles}) as origin:
        assert await names_of(origin, Person(provider, "ann")) == {"up__journal", "other__journal"}
        assert await names_of(origin, Person(provider, "ben")) == {"other__journal"}
        assert await names_of(origin, Person(provider, "eve")) == set()
        async with signed_in(origin, Person(provider, "ben"), Storage()) as client:
            assert (await client.call_tool("other__journal", {})).content
            with pytest.raises(MCPError, match="up__journal"):
                await client.call_tool("up__journal", {})


async def test_whoever_can_sign_in_does_not_get_the_machine_unasked(place: Place, provider: MockProvider) -> None:
    sections = {"builtin": {"enable": ["file-read"]}}
    async with bridge(place, provider, sections=sections) as origin:
        assert await names_of(origin, Person(provider, "alice")) == {"up__journal", "other__journal"}


async def test_a_call_without_its_scope_asks_for_more_and_one_with_it_is_made(
    place: Place, provider: MockProvider
) -> None:
    """The SDK's client steps up by itself: 403 says which scopes, and the person agrees once more."""
    roles = [{"name": "everybody", "principals": "*", "servers": "*"}]
    scopes = {"scopes": ["tools"], "scopes_supported": ["tools", "journal"], "tool_scopes": {"up/journal": ["journal"]}}
    async with bridge(place, provider, sections={"roles": roles}, **scopes) as origin:
        storage = Storage()
        async with signed_in(origin, Person(provider, "alice"), storage) as client:
            first = storage.tokens
            assert first is not None
            async with httpx2.AsyncClient() as http:
                refused = await http.post(
                    f"{origin}/mcp",
                    json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL},
                    headers={
                        "authorization": f"Bearer {first.access_token}",
                        "accept": "application/json, text/event-stream",
                        "mcp-protocol-version": "2026-07-28",
                        "mcp-method": "tools/call",
                        "mcp-name": "up__journal",
                    },
                )
            assert first.scope == "tools"
            assert refused.status_code == 403, refused.text
            challenge = refused.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert "journal" in challenge
            assert (await client.call_tool("up__journal", {})).content
            assert storage.tokens is not None
            assert "journal" in (storage.tokens.scope or "").split()
