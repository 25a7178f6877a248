"""Enterprise-managed authorization, the client's side: an assertion about the user becomes a token of the server."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcpbridge.base.errors import SignInNeeded, UpstreamUnavailable
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.upstream.accounts.identity_assertion import AssertedToken, AuthorizationServerOfUpstream, NoAssertion
from mcpbridge.upstream.auth.http import SignInRefused
from mcpbridge.upstream.auth.settings import AuthSettings
from support.upstreams.oauth_server import served

PRINCIPAL = "https://login.example.com#ann"


@dataclass
class Place:
    """The server, its authorization server, and the identity provider that vouches for people."""

    origin: str = ""
    documents: dict[str, Any] = field(default_factory=dict[str, Any])
    """Served at well-known addresses, by path; what is not here is 404."""
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The forms of the token endpoint, with the credentials as `basic`."""
    revoked: list[str] = field(default_factory=list[str])
    vouched: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """What the identity provider was asked for."""
    refusal: NoAssertion | None = None
    answer: Any = None
    """What the token endpoint answers instead."""
    status: int = 200
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def learned(self) -> AuthorizationServerOfUpstream:
        return self._learned

    def __post_init__(self) -> None:
        self._learned = AuthorizationServerOfUpstream()
        self.gate.set()

    async def document(self, request: Request) -> JSONResponse:
        found = self.documents.get(request.url.path)
        return JSONResponse(found) if found is not None else JSONResponse({}, 404)

    async def token(self, request: Request) -> JSONResponse:
        form = {key: one for key, [one] in parse_qs((await request.body()).decode()).items()}
        scheme, _, pair = request.headers.get("authorization", "").partition(" ")
        self.asked.append({**form, scheme.lower(): base64.b64decode(pair).decode()})
        await self.gate.wait()
        given = {"access_token": f"token-{len(self.asked)}", "token_type": "Bearer", "expires_in": 3600}
        return JSONResponse(self.answer if self.answer is not None else given, self.status)

    async def revoke(self, request: Request) -> JSONResponse:
        self.revoked.append(parse_qs((await request.body()).decode())["token"][0])
        return JSONResponse({})

    async def assertion(self, principal: str, audience: str, resource: str, scope: str) -> str:
        """As the bridge's own sign-in gives one."""
        if self.refusal is not None:
            raise self.refusal
        self.vouched.append((principal, audience, resource, scope))
        return f"assertion-{len(self.vouched)}"

    def user(self, principal: str = PRINCIPAL, **auth: Any) -> AssertedToken:
        given = {"as": "id-jag", "client_id": "bridge:1", "client_secret": "s+1", **auth}
        settings = AuthSettings.model_validate(given)
        nothing: Callable[..., None] = lambda name, secrets: None  # noqa: E731 - two words
        return AssertedToken("up", self.url, principal, settings, Network(), nothing, lambda: self, self.learned)


@asynccontextmanager
async def place() -> AsyncGenerator[Place]:
    one = Place()

    def app(origin: str) -> Starlette:
        one.origin = origin
        one.documents = {
            "/.well-known/oauth-protected-resource/mcp": {"resource": one.url, "authorization_servers": [origin]},
            "/.well-known/oauth-authorization-server": {
                "issuer": origin,
                "token_endpoint": f"{origin}/token",
                "revocation_endpoint": f"{origin}/revoke",
            },
        }
        routes = [
            Route("/token", one.token, methods=["POST"]),
            Route("/revoke", one.revoke, methods=["POST"]),
            Route("/{path:path}", one.document),
        ]
        return Starlette(routes=routes)

    with anyio.fail_after(60):
        async with served(app):
            yield one


async def test_an_assertion_is_asked_for_and_becomes_a_token() -> None:
    """RFC 8693 for the first half, RFC 7523 for the second, RFC 6749, 2.3.1 for the credentials."""
    async with place() as one:
        token = one.user(issuer=one.origin, scopes=["read", "write"])
        assert token.ready is None
        assert await token.token() == token.ready == "token-1"
        assert one.vouched == [(PRINCIPAL, one.origin, one.url, "read write")]
        assert one.asked == [
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "assertion": "assertion-1",
                "resource": one.url,
                "scope": "read write",
                "basic": "bridge%3A1:s%2B1",
            }
        ]


async def test_many_calls_cause_one_request_and_later_ones_none() -> None:
    async with place() as one:
        token = one.user(issuer=one.origin)
        one.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            got = [tasks.create_task(token.token()) for _ in range(100)]
            while not one.asked:
                await asyncio.sleep(0.01)
            one.gate.set()
        assert {task.result() for task in got} == {"token-1"}
        assert (await token.token(), len(one.vouched)) == ("token-1", 1)


async def test_the_server_says_which_authorization_server_is_its_own() -> None:
    """RFC 9728: at its well-known address, or where its refusal says."""
    async with place() as one:
        assert await one.user().token() == "token-1"
        assert one.vouched[0][1] == one.origin
    async with place() as one:
        document = one.documents.pop("/.well-known/oauth-protected-resource/mcp")
        one.documents["/elsewhere"] = document
        token = one.user()
        assert await token.token() == "", "the server is to refuse first"
        assert one.vouched == []
        assert await token.refused("", 401, f'Bearer resource_metadata="{one.origin}/elsewhere"')
        assert token.ready == "token-1"


async def test_a_server_that_names_another_one_later_gets_nobody_signed_in_there() -> None:
    """By its own word alone, what people may do elsewhere must not become its to use."""
    async with place() as one:
        token = one.user()
        await token.token()
        named = one.documents["/.well-known/oauth-protected-resource/mcp"]
        named["authorization_servers"] = ["https://other.example"]
        with pytest.raises(SignInRefused, match="names another authorization server than before"):
            await token.refused("token-1", 401, "Bearer")
        with pytest.raises(SignInRefused, match="names another"):
            await one.user("https://login.example.com#bob").refused("", 401, "Bearer")
        assert len(one.asked) == 1


RESOURCE, SERVER = "oauth-protected-resource/mcp", "oauth-authorization-server"
OTHER = {"issuer": "https://x.example", "token_endpoint": "https://x.example/token"}
OWN = {"issuer": "{origin}", "token_endpoint": "{origin}/token"}


@pytest.mark.parametrize(
    ("path", "document", "message"),
    [
        (RESOURCE, {"resource": "https://x.example", "authorization_servers": ["y"]}, "of another resource"),
        (RESOURCE, {"resource": "{url}", "authorization_servers": []}, "no authorization server"),
        (SERVER, OTHER, "of another issuer"),
        (SERVER, {"issuer": "{origin}"}, "no metadata"),
        (SERVER, {**OWN, "grant_types_supported": ["authorization_code"]}, "takes no identity assertions"),
        (SERVER, {**OWN, "token_endpoint": "http://192.0.2.1/token"}, "not https"),
    ],
)
async def test_documents_that_do_not_fit_are_not_believed(path: str, document: dict[str, Any], message: str) -> None:
    async with place() as one:
        filled = {
            key: value.format(url=one.url, origin=one.origin) if isinstance(value, str) else value
            for key, value in document.items()
        }
        one.documents[f"/.well-known/{path}"] = filled
        with pytest.raises(SignInRefused, match=message):
            await one.user().token()
        assert one.asked == []


async def test_a_refused_token_is_replaced_by_a_new_assertion_and_more_rights_are_asked_for_once() -> None:
    async with place() as one:
        token = one.user(issuer=one.origin)
        first = await token.token()
        assert await token.refused(first, 401, "Bearer")
        second = await token.token()
        assert second != first
        more = 'Bearer error="insufficient_scope", scope="write"'
        assert await token.refused(second, 403, more)
        assert (one.vouched[-1][3], one.asked[-1]["scope"]) == ("write", "write")
        assert len({form["assertion"] for form in one.asked}) == 3, "an assertion is used once"
        assert not await token.refused(await token.token(), 403, more)


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        ({"access_token": "assertion-1", "token_type": "Bearer"}, 200, SignInRefused),
        ({"access_token": "a b", "token_type": "Bearer"}, 200, UpstreamUnavailable),
        ({"access_token": "x", "token_type": "DPoP"}, 200, UpstreamUnavailable),
        ({"token_type": "Bearer"}, 200, UpstreamUnavailable),
        ([], 200, UpstreamUnavailable),
        ({"error": "invalid_grant"}, 400, UpstreamUnavailable),
        ({}, 503, UpstreamUnavailable),
    ],
)
async def test_what_is_no_good_answer_brings_no_token(answer: Any, status: int, error: type[Exception]) -> None:
    async with place() as one:
        one.answer, one.status = answer, status
        token = one.user(issuer=one.origin)
        with pytest.raises(error) as raised:
            await token.token()
        assert "assertion-" not in str(raised.value)
        assert token.ready is None


async def test_who_is_not_vouched_for_is_told_why() -> None:
    async with place() as one:
        token = one.user(issuer=one.origin)
        one.refusal = NoAssertion("it cannot be reached", is_passing=True)
        with pytest.raises(UpstreamUnavailable, match="it cannot be reached"):
            await token.token()
        one.refusal = NoAssertion("sign in again")
        with pytest.raises(SignInNeeded, match="sign in again"):
            await token.token()
        with pytest.raises(SignInNeeded, match="signed in at the bridge"):
            await one.user("", issuer=one.origin).token()
        one.refusal = None
        assert await token.token() == "token-1"


async def test_a_token_is_given_back() -> None:
    """RFC 7009. What cannot be given back is forgotten all the same."""
    async with place() as one:
        token = one.user(issuer=one.origin)
        assert not await token.revoke()
        await token.token()
        assert await token.revoke()
        assert (one.revoked, token.ready) == (["token-1"], None)
        one.documents["/.well-known/oauth-authorization-server"].pop("revocation_endpoint")
        other = Place(one.origin, one.documents).user(issuer=one.origin)
        await other.token()
        assert (await other.revoke(), other.ready) == (False, None)
