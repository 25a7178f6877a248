"""Token exchange (RFC 8693): the token of a user becomes one of the server, and never goes there itself."""

import asyncio
import base64
import time
from collections.abc import AsyncGenerator
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
from mcpbridge.upstream.accounts.exchange import ACCESS_TOKEN, ExchangedToken, PresentedTokens
from mcpbridge.upstream.auth.http import SignInRefused
from mcpbridge.upstream.auth.settings import AuthSettings
from support.upstreams.oauth_server import oauth_world, served

SERVER = "http://127.0.0.1:9/mcp"


@dataclass
class Provider:
    """An authorization server that exchanges tokens."""

    issuer: str = ""
    asked: list[tuple[dict[str, str], str]] = field(default_factory=list[tuple[dict[str, str], str]])
    """The form and the `Authorization` of every exchange."""
    answer: Any = None
    """What it answers instead."""
    status: int = 200
    revoked: list[tuple[dict[str, str], str]] = field(default_factory=list[tuple[dict[str, str], str]])
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def token(self, request: Request) -> JSONResponse:
        form = {key: one for key, [one] in parse_qs((await request.body()).decode()).items()}
        self.asked.append((form, request.headers.get("authorization", "")))
        await self.gate.wait()
        given = {
            "access_token": f"for-{form.get('subject_token') or form['assertion']}-{len(self.asked)}",
            "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": 3600,
        }
        return JSONResponse(self.answer if self.answer is not None else given, self.status)

    async def metadata(self, _: Request) -> JSONResponse:
        endpoints = {"token_endpoint": f"{self.issuer}/token", "revocation_endpoint": f"{self.issuer}/revoke"}
        return JSONResponse({"issuer": self.issuer, **endpoints})

    async def revoke(self, request: Request) -> JSONResponse:
        form = {key: one for key, [one] in parse_qs((await request.body()).decode()).items()}
        self.revoked.append((form, request.headers.get("authorization", "")))
        return JSONResponse({}, self.status)


@asynccontextmanager
async def provider() -> AsyncGenerator[Provider]:
    one = Provider()
    one.gate.set()

    def app(origin: str) -> Starlette:
        one.issuer = origin
        routes = [
            Route("/token", one.token, methods=["POST"]),
            Route("/revoke", one.revoke, methods=["POST"]),
            Route("/.well-known/oauth-authorization-server", one.metadata),
        ]
        return Starlette(routes=routes)

    with anyio.fail_after(30):
        async with served(app):
            yield one


def exchanged(one: Provider, presented: PresentedTokens, principal: str = "", **auth: Any) -> ExchangedToken:
    principal = principal or f"{one.issuer}#alice"
    given = {"as": "exchange", "issuer": one.issuer, "client_id": "bridge:1", "client_secret": "s+1", **auth}
    settings = AuthSettings.model_validate(given)
    return ExchangedToken("up", SERVER, principal, settings, Network(), presented, lambda name, secrets: None)


def of_alice(one: Provider, expires_at: float | None = None) -> PresentedTokens:
    presented = PresentedTokens()
    presented.present(f"{one.issuer}#alice", "subject", expires_at)
    return presented


async def test_the_token_of_the_user_is_exchanged_for_this_server() -> None:
    """RFC 8693, 2.1; RFC 6749, 2.3.1 for the credentials of the bridge."""
    async with provider() as one:
        token = exchanged(one, of_alice(one), audience="api://up", scopes=["read", "write"])
        assert token.ready is None
        assert await token.token() == token.ready == "for-subject-1"
        [(form, authorization)] = one.asked
        assert form == {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": "subject",
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "resource": SERVER,
            "audience": "api://up",
            "scope": "read write",
        }
        assert base64.b64decode(authorization.removeprefix("Basic ")) == b"bridge%3A1:s%2B1"


async def test_at_entra_the_token_is_exchanged_on_behalf_of_the_user() -> None:
    """What its documentation asks for; its answer names no `issued_token_type`."""
    async with provider() as one:
        token = exchanged(one, of_alice(one), exchange="on-behalf-of", scopes=["api://up/.default"])
        one.answer = {"access_token": "for-up", "token_type": "Bearer", "expires_in": 3599, "scope": "api://up/read"}
        assert await token.token() == "for-up"
        [(form, authorization)] = one.asked
        assert form == {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": "subject",
            "requested_token_use": "on_behalf_of",
            "scope": "api://up/.default",
        }
        assert authorization.startswith("Basic ")
        one.answer, one.status = {"error": "invalid_grant", "error_description": "AADSTS65001: no consent"}, 400
        token = exchanged(one, of_alice(one), exchange="on-behalf-of", scopes=["api://up/.default"])
        with pytest.raises(SignInNeeded, match="not good for it"):
            await token.token()


async def test_many_calls_cause_one_exchange_and_later_ones_none() -> None:
    async with provider() as one:
        token = exchanged(one, of_alice(one))
        one.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            got = [tasks.create_task(token.token()) for _ in range(50)]
            while not one.asked:
                await asyncio.sleep(0.01)
            one.gate.set()
        assert {task.result() for task in got} == {"for-subject-1"}
        assert await token.token() == "for-subject-1"
        assert len(one.asked) == 1


async def test_a_refused_token_is_exchanged_anew_and_more_rights_are_asked_for_once() -> None:
    async with provider() as one:
        token = exchanged(one, of_alice(one))
        first = await token.token()
        assert await token.refused(first, 401, "Bearer")
        second = await token.token()
        assert second != first
        more = 'Bearer error="insufficient_scope", scope="write"'
        assert await token.refused(second, 403, more)
        assert one.asked[-1][0]["scope"] == "write"
        assert not await token.refused(await token.token(), 403, more)
        assert not await token.refused(await token.token(), 403, "Bearer")


async def test_nothing_goes_on_once_the_token_of_the_user_has_ended() -> None:
    """Who may not come in any more has no way on upstream either."""
    async with provider() as one:
        token = exchanged(one, of_alice(one, time.time() + 0.2))
        await token.token()
        while token.ready is not None:
            await asyncio.sleep(0.02)
        with pytest.raises(SignInNeeded):
            await token.token()
        with pytest.raises(SignInNeeded):
            await exchanged(one, PresentedTokens()).token()
        with pytest.raises(SignInNeeded):
            await exchanged(one, of_alice(one), "iss#bob").token()


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        ({"access_token": "subject", "token_type": "Bearer"}, 200, SignInRefused),
        ({"access_token": "a b", "token_type": "Bearer"}, 200, UpstreamUnavailable),
        ({"access_token": "x", "token_type": "N_A"}, 200, UpstreamUnavailable),
        ({"access_token": "x", "token_type": "Bearer", "issued_token_type": "urn:x:saml2"}, 200, UpstreamUnavailable),
        ({"token_type": "Bearer"}, 200, UpstreamUnavailable),
        (["x"], 200, UpstreamUnavailable),
        ({"error": "invalid_target"}, 400, UpstreamUnavailable),
        ({"error": "invalid_grant"}, 400, SignInNeeded),
        ({}, 503, UpstreamUnavailable),
    ],
)
async def test_what_is_no_good_answer_brings_no_token(answer: Any, status: int, error: type[Exception]) -> None:
    async with provider() as one:
        one.answer, one.status = answer, status
        token = exchanged(one, of_alice(one))
        with pytest.raises(error) as raised:
            await token.token()
        assert "subject" not in str(raised.value)
        assert token.ready is None


async def test_the_metadata_of_another_issuer_is_not_believed() -> None:
    async with provider() as one, oauth_world() as world:
        token = exchanged(one, of_alice(one))
        one.issuer = world.issuer
        with pytest.raises(SignInRefused, match="another issuer"):
            await token.token()
        assert one.asked == []


async def test_the_token_of_another_provider_is_not_given_away() -> None:
    async with provider() as one:
        presented = PresentedTokens()
        presented.present("https://other.example#alice", "subject", None)
        for auth in ({}, {"issuer": None, "token_endpoint": f"{one.issuer}/token"}):
            token = exchanged(one, presented, "https://other.example#alice", **auth)
            with pytest.raises(SignInNeeded):
                await token.token()
        assert one.asked == []


async def test_a_token_that_was_exchanged_is_given_back() -> None:
    """RFC 7009. What cannot be given back is forgotten all the same."""
    async with provider() as one:
        token = exchanged(one, of_alice(one))
        assert not await token.revoke(), "there was none"
        await token.token()
        assert await token.revoke()
        [(form, authorization)] = one.revoked
        assert form == {"token": "for-subject-1", "token_type_hint": "access_token"}
        assert base64.b64decode(authorization.removeprefix("Basic ")) == b"bridge%3A1:s%2B1"
        assert token.ready is None
        await token.token()
        one.status = 503
        assert (await token.revoke(), token.ready) == (False, None)
        one.status = 200
        alone = exchanged(one, of_alice(one), issuer=None, token_endpoint=f"{one.issuer}/token")
        await alone.token()
        assert (await alone.revoke(), alone.ready) == (False, None), "nobody says where"
        assert len(one.revoked) == 2
