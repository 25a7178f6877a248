"""The whole way of a sign-in: client, our page, a real provider, and back; tokens, renewals, and what goes wrong."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from mcpbridge.app.sign_in import grants as grants_module
from mcpbridge.app.sign_in.app import make_sign_in
from mcpbridge.app.sign_in.authorization_server import AuthorizationServer
from mcpbridge.app.sign_in.identity_provider import challenge_of
from mcpbridge.app.sign_in.signed_in_tokens import SignedInTokens
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.settings import ResourceServerSettings
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.token_store import MemorySecrets
from support.identity_providers import MockProvider, answer_in, mock_provider

ORIGIN = "https://bridge.example.com"
BACK = "http://127.0.0.1:1234/callback"
VERIFIER = "v" * 64


@pytest.fixture(scope="module")
def provider() -> Iterator[MockProvider]:
    with mock_provider() as running:
        yield running


class Clock:
    """A time that tests set ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Place:
    """An authorization server, and a browser with a client behind it."""

    def __init__(self, provider: MockProvider, **sign_in: Any) -> None:
        self.provider, self.clock = provider, Clock()
        settings = ResourceServerSettings(
            resource=f"{ORIGIN}/mcp", scopes=["tools"], scopes_supported=["tools", "mail:read"]
        )
        self.ended: list[str] = []
        self.gone: list[str] = []
        self.noted: list[tuple[str, dict[str, object]]] = []
        """What goes into the audit log."""
        self.store = MemoryStore(clock=self.clock)
        self.server = AuthorizationServer(
            settings,
            SignInSettings(issuer=provider.issuer, client_id="bridge", client_secret="secret", **sign_in),
            self.store,
            MemorySecrets(),
            path="/mcp",
            on_end=lambda principal, client_id: self.ended.append(principal),
            on_gone=self.leave,
            note=lambda kind, facts: self.noted.append((kind, dict(facts))),
            now=self.clock,
        )
        app: Any = make_sign_in(self.server)
        self.browser = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN)

    async def leave(self, principal: str) -> None:
        self.gone.append(principal)

    async def register(self, **metadata: Any) -> dict[str, Any]:
        wanted = {"redirect_uris": [BACK], "client_name": "Probe", "token_endpoint_auth_method": "none", **metadata}
        answer = await self.client.post("/oauth/register", json=wanted)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def authorize(self, client_id: str, **more: Any) -> httpx2.Response:
        parameters = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": BACK,
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "its state",
            "resource": f"{ORIGIN}/mcp",
            **more,
        }
        kept = {name: value for name, value in parameters.items() if value is not None}
        return await self.browser.get(f"/oauth/authorize?{urlencode(kept)}")

    async def answer(self, page: httpx2.Response, says: str = "yes", **headers: str) -> httpx2.Response:
        found = re.search(r'name="request" value="([^"]+)"', page.text)
        assert found, page.text
        form = {"request": found[1], "answer": says}
        return await self.browser.post("/oauth/consent", data=form, headers={"origin": ORIGIN, **headers})

    async def code(self, client_id: str, subject: str = "alice", **more: Any) -> str:
        """The whole way of a person, up to the client's code."""
        onward = link_in(await self.answer(await self.authorize(client_id, **more)))
        back = await self.provider.sign_in(onward, subject)
        assert back.startswith(f"{ORIGIN}/oauth/callback?")
        sent = await self.browser.get(back)
        assert sent.status_code == 302, sent.text
        answer = answer_in(sent.headers["location"])
        assert answer["state"] == "its state"
        assert answer["iss"] == ORIGIN
        assert "error" not in answer, answer
        return answer["code"]

    async def token(self, **form: Any) -> httpx2.Response:
        return await self.client.post("/oauth/token", data=form)

    async def exchange(self, client_id: str, code: str, **more: Any) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "redirect_uri": BACK,
            "code_verifier": VERIFIER,
            **more,
        }
        return await self.token(**{name: value for name, value in form.items() if value is not None})

    async def signed_in(self, subject: str = "alice", **more: Any) -> tuple[str, dict[str, Any]]:
        client_id = (await self.register())["client_id"]
        answer = await self.exchange(client_id, await self.code(client_id, subject, **more))
        assert answer.status_code == 200, answer.text
        return client_id, answer.json()

    async def refresh(self, client_id: str, token: str, **more: str) -> httpx2.Response:
        return await self.token(grant_type="refresh_token", client_id=client_id, refresh_token=token, **more)


def link_in(page: httpx2.Response) -> str:
    """Where a page of ours sends the browser on to."""
    assert page.status_code == 200, page.text
    found = re.search(r'content="0; url=([^"]+)"', page.text)
    assert found, page.text
    return unescape(found[1])


@pytest.fixture
async def place(provider: MockProvider) -> AsyncIterator[Place]:
    here = Place(provider)
    yield here
    await here.server.close()


async def test_a_person_signs_in_and_the_client_gets_tokens_that_stand_for_them(place: Place) -> None:
    await place.provider.claims("alice", email="alice@example.com", groups=["eng"])
    _, tokens = await place.signed_in()
    assert tokens["token_type"] == "Bearer"
    assert tokens["scope"] == "tools"
    assert tokens["access_token"].startswith("mcpb_at_")
    found = await place.server.grants.access(tokens["access_token"])
    assert found is not None
    person = found.grant.person
    assert (person.issuer, person.subject) == (place.provider.issuer, "alice")
    assert person.claims["email"] == "alice@example.com"
    assert person.claims["groups"] == ["eng"]
    assert found.grant.resource == f"{ORIGIN}/mcp"


async def test_metadata_says_what_clients_need_to_know(place: Place) -> None:
    document = (await place.client.get("/.well-known/oauth-authorization-server")).json()
    assert document["issuer"] == ORIGIN
    assert document["authorization_endpoint"] == f"{ORIGIN}/oauth/authorize"
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["authorization_response_iss_parameter_supported"] is True
    assert document["client_id_metadata_document_supported"] is True
    assert "none" in document["token_endpoint_auth_methods_supported"]
    assert (await place.client.get("/.well-known/oauth-authorization-server/other")).status_code == 404


async def test_a_code_works_once_and_a_second_use_ends_what_the_first_brought(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    code = await place.code(client_id)
    first = (await place.exchange(client_id, code)).json()
    again = await place.exchange(client_id, code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert await place.server.grants.access(first["access_token"]) is None
    assert (await place.refresh(client_id, first["refresh_token"])).json()["error"] == "invalid_grant"
    assert place.ended, "whoever remembers checked tokens hears of it"


async def test_a_refresh_token_is_replaced_and_a_late_second_use_ends_the_sign_in(place: Place) -> None:
    client_id, tokens = await place.signed_in()
    second = (await place.refresh(client_id, tokens["refresh_token"])).json()
    assert second["refresh_token"] != tokens["refresh_token"]
    assert second["access_token"] != tokens["access_token"]
    within = await place.refresh(client_id, tokens["refresh_token"])
    assert within.status_code == 200, "a client that sent it twice at once keeps its sign-in"
    place.clock.ahead += 31
    late = await place.refresh(client_id, tokens["refresh_token"])
    assert late.json()["error"] == "invalid_grant"
    assert await place.server.grants.access(second["access_token"]) is None
    assert (await place.refresh(client_id, second["refresh_token"])).json()["error"] == "invalid_grant"


async def test_an_access_token_ends_by_itself(place: Place) -> None:
    _, tokens = await place.signed_in()
    place.clock.ahead += 3599
    assert await place.server.grants.access(tokens["access_token"]) is not None
    place.clock.ahead += 2
    assert await place.server.grants.access(tokens["access_token"]) is None


async def test_a_renewal_asks_the_provider_what_the_person_is_now(place: Place) -> None:
    await place.provider.claims("carol", groups=["eng"])
    client_id, tokens = await place.signed_in("carol")
    await place.provider.claims("carol", groups=["sales"])
    place.clock.ahead += 120
    renewed = (await place.refresh(client_id, tokens["refresh_token"])).json()
    found = await place.server.grants.access(renewed["access_token"])
    assert found is not None
    assert found.grant.person.claims["groups"] == ["sales"]


async def test_who_may_sign_in_no_more_at_the_provider_gets_no_new_token(place: Place) -> None:
    client_id, tokens = await place.signed_in("dave")
    await place.provider.end_tokens("dave")
    place.clock.ahead += 120
    refused = await place.refresh(client_id, tokens["refresh_token"])
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    assert await place.server.grants.access(tokens["access_token"]) is None


async def test_a_client_ends_its_own_tokens_and_no_other_clients(place: Place) -> None:
    client_id, tokens = await place.signed_in()
    other = (await place.register())["client_id"]
    form = {"client_id": other, "token": tokens["access_token"]}
    assert (await place.client.post("/oauth/revoke", data=form)).status_code == 200
    assert await place.server.grants.access(tokens["access_token"]) is not None
    form["client_id"] = client_id
    assert (await place.client.post("/oauth/revoke", data=form)).status_code == 200
    assert await place.server.grants.access(tokens["access_token"]) is None
    assert (await place.refresh(client_id, tokens["refresh_token"])).json()["error"] == "invalid_grant"


async def test_sign_ins_and_their_early_ends_are_on_record(place: Place) -> None:
    client_id, tokens = await place.signed_in("ivan")
    kept, renewed = await place.signed_in("ivan")
    await place.client.post("/oauth/revoke", data={"client_id": client_id, "token": tokens["access_token"]})
    first = renewed["refresh_token"]
    assert (await place.refresh(kept, first)).status_code == 200
    place.clock.ahead = 60
    assert (await place.refresh(kept, first)).status_code == 400
    who = {"principal": f"{place.provider.issuer}#ivan", "client": "Probe"}
    at = {"user": "ivan", "address": "127.0.0.1", "detail": "by the provider"}
    assert place.noted == [
        ("sign_in.began", {**who, **at, "oauth_client": client_id}),
        ("sign_in.began", {**who, **at, "oauth_client": kept}),
        ("sign_in.ended", {**who, "oauth_client": client_id, "detail": "its program ended it"}),
        ("sign_in.ended", {**who, "oauth_client": kept, "detail": "its refresh token came a second time"}),
    ]


async def test_all_of_a_person_can_be_ended(place: Place) -> None:
    _, first = await place.signed_in("erin")
    _, second = await place.signed_in("erin")
    _, others = await place.signed_in("frank")
    found = await place.server.grants.access(first["access_token"])
    assert found is not None
    principal = found.grant.person.principal
    assert await place.server.end_all(principal) == 2
    assert principal in place.ended
    for token in (first, second):
        assert await place.server.grants.access(token["access_token"]) is None
    assert await place.server.grants.access(others["access_token"]) is not None


async def test_the_page_asks_for_each_client_and_says_who_asks_and_where_it_leads(place: Place) -> None:
    registered = await place.register(client_name="<b>Acme</b>\u202e Corp")
    page = await place.authorize(registered["client_id"], scope="tools mail:read unknown")
    assert "&lt;b&gt;Acme&lt;/b&gt; Corp" in page.text
    assert "<b>" not in page.text
    assert "a program on this computer" in page.text
    assert BACK in page.text
    assert "mail:read" in page.text
    assert "unknown" not in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    cookie = page.headers["set-cookie"]
    assert cookie.startswith("__Host-")
    for word in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert word in cookie


async def test_a_person_who_says_no_is_sent_back_and_the_client_learns_it(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    page = await place.authorize(client_id)
    back = link_in(await place.answer(page, "no"))
    assert back.startswith(f"{BACK}?")
    assert answer_in(back)["error"] == "access_denied"
    assert answer_in(back)["iss"] == ORIGIN
    again = await place.answer(page)
    assert again.status_code == 400


async def test_another_browser_can_neither_agree_nor_come_back(place: Place) -> None:
    """Somebody who sends a victim a link to finish the attacker's sign-in gets nowhere (login CSRF)."""
    client_id = (await place.register())["client_id"]
    page = await place.authorize(client_id)
    mine = dict(place.browser.cookies)
    place.browser.cookies.clear()
    assert (await place.answer(page)).status_code == 400
    for name, value in mine.items():
        place.browser.cookies.set(name, value)
    onward = link_in(await place.answer(page))
    back = await place.provider.sign_in(onward, "alice")
    place.browser.cookies.clear()
    refused = await place.browser.get(back)
    assert refused.status_code == 400
    assert "location" not in refused.headers


async def test_a_page_of_another_origin_cannot_agree(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    page = await place.authorize(client_id)
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert (await place.answer(page, **headers)).status_code == 403
    assert (await place.answer(page)).status_code == 200


async def test_a_state_works_once(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    onward = link_in(await place.answer(await place.authorize(client_id)))
    back = await place.provider.sign_in(onward, "alice")
    assert (await place.browser.get(back)).status_code == 302
    assert (await place.browser.get(back)).status_code == 400


async def test_an_answer_of_another_provider_is_refused(place: Place) -> None:
    """Mix-up: a code of one provider must not be sent to another (RFC 9207)."""
    client_id = (await place.register())["client_id"]
    onward = link_in(await place.answer(await place.authorize(client_id)))
    back = await place.provider.sign_in(onward, "alice")
    sent = await place.browser.get(f"{back}&iss=https%3A%2F%2Fevil.example")
    assert answer_in(sent.headers["location"])["error"] == "access_denied"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"resource": f"{ORIGIN}.evil.example/mcp"}, "invalid_target"),
    ],
)
async def test_what_a_client_asks_for_wrongly_it_learns_at_its_own_address(
    place: Place, change: dict[str, Any], error: str
) -> None:
    client_id = (await place.register())["client_id"]
    answer = await place.authorize(client_id, **change)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith(f"{BACK}?")
    assert answer_in(answer.headers["location"])["error"] == error


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "http://127.0.0.1:1234/other",
        "http://127.0.0.1:1234/callback/",
        "http://127.0.0.1:1234/callback?x=1",
        "http://127.0.0.1:1234/callback#x",
        "http://127.0.0.1:1234/Callback",
        "http://127.0.0.1.evil.example:1234/callback",
        "http://user@127.0.0.1:1234/callback",
        "http://localhost:1234/callback",
        "https://127.0.0.1:1234/callback",
        "http://127.0.0.1:1234/%63allback",
        "http://127.0.0.1:99999/callback",
        "javascript:alert(1)",
        "https://evil.example/callback",
    ],
)
async def test_nobody_is_sent_to_an_address_that_the_client_has_not_named(place: Place, redirect_uri: str) -> None:
    client_id = (await place.register())["client_id"]
    answer = await place.authorize(client_id, redirect_uri=redirect_uri)
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert "url=" not in answer.text


async def test_the_port_of_a_loopback_address_may_differ(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    other = "http://127.0.0.1:5678/callback"
    code = await place.code(client_id, redirect_uri=other)
    assert (await place.exchange(client_id, code)).json()["error"] == "invalid_grant"
    code = await place.code(client_id, redirect_uri=other)
    assert (await place.exchange(client_id, code, redirect_uri=other)).status_code == 200


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"code_verifier": "w" * 64}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:1/callback"}, "invalid_grant"),
        ({"redirect_uri": None}, "invalid_grant"),
        ({"resource": f"{ORIGIN}/servers/other/mcp"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "unauthorized_client"),
        ({"client_secret": "guess"}, "invalid_client"),
    ],
)
async def test_a_wrong_exchange_gives_nothing_and_the_right_one_still_works(
    place: Place, change: dict[str, Any], error: str
) -> None:
    client_id = (await place.register())["client_id"]
    code = await place.code(client_id)
    refused = await place.exchange(client_id, code, **change)
    assert refused.json()["error"] == error
    assert (await place.exchange(client_id, code)).status_code == 200


async def test_a_code_that_nobody_was_given_is_refused(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    for code in ("mcpb_ac_unknown", "", "x" * 10_000, "\ufeff"):
        assert (await place.exchange(client_id, code)).json()["error"] == "invalid_grant"


async def test_a_code_is_of_its_client_alone(place: Place) -> None:
    client_id, other = (await place.register())["client_id"], (await place.register())["client_id"]
    code = await place.code(client_id)
    assert (await place.exchange(other, code)).json()["error"] == "invalid_grant"
    assert (await place.exchange(client_id, code)).status_code == 200


async def test_a_client_with_a_secret_must_show_it(place: Place) -> None:
    registered = await place.register(token_endpoint_auth_method="client_secret_basic")
    client_id, secret = registered["client_id"], registered["client_secret"]
    code = await place.code(client_id)
    assert (await place.exchange(client_id, code)).status_code == 401
    assert (await place.exchange(client_id, code, client_secret="wrong")).status_code == 401
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": BACK,
        "code_verifier": VERIFIER,
    }
    answer = await place.client.post("/oauth/token", data=form, auth=(client_id, secret))
    assert answer.status_code == 200, answer.text


async def test_a_parameter_that_comes_twice_is_refused(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    body = urlencode([("grant_type", "authorization_code"), ("client_id", client_id), ("code", "a"), ("code", "b")])
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = await place.client.post("/oauth/token", content=body, headers=headers)
    assert answer.json()["error"] == "invalid_request"


async def test_scopes_can_be_narrowed_at_a_renewal_and_not_widened(place: Place) -> None:
    client_id, tokens = await place.signed_in(scope="tools mail:read")
    assert tokens["scope"] == "tools mail:read"
    narrow = (await place.refresh(client_id, tokens["refresh_token"], scope="tools")).json()
    assert narrow["scope"] == "tools"
    wider = await place.refresh(client_id, narrow["refresh_token"], scope="tools admin")
    assert wider.json()["error"] == "invalid_scope"


async def test_nothing_secret_is_kept_in_the_clear(place: Place) -> None:
    _, tokens = await place.signed_in()
    kept = repr([vars(place.store), vars(place.server)])
    assert tokens["access_token"] not in kept
    assert tokens["refresh_token"] not in kept
    assert "secret" not in repr(place.server)


async def test_a_provider_that_is_down_lets_nobody_in_and_nothing_is_lost() -> None:
    with mock_provider() as running:
        place = Place(running)
        client_id, tokens = await place.signed_in()
        page = await place.authorize(client_id)
        onward = link_in(await place.answer(await place.authorize(client_id)))
        back = await running.sign_in(onward, "alice")
        running.process.kill()
        running.process.wait()
        place.clock.ahead += 120
        waiting = await place.refresh(client_id, tokens["refresh_token"])
        assert (waiting.status_code, waiting.json()["error"]) == (503, "temporarily_unavailable")
        assert "retry-after" in waiting.headers
        assert await place.server.grants.access(tokens["access_token"]) is not None
        sent = await place.browser.get(back)
        assert answer_in(sent.headers["location"])["error"] == "temporarily_unavailable"
        assert (await place.answer(page)).status_code in (200, 503), "where the page is, may be known still"
        await place.server.close()


class Exchanged:
    """Takes the tokens that would be exchanged."""

    want_tokens = True

    def __init__(self) -> None:
        self.presented: list[tuple[str, bytes]] = []

    def present(self, identity: Identity, token: bytes) -> None:
        self.presented.append((identity.principal, token))

    def arrived(self, principal: str) -> None:
        """No server takes identity assertions."""


async def test_what_is_exchanged_is_the_providers_token_and_never_the_bridges(place: Place) -> None:
    """Nobody else knows the bridge's own tokens: sent to another server they would be of no use, and given away."""
    _, tokens = await place.signed_in("grace")
    exchanged = Exchanged()
    own = SignedInTokens(place.server.grants, place.server.provider_tokens, exchanged)
    checked = await own.check(tokens["access_token"].encode())
    assert checked is not None
    own.present(checked.identity, tokens["access_token"].encode())
    [(principal, token)] = exchanged.presented
    assert principal == f"{place.provider.issuer}#grace"
    assert not token.startswith(b"mcpb_")
    async with httpx2.AsyncClient() as http:
        known = await http.get(
            f"{place.provider.issuer}/userinfo", headers={"authorization": f"Bearer {token.decode()}"}
        )
    assert known.json()["sub"] == "grace"


async def test_what_was_ended_during_a_renewal_stays_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider takes seconds to answer, and meanwhile somebody is put out."""
    client_id, tokens = await place.signed_in("heidi")
    found = await place.server.grants.access(tokens["access_token"])
    assert found is not None
    principal = found.grant.person.principal
    asked, may_answer = asyncio.Event(), asyncio.Event()
    renew = place.server.provider.renew

    async def slow(*given: Any) -> Any:
        asked.set()
        await may_answer.wait()
        return await renew(*given)

    monkeypatch.setattr(place.server.provider, "renew", slow)
    place.clock.ahead += 120
    renewal = asyncio.create_task(place.refresh(client_id, tokens["refresh_token"]))
    await asked.wait()
    ending = asyncio.create_task(place.server.end_all(principal))
    while await place.server.grants.people():
        await asyncio.sleep(0)
    may_answer.set()
    assert (await renewal).json()["error"] == "invalid_grant"
    assert await ending == 1
    assert await place.server.people() == {}
    assert await place.server.grants.access(tokens["access_token"]) is None


async def test_a_code_of_somebody_who_was_put_out_is_worth_nothing(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    code = await place.code(client_id, "ivan")
    await place.server.end_all(f"{place.provider.issuer}#ivan")
    assert (await place.exchange(client_id, code)).json()["error"] == "invalid_grant"


async def test_nobody_is_sent_to_an_address_of_a_stranger_without_having_agreed(place: Place) -> None:
    elsewhere = "https://evil.example/landing"
    client_id = (await place.register(redirect_uris=[elsewhere]))["client_id"]
    answer = await place.authorize(client_id, redirect_uri=elsewhere, response_type="token")
    assert answer.status_code == 400
    assert "location" not in answer.headers


async def test_sign_ins_of_one_network_push_out_nobody_elses(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood is refused; who began before, and whoever comes from elsewhere, signs in all the same."""
    monkeypatch.setattr(grants_module, "_MOST_OF_NETWORK", 5)
    registered = await place.register()
    app: Any = make_sign_in(place.server)
    flooding = httpx2.ASGITransport(app, client=("203.0.113.7", 1))
    page = await place.authorize(registered["client_id"])
    place.browser, own = httpx2.AsyncClient(transport=flooding, base_url=ORIGIN), place.browser
    answers = [await place.authorize(registered["client_id"]) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) > 0
    await place.browser.aclose()
    place.browser = own
    onward = link_in(await place.answer(page))
    back = await place.browser.get(await place.provider.sign_in(onward, "alice"))
    assert "code" in answer_in(back.headers["location"])
    assert (await place.authorize(registered["client_id"])).status_code == 200


async def test_a_flood_of_sign_ins_from_everywhere_is_refused_before_any_is_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants_module, "_MOST_BYTES", 5000)
    registered = await place.register()
    page = await place.authorize(registered["client_id"])
    answers = [await place.authorize(registered["client_id"]) for _ in range(20)]
    assert answers[-1].status_code == 429
    assert link_in(await place.answer(page))
    place.clock.ahead += 601
    assert (await place.authorize(registered["client_id"])).status_code == 200, "those are too old by now"


async def test_who_sends_a_refresh_token_twice_in_time_gets_the_same_next_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thief within the grace has no tokens of its own: whoever is later with the next one ends the grant for both."""
    client_id, tokens = await place.signed_in("harry")

    async def renew(refresh_token: str) -> httpx2.Response:
        return await place.refresh(client_id, refresh_token)

    first = tokens["refresh_token"]
    answers = [(await renew(first)).json() for _ in range(2)]
    both = await asyncio.gather(renew(answers[0]["refresh_token"]), renew(answers[1]["refresh_token"]))
    assert answers[0]["refresh_token"] == answers[1]["refresh_token"] != first
    assert len({answer.json()["refresh_token"] for answer in both}) == 1
    assert "came again" in (logged := capsys.readouterr()).out + logged.err
    assert first not in logged.out + logged.err
    place.clock.ahead += 29
    assert (await renew(first)).status_code == 200, "the grace is from the first use"
    place.clock.ahead += 2
    assert (await renew(first)).json()["error"] == "invalid_grant", "a use within it does not extend it"
    latest = both[0].json()["refresh_token"]
    assert (await renew(latest)).json()["error"] == "invalid_grant", "the whole grant has ended"


@pytest.mark.parametrize("how", ["revoked", "replayed", "expired"])
async def test_nothing_of_the_provider_s_is_kept_of_those_who_are_signed_in_no_more(place: Place, how: str) -> None:
    """Of the last program: while another one is signed in, the tokens are needed."""
    alice = f"{place.provider.issuer}#alice"
    signed_in = [await place.signed_in() for _ in range(2)]
    for left, (client_id, tokens) in reversed(list(enumerate(signed_in))):
        assert await place.server.provider_tokens.people() == [alice]
        if how == "revoked":
            form = {"client_id": client_id, "token": tokens["refresh_token"]}
            assert (await place.client.post("/oauth/revoke", data=form)).status_code == 200
        elif how == "replayed":
            await place.refresh(client_id, tokens["refresh_token"])
            place.clock.ahead += grants_module.GRACE + 1
            assert (await place.refresh(client_id, tokens["refresh_token"])).status_code == 400
        else:
            place.clock.ahead += 0 if left else 400 * 86_400
            await place.server.forget_the_gone()
        assert place.gone == ([] if left else [alice])
    assert await place.server.provider_tokens.people() == []


async def test_tokens_of_the_provider_are_needed_while_a_code_is_under_way(place: Place) -> None:
    """One program ends its sign-in while another one has not exchanged its code yet."""
    first, tokens = await place.signed_in()
    second = (await place.register())["client_id"]
    code = await place.code(second)
    await place.client.post("/oauth/revoke", data={"client_id": first, "token": tokens["refresh_token"]})
    assert place.gone == []
    answer = await place.exchange(second, code)
    refreshed = await place.refresh(second, answer.json()["refresh_token"])
    assert refreshed.status_code == 200, refreshed.text


async def test_a_code_that_nobody_exchanges_keeps_nothing_for_long(place: Place) -> None:
    client_id = (await place.register())["client_id"]
    await place.code(client_id)
    await place.server.forget_the_gone()
    assert place.gone == []
    place.clock.ahead += grants_module.CODE_SECONDS + 1
    await place.server.forget_the_gone()
    assert place.gone == [f"{place.provider.issuer}#alice"]


async def test_who_is_put_out_leaves_nothing_of_the_provider_s(place: Place) -> None:
    await place.signed_in()
    await place.code((await place.register())["client_id"])
    assert await place.server.end_all(f"{place.provider.issuer}#alice") == 1
    assert await place.server.provider_tokens.people() == []
