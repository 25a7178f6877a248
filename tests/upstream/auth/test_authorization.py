"""Signing in to remote servers: what the specification demands of a client, and what a bridge adds (issue 3)."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import anyio
import msgspec
import pytest
from msgspec import Raw
from pydantic import ValidationError

from mcpbridge.base.errors import SignInNeeded
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import read
from mcpbridge.config.schema import Settings
from mcpbridge.core.elicitation import ClientCapabilities, Question
from mcpbridge.core.model import Call
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.storage.token_store import MemorySecrets
from mcpbridge.upstream.auth import authorization
from mcpbridge.upstream.auth.context import Page
from mcpbridge.upstream.auth.grant import Grant, SecretStore, grant_key
from mcpbridge.upstream.auth.settings import AuthSettings
from support.harness import eventually
from support.upstreams.oauth_server import Browser, OAuthWorld, oauth_world

Document = dict[str, Any]


@asynccontextmanager
async def bridge_to(
    world: OAuthWorld, browser: Browser | None, secrets: SecretStore | None = None, **auth: Any
) -> AsyncIterator[Bridge]:
    """A bridge with the one server `up`, which has been tried once."""
    settings = Settings.model_validate({"servers": {"up": {"url": world.url, "era": "legacy", "auth": auth}}})
    with anyio.fail_after(30):
        async with Bridge(
            settings,
            redact=Redactor(),
            secrets=secrets or MemorySecrets(),
            show=browser,
            is_interactive=browser is not None,
        ) as bridge:
            assert await bridge.settled(15)
            yield bridge


async def call(bridge: Bridge, tool: str = "read", text: str = "it") -> Document:
    return await bridge.request("tools/call", {"name": f"up__{tool}", "arguments": {"text": text}})


def said(result: Document) -> str:
    return result["content"][0]["text"]


def reason(bridge: Bridge) -> str:
    return bridge.status()["servers"][0]["reason"]


async def stored(world: OAuthWorld, secrets: SecretStore) -> Grant:
    grant = Grant.decode(await secrets.load(grant_key("up", world.url)))
    assert grant is not None
    return grant


async def store(world: OAuthWorld, secrets: SecretStore, grant: Grant) -> None:
    await secrets.save(grant_key("up", world.url), grant.encode())


async def test_a_server_that_asks_for_a_token_gets_one() -> None:
    """MCP 2025-11-25, authorization: discovery, registration, PKCE, resource indicators."""
    browser = Browser()
    async with oauth_world() as world, bridge_to(world, browser) as bridge:
        assert said(await call(bridge)) == "read it"
        [page] = browser.visited
        assert page["code_challenge_method"] == "S256"
        assert page["resource"] == world.url
        assert page["scope"] == "basic"
        assert page["redirect_uri"].startswith("http://127.0.0.1:")
        assert browser.ended == [200]
        [client] = world.server.clients.values()
        assert client.application_type == "native"


async def test_the_sign_in_outlives_the_bridge() -> None:
    secrets, browser = MemorySecrets(), Browser()
    async with oauth_world() as world:
        async with bridge_to(world, browser, secrets) as bridge:
            await call(bridge)
        async with bridge_to(world, browser, secrets) as bridge:
            assert said(await call(bridge)) == "read it"
        assert len(browser.visited) == 1
        assert "" not in world.seen[1:]


async def test_many_calls_with_a_refused_token_cause_one_refresh() -> None:
    """The promise of the bridge: refreshed once for all waiting calls."""
    async with oauth_world() as world, bridge_to(world, Browser()) as bridge:
        await call(bridge)
        world.server.forget_access()
        world.server.refresh_gate.clear()
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(call(bridge, text=str(number))) for number in range(20)]
            await eventually(lambda: asyncio.sleep(0, world.server.refreshes), bool)
            world.server.refresh_gate.set()
        assert [said(one.result()) for one in calls] == [f"read {number}" for number in range(20)]
        assert world.server.refreshes == 1
        assert len(world.server.asked) == 1


async def test_a_call_does_not_wait_behind_another_for_its_token() -> None:
    """python-sdk issues 1326, 2644: its provider holds a lock for as long as a request takes."""
    async with oauth_world() as world, bridge_to(world, Browser()) as bridge:
        await call(bridge)
        authorizer = bridge.authorization("up")
        assert authorizer is not None
        assert authorizer.ready == (await authorizer.token())


async def test_a_token_is_renewed_before_it_ends_and_its_end_is_remembered() -> None:
    """The SDK (`mcp` 2.3.0) forgets when a stored token ends."""
    secrets = MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), secrets) as bridge:
            await call(bridge)
        grant = await stored(world, secrets)
        assert 0 < grant.expires_at - time.time() <= 3600
        await store(world, secrets, msgspec.structs.replace(grant, expires_at=time.time() - 1))
        world.seen.clear()
        async with bridge_to(world, None, secrets) as bridge:
            await call(bridge)
        assert world.server.refreshes == 1
        assert grant.access_token not in world.seen
        assert "" not in world.seen


async def test_refresh_tokens_are_replaced_by_those_that_come() -> None:
    secrets = MemorySecrets()
    async with oauth_world() as world, bridge_to(world, Browser(), secrets) as bridge:
        await call(bridge)
        for number in (1, 2, 3):
            world.server.forget_access()
            assert said(await call(bridge)) == "read it"
            assert world.server.refreshes == number
        assert (await stored(world, secrets)).refresh_token in world.server.refresh


async def test_a_refused_refresh_needs_a_sign_in_and_says_so() -> None:
    secrets = MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), secrets) as bridge:
            await call(bridge)
        world.server.forget_access()
        world.server.refresh.clear()
        async with bridge_to(world, None, secrets) as bridge:
            result = await bridge.request("tools/list", {})
            assert result["tools"] == []
            assert "needs sign-in: run `mcpbridge login up`" in reason(bridge)


async def test_a_call_that_meets_a_refusal_says_how_to_sign_in() -> None:
    secrets = MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), secrets) as bridge:
            await call(bridge)
        async with bridge_to(world, None, secrets) as bridge:
            await call(bridge)
            world.server.forget_access()
            world.server.refresh.clear()
            result = await call(bridge)
            assert result["isError"]
            assert "mcpbridge login up" in said(result)
            assert "Server 'up'" in said(result)


async def test_a_running_bridge_takes_up_what_login_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "_LOOK", 0.05)
    secrets, elsewhere = MemorySecrets(), MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), elsewhere) as bridge:
            await call(bridge)
        async with bridge_to(world, None, secrets) as bridge:
            assert "needs sign-in" in reason(bridge)
            await store(world, secrets, await stored(world, elsewhere))

            async def state() -> str:
                return bridge.status()["servers"][0]["state"]

            await eventually(state, lambda state: state == "ready")
            assert said(await call(bridge)) == "read it"


async def test_more_rights_are_asked_for_together_with_those_there_were() -> None:
    """MCP 2026-07-28, SEP-2350."""
    browser = Browser()
    async with oauth_world(scopes={"write": "write"}) as world, bridge_to(world, browser) as bridge:
        assert said(await call(bridge, "read")) == "read it"
        assert said(await call(bridge, "write")) == "wrote it"
        assert said(await call(bridge, "read")) == "read it"
        assert world.server.asked == ["basic", "basic write"]


async def test_rights_that_are_not_given_are_asked_for_once() -> None:
    """MCP 2025-11-25, Authorization, Step-Up Authorization Flow: clients limit their retries."""
    async with oauth_world(scopes={"write": "write"}) as world:
        world.server.grants = lambda scopes: ["basic"]
        async with bridge_to(world, Browser()) as bridge:
            for _ in range(3):
                result = await call(bridge, "write")
                assert result["isError"]
                assert "403" in said(result)
            assert world.server.asked == ["basic", "basic write"]


async def test_a_server_that_refuses_every_token_is_not_asked_for_ever() -> None:
    browser = Browser()
    async with oauth_world(never=True) as world, bridge_to(world, browser) as bridge:
        assert "refuses the token" in reason(bridge)
        for _ in range(3):
            assert (await bridge.request("tools/list", {}))["tools"] == []
        assert len(browser.visited) == 1


async def test_one_page_is_opened_for_all_who_wait() -> None:
    browser = Browser()
    browser.may_go_on.clear()
    secrets = MemorySecrets()
    async with oauth_world() as world, anyio.create_task_group() as tasks:
        tasks.start_soon(_open_and_call, world, browser, secrets)
        tasks.start_soon(_open_and_call, world, browser, secrets)
        with anyio.fail_after(30):
            await browser.opened.wait()
        browser.may_go_on.set()
    assert len(browser.visited) == 1


async def _open_and_call(world: OAuthWorld, browser: Browser, secrets: SecretStore) -> None:
    async with bridge_to(world, browser, secrets) as bridge:
        assert said(await call(bridge)) == "read it"


def without(key: str) -> Any:
    return lambda document: {name: value for name, value in document.items() if name != key}


def with_(**changes: Any) -> Any:
    return lambda document: {**document, **changes}


@pytest.mark.parametrize(
    ("bend", "fact"),
    [
        (without("code_challenge_methods_supported"), "PKCE"),
        (with_(code_challenge_methods_supported=["plain"]), "PKCE"),
        (with_(issuer="https://elsewhere.example"), "issuer"),
        (lambda document: {**document, "issuer": document["issuer"] + "/"}, "issuer"),
        (without("registration_endpoint"), "auth.client_id"),
        (with_(registration_endpoint="http://10.0.0.1/register"), "not https"),
        (with_(token_endpoint="http://as.example/token"), "not https"),
        (with_(authorization_endpoint="http://as.example/authorize"), "not https"),
        (with_(authorization_endpoint="https://as.example/a?x=`id`"), ""),
        (lambda document: None, "no metadata"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_an_authorization_server_says_of_itself_must_hold(bend: Any, fact: str) -> None:
    """MCP 2025-11-25, authorization, and security best practices."""
    browser = Browser()
    async with oauth_world(bend_metadata=bend) as world, bridge_to(world, browser) as bridge:
        assert fact in reason(bridge)
        assert world.server.access == {}
        assert set(world.seen) == {""}


@pytest.mark.parametrize(
    ("bend", "fact"),
    [
        (with_(resource="https://elsewhere.example/mcp"), "does not match"),
        (with_(authorization_servers=["https://169.254.169.254/"]), "reserved range"),
        (with_(authorization_servers=["https://[::ffff:169.254.169.254]"]), "reserved range"),
        (with_(authorization_servers=["http://as.example"]), "not https"),
        (with_(authorization_servers=["https://user:pass@as.example"]), "not https"),
        (with_(authorization_servers=["ftp://as.example"]), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_a_server_says_of_itself_must_hold(bend: Any, fact: str) -> None:
    browser = Browser()
    async with oauth_world(bend_resource=bend) as world, bridge_to(world, browser) as bridge:
        assert fact in reason(bridge)
        assert browser.visited == []
        assert world.server.clients == {}


@pytest.mark.parametrize(
    ("iss", "is_good"),
    [
        (lambda issuer: issuer, True),
        (lambda issuer: None, False),
        (lambda issuer: "https://elsewhere.example", False),
        (lambda issuer: f"{issuer}/", False),
    ],
    ids=["right", "missing", "wrong", "slash"],
)
async def test_the_answer_must_name_its_issuer(iss: Any, is_good: bool) -> None:
    """RFC 9207: the metadata say that answers carry `iss`."""
    async with oauth_world() as world:
        world.server.iss = iss
        async with bridge_to(world, Browser()) as bridge:
            assert bool(world.server.access) == is_good
            assert ("iss" in reason(bridge)) != is_good


async def test_an_answer_with_another_state_is_not_believed() -> None:
    browser = Browser(alters=lambda query: {**query, "state": "another"})
    async with oauth_world() as world, bridge_to_unsettled(world, browser):
        await eventually(lambda: asyncio.sleep(0, browser.ended), bool)
        assert browser.ended == [400]
        assert world.server.access == {}


@asynccontextmanager
async def bridge_to_unsettled(world: OAuthWorld, browser: Browser) -> AsyncIterator[Bridge]:
    settings = Settings.model_validate({"servers": {"up": {"url": world.url, "era": "legacy"}}})
    with anyio.fail_after(20):
        async with Bridge(settings, secrets=MemorySecrets(), show=browser, is_interactive=True) as bridge:
            yield bridge


async def test_a_declined_sign_in_is_not_asked_for_again() -> None:
    browser = Browser(alters=lambda query: {"state": query["state"], "error": "access_denied"})
    async with oauth_world() as world, bridge_to(world, browser) as bridge:
        assert "declined" in reason(bridge)
        assert len(browser.visited) == 1
        assert browser.ended == [400]


async def test_a_client_registered_by_hand_is_used_and_registers_nothing() -> None:
    async with oauth_world() as world:
        async with bridge_to(world, Browser()) as bridge:
            await call(bridge)
        [client] = world.server.clients.values()
        uri = "http://127.0.0.1/callback"
        port = client.redirect_uris[0].port if client.redirect_uris else 0
        uri = f"http://127.0.0.1:{port}/callback"
        method, secret = client.token_endpoint_auth_method, client.client_secret
        settings = {"client_id": client.client_id, "redirect_uri": uri}
        if secret:
            settings |= {"client_secret": secret, "token_endpoint_auth_method": str(method)}
        async with bridge_to(world, Browser(), **settings) as bridge:
            assert said(await call(bridge)) == "read it"
        assert len(world.server.clients) == 1


async def test_credentials_of_one_issuer_are_not_shown_to_another() -> None:
    """SEP-2352: registered by hand, an id and its secret belong to one authorization server."""
    secrets = MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), client_id="mine", issuer="https://right.example") as bridge:
            assert "https://right.example" in reason(bridge)
            assert world.server.asked == []
        async with bridge_to(world, Browser(), secrets) as bridge:
            await call(bridge)
        grant = await stored(world, secrets)
        await store(world, secrets, msgspec.structs.replace(grant, issuer="https://before.example", refresh_token=""))
        world.server.forget_access()
        async with bridge_to(world, Browser(), secrets, client_id="mine") as bridge:
            assert "another authorization server than before" in reason(bridge)
        asked = list(world.server.asked)
        async with bridge_to(world, Browser(), secrets) as bridge:
            assert said(await call(bridge)) == "read it"
        assert len(world.server.asked) == len(asked) + 1


async def test_a_configured_header_switches_signing_in_off() -> None:
    async with oauth_world() as world:
        settings = Settings.model_validate(
            {"servers": {"up": {"url": world.url, "headers": {"authorization": "Bearer fixed-token-of-mine"}}}}
        )
        with anyio.fail_after(20):
            async with Bridge(settings, secrets=MemorySecrets(), show=Browser(), is_interactive=True) as bridge:
                await bridge.settled(10)
                assert bridge.authorization("up") is None
                assert "401" in reason(bridge)
        assert set(world.seen) == {"fixed-token-of-mine"}


async def test_no_token_shows_in_logs_or_errors_or_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets, redact = MemorySecrets(), Redactor()
    async with oauth_world() as world:
        settings = Settings.model_validate({"servers": {"up": {"url": world.url}}})
        with anyio.fail_after(30):
            async with Bridge(settings, redact=redact, secrets=secrets, show=Browser(), is_interactive=True) as bridge:
                assert await bridge.settled(15)
                await call(bridge)
                world.server.forget_access()
                await call(bridge)
                told = json.dumps(bridge.status()) + caplog.text
        grant = await stored(world, secrets)
        tokens = {*world.server.access, *world.server.refresh, *filter(None, world.seen)}
        assert grant.access_token in tokens
        assert not [token for token in tokens if token in told]
        assert grant.access_token not in redact(f"curl -H 'Authorization: Bearer {grant.access_token}'")
        assert grant.refresh_token not in redact(grant.refresh_token)


class Person:
    """The client of a call, which can be asked to open pages."""

    relays, owner, home, principal = False, None, None, ""

    def __init__(self, browser: Browser, *, action: str = "accept") -> None:
        self.capabilities = ClientCapabilities(url=True)
        self.asked: list[Document] = []
        self.done: list[Question] = []
        self._browser, self._action = browser, action

    async def ask(self, question: Question) -> Raw:
        self.asked.append(json.loads(bytes(question.params)))
        if self._action == "accept":
            await self._browser(Page(question.upstream, self.asked[-1]["url"], lambda url: ""))
        return Raw(json.dumps({"action": self._action}).encode())

    async def project(self) -> str:
        return ""

    def finished(self, question: Question) -> None:
        self.done.append(question)


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_the_client_of_a_call_is_asked_to_open_the_page(action: str) -> None:
    """MCP 2025-11-25, elicitation by URL; never sent to a client that did not declare it."""
    secrets, browser = MemorySecrets(), Browser()
    async with oauth_world(scopes={"write": "write"}) as world:
        async with bridge_to(world, browser, secrets) as bridge:
            await call(bridge)
        async with bridge_to(world, None, secrets) as bridge:
            upstream = bridge.pool.upstreams["up"]
            params = Body(encode({"name": "write", "arguments": {"text": "it"}}))
            person = Person(browser, action=action)
            work = upstream.request(Call("tools/call", "up", "write", params, client=person))
            if action == "accept":
                assert b"wrote it" in bytes((await work).data)
                assert len(person.done) == 1
            else:
                with pytest.raises(SignInNeeded):
                    await work
            [question] = person.asked
            assert question["mode"] == "url"
            assert question["url"].startswith(world.issuer)
            assert "Sign in to up" in question["message"]
            world.server.forget_access()
            world.server.refresh.clear()
            with pytest.raises(SignInNeeded):
                await upstream.request(Call("tools/call", "up", "read", Body(bytes(params.data))))


async def test_a_bridge_with_credentials_of_its_own_needs_nobody() -> None:
    """Extension io.modelcontextprotocol/oauth-client-credentials."""
    secrets = MemorySecrets()
    async with oauth_world() as world:
        told: list[str] = []

        def knows_grants(document: Document) -> Document:
            return {**document, "token_endpoint": f"{world.url.removesuffix('/mcp')}/machine-token"}

        world.bend_metadata = knows_grants
        world.machine_tokens = told
        auth = {"type": "client-credentials", "client_id": "machine", "client_secret": "secret-of-the-machine"}
        async with bridge_to(world, None, secrets, **auth) as bridge:
            assert said(await call(bridge)) == "read it"
            world.server.forget_access()
            assert said(await call(bridge)) == "read it"
            assert len(told) == 2
            assert all(f"resource={quote_plus(world.url)}" in body for body in told)
            assert "secret-of-the-machine" not in json.dumps(bridge.status())


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"client_secret": "x"}, "client_id"),
        ({"type": "client-credentials", "client_id": "x"}, "client_secret"),
        ({"client_id": "x", "private_key": "y"}, "client-credentials"),
        ({"client_id": "x", "token_endpoint_auth_method": "client_secret_post"}, "client_secret"),
        ({"redirect_uri": "https://elsewhere.example/callback"}, "localhost"),
        ({"client_metadata_url": "http://example.com/client.json"}, "https"),
        ({"issuer": "auth.example.com"}, "URL"),
        ({"scopes": ["a b"]}, "one word"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Document, hint: str) -> None:
    with pytest.raises(ValidationError, match=hint):
        AuthSettings.model_validate(settings)


def test_short_forms_of_settings() -> None:
    assert AuthSettings.model_validate("none").type == "none"
    assert AuthSettings.model_validate({"client_id": "", "client_secret": ""}) == AuthSettings()


def test_what_a_configuration_holds_of_it_is_masked(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(
        '[servers.up]\nurl = "https://server.example/mcp"\n'
        'auth = { type = "client-credentials", client_id = "x", client_secret = "secret-of-the-machine" }\n'
    )
    assert "secret-of-the-machine" in read(path, {}).secrets


def test_signing_in_goes_with_a_url() -> None:
    with pytest.raises(ValidationError, match="`auth` goes with `url`"):
        Settings.model_validate({"servers": {"up": {"command": "x", "auth": {"scopes": ["a"]}}}})


async def test_the_end_of_a_bridge_ends_a_sign_in_that_nobody_finishes() -> None:
    browser = Browser()
    browser.may_go_on.clear()
    async with oauth_world() as world:
        async with bridge_to_unsettled(world, browser):
            await browser.opened.wait()
        assert world.server.access == {}


async def test_a_sign_in_outlives_the_attempt_that_began_it() -> None:
    """A person takes longer than `init_timeout`; the page must not be opened anew, and its end be noticed."""
    browser = Browser()
    browser.may_go_on.clear()
    async with oauth_world() as world:
        server = {"url": world.url, "era": "legacy", "init_timeout": 3}
        settings = Settings.model_validate({"servers": {"up": server}})
        with anyio.fail_after(30):
            async with Bridge(settings, secrets=MemorySecrets(), show=browser, is_interactive=True) as bridge:
                await bridge.settled(10)
                assert "waits for the sign-in in the browser" in reason(bridge)
                assert len(browser.visited) == 1
                browser.may_go_on.set()

                async def state() -> str:
                    return bridge.status()["servers"][0]["state"]

                await eventually(state, lambda state: state == "ready")
                assert said(await call(bridge)) == "read it"
                assert len(browser.visited) == 1


async def test_a_refresh_that_cannot_be_asked_for_keeps_the_token() -> None:
    """An authorization server that is down says nothing about the refresh token."""
    secrets = MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), secrets) as bridge:
            await call(bridge)
        grant = await stored(world, secrets)
        down = {**grant.authorization_server, "token_endpoint": "http://127.0.0.1:1/token"}
        await store(world, secrets, msgspec.structs.replace(grant, authorization_server=down))
        world.server.forget_access()
        async with bridge_to(world, Browser(), secrets) as bridge:
            assert "connection" in reason(bridge).lower()
        assert (await stored(world, secrets)).refresh_token == grant.refresh_token
        assert len(world.server.asked) == 1


async def test_two_bridges_renew_one_token_once() -> None:
    """A refresh token works once: the second bridge takes what the first stored."""
    secrets = MemorySecrets()
    async with (
        oauth_world() as world,
        bridge_to(world, Browser(), secrets) as one,
        bridge_to(world, None, secrets) as other,
    ):
        await call(one)
        await call(other)
        world.server.forget_access()
        results = await asyncio.gather(*(call(bridge) for bridge in (one, other) for _ in range(5)))
        assert {said(result) for result in results} == {"read it"}
        assert world.server.refreshes == 1
        assert len(world.server.asked) == 1


async def test_a_token_is_renewed_while_calls_go_on_with_the_old_one() -> None:
    secrets = MemorySecrets()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), secrets) as bridge:
            await call(bridge)
        grant = await stored(world, secrets)
        await store(world, secrets, msgspec.structs.replace(grant, expires_at=time.time() + 30))
        async with bridge_to(world, None, secrets) as bridge:
            authorizer = bridge.authorization("up")
            assert authorizer is not None
            authorizer.account.renew_at = time.time()
            world.server.refresh_gate.clear()
            assert said(await call(bridge)) == "read it"
            world.server.refresh_gate.set()
            await eventually(lambda: stored(world, secrets), lambda now: now.access_token != grant.access_token)
            assert said(await call(bridge)) == "read it"
            assert world.server.refreshes == 1


async def test_the_configured_issuer_is_chosen_among_several() -> None:
    async with oauth_world() as world:
        world.bend_resource = with_(authorization_servers=["https://other.example", world.issuer])
        async with bridge_to(world, Browser(), issuer=world.issuer) as bridge:
            assert said(await call(bridge)) == "read it"


async def test_login_in_a_terminal_ends_the_wait_for_a_page_that_nobody_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "_LOOK", 0.05)
    secrets, elsewhere, lost = MemorySecrets(), MemorySecrets(), Browser()
    lost.may_go_on.clear()
    async with oauth_world() as world:
        async with bridge_to(world, Browser(), elsewhere) as bridge:
            await call(bridge)
        settings = Settings.model_validate({"servers": {"up": {"url": world.url, "era": "legacy"}}})
        with anyio.fail_after(20):
            async with Bridge(settings, secrets=secrets, show=lost, is_interactive=True) as bridge:
                await lost.opened.wait()
                await store(world, secrets, await stored(world, elsewhere))
                await bridge.settled(10)
                assert said(await call(bridge)) == "read it"


class SlowSecrets(MemorySecrets):
    """Once `is_slow`, what is read next arrives when `may_arrive` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow, self.was_read, self.may_arrive = False, asyncio.Event(), asyncio.Event()

    async def load(self, key: str) -> bytes | None:
        value = await super().load(key)
        if self.is_slow:
            self.is_slow = False
            self.was_read.set()
            await self.may_arrive.wait()
        return value


async def test_who_signs_out_stays_out_though_the_stored_token_was_just_read() -> None:
    """A look for what `mcpbridge login` stored begins before the sign-out and ends after it."""
    secrets = SlowSecrets()
    async with oauth_world() as world, bridge_to(world, Browser(), secrets) as bridge:
        await call(bridge)
        up = bridge.authorization("up")
        assert up is not None
        secrets.is_slow = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(up.account.load)
            await secrets.was_read.wait()
            tasks.start_soon(up.sign_out)
            await anyio.wait_all_tasks_blocked()
            secrets.may_arrive.set()
        assert (up.account.token, up.account.grant) == ("", None)
        assert await secrets.load(grant_key("up", world.url)) is None
