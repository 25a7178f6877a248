"""The front as an OAuth 2.1 resource server: every front, metadata, challenges, outages, ends of tokens."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import websockets
from joserfc.jwk import RSAKey
from websockets.asyncio.client import connect

from mcpbridge.base.errors import InsufficientScope
from mcpbridge.downstream.auth.access_tokens import AccessTokens
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.signed_tokens import InvalidToken
from mcpbridge.downstream.errors import to_answer
from mcpbridge.downstream.http import token_lifetime
from mcpbridge.downstream.settings import HttpSettings, ResourceServerSettings, TokenSettings
from support.http_front import LEGACY, Http, modern_body, modern_headers, request, serving
from support.token_issuer import Issuer, b64, issuing

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def oauth(issuer: Issuer, **more: Any) -> ResourceServerSettings:
    return ResourceServerSettings.model_validate(issuer.settings(**more))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def initialize(http: Http, token: str) -> int:
    return (await http.post(request("initialize", protocolVersion=LEGACY), **bearer(token))).status_code


async def test_a_person_comes_in_on_each_front_and_is_known_there() -> None:
    async with issuing() as issuer, serving(oauth=oauth(issuer)) as http:
        token = issuer.token(email="ann@example.com", scope="tools read")
        await http.modern("ping")  # without a token: nobody is asked
        assert http.core.asked == []
        response = await http.post(modern_body("ping"), **modern_headers("ping", {}), **bearer(token))
        assert response.status_code == 200
        session = await http.session(**bearer(token))
        assert (await http.post(request("ping"), **session)).status_code == 200
        async with connect(
            http.url.replace("http", "ws", 1).replace("/mcp", "/ws"),
            subprotocols=[websockets.Subprotocol("mcp")],
            additional_headers=bearer(token),
            proxy=None,
        ) as socket:
            await socket.send(json.dumps(request("initialize", protocolVersion=LEGACY)))
            assert json.loads(await socket.recv())["result"]
        async with http.client.stream("GET", f"{http.root}/sse", headers=bearer(token)) as sse:
            assert sse.status_code == 200
        people = {client.identity for client, _ in http.core.asked}
        assert {person.principal for person in people if person} == {f"{issuer.url}#ann"}
        person = next(person for person in people if person is not None)
        assert (person.client_id, person.scopes, person.name) == ("a-client", {"tools", "read"}, "ann@example.com")
        assert {client.principal for client, _ in http.core.asked} == {f"{issuer.url}#ann"}
        assert (await http.client.get(f"{http.root}/readyz", headers=bearer(token))).status_code == 200
        assert (await http.client.get(f"{http.root}/readyz")).status_code == 401
        assert (await http.client.get(f"{http.root}/healthz")).status_code == 200
        assert issuer.requests.count("/keys") == 1


async def test_an_administrator_is_nobody_by_a_token_of_an_issuer() -> None:
    """What is behind `is_admin` is not opened by having signed in."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["state"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    settings = HttpSettings(tokens=[TokenSettings(name="root", sha256=sha256("r" * 20), admin=True)])
    async with issuing() as issuer, serving(settings, oauth=oauth(issuer), mounts={"/api": lambda: app}) as http:
        for token in (issuer.token(admin=True, scope="admin"), "r" * 20):
            assert (await http.client.get(f"{http.root}/api", headers=bearer(token))).status_code == 200
        assert [state["is_admin"] for state in seen] == [False, True]
        assert seen[0]["principal"] == f"{issuer.url}#ann"


def sha256(token: str) -> str:
    import hashlib

    return hashlib.sha256(token.encode()).hexdigest()


async def test_only_administrators_read_the_names_of_all_servers_where_people_sign_in() -> None:
    settings = HttpSettings(tokens=[TokenSettings(name="root", sha256=sha256("r" * 20), admin=True)])
    async with issuing() as issuer, serving(settings, oauth=oauth(issuer)) as http:
        person = await http.client.get(f"{http.root}/readyz", headers=bearer(issuer.token()))
        assert person.json() == {"status": "ready"}
        admin = await http.client.get(f"{http.root}/readyz", headers=bearer("r" * 20))
        assert [server["name"] for server in admin.json()["servers"]] == ["a", "b"]


async def test_service_accounts_stay_beside_people() -> None:
    settings = HttpSettings(tokens=[TokenSettings(name="job", sha256=sha256("j" * 20))])
    async with issuing() as issuer, serving(settings, oauth=oauth(issuer)) as http:
        assert await initialize(http, "j" * 20) == 200
        assert (http.core.clients[-1].principal, http.core.clients[-1].identity) == ("job", None)
        assert await initialize(http, issuer.token()) == 200
        assert await initialize(http, "k" * 20) == 401


@pytest.mark.parametrize("name", ["https://login.example.com", "https://x#ann", "a#b"])
def test_a_service_account_is_not_called_as_a_person_is(name: str) -> None:
    with pytest.raises(ValueError, match="vouches for"):
        TokenSettings(name=name, sha256="0" * 64)


async def test_a_session_is_of_whoever_opened_it() -> None:
    async with issuing() as issuer, serving(oauth=oauth(issuer)) as http:
        session = await http.session(**bearer(issuer.token()))
        again = session | bearer(issuer.token(scope="other", jti="2"))
        assert (await http.post(request("ping"), **again)).status_code == 200
        client, _ = http.core.asked[-1]
        assert client.identity is not None
        assert client.identity.scopes == {"other"}, "of its latest request"
        for token in (issuer.token(sub="eve"), issuer.token(sub="Ann")):
            assert (await http.post(request("ping"), **(session | bearer(token)))).status_code == 404
            assert (await http.delete(**(session | bearer(token)))).status_code == 404


@pytest.mark.parametrize(
    ("resource", "path", "found", "named"),
    [
        ("https://b.example/mcp", "", "https://b.example/mcp", "/mcp"),
        ("https://b.example/mcp", "/mcp", "https://b.example/mcp", "/mcp"),
        ("https://b.example/mcp", "/servers/files/mcp", "https://b.example/servers/files/mcp", "/servers/files/mcp"),
        ("https://b.example/mcp", "/servers/no-such/mcp", "https://b.example/servers/no-such/mcp", None),
        ("https://b.example/mcp", "/p/coding/mcp", "https://b.example/p/coding/mcp", "/p/coding/mcp"),
        ("https://b.example/mcp", "/sse", "https://b.example/sse", "/sse"),
        ("https://b.example/mcp", "/p/coding/ws", "https://b.example/p/coding/ws", None),
        ("https://b.example/mcp", "/api", None, ""),
        ("https://b.example/mcp", "/servers/files", None, None),
        ("https://b.example", "/mcp", "https://b.example", "/mcp"),
        ("https://b.example", "/servers/files/mcp", "https://b.example", "/servers/files/mcp"),
        ("https://b.example/gate/mcp", "/gate/mcp", "https://b.example/gate/mcp", None),
        ("https://b.example/gate/mcp", "/mcp", "https://b.example/gate/mcp", None),
        ("https://b.example/gate/mcp", "/gate/p/coding/mcp", "https://b.example/gate/p/coding/mcp", None),
    ],
)
async def test_each_endpoint_has_metadata_and_names_it_in_its_refusal(
    resource: str, path: str, found: str | None, named: str | None
) -> None:
    """RFC 9728, 3.1 and 5.1. That a server exists is not to be learnt there."""
    settings = ResourceServerSettings.model_validate(
        {
            "resource": resource,
            "issuers": {"a": {"issuer": "https://a.example"}, "b": {"issuer": "https://b.example/t"}},
            "scopes": ["tools"],
        }
    )
    async with serving(oauth=settings) as http:
        response = await http.client.get(f"{http.root}{WELL_KNOWN}{path}")
        if found is None:
            assert response.status_code == 401
        else:
            assert response.headers["content-type"] == "application/json"
            assert response.json() == {
                "resource": found,
                "authorization_servers": ["https://a.example", "https://b.example/t"],
                "bearer_methods_supported": ["header"],
                "resource_name": "mcpbridge",
                "scopes_supported": ["tools"],
            }
        if named is not None:
            response = await http.client.post(f"{http.root}{path or '/mcp'}", json=request("ping"))
            assert response.status_code == 401
            where = f"https://b.example{WELL_KNOWN}{named or '/mcp'}"
            assert response.headers["www-authenticate"] == f'Bearer scope="tools", resource_metadata="{where}"'


async def test_a_token_for_one_endpoint_is_for_no_other() -> None:
    async with issuing() as issuer, serving(oauth=oauth(issuer)) as http:
        mail = issuer.token(aud="https://bridge.example.com/servers/mail/mcp")
        bridge = issuer.token(aud=["https://x.example", "HTTPS://Bridge.Example.com:443/mcp/"])
        for token, endpoints in (
            (mail, {"/servers/mail/mcp"}),
            (bridge, {"/mcp", "/servers/mail/mcp", "/p/coding/mcp"}),
        ):
            for path in ("/mcp", "/servers/mail/mcp", "/servers/files/mcp", "/p/coding/mcp"):
                response = await http.client.post(
                    http.root + path,
                    json=modern_body("ping"),
                    headers={**named_headers(), **bearer(token)},
                )
                expected = 200 if path in endpoints or token is bridge else 401
                assert response.status_code == expected, (path, response.text)


def named_headers() -> dict[str, str]:
    headers = {"accept": "application/json, text/event-stream", **modern_headers("ping", {})}
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def test_an_audience_of_the_provider_can_stand_for_the_bridge() -> None:
    settings = {"own": {"audience": ["api://mcpbridge", "4c5d3b7e"]}}
    async with issuing() as issuer, serving(oauth=oauth(issuer, **settings)) as http:
        for audience, status in (("api://mcpbridge", 200), ("4c5d3b7e", 200), ("api://other", 401), ("4c5d3b7", 401)):
            assert await initialize(http, issuer.token(aud=audience)) == status


async def test_a_token_in_the_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """RFC 6750, 2.3; MCP, authorization: tokens must not be in the query."""
    async with issuing() as issuer, serving(oauth=oauth(issuer)) as http:
        token = issuer.token()
        for query in (f"access_token={token}", f"a=1&access%5Ftoken={token}"):
            for headers in ({}, bearer(token)):
                response = await http.client.post(f"{http.url}?{query}", json=request("ping"), headers=headers)
                assert response.status_code == 400
                assert 'error="invalid_request"' in response.headers["www-authenticate"]
                assert token not in response.text
        url = http.url.replace("http", "ws", 1).replace("/mcp", "/ws")
        with pytest.raises(websockets.InvalidStatus, match="400"):
            async with connect(f"{url}?access_token={token}", additional_headers=bearer(token), proxy=None):
                pass
        assert token not in "".join(capsys.readouterr())


@pytest.mark.parametrize("scheme", ["Basic YW5uOng=", "DPoP {}", "Token {}", "{}"])
async def test_other_schemes_are_asked_for_a_bearer(scheme: str) -> None:
    async with issuing() as issuer, serving(oauth=oauth(issuer)) as http:
        response = await http.post(request("ping"), authorization=scheme.format(issuer.token()))
        assert response.status_code == 401
        assert "error=" not in response.headers["www-authenticate"]


async def test_a_missing_scope_is_answered_with_all_that_are_needed() -> None:
    """RFC 6750, 3.1; MCP, authorization, step-up."""
    async with issuing() as issuer, serving(oauth=oauth(issuer)) as http:
        answer, missing = http.core.answer, InsufficientScope(["files:write", "files:read"])

        async def refusing(client: Any, frame: Any, notify: Any, **more: Any) -> Any:
            if frame.method != "tools/call":
                return await answer(client, frame, notify, **more)
            return to_answer(missing, bytes(frame.id), frame.method, modern=client.modern)

        http.core.answer = refusing
        token = issuer.token()
        session = await http.session(**bearer(token))
        modern = modern_headers("tools/call", {"name": "x"}) | bearer(token)
        for response in (
            await http.post(request("tools/call", name="x"), **session),
            await http.post(modern_body("tools/call", name="x"), **modern),
        ):
            assert response.status_code == 403
            challenge = response.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert 'scope="files:read files:write"' in challenge
            assert "resource_metadata=" in challenge
            assert response.json()["result"]["_meta"]["mcpbridge/scopes"] == ["files:read", "files:write"]


async def test_streams_end_with_the_token_that_opened_them() -> None:
    """A token that ends in some seconds, on each kind of stream."""
    async with issuing() as issuer, serving(oauth=oauth(issuer, leeway=0)) as http:
        token = issuer.token(exp=int(time.time()) + 6)
        session = await every_stream_ends(http, token)
        assert (await http.post(request("ping"), **session)).status_code == 401
        assert (await http.post(request("ping"), **(session | bearer(issuer.token())))).status_code == 200


async def test_streams_of_a_token_that_says_no_end_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider may revoke it, and nobody would ask about it again."""
    monkeypatch.setattr(token_lifetime, "LONGEST_WITHOUT_END", 1.0)
    asks = {"client_id": "bridge", "client_secret": "secret"}
    async with issuing() as issuer, serving(oauth=oauth(issuer, own={"introspection": asks})) as http:
        issuer.active = {"opaque": {"active": True, "sub": "ann", "aud": issuer.resource}}
        session = await every_stream_ends(http, "opaque")
        assert (await http.post(request("ping"), **session)).status_code == 200, "the token itself still counts"


async def every_stream_ends(http: Http, token: str) -> dict[str, str]:
    """Open one of each kind and wait for their ends; the session."""
    session = await http.session(**bearer(token))
    url = http.url.replace("http", "ws", 1).replace("/mcp", "/ws")
    events = {"accept": "text/event-stream"}

    async def read(path: str, headers: dict[str, str]) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with http.client.stream("GET", http.root + path, headers=named) as response:
            async for _ in response.aiter_bytes():
                pass
            return response.status_code

    async def listen() -> int:
        headers = modern_headers("subscriptions/listen", {}) | bearer(token)
        async with http.stream("POST", modern_body("subscriptions/listen"), **headers) as response:
            async for _ in response.aiter_bytes():
                pass
            return response.status_code

    async with connect(url, additional_headers=bearer(token), proxy=None) as socket:
        statuses = await asyncio.gather(
            read("/mcp", session | events), read("/sse", bearer(token) | events), listen(), socket.wait_closed()
        )
        assert statuses[:3] == [200, 200, 200]
        assert socket.close_code == 3000
    return session


async def test_a_head_that_was_let_in_is_not_let_in_after_its_end() -> None:
    """The connection knows the head of the former request; the token in it ends all the same."""
    async with issuing() as issuer, serving(oauth=oauth(issuer, leeway=0)) as http:
        token = issuer.token(exp=int(time.time()) + 2)
        headers = modern_headers("ping", {}) | bearer(token)
        statuses = [(await http.post(modern_body("ping"), **headers)).status_code for _ in range(3)]
        assert statuses == [200] * 3
        async with asyncio.timeout(60):
            while statuses[-1] == 200:
                statuses.append((await http.post(modern_body("ping"), **headers)).status_code)
                await asyncio.sleep(0.05)  # nothing says when a token has ended
        assert statuses[-1] == 401


# What is behind it: the decision about a token, with a clock of the test.


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = time.time()

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> float:
        return self.began + self.seconds


def tokens_of(issuer: Issuer, clock: Clock, **own: Any) -> AccessTokens:
    return AccessTokens(oauth(issuer, own=own), now=clock.now, clock=clock)


async def outcome(tokens: AccessTokens, token: str) -> str:
    try:
        return (await tokens.check(token.encode())).identity.subject
    except InvalidToken as invalid:
        return invalid.reason
    except ProviderDown:
        return "down"


@pytest.mark.parametrize(
    ("claim", "seconds", "expected"),
    [
        ("exp", -30, "ann"),
        ("exp", -90, "expired"),
        ("nbf", 30, "ann"),
        ("nbf", 90, "not valid yet"),
        ("iat", 30, "ann"),
        ("iat", 90, "not valid yet"),
    ],
)
async def test_clocks_may_differ_by_the_leeway(claim: str, seconds: int, expected: str) -> None:
    """The clock of the provider and ours differ; a minute is allowed to both sides, and no more."""
    async with issuing() as issuer:
        clock = Clock()
        tokens = tokens_of(issuer, clock)
        now = int(clock.now())
        token = issuer.token(**{claim: now + seconds})
        assert await outcome(tokens, token) == expected
        assert await outcome(tokens, token) == expected, "known by now"
        clock.seconds = 31
        late = {("exp", -30): "expired", ("nbf", 90): "ann", ("iat", 90): "ann"}
        assert await outcome(tokens, token) == late.get((claim, seconds), expected)
        await tokens.close()


async def test_known_keys_go_on_for_an_hour_without_their_provider() -> None:
    """Issue 23: afterwards nobody is let in by them, until the provider is back."""
    async with issuing() as issuer:
        clock = Clock()
        tokens = tokens_of(issuer, clock)
        assert await outcome(tokens, issuer.token(jti="0")) == "ann"
        await issuer.stop()
        for minute in (4, 10, 30, 59):
            clock.seconds = minute * 60
            assert await outcome(tokens, issuer.token(jti=str(minute), exp=int(clock.now()) + 600)) == "ann"
            while tokens.issuers[issuer.url].keys.is_fetching:
                await asyncio.sleep(0.01)
        clock.seconds = 3700
        late = issuer.token(exp=int(clock.now()) + 3600)
        assert await outcome(tokens, late) == "down"
        await issuer.start()
        assert await outcome(tokens, late) == "down", "not asked again at once"
        clock.seconds += 11
        assert await outcome(tokens, late) == "ann"
        await tokens.close()


async def test_a_provider_that_was_never_there_lets_nobody_in_and_says_when_to_come_back() -> None:
    async with issuing() as issuer:
        token = issuer.token()
        await issuer.stop()
        async with serving(oauth=oauth(issuer)) as http:
            response = await http.post(request("ping"), **bearer(token))
            assert response.status_code == 503
            assert 1 <= int(response.headers["retry-after"]) <= 10
            assert "www-authenticate" not in response.headers


async def test_a_new_key_is_fetched_once_for_all_who_wait() -> None:
    async with issuing() as issuer:
        clock = Clock()
        tokens = tokens_of(issuer, clock)
        assert await outcome(tokens, issuer.token()) == "ann"
        issuer.keys["two"] = RSAKey.generate_key(2048, {"kid": "two"})
        rotated = [issuer.token(kid="two", sub=f"p{number}") for number in range(50)]
        assert await outcome(tokens, rotated[0]) == "no key of its issuer has signed it", "at most once in a while"
        clock.seconds = 11
        issuer.hold = asyncio.Event()
        waiting = [asyncio.create_task(outcome(tokens, token)) for token in rotated]
        while issuer.requests.count("/keys") + len(issuer.requests) < 3:
            await asyncio.sleep(0.01)
        issuer.hold.set()
        assert await asyncio.gather(*waiting) == [f"p{number}" for number in range(50)]
        assert issuer.requests.count("/keys") == 2
        for number in range(20):
            assert "no key" in await outcome(tokens, issuer.token(header={"kid": f"junk{number}"}))
        assert issuer.requests.count("/keys") == 2, "junk does not make us ask"
        await tokens.close()


async def test_a_withdrawn_key_ends_what_it_signed() -> None:
    async with issuing() as issuer:
        clock = Clock()
        tokens = tokens_of(issuer, clock)
        token = issuer.token()
        assert await outcome(tokens, token) == "ann"
        issuer.published = []
        clock.seconds = 301
        assert await outcome(tokens, token) == "ann", "the keys are fetched anew meanwhile"
        while issuer.requests.count("/keys") < 2 or "keys=1" in repr(tokens.issuers[issuer.url].keys):
            await asyncio.sleep(0.01)
        clock.seconds = 362
        assert await outcome(tokens, token) == "no key of its issuer has signed it"
        await tokens.close()


async def test_the_same_id_with_another_key_is_another_key() -> None:
    async with issuing() as issuer:
        clock = Clock()
        tokens = tokens_of(issuer, clock)
        old = issuer.token(jti="old")
        assert await outcome(tokens, issuer.token()) == "ann"
        issuer.keys["one"] = RSAKey.generate_key(2048, {"kid": "one"})
        clock.seconds = 3601
        assert await outcome(tokens, issuer.token(sub="new", exp=int(clock.now()) + 60)) == "new"
        assert await outcome(tokens, issuer.token(sub="x", exp=int(clock.now()) + 60)[:-6] + "AAAAAA") != "x"
        assert await outcome(tokens, old) in ("no key of its issuer has signed it", "expired")
        await tokens.close()


@pytest.mark.parametrize(
    ("metadata", "status", "reason"),
    [
        ({"issuer": "https://evil.example"}, 200, "another issuer"),
        ({"jwks_uri": "http://keys.example.com/keys"}, 200, "not https"),
        ({"jwks_uri": "https://169.254.169.254/keys"}, 200, "reserved range"),
        ({"jwks_uri": "https://10.0.0.1/keys"}, 200, "private network"),
        ({"jwks_uri": "file:///etc/passwd"}, 200, "not https"),
        ({"jwks_uri": 1}, 200, "jwks_uri"),
        ({}, 500, "status 500"),
        ({}, 302, "status 302"),
    ],
)
async def test_what_a_provider_must_not_say(metadata: dict[str, Any], status: int, reason: str) -> None:
    async with issuing() as issuer:
        issuer.metadata, issuer.status = metadata, status
        tokens = tokens_of(issuer, Clock())
        with pytest.raises(ProviderDown, match=reason):
            await tokens.check(issuer.token().encode())
        await tokens.close()


async def test_opaque_tokens_are_asked_about() -> None:
    async with issuing() as issuer:
        clock = Clock()
        tokens = tokens_of(issuer, clock, introspection={"client_id": "bridge", "client_secret": "s:e c"})
        issuer.active = {
            "good": {"active": True, **issuer.claims(), "token_type": "Bearer"},
            "short": {"active": True, "sub": "bob", "aud": issuer.resource},
            "text": {"active": "true", **issuer.claims()},
            "foreign": {"active": True, **issuer.claims(iss="https://evil.example")},
            "elsewhere": {"active": True, **issuer.claims(aud="https://evil.example")},
            "no-aud": {"active": True, "sub": "bob"},
            "late": {"active": True, **issuer.claims(exp=int(clock.now()) - 3600)},
            "bound": {"active": True, **issuer.claims(cnf={"jkt": "x"})},
            "dpop": {"active": True, **issuer.claims(), "token_type": "DPoP"},
        }
        server = {name: await outcome(tokens, name) for name in [*issuer.active, "unknown"]}
        assert (server["good"], server["short"]) == ("ann", "bob")
        assert {server[name] for name in ("text", "unknown")} == {"not active"}
        assert server["foreign"] == "another issuer's"
        assert server["no-aud"] == "no audience"
        assert (server["late"], server["bound"], server["dpop"]) == (
            "expired",
            "bound to a key, which is not supported",
            "no bearer token",
        )
        checked = await tokens.check(b"elsewhere")
        assert not checked.is_for_bridge
        asked = issuer.requests.count("/introspect")
        assert await outcome(tokens, "good") == "ann"
        assert await outcome(tokens, "unknown") == "not active"
        assert issuer.requests.count("/introspect") == asked, "what was said a moment ago still counts"
        del issuer.active["good"]
        clock.seconds = 31
        assert await outcome(tokens, "good") == "not active"
        await issuer.stop()
        clock.seconds = 70
        assert await outcome(tokens, "short") == "down", "nothing counts as allowed while nobody can be asked"
        await tokens.close()


async def test_a_jwt_is_never_sent_to_whom_is_asked_about_others() -> None:
    async with issuing() as issuer:
        tokens = tokens_of(issuer, Clock(), introspection={"client_id": "bridge", "client_secret": "secret"})
        for token in (issuer.token(iss="https://evil.example"), issuer.token()[:-9], b64(b'{"alg":"none"}') + ".e30."):
            await outcome(tokens, token)
        assert "/introspect" not in issuer.requests
        await tokens.close()


async def test_many_questions_about_one_token_are_one() -> None:
    async with issuing() as issuer:
        tokens = tokens_of(issuer, Clock(), introspection={"client_id": "bridge", "client_secret": "secret"})
        issuer.active = {"good": {"active": True, **issuer.claims()}}
        assert await asyncio.gather(*(outcome(tokens, "good") for _ in range(100))) == ["ann"] * 100
        assert issuer.requests.count("/introspect") == 1
        await tokens.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own: own.pop("resource"), "`resource` is missing"),
        (lambda own: own.update(resource="bridge.example.com"), "public URL of the bridge"),
        (lambda own: own.update(resource="http://bridge.example.com/mcp"), "expected https"),
        (lambda own: own.update(resource="https://bridge.example.com/mcp?x=1"), "without a query"),
        (lambda own: own["issuers"]["a"].update(issuer="ldap://x"), "the issuer of the tokens"),
        (lambda own: own["issuers"]["a"].update(issuer="http://login.example.com"), "expected https"),
        (lambda own: own["issuers"]["a"].update(algorithms=["HS256"]), "no algorithm with a public key"),
        (lambda own: own["issuers"]["a"].update(algorithms=["none"]), "no algorithm with a public key"),
        (lambda own: own["issuers"]["a"].update(algorithms=[]), "at least one"),
        (lambda own: own["issuers"].update(b=own["issuers"]["a"]), "the same provider"),
        (lambda own: own.update(scopes=["a b"]), "one word"),
        (lambda own: own.update(leeway=301), "less than or equal to 300"),
        (lambda own: own.update(secret="x"), "Extra inputs"),
    ],
)
def test_a_mistake_in_the_section_is_said(change: Callable[[Any], object], message: str) -> None:
    own: dict[str, Any] = {
        "resource": "https://bridge.example.com/mcp",
        "issuers": {"a": {"issuer": "https://login.example.com"}},
    }
    ResourceServerSettings.model_validate(own)
    change(own)
    with pytest.raises(ValueError, match=message):
        ResourceServerSettings.model_validate(own)
