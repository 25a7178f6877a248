"""Whoever is put out (`mcpbridge users revoke`) is out: tokens, streams, sessions, calls and visits (issue 23)."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mcpbridge.app.admin.control_commands import revoke_user
from mcpbridge.app.sign_in.authorization_server import AuthorizationServer
from mcpbridge.app.sign_in.grants import Grant, Grants, Person, Request, new_grant_id
from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.identity import principal_of
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.resource_server import ResourceServer
from mcpbridge.downstream.auth.revocations import Revocations
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.open_store import LazyStore
from support.harness import eventually, python_server
from support.people import person
from support.redis_server import Server, needs_redis
from support.team import MODERN, Team, team
from support.token_issuer import EVERYBODY, Issuer, issuing

RESOURCE = "http://127.0.0.1:1/mcp"
Kind = str
KINDS = ["of an issuer", "of the bridge"]
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Office:
    """A bridge, and tokens for it."""

    def __init__(self, kind: Kind, team: Team, issuer: Issuer) -> None:
        self.kind, self.team, self.issuer = kind, team, issuer

    async def token(self, subject: str, client: str = "one") -> str:
        """A new token, issued after all that were revoked before."""
        if self.kind == "of an issuer":
            return self.issuer.token(sub=subject, client_id=client, iat=int(time.time()) + 1)
        server = cast("AuthorizationServer", self.team.bridge.user_accounts.sign_ins)
        somebody = Person(self.issuer.url, subject, subject, {})
        grant = Grant(new_grant_id(), client, client, somebody, (), RESOURCE, time.time())
        return (await server.grants.grant_without_renewal(grant)).access

    def old_token(self, subject: str) -> str:
        """One that was issued a while ago."""
        return self.issuer.token(sub=subject, iat=int(time.time()) - 60)

    async def first_token(self, subject: str, client: str = "one") -> str:
        return self.old_token(subject) if self.kind == "of an issuer" else await self.token(subject, client)

    def principal(self, subject: str) -> str:
        return principal_of(self.issuer.url, subject)

    async def put_out(self, subject: str) -> dict[str, Any]:
        return dict(await revoke_user(self.team.bridge, {"user": self.principal(subject)}))

    def headers(self, token: str, **more: str) -> dict[str, str]:
        return {**JSON, "authorization": f"Bearer {token}", **more}

    async def calls(self) -> int:
        """Under way."""
        return len(self.team.bridge.running_calls())

    async def is_let_in(self, token: str) -> bool:
        http = self.team["service"].http
        status = (await http.get(f"{self.team.origin}/readyz", headers=self.headers(token))).status_code
        assert status in (200, 401, 503)  # 503: it is starting
        return status != 401

    @asynccontextmanager
    async def socket(self, token: str) -> AsyncIterator[ClientConnection]:
        """A WebSocket that has begun."""
        url = self.team.origin.replace("http", "ws") + "/ws"
        async with connect(url, additional_headers={"authorization": f"Bearer {token}"}, proxy=None) as socket:
            await socket.send(json.dumps(initialize()))
            assert "result" in json.loads(await socket.recv())
            yield socket


def initialize() -> dict[str, Any]:
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "probe", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


@asynccontextmanager
async def office(kind: Kind, store: dict[str, Any] | None = None) -> AsyncIterator[Office]:
    async with issuing() as issuer:
        issuer.resource = RESOURCE
        auth = issuer.settings(resource=RESOURCE)
        if kind == "of the bridge":
            sign_in = {"issuer": issuer.url, "client_id": "bridge", "client_secret": "s"}
            auth = {"resource": RESOURCE, "sign_in": sign_in}
        servers = {"up": python_server("plain"), "mine": {**python_server("plain"), "auth": OWN_VARIABLES}}
        async with (
            asyncio.timeout(120),
            team(servers, "service", auth=auth, roles=EVERYBODY, store=store or {"kind": "memory"}) as members,
        ):
            yield Office(kind, members, issuer)


OWN_VARIABLES = {"as": "user", "variables": ["X"]}


async def closing_code(socket: ClientConnection) -> int:
    with suppress(ConnectionClosed):
        while True:
            await socket.recv()
    return socket.close_code or 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_web_socket_ends_at_once_and_the_token_opens_no_other(kind: Kind) -> None:
    async with office(kind) as place:
        token, other = await place.first_token("alice"), await place.first_token("bob")
        async with place.socket(token) as socket, place.socket(other) as another:
            done = await place.put_out("alice")
            assert await closing_code(socket) == 3000
            await another.send(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
            assert "result" in json.loads(await another.recv()), "nobody else is put out"
        assert (done["tokens"], done["sign_ins"]) == ((True, 0) if kind == "of an issuer" else (False, 1))
        with pytest.raises(InvalidStatus) as refused:
            async with place.socket(token):
                pass
        assert refused.value.response.status_code == 401
        assert not await place.is_let_in(token)
        assert await place.is_let_in(other)
        async with place.socket(await place.token("alice")):
            pass  # signed in anew


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/mcp", "/sse", "listen"])
async def test_streams_end_at_once_and_sessions_with_them(kind: Kind, path: str) -> None:
    async with office(kind) as place:
        http, origin = place.team["service"].http, place.team.origin
        headers = place.headers(await place.first_token("alice"))
        message = None
        if path == "/mcp":
            opened = await http.post(f"{origin}/mcp", json=initialize(), headers=headers)
            headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        if path == "listen":
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
            message = modern("subscriptions/listen", notifications={"toolsListChanged": True})
        url = f"{origin}{'/mcp' if path == 'listen' else path}"
        async with http.stream("POST" if message else "GET", url, headers=headers, json=message) as stream:
            assert stream.status_code == 200
            await place.put_out("alice")
            async for _ in stream.aiter_bytes():
                pass  # to its end
        if path == "/mcp":
            headers |= place.headers(await place.token("alice"))
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await http.post(f"{origin}/mcp", json=ping, headers=headers)).status_code == 404


def modern(method: str, **params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_that_was_let_in_before_gets_no_further(kind: Kind) -> None:
    """What the front remembers of the head of a request counts no more."""
    async with office(kind) as place, httpx2.AsyncClient(timeout=60) as http:
        headers = place.headers(await place.first_token("alice"))
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "up__journal"}
        call = modern("tools/call", name="up__journal", arguments={})
        answers = [await http.post(f"{place.team.origin}/mcp", json=call, headers=headers) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4
        await place.put_out("alice")
        assert (await http.post(f"{place.team.origin}/mcp", json=call, headers=headers)).status_code == 401


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_under_way_ends_and_one_whose_body_is_still_to_come_does_not_begin(kind: Kind) -> None:
    async with office(kind) as place:
        token = await place.first_token("alice")
        headers = place.headers(token) | {"mcp-protocol-version": MODERN, "mcp-method": "tools/call"}
        address = httpx2.URL(place.team.origin)
        body = json.dumps(modern("tools/call", name="up__journal", arguments={})).encode()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        lines = [f"{name}: {value}" for name, value in {**headers, "mcp-name": "up__journal"}.items()]
        head = "\r\n".join(["POST /mcp HTTP/1.1", "host: localhost", f"content-length: {len(body)}", *lines, "", ""])
        writer.write(head.encode() + body[:10])
        headers["mcp-name"] = "up__hold"
        hangs = modern("tools/call", name="up__hold", arguments={})
        waiting = asyncio.ensure_future(
            place.team["service"].http.post(f"{place.team.origin}/mcp", json=hangs, headers=headers)
        )
        await eventually(place.calls, lambda calls: calls > 0)
        await place.put_out("alice")
        cut = await waiting
        assert cut.status_code in (502, 200)  # 200: a stream was open
        assert "outcome unknown" in cut.text
        assert "www-authenticate" not in cut.headers, "the call is not to be repeated with another token"
        await eventually(place.calls, lambda calls: calls == 0)
        writer.write(body[10:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_a_call_in_a_session_whose_user_is_put_out_has_an_unknown_outcome() -> None:
    async with office("of an issuer") as place:
        http, url = place.team["service"].http, f"{place.team.origin}/mcp"
        headers = place.headers(await place.first_token("alice"))
        headers["mcp-session-id"] = (await http.post(url, json=initialize(), headers=headers)).headers["mcp-session-id"]
        params = {"name": "up__hold", "arguments": {}}
        hangs = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        waiting = asyncio.ensure_future(http.post(url, json=hangs, headers=headers))
        await eventually(place.calls, lambda calls: calls > 0)
        await place.put_out("alice")
        cut = await waiting
        assert cut.status_code in (502, 200)  # 200: a stream was open
        assert "outcome unknown" in cut.text
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        assert (await http.post(url, json=ping, headers=headers)).status_code == 401


@pytest.mark.parametrize("kind", KINDS)
async def test_browsers_are_signed_out_of_the_pages_about_accounts(kind: Kind) -> None:
    async with office(kind) as place:
        member = place.team["service"]
        member.token = await place.first_token("alice")
        await member.enter()
        assert place.principal("alice") in (await member.get("/connections")).text
        await place.put_out("alice")
        page = await member.get("/connections")
        assert place.principal("alice") not in page.text
        assert 'name="token"' in page.text


async def test_a_client_that_ends_its_sign_in_ends_what_it_has_open_and_no_other_client() -> None:
    """RFC 7009: the grant of this client alone."""
    async with office("of the bridge") as place:
        server = cast("AuthorizationServer", place.team.bridge.user_accounts.sign_ins)
        one = await server.clients.register(
            json.dumps({"redirect_uris": ["http://127.0.0.1:1/back"], "token_endpoint_auth_method": "none"}).encode()
        )
        token, other = await place.token("alice", one["client_id"]), await place.token("alice", "two")
        async with place.socket(token) as socket, place.socket(other) as another:
            await server.revoke({"token": [token], "client_id": [one["client_id"]]}, "")
            assert await closing_code(socket) == 3000
            await another.send(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
            assert "result" in json.loads(await another.recv())


@pytest.mark.parametrize(("iat", "is_refused"), [(100, True), (101, False), (None, True), ("101", True)])
async def test_what_counts_is_when_a_token_was_issued(iat: object, is_refused: bool) -> None:
    store = MemoryStore()
    revocations = Revocations(store, now=lambda: 100.5)
    claims = {} if iat is None else {"iat": iat}
    alice, bob = person("alice", **claims), person("bob", **claims)
    await revocations.revoke(alice.principal)
    assert await revocations.refuses(alice) is is_refused
    assert not await revocations.refuses(bob)
    assert await Revocations(store).refuses(alice) is is_refused, "another bridge with the same store"


@needs_redis
async def test_nobody_who_was_put_out_gets_in_while_the_shared_store_is_away(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        async with office("of an issuer", {"kind": "redis", "url": redis.url}) as place:
            headers = place.headers(place.old_token("alice"))
            other = LazyStore(redis.settings())
            async with other.running():
                await Revocations(other.shared).revoke(place.principal("alice"))
            redis.kill()
            answer = await place.team["service"].http.post(
                f"{place.team.origin}/mcp", json=initialize(), headers=headers
            )
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    finally:
        redis.kill()


@needs_redis
async def test_who_is_put_out_while_the_shared_store_is_away_is_out_at_all_bridges_afterwards(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis")
    here, there = LazyStore(redis.settings()), LazyStore(redis.settings())
    alice, bob = person("alice", iat=int(time.time()) - 60), person("bob", iat=0)
    try:
        async with asyncio.timeout(120), here.running(), there.running():
            one, other = Revocations(here.shared), Revocations(there.shared)
            with pytest.raises(StoreFailed):
                await one.revoke(bob.principal)  # nothing runs that would write it later
            async with one.running():
                await one.revoke(alice.principal)
                assert await one.refuses(alice)
                with pytest.raises(ProviderDown):
                    await other.refuses(alice)
                redis.start()

                async def is_out() -> bool:
                    try:
                        return await other.refuses(alice)
                    except ProviderDown:
                        return False

                await eventually(is_out, bool, 60)
                assert not await other.refuses(bob)
    finally:
        redis.kill()


@needs_redis
async def test_who_signed_in_here_and_is_put_out_while_the_shared_store_is_away_stays_out_at_all_bridges(
    tmp_path: Path,
) -> None:
    redis = Server(tmp_path / "redis").start()
    here, there = LazyStore(redis.settings()), LazyStore(redis.settings())
    try:
        async with asyncio.timeout(120), here.running(), there.running():
            one, other = [Grants(store.shared, token_seconds=3600, session_seconds=7200) for store in (here, there)]
            late: list[str] = []
            one.out.on_written = late.append
            alice, bob = Person("https://idp", "alice", "A", {}), Person("https://idp", "bob", "B", {})

            async def is_known(grants: Grants, token: str) -> bool:
                with suppress(StoreFailed):
                    return await grants.access(token) is not None
                return False

            async def sign_in(somebody: Person) -> str:
                grant = Grant(new_grant_id(), "c", "C", somebody, (), RESOURCE, time.time())
                return (await one.grant_without_renewal(grant)).access

            token, of_bob = await sign_in(alice), await sign_in(bob)
            assert await other.access(token) is not None
            redis.signal(signal.SIGSTOP)
            with pytest.raises(StoreFailed):
                await one.put_out(bob.principal)  # nothing runs that would write it later
            async with one.running():
                assert await one.put_out(alice.principal) == 0
                redis.signal(signal.SIGCONT)
                for grants in (other, one):  # the breaker of the store closes first
                    while not await is_known(grants, of_bob):
                        with suppress(StoreFailed):
                            assert grants is other or await one.access(token) is None
                        await asyncio.sleep(0.05)
                assert await one.access(token) is None, "it stays out meanwhile"

                async def is_out() -> bool:
                    return await other.access(token) is None and await other.access(of_bob) is not None

                await eventually(is_out, bool, 60)
                await eventually(lambda: asyncio.sleep(0, late), bool, 60)
                assert late == [alice.principal]
                assert await other.access(await sign_in(alice)) is not None, "who signs in anew is in"
    finally:
        redis.kill()


@needs_redis
async def test_nothing_of_a_sign_in_is_denied_or_done_halfway_while_the_shared_store_is_away(tmp_path: Path) -> None:
    """RFC 7009, 2.2.1: 503 and `Retry-After`. Else a client would forget what it has, or take a token for revoked."""
    redis = Server(tmp_path / "redis").start()
    try:
        async with office("of the bridge", {"kind": "redis", "url": redis.url}) as place:
            http, origin = place.team["service"].http, place.team.origin
            wanted = {"redirect_uris": ["http://127.0.0.1:1/back"], "token_endpoint_auth_method": "none"}
            registered = await http.post(f"{origin}/oauth/register", json=wanted)
            client_id = registered.json()["client_id"]
            token, known = await place.token("alice", client_id), await place.token("alice", "two")
            assert await place.is_let_in(known)
            redis.signal(signal.SIGSTOP)
            forms = {
                "revoke": {"token": token, "client_id": client_id},
                "token": {"grant_type": "refresh_token", "refresh_token": "mcpb_rt_x", "client_id": client_id},
            }
            answers = [await http.post(f"{origin}/oauth/{name}", data=form) for name, form in forms.items()]
            answers.append(await http.post(f"{origin}/oauth/register", json=wanted))
            answers.append(await http.post(f"{origin}/mcp", json=initialize(), headers=place.headers(token)))
            page = {"client_id": client_id, "response_type": "code"}
            answers.append(await http.get(f"{origin}/oauth/authorize", params=page))
            for answer in answers:
                assert (answer.status_code, "retry-after" in answer.headers) == (503, True), answer.text
            assert await place.is_let_in(known), "it was checked a moment ago"
            redis.signal(signal.SIGCONT)

            async def revoked() -> int:
                return (await http.post(f"{origin}/oauth/revoke", data=forms["revoke"])).status_code

            await eventually(revoked, lambda status: status == 200, 60)
            assert not await place.is_let_in(token)
    finally:
        redis.kill()


@needs_redis
async def test_a_grant_that_was_renewed_in_a_moment_without_the_store_ends_like_others(tmp_path: Path) -> None:
    """Nothing of it stays at the bridge that renewed it."""
    redis = Server(tmp_path / "redis").start()
    here, there = LazyStore(redis.settings()), LazyStore(redis.settings())
    try:
        async with asyncio.timeout(120), here.running(), there.running():
            one, other = [Grants(store.shared, token_seconds=3600, session_seconds=7200) for store in (here, there)]
            grant = Grant(new_grant_id(), "c", "C", Person("https://idp", "alice", "A", {}), (), RESOURCE, time.time())
            token = (await one.grant_without_renewal(grant)).access
            redis.signal(signal.SIGSTOP)
            with pytest.raises(StoreFailed):
                await one.grant_without_renewal(grant)
            redis.signal(signal.SIGCONT)

            async def ends() -> int:
                try:
                    return await other.put_out(grant.person.principal)
                except StoreFailed:
                    return 0

            await eventually(ends, bool, 60)

            async def found() -> object:
                try:
                    return await one.access(token)
                except StoreFailed:
                    return "not known"

            assert await eventually(found, lambda access: access != "not known", 60) is None
    finally:
        redis.kill()


CODE_REQUEST = Request("c", "http://127.0.0.1:1/back", True, None, "x", (), RESOURCE, "x")


async def test_a_code_of_before_is_of_no_use_though_it_is_exchanged_before_that_is_written_down() -> None:
    """Two bridges, one of which could not write at first: what the other one grants meanwhile ends with the rest."""
    store, times = MemoryStore(), [100.0]
    one = Grants(store, token_seconds=3600, session_seconds=7200, now=lambda: 110.0)
    other = Grants(store, token_seconds=3600, session_seconds=7200, now=lambda: times[-1])
    alice = Person("https://idp", "alice", "A", {})
    code = await other.make_code(CODE_REQUEST, alice)
    times.append(120.0)
    tokens = await other.exchange(code, "C", ())
    assert tokens is not None
    assert await one.put_out(alice.principal) == 1
    assert await other.access(tokens.access) is None


@needs_redis
async def test_others_hear_once_more_of_who_was_put_out_when_that_is_written_down_later(tmp_path: Path) -> None:
    """Between the return of the store and that moment they may have let the same token in, and remember that."""
    redis = Server(tmp_path / "redis").start()
    try:
        async with office("of an issuer", {"kind": "redis", "url": redis.url}) as place:
            server = cast("ResourceServer", place.team.bridge.user_accounts.doors)
            heard = list[str]()
            server.on_ended_here = lambda principal, _: heard.append(principal)
            redis.signal(signal.SIGSTOP)
            await place.put_out("alice")
            assert heard == [place.principal("alice")]
            redis.signal(signal.SIGCONT)
            await eventually(lambda: asyncio.sleep(0, heard), lambda heard: len(heard) == 2, 60)
    finally:
        redis.kill()
