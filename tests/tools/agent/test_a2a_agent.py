"""Remote agents over A2A: real ones by the official SDK, and scripted ones for what those never say."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route

from mcpbridge.base.errors import (
    ArgumentsRefused,
    UnknownName,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamUnavailable,
)
from mcpbridge.tools.agent import a2a_agent as a2a_owners
from mcpbridge.tools.agent import a2a_client as a2a_following
from mcpbridge.tools.agent.a2a_agent import Owners
from mcpbridge.tools.agent.a2a_card import CardUnusableError, places_of_card, read_card
from mcpbridge.tools.agent.a2a_messages import ABOUT, Record, result_of
from mcpbridge.tools.agent.settings import AgentSettings
from support.backends.agent_peer import PNG, Agent, agent_peer, kept_servers, scripted_agent
from support.backends.backend_calls import SECRET, call_of, found, made, result, text_of, until
from support.upstreams.scripted_http import closed_port

VERSIONS = ["1.0", "0.3"]
both_versions = pytest.mark.parametrize("version", VERSIONS)
both_ways = pytest.mark.parametrize("streams", [True, False])


# -- with the agent of the SDK


@pytest.fixture(scope="module")
async def agents() -> AsyncGenerator[dict[str, Agent]]:
    """One of each version: starting them takes longer than most tests."""
    async with agent_peer(version="1.0") as new, agent_peer(version="0.3") as old:
        yield {"1.0": new, "0.3": old}


@pytest.fixture(scope="module", autouse=True)
async def _servers() -> AsyncGenerator[None]:
    """Starting and ending a server takes longer than most tests."""
    async with kept_servers():
        yield


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2a_following, "FIRST_WAIT", 0.01)


@pytest.fixture
def version() -> str:
    return "1.0"


@pytest.fixture
async def agent(agents: dict[str, Agent], version: str) -> AsyncGenerator[Agent]:
    agents[version].forget()
    yield agents[version]
    agents[version].release.set()


@both_versions
async def test_an_agent_is_found_by_its_card_and_answers_at_once(agent: Agent, version: str) -> None:
    """Promise of the issue: agent card discovered, JSON-RPC `message/send`; either era of the protocol."""
    backend = made("cook", "agent", agent=agent.url)
    assert backend.condition.state == "starting"
    async with found(backend) as changes:
        assert changes() == 1
        (tool,) = backend.tools
        assert tool["name"] == "cook"
        assert tool["description"] == "Cook: Cooks.\n- Bake: Bakes bread.\n- Boil: Boils eggs."
        got = await result(backend, "cook", {"message": "hello there", "data": {"eggs": 2}})
        assert 'you said: hello there, with {"eggs": 2' in text_of(got)
        assert got["_meta"][ABOUT]["state"] == "message"
        again = await result(backend, "cook", {"message": "hello", "context_id": got["_meta"][ABOUT]["contextId"]})
        assert again["_meta"][ABOUT]["contextId"] == got["_meta"][ABOUT]["contextId"]
        assert got["_meta"][ABOUT]["contextId"] in text_of(again)
    names = {"1.0": {"SendStreamingMessage"}, "0.3": {"message/stream"}}
    assert set(agent.methods) == names[version]


@both_versions
@both_ways
async def test_work_is_followed_to_its_end_with_progress(agent: Agent, version: str, streams: bool) -> None:
    """Promise of the issue: streaming, and tasks polled to the end."""
    backend = made("cook", "agent", agent=agent.url, stream=streams)
    async with found(backend):
        heard: list[dict[str, Any]] = []
        got = await result(backend, "cook", {"message": "work hard"}, heard=heard)
        assert [block["text"] for block in got["content"]][:3] == [
            "the first half",
            ", the second",
            '{"total":3.0}',
        ]
        assert got["structuredContent"] == {"total": 3}
        assert got["_meta"][ABOUT]["state"] == "completed"
        assert not got.get("isError")
        if streams:
            assert [one["progress"] for one in heard] == list(range(1, len(heard) + 1))
            assert {"submitted", "working: thinking", "essay: the first half"} <= {one["message"] for one in heard}
        else:
            assert {method.lower() for method in agent.methods[1:]} <= {"gettask", "tasks/get"}


@both_versions
@both_ways
async def test_a_long_task_is_waited_for(agent: Agent, version: str, streams: bool) -> None:
    """Promise of the issue: tasks polled to the end; each look is told as progress."""
    backend = made("cook", "agent", agent=agent.url, stream=streams)
    async with found(backend), anyio.create_task_group() as group:
        heard: list[dict[str, Any]] = []

        async def release() -> None:
            await agent.hanging.wait()
            await until(lambda: len(heard) >= 2)
            agent.release.set()

        group.start_soon(release)
        got = await result(backend, "cook", {"message": "long"}, heard=heard)
        assert "at last" in text_of(got)


@both_versions
@both_ways
async def test_cancelling_a_call_cancels_its_task(agent: Agent, version: str, streams: bool) -> None:
    """Promise of the issue: `tasks/cancel`."""
    backend = made("cook", "agent", agent=agent.url, stream=streams)
    async with found(backend):
        heard: list[dict[str, Any]] = []
        async with anyio.create_task_group() as group:
            group.start_soon(backend.run, call_of("cook", {"message": "hang"}, heard))
            with anyio.fail_after(60):
                await agent.hanging.wait()
                await until(lambda: bool(heard))
            group.cancel_scope.cancel()
        with anyio.fail_after(60):
            await agent.cancelled.wait()


@both_versions
@both_ways
@pytest.mark.parametrize(("message", "state"), [("ask", "input-required"), ("login", "auth-required")])
async def test_a_task_that_waits_is_told_and_gone_on_with(
    agent: Agent, message: str, state: str, version: str, streams: bool
) -> None:
    """Promise of the brief: the result says so with the task's id, so that the model can go on."""
    backend = made("cook", "agent", agent=agent.url, stream=streams)
    async with found(backend):
        got = await result(backend, "cook", {"message": message})
        about = got["_meta"][ABOUT]
        assert about["state"] == state
        assert not got.get("isError")
        assert about["taskId"] in text_of(got)
        assert {"ask": "which colour?", "login": "sign in at the bank"}[message] in text_of(got)
        seen = await result(backend, "cook", {"task_id": about["taskId"]})
        assert seen["_meta"][ABOUT] == about
        ids = {"task_id": about["taskId"], "context_id": about["contextId"]}
        got = await result(backend, "cook", {"message": "red", **ids})
        assert "you answered: red" in text_of(got)
        assert got["_meta"][ABOUT] == {**about, "state": "completed"}


@both_ways
@pytest.mark.parametrize(("message", "said"), [("fail", "the oven is broken"), ("reject", "I do not do that")])
async def test_a_task_that_fails_is_an_error_with_its_words(
    agent: Agent, message: str, said: str, streams: bool
) -> None:
    """Promise of the brief: states become results."""
    backend = made("cook", "agent", agent=agent.url, stream=streams)
    async with found(backend):
        got = await result(backend, "cook", {"message": message})
        assert got["isError"]
        assert said in text_of(got)


@both_versions
async def test_files_and_data_become_content(agent: Agent, version: str) -> None:
    """Promise of the brief: parts become content blocks."""
    backend = made("cook", "agent", agent=agent.url)
    async with found(backend):
        got = await result(backend, "cook", {"message": "files"})
        image, table, link, numbers, table_text, *_ = got["content"]
        assert image == {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
        assert table["resource"]["mimeType"] == "text/csv"
        assert table["resource"]["uri"].endswith("/a%20table.csv")
        assert base64.b64decode(table["resource"]["blob"]) == b"a,b"
        assert (link["type"], link["uri"], link["name"]) == ("resource_link", "https://example.com/x.pdf", "x.pdf")
        listed = [1, 2] if version == "1.0" else {"value": [1, 2]}  # data is always an object in 0.3
        assert json.loads(numbers["text"]) == listed
        assert json.loads(table_text["text"]) == {"a": None}
        assert got["structuredContent"] == {"data": [listed, {"a": None}]}
        quiet = await result(backend, "cook", {"message": "quiet"})
        assert text_of(quiet)


async def test_each_skill_is_a_tool_where_that_is_wanted(agent: Agent) -> None:
    """Promise of the settings: `skills`."""
    backend = made("cook", "agent", agent=agent.url, skills=True)
    async with found(backend):
        assert [tool["name"] for tool in backend.tools] == ["bake_bread", "boil"]
        assert backend.tools[0]["description"] == "Bakes bread.\nFor example: hello bread"
        await result(backend, "bake_bread", {"message": "hello"})
        assert agent.skills == ["bake/bread"]


async def test_credentials_go_with_every_request_and_nothing_works_without() -> None:
    """Promise of the brief: headers and bearer tokens from the settings."""
    async with agent_peer(token=SECRET, path="/agents/cook") as agent:
        for settings in (
            {"auth": {"type": "bearer", "token": SECRET}},
            {"headers": {"Authorization": f"Bearer {SECRET}"}},
        ):
            backend = made("cook", "agent", agent=agent.url, **settings)
            async with found(backend):
                got = await result(backend, "cook", {"message": "hello"})
                assert "you said" in text_of(got)
                assert SECRET not in json.dumps(got)
        nobody = made("cook", "agent", agent=agent.url)
        async with found(nobody, "failed"):
            assert "401" in nobody.condition.reason


async def test_an_unknown_task_is_an_error_that_teaches(agent: Agent) -> None:
    """Promise of the brief: errors of JSON-RPC are results."""
    backend = made("cook", "agent", agent=agent.url)
    async with found(backend):
        got = await result(backend, "cook", {"task_id": "nonesuch"})
        assert got["isError"]
        assert "begin a new one" in text_of(got)
        with pytest.raises(ArgumentsRefused, match="message"):
            await result(backend, "cook", {})


async def test_health_is_the_card_and_refresh_reads_it_anew() -> None:
    """Promise of the brief: health, management commands."""
    async with agent_peer() as agent:
        backend = made("cook", "agent", agent=agent.url)
        async with found(backend):
            health = await backend.check()
            assert health.ok
            assert "card of Cook" in health.detail
            assert (await backend.command("refresh", {}))["tools"] == ["cook"]
            with pytest.raises(UnknownName, match="refresh"):
                await backend.command("bake", {})
    with closed_port() as port:
        gone = made("cook", "agent", agent=f"http://127.0.0.1:{port}")
        async with found(gone, "failed"):
            assert "refused" in gone.condition.reason
            with pytest.raises(UpstreamUnavailable, match="refused"):
                await gone.command("refresh", {})
            assert not (await gone.check()).ok
            with pytest.raises(UpstreamUnavailable):
                await result(gone, "cook", {"message": "hello"})


# -- with scripted agents


def card(url: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "Odd",
        "description": "",
        "supportedInterfaces": [{"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "skills": [],
        **more,
    }


def old_card(url: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "Old",
        "url": f"{url}/rpc",
        "protocolVersion": "0.2.5",
        "capabilities": {"streaming": False},
        **more,
    }


def task(state: str, **more: Any) -> dict[str, Any]:
    return {"id": "t1", "contextId": "c1", "status": {"state": state}, **more}


@pytest.mark.parametrize("at", ["/.well-known/agent.json", "/cards/odd.json"])
async def test_the_card_may_stand_elsewhere(at: str) -> None:
    """The place of A2A 0.2, and one that the configuration names."""

    async def answer(method: str, params: dict[str, Any]) -> Any:
        return {"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}

    async with scripted_agent(old_card, answer, at=at) as agent:
        settings = {"card": at} if at.startswith("/cards") else {}
        for address, more in ((agent.url, settings), (agent.url + at, {})):
            backend = made("odd", "agent", agent=address, **more)
            async with found(backend):
                assert text_of(await result(backend, "odd", {"message": "x"})) == "hi"
                assert agent.methods[-1] == "message/send"
        missing = made("odd", "agent", agent=agent.url, card="/nothing.json")
        async with found(missing, "failed"):
            assert "no agent card at" in missing.condition.reason


BAD_CARDS: list[tuple[Callable[[str], Any], str]] = [
    (lambda url: card("https://elsewhere.example"), "allow_origins"),
    (lambda url: card(url.replace("http:", "https:")), "allow_origins"),
    (lambda url: card("http://localhost:1"), "allow_origins"),
    (lambda url: card(url, supportedInterfaces=[{"url": url, "protocolBinding": "GRPC"}]), "offers GRPC"),
    (
        lambda url: card(
            url, supportedInterfaces=[{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "2.0"}]
        ),
        "offers nothing",
    ),
    (lambda url: old_card(url, preferredTransport="HTTP+JSON"), "offers HTTP+JSON"),
    (lambda url: card("file:///etc/passwd"), "allow_origins"),
    (lambda url: card("http://[bad"), "allow_origins"),
    (lambda url: {"hello": 1}, "no `name`"),
    (lambda url: [1], "no `name`"),
    (lambda url: PlainTextResponse("<html>"), "no JSON"),
    (lambda url: PlainTextResponse("[" * 100_000), "no JSON"),
    (lambda url: PlainTextResponse("", 500), "HTTP status 500"),
    (lambda url: RedirectResponse("http://elsewhere.example/"), "HTTP status 307"),
]


async def test_a_card_that_leads_nowhere_or_elsewhere_is_refused() -> None:
    """Promise of the brief: credentials do not follow a card to another origin."""
    shown: list[Callable[[str], Any]] = []

    def told(url: str) -> Any:
        return shown[-1](url)

    async with scripted_agent(told) as agent:
        for bad, reason in BAD_CARDS:
            shown.append(bad)
            backend = made("odd", "agent", agent=agent.url, headers={"X-Key": SECRET})
            async with found(backend, "failed"):
                assert reason in backend.condition.reason


async def test_another_origin_is_used_where_that_is_allowed() -> None:
    """Promise of the settings: `allow_origins` and `url`."""

    async def answer(method: str, params: dict[str, Any]) -> Any:
        return {"message": {"role": "ROLE_AGENT", "parts": [{"text": f"tenant {params.get('tenant')}"}]}}

    async with scripted_agent(card, answer) as worker:
        interface = {"url": f"{worker.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"}
        async with scripted_agent(lambda url: card(url, supportedInterfaces=[interface])) as front:
            for settings in ({"allow_origins": [worker.url]}, {"url": f"{worker.url}/rpc"}):
                backend = made("odd", "agent", agent=front.url, **settings, headers={"X-Key": SECRET})
                async with found(backend):
                    assert text_of(await result(backend, "odd", {"message": "x"})) == "tenant t"
                    assert worker.headers[-1]["x-key"] == SECRET


async def test_a_card_that_is_kept_elsewhere_leads_to_the_agent_alone() -> None:
    """A registry of cards gets no credentials, neither with the card nor with messages."""

    async def answer(method: str, params: dict[str, Any]) -> Any:
        return {"message": {"parts": [{"text": "hi"}]}}

    async with scripted_agent(card, answer) as agent, scripted_agent(lambda url: card(agent.url)) as registry:
        place = f"{registry.url}/.well-known/agent-card.json"
        backend = made("odd", "agent", agent=agent.url, card=place, headers={"X-Key": SECRET})
        async with found(backend):
            assert text_of(await result(backend, "odd", {"message": "x"})) == "hi"
            assert agent.headers[-1]["x-key"] == SECRET
            assert all("x-key" not in headers for headers in registry.headers)
    async with scripted_agent(card, answer) as registry:
        place = f"{registry.url}/.well-known/agent-card.json"
        backend = made("odd", "agent", agent="http://localhost:1", card=place)  # it sends us to itself
        async with found(backend, "failed"):
            assert "allow_origins" in backend.condition.reason


async def test_one_that_cannot_be_used_as_configured_is_not_looked_for() -> None:
    """`unavailable`, set while loading: a variable is missing, for example."""
    backend = made("odd", "agent", agent="http://localhost:1", unavailable="${TOKEN} is not set")
    for _ in range(2):
        async with found(backend, "failed") as changes:
            with pytest.raises(UpstreamUnavailable, match="TOKEN"):
                await result(backend, "odd", {"message": "x"})
            with pytest.raises(UpstreamUnavailable, match="TOKEN"):
                await backend.command("refresh", {})
            assert changes() == 0


async def test_an_interface_that_we_speak_is_chosen_among_several() -> None:
    """`supportedInterfaces` of 1.0, `additionalInterfaces` of 0.3."""
    here = "https://a.example/.well-known/agent-card.json"

    def chosen(value: dict[str, Any]) -> tuple[str, str]:
        interface = read_card(json.dumps({"name": "n", **value}).encode(), here, allowed=[here]).interface
        return interface.url, interface.version

    def offered(url: str, version: str, binding: str = "JSONRPC") -> dict[str, Any]:
        return {"url": url, "protocolVersion": version, "protocolBinding": binding}

    grpc, old, new = (
        offered("https://a.example/g", "1.0", "GRPC"),
        offered("https://a.example/old", "0.3"),
        offered("https://a.example/new", "1.0"),
    )
    assert chosen({"supportedInterfaces": [grpc, old, new]}) == ("https://a.example/new", "1.0")
    assert chosen({"supportedInterfaces": [grpc, old]}) == ("https://a.example/old", "0.3")
    assert chosen({"supportedInterfaces": [offered("/rpc", "1.0.1")]}) == ("https://a.example/rpc", "1.0")
    additional = [{"transport": "JSONRPC", "url": "https://a.example:443/j"}]
    value = {"url": "https://a.example/g", "preferredTransport": "GRPC", "additionalInterfaces": additional}
    assert chosen(value) == ("https://a.example:443/j", "0.3")
    elsewhere = offered("https://b.example/new", "1.0")
    assert chosen({"supportedInterfaces": [elsewhere, old]}) == ("https://a.example/old", "0.3")
    with pytest.raises(CardUnusableError):
        chosen({"supportedInterfaces": [elsewhere]})


async def test_places_of_cards() -> None:
    """A2A 1.0, section 8.2: a well-known path of the domain; agents below a path have theirs there."""
    assert places_of_card("https://a.example/x/", None) == [
        "https://a.example/x/.well-known/agent-card.json",
        "https://a.example/.well-known/agent-card.json",
        "https://a.example/x/.well-known/agent.json",
        "https://a.example/.well-known/agent.json",
    ]
    assert places_of_card("https://a.example/x/c.json", None) == ["https://a.example/x/c.json"]
    assert places_of_card("https://a.example/x", "/c") == ["https://a.example/c"]


@pytest.mark.parametrize("rest", [[], ["break"], [b"data: {"]])
async def test_a_stream_that_breaks_off_is_followed_by_asking(rest: list[Any]) -> None:
    """Promise of the brief: tasks polled to the end. A look that fails on the way is repeated."""
    looks = 0

    async def answer(method: str, params: dict[str, Any]) -> Any:
        nonlocal looks
        if method == "SendStreamingMessage":
            return [b": comment\n\n", {"task": task("TASK_STATE_WORKING")}, *rest]
        looks += 1
        assert (method, params) == ("GetTask", {"id": "t1"})
        if looks == 2:
            return PlainTextResponse("busy", 503)
        done = [{"artifactId": "a", "parts": [{"text": "made it"}]}]
        return task("TASK_STATE_WORKING") if looks == 1 else task("TASK_STATE_COMPLETED", artifacts=done)

    async with scripted_agent(card, answer) as agent:
        backend = made("odd", "agent", agent=agent.url)
        async with found(backend):
            assert "made it" in text_of(await result(backend, "odd", {"message": "x"}))
            assert looks == 3


async def test_an_agent_that_cannot_stream_whatever_its_card_says_is_asked_plainly() -> None:
    """UnsupportedOperation of a stream: nothing was begun."""

    async def answer(method: str, params: dict[str, Any]) -> Any:
        if method == "SendStreamingMessage":
            return ValueError({"code": -32004, "message": "no streams"})
        return {"message": {"parts": [{"text": "plain"}]}}

    async with scripted_agent(card, answer) as agent:
        backend = made("odd", "agent", agent=agent.url)
        async with found(backend):
            assert text_of(await result(backend, "odd", {"message": "x"})) == "plain"
            assert agent.methods == ["SendStreamingMessage", "SendMessage"]


BAD_ANSWERS: list[tuple[Any, Any]] = [
    (PlainTextResponse("nope"), UpstreamGarbled),
    (PlainTextResponse("[1]"), UpstreamGarbled),
    (PlainTextResponse("x" * 5000), UpstreamGarbled),
    (JSONResponse({"jsonrpc": "2.0", "id": 1}), UpstreamGarbled),
    ({}, UpstreamGarbled),
    ([], UpstreamGone),
    ([b"data: nope\n\n"], UpstreamGarbled),
    ([b"data: " + b"x" * 5000], UpstreamGarbled),
    ([b": x\n\n" * 2000], UpstreamGarbled),
    (["break"], UpstreamGone),
    (PlainTextResponse("no", 401), UpstreamHttpError),
    (PlainTextResponse("no", 500), UpstreamHttpError),
    (RedirectResponse("http://elsewhere.example/"), UpstreamHttpError),
    (JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": f"oh {SECRET}"}}, 500), "oh [r"),
    (ValueError({"code": -32602, "message": "what?"}), "Correct the arguments"),
    (ValueError({"code": "x"}), "no reason given"),
]


@both_ways
async def test_answers_that_are_none_are_told_apart(streams: bool) -> None:
    """Promise of `Backend.run`: what cannot be read is an error of ours, what the agent says a result."""
    told: list[Any] = []

    async def answer(method: str, params: dict[str, Any]) -> Any:
        return told[-1]

    async with scripted_agent(lambda url: card(url, capabilities={"streaming": streams}), answer) as agent:
        backend = made("odd", "agent", agent=agent.url, max_response=4096)
        async with found(backend):
            for one, expected in BAD_ANSWERS:
                told.append(one)
                if isinstance(expected, str):
                    got = await result(backend, "odd", {"message": "x"})
                    assert got["isError"]
                    assert expected in text_of(got)
                elif streams or not isinstance(one, list):
                    with pytest.raises(expected) as caught:
                        await result(backend, "odd", {"message": "x"})
                    assert caught.value.upstream == "shop"


@both_ways
async def test_a_token_that_was_called_back_is_fetched_anew_once(streams: bool) -> None:
    """Promise of the settings: `auth` of the type `oauth2`, for streams as for other requests."""
    fetched = 0

    async def token(request: Request) -> JSONResponse:
        nonlocal fetched
        fetched += 1
        return JSONResponse({"access_token": f"token-{fetched}"})

    async def answer(method: str, params: dict[str, Any]) -> Any:
        told = agent.headers[-1]["authorization"]
        if told != "Bearer token-2":
            return PlainTextResponse("old", 401)
        return {"message": {"parts": [{"text": "hi"}]}}

    routes = [Route("/token", token, methods=["POST"])]
    odd = scripted_agent(lambda url: card(url, capabilities={"streaming": streams}), answer, routes=routes)
    async with odd as agent:
        credentials = {"token_url": f"{agent.url}/token", "client_id": "us", "client_secret": SECRET}
        backend = made("odd", "agent", agent=agent.url, auth={"type": "oauth2", **credentials})
        async with found(backend):
            assert text_of(await result(backend, "odd", {"message": "x"})) == "hi"
            fetched = 7
            agent.headers.clear()
            backend_two = made("odd", "agent", agent=agent.url, auth={"type": "oauth2", **credentials})
            async with found(backend_two):
                with pytest.raises(UpstreamHttpError, match="401"):
                    await result(backend_two, "odd", {"message": "x"})
            assert fetched == 9


async def test_a_stream_that_is_only_kept_alive_is_progress() -> None:
    """Else a task of which there is nothing to tell for a minute would be given up."""

    async def answer(method: str, params: dict[str, Any]) -> Any:
        working, done = task("TASK_STATE_WORKING"), task("TASK_STATE_COMPLETED")
        return [{"task": working}, heard_one, b": ping\n\n", heard_two, {"task": done}]

    async def heard_one() -> None:
        await until(lambda: len(heard) == 1)

    async def heard_two() -> None:
        await until(lambda: len(heard) == 2)

    heard: list[dict[str, Any]] = []
    async with scripted_agent(card, answer) as agent:
        backend = made("odd", "agent", agent=agent.url)
        async with found(backend):
            await result(backend, "odd", {"message": "x"}, heard=heard)
            assert [one["message"] for one in heard] == ["working", "working"]


async def test_looking_at_a_task_does_not_cancel_it() -> None:
    """It was begun by an earlier call."""
    looked = anyio.Event()

    async def answer(method: str, params: dict[str, Any]) -> Any:
        looked.set()
        return task("TASK_STATE_WORKING")

    async with scripted_agent(card, answer) as agent:
        backend = made("odd", "agent", agent=agent.url)
        async with found(backend):
            async with anyio.create_task_group() as group:
                group.start_soon(backend.run, call_of("odd", {"task_id": "t1"}))
                with anyio.fail_after(60):
                    await looked.wait()
                group.cancel_scope.cancel()
            assert set(agent.methods) == {"GetTask"}


def by(principal: str) -> dict[str, Any]:
    """A call of this principal."""
    return {"caller": cast("Any", SimpleNamespace(principal=principal))}


async def test_tasks_and_conversations_are_those_of_who_began_them() -> None:
    """The agent knows the bridge alone; that one user reads another's tasks is for the bridge to prevent."""
    sent: list[dict[str, Any]] = []

    async def answer(method: str, params: dict[str, Any]) -> Any:
        sent.append(params)
        if params.get("id") == "nonesuch":
            return ValueError({"code": -32001, "message": "no such task"})
        if method == "GetTask":
            return task("TASK_STATE_INPUT_REQUIRED", id=params["id"], contextId=f"of {params['id']}")
        return {"task": task("TASK_STATE_INPUT_REQUIRED")}

    async with scripted_agent(lambda url: card(url, capabilities={}), answer) as agent:
        backend = made("odd", "agent", agent=agent.url)
        async with found(backend):
            alone = await result(backend, "odd", {"task_id": "older"})  # nobody else is there
            assert not alone.get("isError")
            assert (await result(backend, "odd", {"task_id": "nonesuch"}))["isError"]
            await result(backend, "odd", {"message": "x"}, **by("ann"))
            asked = len(sent)
            for who in ("bob", ""):
                for ids in ({"task_id": "t1"}, {"message": "x", "context_id": "c1"}, {"task_id": "unseen"}):
                    refused = await result(backend, "odd", ids, **by(who))
                    assert refused["isError"]
                    assert "no such task or conversation" in text_of(refused)
            assert len(sent) == asked
            for ids in ({"task_id": "t1"}, {"message": "x", "context_id": "c1", "task_id": "t1"}):
                assert "isError" not in await result(backend, "odd", ids, **by("ann"))


async def test_only_so_many_owners_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was forgotten is nobody's; what is in use stays."""
    monkeypatch.setattr(a2a_owners, "MOST", 4)
    owners = Owners()
    for number in range(9):
        owners.note("ann", task_id=f"t{number}", context_id="c")
    owners.note("bob", task_id="t8", context_id="c")
    allowed = [owners.allows("ann", task_id=f"t{number}", context_id="c") for number in range(9)]
    assert allowed == [False] * 6 + [True] * 3
    assert not owners.allows("bob", task_id="t8", context_id="")


@both_ways
async def test_credentials_that_an_agent_repeats_are_masked(streams: bool) -> None:
    """Promise of the house: secrets never reach results, progress or errors."""
    own = "own-credential-1"

    async def heard_it() -> None:
        await until(lambda: bool(heard))

    async def answer(method: str, params: dict[str, Any]) -> Any:
        shown = agent.headers[-1]["authorization"]
        said = {"parts": [{"text": shown + "x" * 480}]}
        working = task("TASK_STATE_WORKING")
        working["status"]["message"] = said
        parts = [
            {"text": f"you showed {shown}\nand {SECRET}"},
            {"data": {own: [shown, 1.5]}},
            {"raw": base64.b64encode(f"a,{own}".encode()).decode(), "mediaType": "text/csv", "filename": "t.csv"},
            {"url": f"https://example.com/?key={own}", "filename": own},
            {"raw": base64.b64encode(PNG).decode(), "mediaType": "image/png"},
        ]
        done = task("TASK_STATE_COMPLETED", artifacts=[{"artifactId": own, "name": own, "parts": parts}])
        if streams:
            return [{"task": working}, heard_it, {"task": done}]
        return {"task": working} if method == "SendMessage" else done

    heard: list[dict[str, Any]] = []
    described = {"description": f"I know {own}", "capabilities": {"streaming": streams}}
    async with scripted_agent(lambda url: card(url, **described), answer) as agent:
        backend = made("odd", "agent", agent=agent.url, auth={"type": "bearer", "token": own})
        async with found(backend):
            got = await result(backend, "odd", {"message": "x"}, heard=heard)
            assert heard
            assert "own-cred" not in json.dumps([got, heard, list(backend.tools)])
            assert SECRET not in json.dumps(got)
            assert got["structuredContent"] == {"[redacted]": ["Bearer [redacted]", 1.5]}
            assert "the file t.csv is left out" in text_of(got)
            assert [block for block in got["content"] if block["type"] == "image"]


@pytest.mark.parametrize(
    ("value", "state", "text"),
    [
        ({"kind": "task", "id": "t", "status": {"state": "input-required"}}, "input-required", ""),
        ({"task": {"id": "t", "status": {"state": "TASK_STATE_CANCELED"}}}, "canceled", ""),
        ({"id": "t", "status": {"state": "cancelled"}}, "canceled", ""),
        ({"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_UNSPECIFIED"}}}, "submitted", ""),
        ({"parts": [{"type": "text", "text": "0.1"}, {"kind": "data", "data": 1}, 5, {}]}, "message", "0.1"),
        ({"message": {"parts": None}}, "message", ""),
        ({"nothing": 1}, "", ""),
        ([1, 2], "", ""),
        (None, "", ""),
        ({"kind": "task", "status": 5, "artifacts": [1, {"parts": 7}], "history": "x"}, "submitted", ""),
        ({"artifactUpdate": {"taskId": "t", "artifact": "x"}}, "", ""),
    ],
)
async def test_what_agents_tell_is_read_leniently(value: Any, state: str, text: str) -> None:
    """No peer's answer is an error of Python's."""
    record = Record()
    record.take(value)
    assert record.state == state
    assert "".join(part.text or "" for part in record.status_parts) == text


@pytest.mark.parametrize(
    ("given_settings", "what"),
    [
        ({"agent": "cook"}, "expected an address"),
        ({"agent": "ftp://x"}, "expected an address"),
        ({"agent": "https://user:pw@x"}, "credentials"),
        ({"agent": "https://x/{y}"}, "placeholders"),
        ({"agent": "https://x", "card": "//y"}, "expected an address"),
        ({"agent": "https://x", "url": "nowhere"}, "expected an address"),
        ({"agent": "https://x", "allow_origins": ["https://y/z"]}, "no origin"),
        ({"agent": "https://x", "input_schema": {}}, "takes a message"),
        ({"agent": "pkg.mod:cook", "skills": True}, "for remote agents"),
        ({"agent": "pkg.mod:cook", "headers": {"a": "b"}}, "for remote agents"),
        ({"agent": "pkg.mod:cook", "stream": False}, "for remote agents"),
    ],
)
async def test_settings_that_cannot_work_are_refused_with_the_reason(given_settings: dict[str, Any], what: str) -> None:
    """Promise of the issue: bad specs give errors with file and key."""
    with pytest.raises(ValidationError, match=what):
        AgentSettings.model_validate(given_settings)


async def test_tls_and_relative_files_are_those_of_the_settings(tmp_path: Path) -> None:
    """A file that is missing is told when the agent is looked for, with its key."""
    backend = made("cook", "agent", tmp_path, agent="https://localhost:1", tls={"ca": str(tmp_path / "none.pem")})
    async with found(backend, "failed"):
        assert "tls.ca" in backend.condition.reason


@both_ways
async def test_a_task_that_was_not_named_yet_when_the_call_was_cancelled_is_cancelled_all_the_same(
    streams: bool,
) -> None:
    """Promise of `Backend.run`: cancelled, what it began ends too."""
    asked, cancelled, named = anyio.Event(), anyio.Event(), anyio.Event()

    async def answer(method: str, params: dict[str, Any]) -> Any:
        if method == "CancelTask":
            cancelled.set()
            return task("TASK_STATE_CANCELED")
        asked.set()
        await named.wait()
        told = {"task": task("TASK_STATE_WORKING")}
        return [told] if streams else told

    async with scripted_agent(lambda url: card(url, capabilities={"streaming": streams}), answer) as agent:
        backend = made("odd", "agent", agent=agent.url)
        async with found(backend):
            running = asyncio.create_task(backend.run(call_of("odd", {"message": "x"})))
            with anyio.fail_after(60):
                await asked.wait()
                running.cancel()
                await anyio.lowlevel.checkpoint()
                named.set()
                await cancelled.wait()
                with pytest.raises(asyncio.CancelledError):
                    await running


_MEMBERS = [
    "name",
    "url",
    "protocolVersion",
    "supportedInterfaces",
    "protocolBinding",
    "additionalInterfaces",
    "skills",
]
_MEMBERS += ["capabilities", "examples", "id", "contextId", "taskId", "status", "state", "message", "parts", "text"]
_MEMBERS += ["data", "file", "raw", "artifact", "artifactId", "artifacts", "task", "statusUpdate", "artifactUpdate"]
_MEMBERS += ["kind", "append", "history", "role", "filename", "mediaType", "bytes"]

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_MEMBERS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(values=st.lists(_JSON, max_size=4))
@settings(max_examples=150, deadline=None)
async def test_whatever_an_agent_tells_becomes_a_result(values: list[Any]) -> None:
    """No peer's answer is an error of Python's."""
    record = Record()
    for value in values:
        record.take(value)
    got = result_of(record, str)
    assert got["content"]
    json.dumps(got)


@given(value=_JSON)
@settings(max_examples=150, deadline=None)
async def test_whatever_stands_in_place_of_a_card_is_a_card_or_refused(value: Any) -> None:
    """A card that is read leads to its own origin."""
    try:
        found_card = read_card(json.dumps(value).encode(), "https://b.example/c.json", allowed=["https://a.example"])
    except CardUnusableError:
        return
    assert found_card.interface.url.startswith("https://a.example")
