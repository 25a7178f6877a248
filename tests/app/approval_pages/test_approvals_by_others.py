"""A call waits until somebody else approves it: who may, who sees it, and what is on record (issue 23)."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.core.identity import Identity
from mcpbridge.pipeline.approvals.decider import Decider
from mcpbridge.pipeline.approvals.pending import MayNotDecide
from support.approval_team import Office, office
from support.harness import eventually
from support.redis_server import Server, needs_redis


@asynccontextmanager
async def at_work(**settings: Any) -> AsyncIterator[Office]:
    with anyio.fail_after(120):
        async with office(**settings) as people:
            yield people


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


def form_token(page: str) -> str:
    return page.partition('name="form_token" value="')[2].partition('"')[0]


async def test_somebody_with_the_role_opens_the_link_signs_in_and_approves_and_the_call_goes_on() -> None:
    async with at_work() as people:
        call = people.begins("ann", "pay")
        message = await people.receiver.message()
        link = message["blocks"][1]["elements"][0]["url"]
        assert link.startswith(f"{people.origin}/approvals/")
        carol = people["carol"]
        asked = await carol.open(link)
        assert "First show who you are" in asked.text
        assert "pay" not in asked.text
        path = link.removeprefix(people.origin)
        entered = await carol.sign_in_for_approvals(path)
        assert (entered.status_code, entered.headers["location"]) == (303, path)
        shown = await carol.open(link)
        for text in ("ann@example.com", "up/echo", "it spends money", "rule 1 of `permissions`", "pay", "leads"):
            assert text in shown.text, text
        assert not call.done()
        id_ = path.rpartition("/")[2]
        assert (await carol.answer(id_, "approve")).status_code == 303
        assert text_of(await call) == "pay"
        assert "was approved by" in (await carol.open(link)).text
        again = await carol.answer(id_, "deny")
        assert again.status_code == 409
        assert "was approved by" in again.text


async def test_whoever_made_a_call_sees_it_and_cannot_approve_it() -> None:
    """Four eyes: also not with the role that approves."""
    async with at_work() as people:
        call = people.begins("bob")
        [id_] = await people.waiting()
        bob = people["bob"]
        await bob.sign_in_for_approvals()
        page = await bob.open(f"/approvals/{id_}")
        assert "you cannot approve it" in page.text
        refused = await bob.answer(id_, "approve")
        assert refused.status_code == 403
        assert "Nobody approves a call of their own" in refused.text
        assert not call.done()
        await people["carol"].sign_in_for_approvals()
        assert (await people["carol"].answer(id_, "approve")).status_code == 303
        assert text_of(await call) == "it"


async def test_a_rule_can_keep_a_call_to_the_console_and_send_no_message() -> None:
    async with at_work(rule={"ask": "console"}) as people:
        quiet = people.begins("ann", "quiet")
        [id_] = await people.waiting()
        carol = people["carol"]
        await carol.sign_in_for_approvals()
        refused = await carol.answer(id_, "approve")
        assert refused.status_code == 403
        assert "approved in the console only" in refused.text
        decider = Decider(f"{people.issuer.url}#carol", person_of(people, "carol"))
        await people.bridge.approvals.decide(id_, "once", "console:carol", decider=decider)
        assert text_of(await quiet) == "quiet"
        assert not people.receiver.messages


async def test_a_rule_can_ask_by_a_message_alone() -> None:
    """Its link leads to the page, so people may answer there."""
    async with at_work(rule={"ask": "webhook"}) as people:
        call = people.begins("ann", "pay")
        await people.receiver.message()
        [id_] = await people.waiting()
        with pytest.raises(MayNotDecide, match="approved at /approvals only"):
            await people.bridge.approvals.decide(id_, "once", "console:carol")
        await people["carol"].sign_in_for_approvals()
        assert (await people["carol"].answer(id_, "approve")).status_code == 303
        assert text_of(await call) == "pay"


def person_of(people: Office, name: str) -> Identity:
    url = people.issuer.url
    return Identity(f"{url}#{name}", url, name, {"groups": ["leads"]})


async def test_somebody_without_the_role_neither_sees_nor_decides() -> None:
    async with at_work() as people:
        call = people.begins("ann", "between us")
        [id_] = await people.waiting()
        dave = people["dave"]
        await dave.sign_in_for_approvals()
        unknown = await dave.open("/approvals/abcdefgh")
        there = await dave.open(f"/approvals/{id_}")
        assert (there.status_code, there.text) == (unknown.status_code, unknown.text)
        assert there.status_code == 404
        page = await dave.open("/approvals")
        assert id_ not in page.text
        token = form_token(page.text)
        refused = await dave.send(f"/approvals/{id_}", answer="approve", form_token=token)
        assert refused.status_code == 404
        assert not call.done()
        await people["ann"].sign_in_for_approvals()
        assert "yours; it waits for others" in (await people["ann"].open("/approvals")).text
        await people["carol"].sign_in_for_approvals()
        assert id_ in (await people["carol"].open("/approvals")).text
        await people["carol"].answer(id_, "deny", reason="Wait for the <audit>")
        assert "was not approved: Wait for the <audit>" in text_of(await call)
        assert "Wait for the &lt;audit&gt;" in (await people["ann"].open(f"/approvals/{id_}")).text
        assert (await dave.open(f"/approvals/{id_}")).status_code == 404


async def test_opening_a_link_decides_nothing_and_forms_of_other_pages_are_refused() -> None:
    async with at_work() as people:
        call = people.begins("ann")
        [id_] = await people.waiting()
        carol = people["carol"]
        await carol.sign_in_for_approvals()
        for query in ("", "?answer=approve", "?answer=approve&form_token=x"):
            assert (await carol.open(f"/approvals/{id_}{query}")).status_code == 200
        page = await carol.open(f"/approvals/{id_}")
        token = form_token(page.text)
        url = f"{people.origin}/approvals/{id_}"
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        own = {"origin": people.origin, "sec-fetch-site": "same-origin"}
        for headers, form in (
            (foreign, {"answer": "approve", "form_token": token}),
            (own, {"answer": "approve"}),
            (own, {"answer": "approve", "form_token": "x" * len(token)}),
            ({}, {"answer": "approve", "form_token": token}),
        ):
            assert (await carol.browser.post(url, data=form, headers=headers)).status_code == 403
        stolen = await people["dave"].browser.post(f"{people.origin}/approvals/enter", data={}, headers=foreign)
        assert stolen.status_code == 403
        assert not call.done()
        await carol.answer(id_, "deny")
        assert "was not approved" in text_of(await call)


async def test_of_two_who_approve_at_once_one_is_heard() -> None:
    async with at_work() as people:
        call = people.begins("ann")
        [id_] = await people.waiting()
        forms: dict[str, str] = {}
        for name in ("bob", "carol"):
            await people[name].sign_in_for_approvals()
            forms[name] = (await people[name].open(f"/approvals/{id_}")).text
        answers = await asyncio.gather(
            *(
                people[name].send(f"/approvals/{id_}", answer="approve", form_token=form_token(page))
                for name, page in forms.items()
            )
        )
        assert text_of(await call) == "it"
        assert sorted(answer.status_code for answer in answers) == [303, 409]
        granted = [event for _, event in people.bridge.approvals.recent.ended() if event.event == "granted"]
        assert len(granted) == 1


async def test_the_role_is_asked_for_in_the_moment_of_the_decision() -> None:
    """A role that was taken away while the page was open decides nothing any more."""
    async with at_work() as people:
        call = people.begins("ann")
        [id_] = await people.waiting()
        carol = people["carol"]
        await carol.sign_in_for_approvals()
        page = await carol.open(f"/approvals/{id_}")
        token = form_token(page.text)
        document = people.bridge.settings.model_dump(exclude_unset=True)
        document["roles"][1]["groups"] = ["chiefs"]
        await people.bridge.reload(type(people.bridge.settings).model_validate(document))
        refused = await carol.send(f"/approvals/{id_}", answer="approve", form_token=token)
        assert refused.status_code == 404
        assert not call.done()
        call.cancel()


async def test_the_operator_approves_only_where_the_rule_says_so() -> None:
    async with at_work() as people:
        call = people.begins("ann")
        [id_] = await people.waiting()
        with pytest.raises(MayNotDecide, match="Only somebody with the role leads"):
            await people.bridge.approve(id_)
        with pytest.raises(MayNotDecide):
            await people.bridge.deny(id_)
        call.cancel()
    async with at_work(approve_by={"roles": "leads", "operator": True}) as people:
        call = people.begins("ann")
        [id_] = await people.waiting()
        with pytest.raises(MayNotDecide, match="once only"):
            await people.bridge.approve(id_, scope="session")
        await people.bridge.approve(id_)
        assert text_of(await call) == "it"


async def test_the_user_of_the_client_is_not_asked() -> None:
    async with at_work() as people:
        ann = people["ann"]
        ann.can_open = True  # and shows forms
        call = people.begins("ann")
        [id_] = await people.waiting()
        await people["carol"].sign_in_for_approvals()
        await people["carol"].answer(id_, "approve")
        result = await call
        assert "inputRequests" not in result
        assert text_of(result) == "it"


async def test_a_call_that_gave_up_can_be_approved_for_its_caller_and_its_arguments_alone() -> None:
    async with at_work(approval={"timeout": 0.2}) as people:
        refused = await people["ann"].call("up__echo", text="pay")
        assert "Somebody with the role leads can still approve it at http" in text_of(refused)
        [id_] = await people.waiting()
        await people["carol"].sign_in_for_approvals()
        page = await people["carol"].open(f"/approvals/{id_}")
        assert "the call gave up waiting" in page.text
        assert (await people["carol"].answer(id_, "approve")).status_code == 303
        assert (await people["dave"].call("up__echo", text="pay"))["isError"]
        assert (await people["ann"].call("up__echo", text="pay more"))["isError"]
        assert text_of(await people["ann"].call("up__echo", text="pay")) == "pay"
        assert (await people["ann"].call("up__echo", text="pay"))["isError"]


async def test_who_asked_who_decided_and_from_where_is_on_record() -> None:
    async with at_work() as people:
        noted: list[tuple[str, dict[str, Any]]] = []
        audit = people.bridge.trail
        audit.log = type("Log", (), {"append_event": lambda self, kind, facts: noted.append((kind, dict(facts)))})()
        call = people.begins("ann")
        [id_] = await people.waiting()
        await people["carol"].sign_in_for_approvals()
        await people["carol"].answer(id_, "deny", reason="no budget")
        await call
        audit.log = None
        [(_, facts)] = [one for one in noted if one[0] == "approval.denied"]
        assert facts["principal"] == f"{people.issuer.url}#ann"
        assert facts["who"] == f"page:{people.issuer.url}#carol"
        assert facts["address"] == "127.0.0.1"
        assert facts["rule"] == "rule 1 of `permissions`"
        assert facts["detail"] == "no budget"
        assert facts["approve_by"]["roles"] == ("leads",) or facts["approve_by"]["roles"] == ["leads"]


async def test_arguments_of_a_tool_with_log_content_false_are_not_sent_but_shown_to_who_decides() -> None:
    async with at_work(server={"log_content": False}) as people:
        call = people.begins("ann", "only-for-the-approver")
        [id_] = await people.waiting()
        message = json.dumps(await people.receiver.message())
        assert "up/echo" in message
        assert "only-for-the-approver" not in message
        await people["carol"].sign_in_for_approvals()
        assert "only-for-the-approver" in (await people["carol"].open(f"/approvals/{id_}")).text
        await people["carol"].answer(id_, "approve")
        assert "only-for-the-approver" in json.dumps(await call)


async def test_secrets_in_arguments_are_masked_in_the_message_and_on_the_page() -> None:
    secret = "ghp_" + "a1B2" * 9
    async with at_work() as people:
        call = people.begins("ann", f"token {secret}")
        [id_] = await people.waiting()
        message = json.dumps(await people.receiver.message())
        await people["carol"].sign_in_for_approvals()
        page = (await people["carol"].open(f"/approvals/{id_}")).text
        assert secret not in message
        assert secret not in page
        assert "[redacted]" in page
        await people["carol"].answer(id_, "approve")
        assert secret in text_of(await call)


async def test_a_session_ends_when_the_sign_ins_of_its_user_are_ended() -> None:
    async with at_work() as people:
        carol = people["carol"]
        await carol.sign_in_for_approvals()
        assert "Signed in as carol@example.com" in (await carol.open("/approvals")).text
        principal = f"{people.issuer.url}#carol"
        await people.bridge.user_accounts.put_out(principal)
        assert "First show who you are" in (await carol.open("/approvals")).text


async def test_cookies_are_for_the_pages_alone_and_signing_out_ends_them() -> None:
    async with at_work() as people:
        carol = people["carol"]
        entered = await carol.sign_in_for_approvals("//evil.example/")
        assert entered.headers["location"] == "/approvals"
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        page = await carol.open("/approvals")
        token = form_token(page.text)
        assert (await carol.send("/approvals/sign-out", form_token=token)).status_code == 303
        assert "First show who you are" in (await carol.open("/approvals")).text
        assert (await carol.send("/approvals/enter", token="nobody's", next="")).status_code == 403


async def test_the_list_looks_at_no_arguments_and_large_ones_are_looked_at_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else somebody with many such calls would hold up everybody's by opening the list."""
    async with at_work() as people:
        text = "word " * 80_000
        call = people.begins("ann", text)
        [id_] = await people.waiting()
        await people.receiver.message()
        threads: list[int] = []

        def redact(text: str) -> str:
            threads.append(threading.get_ident())
            return text

        monkeypatch.setattr(people.bridge, "redact", redact)
        for name in ("ann", "carol"):
            await people[name].sign_in_for_approvals()
            assert id_ in (await people[name].open("/approvals")).text
        assert threads == []
        page = (await people["carol"].open(f"/approvals/{id_}")).text
        assert threads
        assert threading.get_ident() not in threads
        assert f"in all {len(json.dumps({'text': text}, separators=(',', ':')))} bytes" in page
        await people["carol"].answer(id_, "approve")
        assert "word word" in text_of(await call)


@needs_redis
async def test_while_the_store_is_away_pages_say_so_and_then_the_call_is_approved(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always").start()
    try:
        async with at_work(store={"kind": "redis", "url": redis.url}) as people:
            carol, call = people["carol"], people.begins("ann", "paid")
            [id_] = await people.waiting()
            await carol.sign_in_for_approvals()
            redis.kill()
            assert "paid" in (await carol.open(f"/approvals/{id_}")).text, "this bridge waits itself"
            unknown = await carol.open("/approvals/aaaaaaaa")
            assert (unknown.status_code, "does not answer" in unknown.text) == (503, True)
            refused = await carol.answer(id_, "approve")
            assert (refused.status_code, "cannot be kept" in refused.text) == (503, True)
            assert not call.done()
            redis.start()

            async def approved() -> int:
                return (await carol.answer(id_, "approve")).status_code

            await eventually(approved, lambda status: status == 303, 30)
            assert text_of(await call) == "paid"
    finally:
        redis.kill()
