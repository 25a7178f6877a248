"""Who is told of what: each client what it asked for, modern ones on their stream with its id."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from mcpbridge.downstream.client import Client
from mcpbridge.downstream.notifications.listeners import Listen, Listeners, covers

STREAM = "io.modelcontextprotocol/subscriptionId"
UPDATED = "notifications/resources/updated"


class Ear:
    """What one client hears."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def __call__(self, message: bytes) -> None:
        self.heard.append(json.loads(message))

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard]


def session(listeners: Listeners, *, initialized: bool = True, **fields: Any) -> Ear:
    """An open legacy session."""
    ear = Ear()
    listeners.clients.add(Client(push=ear, version="2025-06-18", initialized=initialized, **fields))
    return ear


def listen(listeners: Listeners, id_: bytes = b'"s1"', **wanted: Any) -> tuple[Ear, Listen]:
    """An open listen stream."""
    ear = Ear()
    fields = {"notifications": Raw(json.dumps(wanted).encode())}
    stream = Listen.read(id_, fields, ear)
    listeners.listens.add(stream)
    return ear, stream


async def test_a_changed_list_is_told_to_sessions_that_are_ready_and_streams_that_asked() -> None:
    listeners = Listeners()
    ready, early = session(listeners), session(listeners, initialized=False)
    tools, _ = listen(listeners, toolsListChanged=True, promptsListChanged=False)
    prompts, _ = listen(listeners, promptsListChanged=True)
    listeners.list_changed("tools")
    assert ready.heard == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    assert early.heard == [], "nothing before notifications/initialized"
    assert tools.methods == ["notifications/tools/list_changed"]
    assert prompts.heard == []


@pytest.mark.parametrize(("id_", "stamp"), [(b'"s1"', "s1"), (b"7", 7), (b"-1", -1)])
async def test_everything_on_a_stream_carries_its_id(id_: bytes, stamp: object) -> None:
    """MCP 2026-07-28, subscriptions/listen."""
    listeners = Listeners()
    ear, stream = listen(listeners, id_, toolsListChanged=True, resourceSubscriptions=["a:1"])
    stream.acknowledge(["a:1"])
    listeners.list_changed("tools")
    listeners.resource_updated(Raw(b'{"uri":"x","_meta":{"%b":"up"}}' % STREAM.encode()), "a:1", covers)
    assert ear.methods == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        UPDATED,
    ]
    assert [message["params"]["_meta"] for message in ear.heard] == [{STREAM: stamp}] * 3
    assert json.loads(stream.result)["_meta"] == {STREAM: stamp}


async def test_what_vendors_put_beside_an_update_reaches_both_eras() -> None:
    """Other keys of `_meta` are for both ends; the id of the upstream's own stream is not."""
    listeners = Listeners()
    subscriber = session(listeners, subscriptions={"a:1": ("up", "a:1")})
    stream, _ = listen(listeners, resourceSubscriptions=["a:1"])
    for meta in (b'{"theirs":1.10,"%b":"listen-1"}' % STREAM.encode(), b"5", b"{}"):
        listeners.resource_updated(Raw(b'{"uri":"a:1","_meta":%b}' % meta), "a:1", covers)
    assert [message["params"].get("_meta") for message in subscriber.heard] == [{"theirs": 1.1}, None, None]
    assert [message["params"]["_meta"] for message in stream.heard] == [
        {"theirs": 1.1, STREAM: "s1"},
        {STREAM: "s1"},
        {STREAM: "s1"},
    ]


async def test_the_acknowledgement_says_what_will_be_delivered() -> None:
    ear, stream = listen(
        Listeners(), toolsListChanged=True, promptsListChanged=None, resourceSubscriptions=["a:1", "b"]
    )
    stream.acknowledge(["a:1"])
    assert ear.heard[0]["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    assert stream.uris == {"a:1"}
    bare, nothing = listen(Listeners())
    nothing.acknowledge([])
    assert bare.heard[0]["params"]["notifications"] == {}


async def test_an_update_is_told_to_those_who_subscribed_in_the_spelling_for_clients() -> None:
    listeners = Listeners()
    subscriber = session(listeners, subscriptions={"up+a:1": ("up", "a:1")})
    other = session(listeners, subscriptions={"up+a:2": ("up", "a:2")})
    stream, _ = listen(listeners, resourceSubscriptions=["up+a:1"])
    other_stream, _ = listen(listeners, resourceSubscriptions=["up+a:10"], toolsListChanged=True)
    listeners.resource_updated(Raw(b'{"uri":"a:1","x":1.10}'), "up+a:1", covers)
    assert subscriber.heard == [{"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "up+a:1", "x": 1.1}}]
    assert stream.heard[0]["params"]["uri"] == "up+a:1"
    assert (other.heard, other_stream.heard) == ([], [])


@pytest.mark.parametrize(
    ("subscribed", "updated", "concerns"),
    [
        ("file:///a", "file:///a", True),
        ("file:///a", "file:///a/b", True),
        ("file:///a/", "file:///a/b", True),
        ("file:///a", "file:///ab", False),
        ("file:///a/b", "file:///a", False),
    ],
)
def test_an_update_concerns_the_resource_and_what_lies_above_it(subscribed: str, updated: str, concerns: bool) -> None:
    assert covers(subscribed, updated) == concerns


async def test_log_messages_go_to_sessions_by_their_own_levels() -> None:
    listeners = Listeners()
    assert listeners.log_level == ""
    silent, chatty, strict = (
        session(listeners),
        session(listeners, log_level="debug"),
        session(listeners, log_level="error"),
    )
    stream, _ = listen(listeners, toolsListChanged=True)
    assert listeners.log_level == "debug"
    listeners.logged("up", Raw(b'{"level":"warning","data":1}'))
    listeners.logged("up", Raw(b'{"level":"critical","data":2}'))
    listeners.logged("up", Raw(b'{"nonsense":true}'))
    assert [message["params"]["data"] for message in chatty.heard] == [1, 2]
    assert [message["params"]["data"] for message in strict.heard] == [2]
    assert (silent.heard, stream.heard) == ([], [])


async def test_a_session_that_ends_while_it_is_told_harms_nobody() -> None:
    listeners = Listeners()
    second = session(listeners)
    leaving = Client(initialized=True, push=lambda _: listeners.clients.discard(leaving))
    listeners.clients.add(leaving)
    third = session(listeners)
    listeners.list_changed("tools")
    assert len(second.heard) == len(third.heard) == 1


async def test_all_streams_end_in_good_order_once() -> None:
    listeners = Listeners()
    _, stream = listen(listeners)
    listeners.end_all()
    listeners.end_all()
    assert stream.ended.done()
    assert json.loads(stream.result)["resultType"] == "complete"


@pytest.mark.parametrize("wanted", [b"[]", b"5", b'{"toolsListChanged":"yes"}', b'{"resourceSubscriptions":[5]}'])
async def test_a_filter_of_the_wrong_shape_is_an_error(wanted: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Listen.read(b"1", {"notifications": Raw(wanted)}, Ear())
    with pytest.raises(KeyError):
        Listen.read(b"1", {}, Ear())


async def test_an_unknown_member_of_the_filter_is_ignored() -> None:
    _, stream = listen(Listeners(), futureThingsChanged=True, toolsListChanged=True)
    assert stream.lists == {"tools"}
