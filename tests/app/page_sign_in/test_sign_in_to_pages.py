"""People sign in to the pages of the bridge at their identity provider (issue 23)."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import httpx2
import pytest

from mcpbridge.app.page_sign_in.provider import HOME, own_path
from mcpbridge.core.identity import Identity
from mcpbridge.storage.call_log.reader import Filter, read_calls
from support.approval_team import Office, Person, office
from support.harness import eventually
from support.identity_providers import MockProvider, mock_provider
from support.people import ear_of


@pytest.fixture(scope="module")
def provider() -> Iterator[MockProvider]:
    with mock_provider() as found:
        yield found


@asynccontextmanager
async def at_work(provider: MockProvider, **settings: Any) -> AsyncIterator[Office]:
    sign_in = {"issuer": provider.issuer, "client_id": "bridge", "client_secret": "secret"}
    with anyio.fail_after(180):
        for name, groups in (("ann", ["staff"]), ("carol", ["leads"])):
            await provider.claims(name, groups=groups, email=f"{name}@example.com", email_verified=True)
        async with office(sign_in=sign_in, **settings) as people:
            yield people


async def begin(person: Person, target: str, **headers: str) -> httpx2.Response:
    own = {"origin": person.origin, "sec-fetch-site": "same-origin", **headers}
    return await person.browser.post(f"{person.origin}/oauth/sign-in", data={"next": target}, headers=own)


def onward(page: httpx2.Response) -> str:
    [url] = re.findall(r'<a href="([^"]+)">go on', unescape(page.text))
    return url


async def back_from(provider: MockProvider, person: Person, target: str = "/approvals") -> str:
    """Where the provider sends somebody who has signed in there."""
    page = await begin(person, target)
    assert page.status_code == 200, page.text
    return await provider.sign_in(onward(page), person.name)


async def sign_in(provider: MockProvider, person: Person, target: str = "/approvals") -> httpx2.Response:
    return await person.get(await back_from(provider, person, target))


async def test_an_approver_signs_in_at_the_provider_and_approves(provider: MockProvider) -> None:
    async with at_work(provider) as people:
        call = people.begins("dave", "buy")
        [id_] = await people.waiting()
        carol = people["carol"]
        asked = await carol.open(f"/approvals/{id_}")
        assert "Sign in with your account" in asked.text
        assert f'name="next" value="/approvals/{id_}"' in asked.text
        page = await begin(carol, f"/approvals/{id_}")
        asked_for = parse_qs(urlsplit(onward(page)).query)
        assert asked_for["code_challenge_method"] == ["S256"]
        assert asked_for["nonce"]
        signed_in = await carol.get(await provider.sign_in(onward(page), "carol"))
        assert onward(signed_in) == f"/approvals/{id_}"
        assert "HttpOnly" in signed_in.headers["set-cookie"]
        shown = await carol.open(f"/approvals/{id_}")
        assert "Signed in as carol@example.com" in shown.text
        assert (await carol.answer(id_, "approve")).status_code == 303
        assert (await call)["content"][0]["text"] == "buy"
        [(_, granted)] = [one for one in people.bridge.approvals.recent.ended() if one[1].event == "granted"]
        assert granted.by == f"page:{provider.issuer}#carol"


async def test_an_answer_of_the_provider_counts_once_in_the_browser_that_began(provider: MockProvider) -> None:
    """Login CSRF: nobody is signed in as somebody else by a link."""
    async with at_work(provider) as people:
        ann, carol = people["ann"], people["carol"]
        back = await back_from(provider, carol)
        stolen = await ann.get(back)
        assert stolen.status_code == 400
        assert "set-cookie" not in stolen.headers
        assert "First show who you are" in (await ann.open("/approvals")).text
        await begin(ann, "/approvals")  # a browser with a sign-in of its own under way
        assert (await ann.get(back)).status_code == 400
        assert (await carol.get(back)).status_code == 200
        assert (await carol.get(back)).status_code == 400
        assert "Signed in as carol" in (await carol.open("/approvals")).text


class Noted:
    """What the audit log gets."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def append_event(self, kind: str, facts: Mapping[str, object]) -> None:
        self.events.append((kind, dict(facts)))


async def test_who_signs_in_is_on_record_and_from_where(provider: MockProvider) -> None:
    async with at_work(provider) as people:
        noted = Noted()
        people.bridge.trail.log = noted  # type: ignore[assignment] - it has what is asked of a log here
        await people["ann"].get(await back_from(provider, people["carol"]))  # another browser: nobody is signed in
        await sign_in(provider, people["carol"])
        people.bridge.trail.log = None
        [facts] = [facts for kind, facts in noted.events if kind == "sign_in.began"]
        assert facts["principal"] == f"{provider.issuer}#carol"
        assert (facts["address"], facts["detail"]) == ("127.0.0.1", "to pages")


async def test_answers_that_are_changed_sign_nobody_in(provider: MockProvider) -> None:
    async with at_work(provider) as people:
        carol = people["carol"]
        for change in (
            lambda url: url.replace("state=page_", "state=page_x"),
            lambda url: url + "&iss=https%3A%2F%2Fevil.example",  # RFC 9207: mix-up
            lambda url: url + "&state=page_other",
            lambda url: re.sub(r"code=[^&]+", "code=other", url),
            lambda url: re.sub(r"code=[^&]+", "error=access_denied", url),
            lambda url: re.sub(r"code=[^&]+&?", "", url),
        ):
            answer = await carol.get(change(await back_from(provider, carol)))
            assert answer.status_code in (400, 403, 503), answer.text
            assert "mcpbridge-session" not in answer.headers.get("set-cookie", "")
        assert "First show who you are" in (await carol.open("/approvals")).text


async def test_no_other_page_begins_a_sign_in(provider: MockProvider) -> None:
    async with at_work(provider) as people:
        carol = people["carol"]
        for headers in (
            {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
            {"origin": carol.origin, "sec-fetch-site": "cross-site"},
            {"origin": "null"},
        ):
            refused = await begin(carol, "/approvals", **headers)
            assert refused.status_code == 403
            assert "set-cookie" not in refused.headers
        assert (await carol.get("/oauth/sign-in?next=/approvals")).status_code == 405


@pytest.mark.parametrize(
    "target",
    [
        *("", "//evil.example", "https://evil.example/", "/approvals/../oauth/authorize", "/approvals\\evil", "/mcp"),
        *(
            "/approvals//evil.example",
            "/console/\n",
            "/approvalsx",
            "javascript:alert(1)",
            "/connections/ü",
            "/console/#x",
        ),
    ],
)
def test_nobody_is_sent_elsewhere(target: str) -> None:
    assert own_path(target) == HOME


@pytest.mark.parametrize("target", ["/approvals", "/approvals/abc", "/console/", "/connections/up/start?ask=x-y"])
def test_pages_of_the_bridge_are_gone_on_to(target: str) -> None:
    assert own_path(target) == target


async def test_a_session_is_for_all_pages_and_ends_by_signing_out_or_when_the_user_is_put_out(
    provider: MockProvider,
) -> None:
    account = {"servers": "up"}
    async with at_work(provider, roles={"leads": account}) as people:
        carol = people["carol"]
        await sign_in(provider, carol)
        page = await carol.open("/approvals")
        token = page.text.partition('name="form_token" value="')[2].partition('"')[0]
        assert (await carol.send("/approvals/sign-out", form_token=token)).status_code == 303
        assert "First show who you are" in (await carol.open("/approvals")).text
        await sign_in(provider, carol)
        assert "Signed in as carol" in (await carol.open("/approvals")).text
        await people.bridge.user_accounts.put_out(f"{provider.issuer}#carol")
        assert "First show who you are" in (await carol.open("/approvals")).text


async def look(person: Person, path: str) -> httpx2.Response:
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    return await person.browser.get(f"{person.origin}{path}", headers=own)


@pytest.mark.parametrize(
    ("console", "sees", "changes"), [("admin", True, True), ("view-all", True, False), (None, False, False)]
)
async def test_the_console_shows_what_the_roles_of_a_person_allow(
    provider: MockProvider, console: str | None, sees: bool, changes: bool
) -> None:
    roles = {"leads": {"console": console}} if console else {}
    async with at_work(provider, roles=roles) as people:
        carol = people["carol"]
        entrance = await look(carol, "/console/enter")
        assert "Sign in with your account" in entrance.text
        assert (await look(carol, "/console/calls")).headers["location"] == "/console/enter"
        await sign_in(provider, carol, "/console/")
        page = await look(carol, "/console/calls")
        if not sees:
            assert (page.status_code, page.headers["location"]) == (303, "/approvals")
            assert (await carol.send("/console/sign-out")).status_code == 403
            return
        assert page.status_code == 200
        token = re.findall(r'name="form_token" value="([^"]+)"', page.text)[0]
        call = people.begins("dave", "buy")
        [id_] = await people.waiting()
        answer = await carol.send(f"/console/approvals/{id_}", answer="once", form_token=token)
        assert answer.status_code == (303 if changes else 403)
        if not changes:
            await sign_in(provider, carol)
            await carol.answer(id_, "approve")
        assert (await call)["content"][0]["text"] == "buy"
        foreign = await carol.browser.get(
            f"{carol.origin}/console/calls", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        )
        assert foreign.status_code == 403
        assert (await carol.send("/console/sign-out", form_token=token)).status_code in (303, 403)


async def test_the_console_makes_nobody_an_approver(provider: MockProvider) -> None:
    async with at_work(provider, roles={"staff": {"console": "admin"}, "leads": {"console": "admin"}}) as people:
        call = people.begins("dave", "buy")
        [id_] = await people.waiting()
        for name, status in (("ann", 403), ("carol", 303)):
            person = people[name]
            await sign_in(provider, person, "/console/")
            page = await look(person, "/console/approvals")
            token = re.findall(r'name="form_token" value="([^"]+)"', page.text)[0]
            answer = await person.send(f"/console/approvals/{id_}", answer="once", form_token=token)
            assert answer.status_code == status, name
        assert (await call)["content"][0]["text"] == "buy"
        [(_, granted)] = [one for one in people.bridge.approvals.recent.ended() if one[1].event == "granted"]
        assert (granted.by, granted.address) == (f"console:{provider.issuer}#carol", "127.0.0.1")


async def test_a_console_of_a_role_that_was_taken_away_is_closed(provider: MockProvider) -> None:
    async with at_work(provider, roles={"leads": {"console": "admin"}}) as people:
        carol = people["carol"]
        await sign_in(provider, carol, "/console/")
        assert (await look(carol, "/console/calls")).status_code == 200
        document = people.bridge.settings.model_dump(exclude_unset=True)
        del document["roles"][1]["console"]
        await people.bridge.reload(type(people.bridge.settings).model_validate(document))
        assert (await look(carol, "/console/calls")).headers["location"] == "/approvals"


async def test_who_looks_finds_their_own_calls(provider: MockProvider) -> None:
    """Issue 23: `view-all` shows everybody's calls; a link filters them by whoever is signed in."""
    async with at_work(provider, roles={"staff": {"console": "view-all"}}) as people:
        ann = people["ann"]
        await sign_in(provider, ann, "/console/")
        page = await look(ann, "/console/")
        [link] = re.findall(r'Signed in as ann@example.com: <a href="([^"]+)">my calls', page.text)
        onward_to = (await look(ann, link)).headers["location"]
        assert parse_qs(urlsplit(onward_to).query) == {"principal": [f"{provider.issuer}#ann"]}
        assert "<h1>My calls</h1>" in (await look(ann, onward_to)).text
        assert "<h1>Calls</h1>" in (await look(ann, "/console/calls")).text


async def test_with_view_alone_people_see_what_is_their_own(provider: MockProvider) -> None:
    """Whatever they ask for: everything else has no page for them, and filters do not lead out of it."""
    settings: Any = {
        "rule": {"tools": "none/*"},
        "roles": {"leads": {"console": "view"}},
        "call_log": {"enabled": True},
    }
    async with at_work(provider, **settings) as people:
        principals = {name: f"{provider.issuer}#{name}" for name in ("carol", "bob")}
        for name, principal in principals.items():
            identity = Identity(principal, provider.issuer, name, {"groups": ["leads"]}, name=f"{name}@example.com")
            ear = await ear_of(people.bridge.server, identity)
            assert "result" in await ear.ask("tools/call", {"name": "up__echo", "arguments": {"text": name}})
        carol, file = people["carol"], people.bridge.audit.path
        await sign_in(provider, carol, "/console/")

        async def recorded() -> dict[str, str]:
            people.bridge.audit.write_soon()
            if not file.exists():
                return {}
            rows = await asyncio.to_thread(read_calls, file, Filter(method="tools/call"), limit=9)
            return {row["principal"]: row["uid"] for row in rows}

        uids = await eventually(recorded, lambda found: len(found) == 2)
        assert (await look(carol, "/console/")).headers["location"] == "/console/calls"
        own, other = uids[principals["carol"]], uids[principals["bob"]]
        for query in ("", "?principal=*", f"?principal={quote(principals['bob'])}", f"?principal={'x' * 600}"):
            page = (await look(carol, f"/console/calls{query}")).text
            assert own in page
            assert other not in page
            assert other not in (await look(carol, f"/console/calls/export.json{query}")).text
        assert (await look(carol, f"/console/calls/{own}")).status_code == 200
        assert (await look(carol, f"/console/calls/{other}")).status_code == 404
        usage = (await look(carol, "/console/usage?by=user&user=*")).text
        assert "carol" in usage
        assert "bob" not in usage
        closed = ("servers", "settings", "results", "approvals", "catalog", "savings", "sessions", "timeline")
        for path in (*closed, f"calls/{own}/log", f"calls/{other}/log", "parts/banner", "calls/../servers"):
            assert (await look(carol, f"/console/{path}")).status_code in (403, 404), path


async def sign_out(people: Office, carol: Person, principal: str, form_token: str) -> None:
    assert (await carol.send("/approvals/sign-out", form_token=form_token)).status_code == 303


async def put_out(people: Office, carol: Person, principal: str, form_token: str) -> None:
    await people.bridge.user_accounts.put_out(principal)


async def take_role_away(people: Office, carol: Person, principal: str, form_token: str) -> None:
    document = people.bridge.settings.model_dump(exclude_unset=True)
    del document["roles"][1]["console"]
    await people.bridge.reload(type(people.bridge.settings).model_validate(document))


@pytest.mark.parametrize("end", [sign_out, put_out, take_role_away])
async def test_what_an_open_page_hears_ends_with_the_right_to_see_it(provider: MockProvider, end: Any) -> None:
    """Issue 23: streams end when the role is lost. The browser shows the page to sign in then."""
    async with at_work(provider, roles={"leads": {"console": "view-all"}}) as people:
        carol = people["carol"]
        await sign_in(provider, carol, "/console/")
        form_token = re.findall(r'name="form_token" value="([^"]+)"', (await look(carol, "/console/")).text)[0]
        own = {"sec-fetch-site": "same-origin", "accept": "text/event-stream"}
        async with carol.browser.stream("GET", f"{carol.origin}/console/events", headers=own) as stream:
            lines = stream.aiter_lines()
            while "topics" not in await anext(lines):
                pass
            await end(people, carol, f"{provider.issuer}#carol", form_token)
            rest = [line async for line in lines if line]
        assert rest[-2:] == ["event: signed-out", "data: {}"]
        again = await carol.browser.get(f"{carol.origin}/console/events", headers=own)
        assert again.status_code in (401, 403), "the browser does not try it for ever"


async def test_who_shows_a_token_instead_of_signing_in_sees_nothing_of_the_console(provider: MockProvider) -> None:
    """A client has the token of its user, and a model could show it: it would approve its own calls."""
    async with at_work(provider, roles={"leads": {"console": "admin"}}) as people:
        carol = people["carol"]
        assert (await carol.sign_in_for_approvals()).status_code == 303
        assert "Signed in as carol" in (await carol.open("/approvals")).text
        for path in ("/console/", "/console/calls", "/console/configuration/file"):
            assert (await look(carol, path)).headers["location"] == "/console/enter"
        await sign_in(provider, carol, "/console/")
        assert (await look(carol, "/console/calls")).status_code == 200


async def test_who_shows_a_token_instead_of_signing_in_decides_nothing(provider: MockProvider) -> None:
    """The token of an approver may be in the hands of a program, which would say yes for its user."""
    async with at_work(provider) as people:
        call = people.begins("dave", "buy")
        [id_] = await people.waiting()
        carol = people["carol"]
        assert (await carol.sign_in_for_approvals()).status_code == 303
        refused = await carol.answer(id_, "approve")
        assert refused.status_code == 403
        assert "sign in with your account" in " ".join(refused.text.split())
        assert await people.waiting() == [id_]
        await sign_in(provider, carol, f"/approvals/{id_}")
        assert (await carol.answer(id_, "approve")).status_code == 303
        assert (await call)["content"][0]["text"] == "buy"


async def test_a_flood_of_strangers_pushes_nobody_out(provider: MockProvider) -> None:
    async with at_work(provider) as people:
        carol = people["carol"]
        back = await back_from(provider, carol)
        own = {"origin": carol.origin, "sec-fetch-site": "same-origin"}
        async with httpx2.AsyncClient(timeout=60, trust_env=False) as stranger:
            for _ in range(100):
                stranger.cookies.clear()
                answer = await stranger.post(f"{carol.origin}/oauth/sign-in", data={"next": "/"}, headers=own)
        assert answer.status_code == 429
        assert (await carol.get(back)).status_code == 200
