"""What differs between a lock and what servers show, and the lock that agrees to it."""

import json
from collections.abc import Mapping
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.pins.comparison import accept, differences
from mcpbridge.catalog.pins.definition import Pin, pin
from mcpbridge.catalog.pins.lock_file import Agreed, Lock, PinKey, lock_of
from mcpbridge.catalog.pins.server_pins import command_without_secrets, origin_of, pins_of


def tool(name: str, description: str) -> Pin:
    return pin("tools", name, json.dumps({"name": name, "description": description}).encode())


def compared(before: Mapping[str, list[Pin]], now: Mapping[str, list[Pin]]) -> list[tuple[str, str, list[str]]]:
    stored = {one.digest: one.definition for pins in before.values() for one in pins}
    found = differences(lock_of(before), now, stored.get)
    return [(one.key.server, one.key.name, [change.what for change in one.changes]) for one in found]


def test_one_of_several_agreed_definitions_is_no_difference() -> None:
    both = {"a": [tool("x", "One."), tool("x", "Two.")]}
    for one in both["a"]:
        assert compared(both, {"a": [one]}) == []
    assert compared(both, {"a": [tool("x", "Three.")]}) == [("a", "x", ["text"])]


def test_a_second_definition_under_an_agreed_name_is_a_difference() -> None:
    assert compared({"a": [tool("x", "One.")]}, {"a": [tool("x", "One."), tool("x", "Two.")]}) == [("a", "x", ["text"])]


def test_servers_that_were_not_asked_stay() -> None:
    before = {"a": [tool("x", "One.")], "b": [tool("y", "One.")]}
    assert compared(before, {"a": []}) == [("a", "x", ["removed"])]


def test_a_text_that_names_a_tool_of_a_server_that_was_not_asked_is_noticed() -> None:
    before = {"a": [tool("x", "One.")], "b": [tool("send_mail", "One.")]}
    assert compared(before, {"a": [tool("x", "Use send_mail.")]}) == [("a", "x", ["text", "new-tool-name"])]


names, texts = st.sampled_from("xyz"), st.sampled_from(["One.", "Two.", "Three."])
servers = st.dictionaries(st.sampled_from("ab"), st.lists(st.builds(tool, names, texts), max_size=4))


@given(servers, servers)
def test_what_was_accepted_differs_no_more(before: Mapping[str, list[Pin]], now: Mapping[str, list[Pin]]) -> None:
    lock = lock_of(before)
    after = accept(lock, differences(lock, now, lambda _: None))
    assert differences(after, now, lambda _: None) == []
    assert {key: one for key, one in after.entries.items() if key.server not in now} == {
        key: one for key, one in lock.entries.items() if key.server not in now
    }


def test_a_lost_definition_is_a_change_all_the_same() -> None:
    lock = Lock({PinKey("a", "tools", "x"): Agreed((sha256(b"gone").hexdigest(),))})
    [one] = differences(lock, {"a": [tool("x", "One.")]}, lambda _: None)
    assert [change.what for change in one.changes] == ["other"]


def test_all_of_a_server_is_pinned_and_what_has_no_name_is_not() -> None:
    lists = {
        "tools": [b'{"name":"t"}', b'{"name":7}', b"[]", b"\xff"],
        "prompts": [b'{"name":"p"}'],
        "resources": [b'{"uri":"r://1"}'],
        "templates": [b'{"uriTemplate":"r://{x}"}'],
    }
    found = pins_of(lists, "Be kind.", {"name": "s", "version": "1"}, command=("x",), origin="https://h")
    assert [(one.kind, one.name) for one in found] == [
        *(("server", fact) for fact in ("instructions", "identity", "command", "origin")),
        *(("tools", "t"), ("prompts", "p"), ("resources", "r://1"), ("templates", "r://{x}")),
    ]
    assert pins_of({}, "", {}) == ()


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Mcp.Example.com/a?key=b#c", "https://mcp.example.com"),
        ("http://user:password@h:81/x", "http://h:81"),
        ("ws://[::1]:9/x", "ws://[::1]:9"),
    ],
)
def test_an_origin_has_no_secrets(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_secrets_of_a_command_are_masked() -> None:
    words = ("run", "x@1.2", "--api-key", "abcdef123456", "--token=abcdef123456", "known-secret", "--path", "/a/b")
    assert command_without_secrets(words, Redactor(["known-secret"])) == (
        *("run", "x@1.2", "--api-key", "[redacted]", "--token=[redacted]", "[redacted]", "--path", "/a/b"),
    )
