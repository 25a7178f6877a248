"""Other settings for running servers: what has not changed notices nothing, the rest ends in order (issue 7)."""

import asyncio
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import UpstreamTimeout, UpstreamUnavailable
from mcpbridge.core.elicitation import NOBODY
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.protocol.body import Body
from mcpbridge.upstream.instances.primary import longest_call
from mcpbridge.upstream.instances.reconfigure import KEEPS, REPLACES, Changed, changes
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, Someone, Watcher, call_of

WITH_RESOURCES: dict[str, Any] = {
    **LEGACY_SERVER,
    "initialize": {
        **LEGACY_SERVER["initialize"],
        "capabilities": {"tools": {}, "resources": {"subscribe": True}, "logging": {}},
    },
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "logging/setLevel": {},
}


def settings(**more: Any) -> ServerSettings:
    return ServerSettings.model_validate({"command": "x", **more})


class Servers:
    """A pool whose servers are scripts: each has a transport for each way that it is started."""

    def __init__(self, script: dict[str, Any] | None = None, **servers: ServerSettings) -> None:
        self.watcher = Watcher()
        self.who: list[Upstream] = []
        """Who said something of itself, in order."""
        offered, stepped = self.watcher.offered, self.watcher.stepped
        self.watcher.offered = lambda upstream, lists: (self.who.append(upstream), offered(upstream, lists))[1]
        self.watcher.stepped = lambda upstream: (self.who.append(upstream), stepped(upstream))[1]
        self.script = script or {**LEGACY_SERVER}
        """Of those that are made from now on."""
        self.refuses: list[Exception] = []
        """Why those that are made from now on cannot be reached, at each attempt."""
        self._transports: dict[str, list[ScriptedTransport]] = {}
        self.pool = Pool(servers, self._made, self.watcher, client_info={"name": "b"})

    def _made(self, name: str, _: ServerSettings) -> ScriptedTransport:
        made = ScriptedTransport(self.script)
        made.refuses = list(self.refuses)
        self._transports.setdefault(name, []).append(made)
        return made

    def of(self, name: str) -> list[ScriptedTransport]:
        return self._transports[name]

    def call(self, name: str, client: Someone | None = None) -> asyncio.Task[Body]:
        call = call_of(client=client or NOBODY)
        call.upstream = name
        return asyncio.ensure_future(Deliver(self.pool)(call))


async def ended(upstream: Upstream) -> None:
    while upstream.status.state != "stopped":
        await upstream.connection.stepped()


# -- what a change means


def test_every_setting_is_one_that_keeps_a_server_or_one_that_replaces_it() -> None:
    """Whoever adds one has to decide."""
    assert not KEEPS & REPLACES
    assert ServerSettings.model_fields.keys() == KEEPS | REPLACES


def test_servers_are_compared_one_by_one() -> None:
    before = {"gone": settings(), "same": settings(), "other": settings(), "filtered": settings()}
    after = {
        "filtered": settings(tools={"include": ["a"]}, permission="deny", title="F"),
        "new": settings(),
        "other": settings(args=["x"]),
        "same": settings(),
    }
    assert changes(before, after) == Changed(("new",), ("gone",), ("other",), ("filtered", "same"))


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({}, 600),
        ({"call_timeout": 900}, 900),
        ({"max_call_timeout": 100, "tool": {"a": {"call_timeout": 200}, "b": {"max_call_timeout": 300}}}, 300),
    ],
)
def test_the_longest_call_is_that_of_the_slowest_tool(more: dict[str, Any], seconds: float) -> None:
    assert longest_call(settings(**more)) == seconds


# -- a running pool


async def test_what_has_not_changed_goes_on_as_if_nothing_had_happened() -> None:
    servers = Servers(same=settings(), filtered=settings(), other=settings(), gone=settings(), off=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            before, by_name = dict(servers.pool.upstreams), servers.pool.upstreams
            after = {
                "same": settings(),
                "filtered": settings(tools={"exclude": ["*"]}),
                "other": settings(env={"A": "1"}),
                "new": settings(),
                "off": settings(disabled=True),
            }
            changed = await servers.pool.configure(after)
            assert changed == Changed(("new",), ("gone", "off"), ("other",), ("filtered", "same"))
            assert servers.pool.upstreams is by_name, "others hold on to it"
            assert list(by_name) == ["filtered", "new", "other", "same"]
            assert by_name["same"] is before["same"]
            assert by_name["filtered"] is before["filtered"]
            assert by_name["filtered"].settings.tools.exclude == ["*"]
            assert by_name["other"] is before["other"], "until the next one is up"
            assert await servers.pool.settled(30)
            assert by_name["other"] is not before["other"]
            for name in ("gone", "off", "other"):
                await ended(before[name])
            assert [len(servers.of(name)) for name in ("same", "filtered", "other", "new")] == [1, 1, 2, 1]
            assert [transport.attempts for transport in servers.of("same")] == [1]
            assert (await servers.call("other")).value()["content"]


async def test_calls_in_flight_end_on_the_old_one_and_later_ones_go_to_the_new() -> None:
    servers = Servers({**LEGACY_SERVER, "tools/call": SILENCE}, up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            old, early = servers.pool.upstreams["up"], servers.call("up")
            asked = await servers.of("up")[0].hears("tools/call")
            await servers.pool.configure({"up": settings(args=["new"])})
            assert await servers.pool.settled(30)
            late = servers.call("up")
            asked_later = await servers.of("up")[1].hears("tools/call")
            assert (await early if early.done() else old.status.state) == "ready"
            servers.of("up")[0].line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": ["old"]}})
            servers.of("up")[1].line.gives({"jsonrpc": "2.0", "id": asked_later["id"], "result": {"content": ["new"]}})
            assert (await early).value()["content"] == ["old"]
            assert (await late).value()["content"] == ["new"]
            await ended(old)
            assert servers.pool.upstreams["up"].status.state == "ready"


async def test_an_old_one_is_not_waited_for_longer_than_its_longest_call() -> None:
    slow = settings(call_timeout=60, max_call_timeout=60)
    servers = Servers({**LEGACY_SERVER, "tools/call": SILENCE}, up=slow)
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            old, call = servers.pool.upstreams["up"], servers.call("up")
            await servers.of("up")[0].hears("tools/call")
            old.settings = settings(call_timeout=0.2, max_call_timeout=0.2)
            await servers.pool.configure({})
            await ended(old)
            with pytest.raises(Exception, match="stopped"):
                await call


async def test_a_call_to_one_that_is_gone_says_so() -> None:
    servers = Servers(up=settings())
    async with servers.pool.running():
        assert await servers.pool.settled(30)
        await servers.pool.configure({})
        with pytest.raises(UpstreamUnavailable, match="not configured any more"):
            await servers.call("up")


async def test_its_successor_is_waited_for_and_heard_of_only_when_it_is_up() -> None:
    servers = Servers(up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            old, told, instances = servers.pool.upstreams["up"], len(servers.who), servers.pool.instances("up")
            servers.script = {**LEGACY_SERVER, "tools/list": SILENCE}
            await servers.pool.configure({"up": settings(args=["new"])})
            listing = await servers.of("up")[1].hears("tools/list")
            assert (await servers.call("up")).value()["content"]
            assert servers.of("up")[0].asked("tools/call")
            assert servers.pool.upstreams["up"] is old
            assert (servers.who[told:], servers.pool.instances("up")) == ([], instances)
            servers.of("up")[1].line.gives({"jsonrpc": "2.0", "id": listing["id"], "result": {"tools": []}})
            assert await servers.pool.settled(30)
            new = servers.pool.upstreams["up"]
            assert new is not old
            assert servers.who[told:] == [new, new], "what it offers, and that it is ready"
            await ended(old)


async def test_one_that_cannot_be_started_takes_the_place_of_the_old_one_and_says_why() -> None:
    servers = Servers(up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            old = servers.pool.upstreams["up"]
            servers.refuses = [UpstreamUnavailable("up", "command not found")] * 99
            await servers.pool.configure({"up": settings(args=["wrong"])})
            assert await servers.pool.settled(30)
            await ended(old)
            assert "command not found" in servers.pool.upstreams["up"].status.reason


async def test_what_is_configured_while_a_successor_starts_replaces_that() -> None:
    servers = Servers(up=settings(), gone=settings(), told=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            servers.script = {**LEGACY_SERVER, "tools/list": SILENCE}
            another = settings(args=["1"])
            await servers.pool.configure({"up": another, "gone": another, "told": another})
            for name in ("up", "gone", "told"):
                await servers.of(name)[1].hears("tools/list")
            servers.script = LEGACY_SERVER
            third = {"up": settings(args=["2"]), "told": settings(args=["1"], call_timeout=5)}
            assert await servers.pool.configure(third) == Changed((), ("gone",), ("up",), ("told",))
            listing = await servers.of("told")[1].hears("tools/list")
            servers.of("told")[1].line.gives({"jsonrpc": "2.0", "id": listing["id"], "result": {"tools": []}})
            assert await servers.pool.settled(30)
            assert servers.pool.upstreams["up"].transport is servers.of("up")[2]
            assert servers.pool.upstreams["told"].settings == third["told"]
            assert list(servers.pool.upstreams) == ["told", "up"]


async def test_deadlines_of_calls_are_others_and_its_process_is_the_same() -> None:
    servers = Servers({**LEGACY_SERVER, "tools/call": SILENCE}, up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            assert (await servers.pool.configure({"up": settings(call_timeout=0.05)})).untouched == ("up",)
            with pytest.raises(UpstreamTimeout, match=r"0\.05"):
                await servers.call("up")
            assert len(servers.of("up")) == 1


async def test_an_old_one_says_nothing_more_of_what_it_offers() -> None:
    """It may list anew while it finishes its calls; what counts is the new one's."""
    script = {**LEGACY_SERVER, "tools/call": SILENCE}
    servers = Servers(script, up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            call = servers.call("up")
            await servers.of("up")[0].hears("tools/call")
            await servers.pool.configure({"up": settings(args=["new"])})
            assert await servers.pool.settled(30)
            new, told = servers.pool.upstreams["up"], len(servers.who)
            servers.of("up")[0].line.says("notifications/tools/list_changed")
            await servers.of("up")[0].hears("tools/list", times=2)
            call.cancel()
            await asyncio.wait([call])
            assert set(servers.who[told:]) <= {new}


async def test_subscriptions_and_the_log_level_go_over_to_the_new_one() -> None:
    servers = Servers(WITH_RESOURCES, up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            old = servers.pool.upstreams["up"]
            old.wanted.subscribe("memo://a")
            old.wanted.want_log_level("info")
            await servers.of("up")[0].hears("resources/subscribe")
            while not old.wanted.followed:
                await asyncio.sleep(0)
            await servers.pool.configure({"up": settings(args=["new"])})
            told = await servers.of("up")[1].hears("resources/subscribe")
            assert told["params"]["uri"] == "memo://a"
            assert (await servers.of("up")[1].hears("logging/setLevel"))["params"]["level"] == "info"
            await servers.watcher.until(lambda: {"uri": "memo://a"} in servers.watcher.updated)  # it may have changed
            await ended(old)
            old.wanted.unsubscribe("memo://a")  # as whoever subscribed then
            assert (await servers.of("up")[1].hears("resources/unsubscribe"))["params"]["uri"] == "memo://a"


async def test_one_that_is_gone_is_not_kept_by_those_who_wanted_to_hear_of_it() -> None:
    servers = Servers(WITH_RESOURCES, up=settings())
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            old = servers.pool.upstreams["up"]
            old.wanted.subscribe("memo://a")
            await servers.pool.configure({})
            await ended(old)
            old.wanted.unsubscribe("memo://a")


async def test_further_instances_are_replaced_with_it_and_those_with_subscribers_come_again() -> None:
    servers = Servers(WITH_RESOURCES, up=settings(share="session"))
    watching, calling = Someone(), Someone()
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            base = servers.pool.upstreams["up"]
            own = await servers.pool.serving(base, watching)
            await servers.call("up", calling)
            own.wanted.subscribe("memo://a")
            assert servers.pool.instances("up") == 3
            await servers.pool.configure({"up": settings(share="session", args=["new"])})
            assert servers.pool.instances("up") == 3
            assert await servers.pool.settled(30)
            assert servers.pool.instances("up") == 2
            await ended(own)
            again = await servers.pool.serving(servers.pool.upstreams["up"], watching)
            assert again is not own
            assert again.wanted.uris == {"memo://a": 1}
            await servers.call("up", calling)
            assert servers.pool.instances("up") == 3


async def test_a_server_that_never_came_up_is_replaced_by_one_that_does() -> None:
    """The usual reason to edit: calls that come then find the new one, and whoever waits for it is told."""
    servers = Servers(up=settings(), odd=settings(unavailable="missing variable ${TOKEN}"))
    servers.of("up")[0].refuses = [UpstreamUnavailable("up", "command not found")] * 99
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            assert servers.pool.upstreams["odd"].status.state == "unavailable"
            await servers.pool.configure({"up": settings(args=["right"]), "odd": settings()})
            assert await servers.pool.settled(30)
            assert {upstream.status.state for upstream in servers.pool.upstreams.values()} == {"ready"}
            assert (await servers.call("up")).value()["content"]


async def test_before_it_runs_a_pool_is_configured_as_well() -> None:
    servers = Servers(up=settings())
    assert (await servers.pool.configure({"up": settings(args=["a"]), "b": settings()})).added == ("b",)
    async with servers.pool.running():
        assert await servers.pool.settled(30)
        assert list(servers.pool.upstreams) == ["b", "up"]


@pytest.mark.parametrize("share", ["shared", "session", "project"])
async def test_no_call_is_lost_while_a_server_is_replaced_again_and_again(share: str) -> None:
    """Whatever a call waits for at that moment: the start, a place, its turn."""
    servers = Servers(up=settings(share=share, max_concurrent=2, args=["0"]))
    people = [Someone(form=number % 2 == 0, project="file:///work") for number in range(4)]
    with anyio.fail_after(20):
        async with servers.pool.running():

            async def keep_calling(client: Someone) -> int:
                for number in range(40):
                    assert (await servers.call("up", client)).value()["content"]
                    await anyio.sleep(0.001 * (number % 3))
                return 40

            calling = [asyncio.ensure_future(keep_calling(client)) for client in people]
            for number in range(1, 12):
                await anyio.sleep(0.01)
                await servers.pool.configure({"up": settings(share=share, max_concurrent=2, args=[str(number)])})
            assert await asyncio.gather(*calling) == [40] * len(people)
