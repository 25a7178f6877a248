"""A sign-in that clients are asked for: nobody waits for the page of somebody else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import SignInNeeded, UpstreamUnavailable
from mcpbridge.core.elicitation import ClientCapabilities, Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.storage.token_store import MemorySecrets
from mcpbridge.upstream.auth.authorization import Authorization
from mcpbridge.upstream.auth.browser import ask_to_sign_in
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.context import AuthContext, Page, Show
from mcpbridge.upstream.auth.grant import AuthTasks
from mcpbridge.upstream.auth.oauth_tokens import Account
from mcpbridge.upstream.auth.settings import AuthSettings

PAGE = "https://as.example/authorize"


class ScriptedAccount(Account):
    """Signs in when a test says so."""

    def __init__(self, around: AuthContext) -> None:
        super().__init__("up", "https://up.example/mcp", AuthSettings(), around, Network())
        self.shown = 0
        self.comes_back: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.given_up = asyncio.Event()

    async def sign_in(self, challenge: Challenge, show: Show) -> Any:
        self.shown += 1
        try:
            await show(Page(self.name, PAGE, lambda url: ""))
            self.token = await asyncio.shield(self.comes_back)
        finally:
            self.given_up.set()


class Person:
    """The client of a call."""

    relays, owner, home = False, None, None

    def __init__(self, principal: str = "") -> None:
        self.capabilities, self.principal = ClientCapabilities(url=True), principal
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.withdrawn = False

    async def ask(self, question: Question) -> Raw:
        self.asked.set()
        try:
            return Raw(await asyncio.shield(self.answer))
        except asyncio.CancelledError:
            self.withdrawn = True
            raise

    def finished(self, question: Question) -> None:
        pass

    async def project(self) -> str:
        return ""


Ask = Callable[[Person], "asyncio.Task[None]"]


@asynccontextmanager
async def refused_server() -> AsyncIterator[tuple[ScriptedAccount, Authorization, Ask]]:
    """A server that wants a token, and how the client of a call comes to be asked."""
    flights = AuthTasks()

    async def call_of(person: Person, authorization: Authorization) -> None:
        try:
            await authorization.refused("", 401, "")
        except SignInNeeded as needed:
            await ask_to_sign_in(Call("tools/call", "up", "t", Body(), client=person), needed)

    with anyio.fail_after(10):
        async with flights.running():
            around = AuthContext(MemorySecrets(), flights.spawn)
            account = ScriptedAccount(around)
            authorization = Authorization(account, around)
            yield account, authorization, lambda person: asyncio.ensure_future(call_of(person, authorization))


async def test_nobody_waits_for_the_page_of_another() -> None:
    """Who can be asked is shown the same page; who cannot be is told at once what is missing."""
    async with refused_server() as (account, authorization, ask):
        first, second = Person(), Person()
        slow = ask(first)
        await first.asked.wait()
        with pytest.raises(SignInNeeded):
            await authorization.refused("", 401, "")
        quick = ask(second)
        await second.asked.wait()
        second.answer.set_result(b'{"action":"accept"}')
        account.comes_back.set_result("token")
        await asyncio.gather(quick, slow)
        assert account.shown == 1
        assert first.withdrawn, "there is nothing left to ask"


@pytest.mark.parametrize("how", ["leaves", "declines", "fails"])
async def test_a_page_that_nobody_opens_is_given_up_and_the_next_is_asked_anew(how: str) -> None:
    async with refused_server() as (account, _, ask):
        person = Person()
        call = ask(person)
        await person.asked.wait()
        if how == "leaves":
            call.cancel()
            await asyncio.wait([call])
            assert person.withdrawn
        else:
            if how == "fails":
                person.answer.set_exception(QuestionRefused("no"))
            else:
                person.answer.set_result(b'{"action":"decline"}')
            with pytest.raises(SignInNeeded, match="not opened"):
                await call
        await account.given_up.wait()
        other = Person()
        call = ask(other)
        await other.asked.wait()
        other.answer.set_result(b'{"action":"accept"}')
        account.comes_back.set_result("token")
        await call
        assert account.shown == 2


async def test_a_page_that_was_opened_outlives_the_call() -> None:
    """A person takes longer than a client waits for an answer."""
    async with refused_server() as (account, authorization, ask):
        person = Person()
        call = ask(person)
        await person.asked.wait()
        person.answer.set_result(b'{"action":"accept"}')
        for _ in range(10):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert not account.given_up.is_set()
        signed_in = asyncio.Event()
        authorization.on_signed_in = signed_in.set
        account.comes_back.set_result("token")
        await signed_in.wait()
        assert authorization.ready == "token" or await authorization.token() == "token"


async def test_a_sign_in_that_fails_is_told_to_all_who_wait_for_it() -> None:
    async with refused_server() as (account, _, ask):
        people = [Person(), Person()]
        calls = [ask(person) for person in people]
        for person in people:
            await person.asked.wait()
            person.answer.set_result(b'{"action":"accept"}')
        account.comes_back.set_exception(UpstreamUnavailable("up", "the lights are off"))
        for call in calls:
            with pytest.raises(SignInNeeded, match="the lights are off"):
                await call


async def test_one_of_several_people_does_not_sign_in_for_the_others() -> None:
    """There is one account for all: their calls would run in that person's."""
    async with refused_server() as (account, _, ask):
        with pytest.raises(SignInNeeded):
            await ask(Person("alice"))
        assert not account.shown
