"""Accounts of single users at servers: how a person gets one, sees it and gives it up (issue 23)."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from mcpbridge.storage.call_log.reader import Filter, read_calls
from support.harness import eventually
from support.team import Team, link_in, team, token_of
from support.upstreams.oauth_server import OAuthWorld, oauth_world


@asynccontextmanager
async def signed_up(
    *, store: dict[str, Any] | None = None, call_log: dict[str, Any] | None = None, **auth: Any
) -> AsyncIterator[tuple[OAuthWorld, Team]]:
    """A guarded server, and a bridge for alice and bob, of whom each has a browser that is signed in to the pages."""
    with anyio.fail_after(60):
        async with oauth_world() as world:
            servers = {"up": {"url": world.url, "era": "legacy", "auth": {"as": "user", **auth}}}
            sections = {name: one for name, one in (("store", store), ("call_log", call_log)) if one is not None}
            async with team(servers, **sections) as people:
                for member in people.members.values():
                    await member.enter()
                yield world, people


async def listed(people: Team) -> None:
    """Return when the tools of the server are listed."""

    async def names() -> list[str]:
        return [tool["name"] for tool in (await people["alice"].ask("tools/list"))["result"]["tools"]]

    await eventually(names, lambda found: "up__read" in found)


def said(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_each_user_calls_with_an_account_of_their_own() -> None:
    async with signed_up() as (world, people):
        assert "Connected" in (await people["alice"].connect("up")).text
        await listed(people)
        assert "Connected" in (await people["bob"].connect("up")).text
        used: dict[str, set[str]] = {}
        for name, member in people.members.items():
            world.seen.clear()
            assert said(await member.call("up__read", text=name)) == f"read {name}"
            used[name] = set(world.seen)
        assert all(len(tokens) == 1 and tokens != {""} for tokens in used.values())
        assert used["alice"].isdisjoint(used["bob"])


async def test_a_call_without_an_account_says_where_to_get_one_and_for_whom() -> None:
    """A client that opens no pages: an error with a link, which works for its user alone (the phishing case)."""
    async with signed_up() as (world, people):
        await people["alice"].connect("up")
        await listed(people)
        world.seen.clear()
        refused = await people["bob"].call("up__read", text="it")
        assert refused["isError"]
        assert "account of your own" in said(refused)
        assert world.seen == []
        link = link_in(said(refused))
        opened_by_alice = await people["alice"].get(link)
        assert opened_by_alice.status_code == 403
        assert "another user" in opened_by_alice.text
        assert "Connected" in (await people["bob"].follow(link)).text
        assert said(await people["bob"].call("up__read", text="it")) == "read it"
        assert (await people["bob"].get(link)).status_code == 404


async def test_a_client_that_opens_pages_is_asked_and_its_call_goes_on_by_itself() -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests, URL mode: the bridge's page is opened, not the provider's."""
    async with signed_up() as (_, people):
        await people["alice"].connect("up")
        await listed(people)
        bob = people["bob"]
        bob.can_open = True
        asked = (await bob.ask("tools/call", name="up__read", arguments={"text": "it"}))["result"]
        assert asked["resultType"] == "input_required"
        [(key, question)] = asked["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["mode"] == "url"
        url = question["params"]["url"]
        assert url.startswith(f"{people.origin}/connections/up/start?ask=")
        again = asyncio.ensure_future(
            bob.ask(
                "tools/call",
                name="up__read",
                arguments={"text": "it"},
                requestState=asked["requestState"],
                inputResponses={key: {"action": "accept"}},
            )
        )
        assert "Connected" in (await bob.follow(url)).text
        assert said((await again)["result"]) == "read it"


async def test_somebody_who_declines_gets_the_link_and_no_account() -> None:
    async with signed_up() as (_, people):
        await people["alice"].connect("up")
        await listed(people)
        bob = people["bob"]
        bob.can_open = True
        asked = (await bob.ask("tools/call", name="up__read", arguments={"text": "it"}))["result"]
        [key] = asked["inputRequests"]
        refused = await bob.ask(
            "tools/call",
            name="up__read",
            arguments={"text": "it"},
            requestState=asked["requestState"],
            inputResponses={key: {"action": "decline"}},
        )
        assert refused["result"]["isError"]
        assert link_in(said(refused["result"]))


async def test_a_call_that_needed_a_sign_in_is_no_failure_of_the_tool(tmp_path: Path) -> None:
    """Done after the sign-in: one call, done. Never signed in: counted apart."""
    async with signed_up(store={"path": str(tmp_path / "store.db")}, call_log={"enabled": True}) as (_, people):
        await people["alice"].connect("up")
        await listed(people)
        bob = people["bob"]
        assert (await bob.call("up__read", text="it"))["isError"], "a client that opens no pages"
        bob.can_open = True
        for action in ("decline", "accept"):
            asked = (await bob.ask("tools/call", name="up__read", arguments={"text": "it"}))["result"]
            [(key, question)] = asked["inputRequests"].items()
            more = {"requestState": asked["requestState"], "inputResponses": {key: {"action": action}}}
            again = asyncio.ensure_future(bob.ask("tools/call", name="up__read", arguments={"text": "it"}, **more))
            if action == "accept":
                await bob.follow(question["params"]["url"])
            assert (await again)["result"].get("isError", False) == (action == "decline")

        async def report() -> dict[str, Any]:
            headers = {"authorization": f"Bearer {token_of('bob')}"}
            return (await bob.http.get(f"{people.origin}/api/usage", headers=headers)).json()

        found = await eventually(report, lambda one: one["total"]["calls"] == 3)
        [row] = [row for row in found["rows"] if row["user"] == "bob"]
        assert (row["calls"], row["needed_sign_in"], row["failures"]) == (3, 2, 0)
        [server] = [one for one in people.bridge.status()["servers"] if one["name"] == "up"]
        assert (server["calls"], server["errors"]) == (3, 0)
        counted = people.bridge.metrics.of_server("up")
        assert (counted.outcomes, counted.failed) == ({"needed_sign_in": 2, "ok": 1}, {})
        file = people.bridge.audit.path
        log = await asyncio.to_thread(read_calls, file, Filter(outcome="needed_sign_in"), limit=10)
        assert [row["error"] for row in log] == ["SignInNeeded"] * 2


async def test_the_answer_of_a_provider_counts_only_in_a_browser_of_who_began() -> None:
    """Login CSRF: an account that is connected in somebody else's browser would be used by that one."""
    async with signed_up() as (world, people):
        alice, bob = people["alice"], people["bob"]
        page = (await alice.get("/connections")).text
        start = page.partition('href="/connections/up/start')[2].partition('"')[0]
        provider = await alice.go_on(f"/connections/up/start{start}")
        back = (await alice.get(provider)).headers["location"]
        stolen = await bob.get(back)
        assert stolen.status_code == 403
        assert world.server.access == {}
        assert "Connected" in (await alice.get(back)).text
        assert [one.is_connected for one in await people.bridge.user_accounts.all.connections("bob")] == [False]


async def one_time_link(people: Team, name: str) -> str:
    bearer = {"authorization": f"Bearer {token_of(name)}"}
    return (await people[name].http.post(f"{people.origin}/connections/link", headers=bearer)).json()["url"]


async def test_links_of_one_user_do_nothing_in_the_browser_of_another() -> None:
    """Login CSRF: a page sends bob's browser to alice's one-time link, and on to her link to connect an account."""
    async with signed_up() as (world, people):
        alice, bob = people["alice"], people["bob"]
        page = unescape((await alice.get("/connections")).text)
        [start] = re.findall(r'href="(/connections/up/start[^"]*)"', page)
        link = await one_time_link(people, "alice")
        asked = await bob.get(link)
        assert "set-cookie" not in asked.headers
        assert "as <strong>alice</strong>" in asked.text
        assert "signed in as <strong>bob</strong> now" in asked.text
        assert (await bob.get(start)).status_code == 403
        code = link.partition("code=")[2]
        own = {"origin": people.origin, "sec-fetch-site": "same-origin"}
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        for headers, form in ((foreign, {}), (own, {}), (own, {"form_token": "x"})):
            forged = await bob.browser.post(
                f"{people.origin}/connections/enter", data={"code": code, **form}, headers=headers
            )
            assert forged.status_code == 403
            assert "set-cookie" not in forged.headers
        assert "Signed in as bob" in (await bob.get("/connections")).text
        assert (await bob.agree(asked)).status_code == 303
        assert "Signed in as alice" in (await bob.get("/connections")).text
        assert (await alice.get(link)).status_code == 403
        assert world.server.access == {}


async def test_nobody_is_sent_to_a_provider_without_being_asked_for_whom() -> None:
    async with signed_up() as (_, people):
        alice = people["alice"]
        page = unescape((await alice.get("/connections")).text)
        [start] = re.findall(r'href="(/connections/up/start[^"]*)"', page)
        asked = await alice.get(start)
        assert asked.status_code == 200
        assert "location" not in asked.headers
        assert "Connect for alice" in asked.text
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        form = {"ask": start.partition("ask=")[2]}
        url = f"{people.origin}/connections/up/start"
        for headers in (foreign, {**foreign, "origin": people.origin}, {"origin": people.origin}):
            answer = await alice.browser.post(url, data=form, headers=headers)
            assert answer.status_code == 403
            assert "location" not in answer.headers
        assert "Connected" in (await alice.follow(start)).text


async def begun_form(people: Team, path: str, kind: str, first: bytes) -> bytes:
    """The status line for a form of a mebibyte that has no end."""
    at = urlsplit(people.origin)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        head = f"POST {path} HTTP/1.1\r\nhost: {at.netloc}\r\norigin: {people.origin}\r\ncontent-type: {kind}\r\n"
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        for chunk in (first, *[b"a" * (1 << 16)] * 16):
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return await reader.readline()
    finally:
        writer.close()


async def test_a_form_of_strangers_is_not_read_to_its_end() -> None:
    """It would fill the memory, and a file in it the disk."""
    part = b'--B\r\ncontent-disposition: form-data; name="f"; filename="x"\r\n\r\n'
    async with signed_up() as (_, people):
        for path in ("/connections/enter", "/console/enter"):
            answer = await begun_form(people, path, "application/x-www-form-urlencoded", b"token=")
            assert b" 413 " in answer
            answer = await begun_form(people, path, "multipart/form-data; boundary=B", part)
            assert b" 415 " in answer


async def test_a_hundred_first_calls_cause_one_refresh() -> None:
    """Issue 23."""
    async with signed_up() as (world, people):
        alice = people["alice"]
        await alice.connect("up")
        await listed(people)
        await alice.call("up__read", text="it")
        world.server.forget_access()
        people.bridge.pool.end_of_user("alice")
        world.server.refresh_gate.clear()
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(alice.call("up__read", text=str(number))) for number in range(100)]
            await eventually(lambda: asyncio.sleep(0, world.server.refreshes), bool)
            world.server.refresh_gate.set()
        assert [said(one.result()) for one in calls] == [f"read {number}" for number in range(100)]
        assert world.server.refreshes == 1


async def test_who_disconnects_is_signed_out_at_the_provider_too() -> None:
    """RFC 7009; and what ran with the account has ended."""
    async with signed_up() as (world, people):
        alice, bob = people["alice"], people["bob"]
        await alice.connect("up")
        await bob.connect("up")
        await listed(people)
        await alice.call("up__read", text="it")
        await bob.call("up__read", text="it")
        tokens = set(world.server.refresh)
        assert len(tokens) == 2
        assert (await alice.press("/connections/up/disconnect")).status_code == 303
        assert len(set(world.server.refresh)) == 1
        assert "Not connected" in (await alice.get("/connections")).text
        refused = await alice.call("up__read", text="it")
        assert refused["isError"]
        assert "account of your own" in said(refused)
        assert said(await bob.call("up__read", text="it")) == "read it"


async def test_a_form_of_another_page_disconnects_nothing() -> None:
    async with signed_up() as (_, people):
        alice = people["alice"]
        await alice.connect("up")
        own = {"origin": people.origin, "sec-fetch-site": "same-origin"}
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        url = f"{people.origin}/connections/up/disconnect"
        for headers, form in ((own, {}), (own, {"form_token": "x"}), (foreign, {})):
            answer = await alice.browser.post(url, data=form, headers=headers)
            assert answer.status_code == 403
        assert "Disconnect" in (await alice.get("/connections")).text


async def test_an_account_that_is_refused_is_asked_for_again() -> None:
    async with signed_up() as (world, people):
        alice = people["alice"]
        await alice.connect("up")
        await listed(people)
        assert said(await alice.call("up__read", text="it")) == "read it"
        world.server.forget_access()
        world.server.refresh.clear()
        refused = await alice.call("up__read", text="it")
        assert "Connected" in (await alice.follow(link_in(said(refused)))).text
        assert said(await alice.call("up__read", text="again")) == "read again"


async def test_more_rights_are_asked_for_with_the_same_account() -> None:
    async with signed_up() as (world, people):
        world.scopes["write"] = "write"
        alice = people["alice"]
        await alice.connect("up")
        await listed(people)
        refused = await alice.call("up__write", text="it")
        assert "more rights" in said(refused)
        assert "Connected" in (await alice.follow(link_in(said(refused)))).text
        assert set(world.server.asked[-1].split()) == {"basic", "write"}
        assert said(await alice.call("up__write", text="it")) == "wrote it"


async def test_nobody_without_a_token_sees_the_pages() -> None:
    async with signed_up() as (_, people):
        stranger = people["alice"]
        stranger.browser.cookies.clear()
        for path in ("/connections", "/connections/up/start?ask=x", "/connections/up/variables"):
            page = await stranger.get(path)
            assert "Your token for this bridge" in page.text
            assert "up" not in page.text.replace("up/", "").split()
        wrong = await stranger._post("/connections/enter", {"token": "wrong", "next": "//evil.example"})
        assert wrong.status_code == 403
        link = await stranger.http.post(f"{people.origin}/connections/link")
        assert link.status_code == 401


async def test_the_way_on_after_a_sign_in_leads_nowhere_else() -> None:
    """No open redirect."""
    async with signed_up() as (_, people):
        for target in ("https://evil.example/", "//evil.example", "/connections/../mcp", "/console", "/connections//x"):
            answer = await people["bob"]._post("/connections/enter", {"token": "token-of-bob", "next": target})
            assert answer.status_code == 403
            assert f'value="{target}"' not in answer.text


async def test_over_https_no_other_host_of_the_domain_can_set_the_cookie() -> None:
    servers = {"up": {"url": "https://up.example/mcp", "auth": {"as": "user"}}}
    with anyio.fail_after(60):
        async with team(servers, accounts={"url": "https://bridge.example.com"}) as people:
            form = {"token": token_of("alice"), "next": ""}
            cookie = (await people["alice"]._post("/connections/enter", form)).headers["set-cookie"]
    assert cookie.startswith("__Host-mcpbridge-connections=")
    assert {"secure", "httponly", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}


async def test_the_vault_is_read_once_for_a_page_and_beside_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {name: {"url": f"https://{name}.example/mcp", "auth": {"as": "user"}} for name in ("one", "two", "three")}
    with anyio.fail_after(60):
        async with team(servers) as people:
            accounts = people.bridge.user_accounts.all
            threads: list[int] = []
            rows = accounts.vault.rows
            monkeypatch.setattr(accounts.vault, "rows", lambda: threads.append(threading.get_ident()) or rows())
            assert len(await accounts.connections("alice")) == 3
            used = [*threads]
    assert len(used) == 1
    assert used[0] != threading.get_ident()
