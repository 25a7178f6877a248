"""What hooks may be and answer; what they do is seen through the front (`features/calls/test_hooks.py`)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call
from mcpbridge.pipeline.hooks.call import (
    LARGEST_REMEMBERED,
    MAX_REMEMBERED,
    PASS,
    Changes,
    Hook,
    HookCall,
    HookFailedError,
    after,
    before,
    read_answer,
)
from mcpbridge.pipeline.hooks.settings import HookEvent, HookSettings
from mcpbridge.pipeline.stages.hooks import Hooks
from mcpbridge.protocol.body import Body

BEFORE: HookEvent = "tool_call.before"
AFTER: HookEvent = "tool_call.after"


@pytest.mark.parametrize("answer", [b"", b" \n", b"{}", b'{"refuse": null}'])
def test_saying_nothing_lets_the_call_pass(answer: bytes) -> None:
    assert read_answer(answer, BEFORE) is PASS


def test_other_arguments_are_taken_byte_for_byte() -> None:
    verdict = read_answer(b'{"arguments": {"n": 1.50, "big": 123456789012345678901234567890}}', BEFORE)
    assert verdict.arguments is not None
    assert bytes(verdict.arguments) == b'{"n": 1.50, "big": 123456789012345678901234567890}'


def test_a_refusal_without_a_reason_is_one() -> None:
    assert read_answer(b'{"refuse": ""}', AFTER).refusal == "it gives no reason"


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"null",
        b'"pass"',
        b"{",
        b"\xff",
        b'{"arguments": 1}',
        b'{"result": 1}',
        b'{"result": {"content": "x"}}',
        b'{"refuse": true}',
        b'{"refuse": "x", "result": "y"}',
        b'{"argument": {}}',
        b'{"a":' * 3000,
    ],
)
def test_what_means_nothing_is_a_failure_not_a_pass(answer: bytes) -> None:
    with pytest.raises(HookFailedError):
        read_answer(answer, BEFORE)


@given(st.binary(max_size=40) | st.from_regex(r'\{"(arguments|result|refuse)": ?.{0,12}\}').map(str.encode))
def test_whatever_a_hook_says_it_is_read_or_refused(answer: bytes) -> None:
    try:
        verdict = read_answer(answer, BEFORE)
    except HookFailedError:
        return
    assert sum(part is not None for part in (verdict.arguments, verdict.result, verdict.refusal)) <= 1


def test_arguments_are_of_no_use_when_the_call_is_over() -> None:
    with pytest.raises(HookFailedError, match="over"):
        read_answer(b'{"arguments": {}}', AFTER)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"command": ["x"], "url": "http://x"},
        {"command": []},
        {"command": [""]},
        {"command": "x"},
        {"url": "ftp://x"},
        {"url": "http://"},
        {"url": "http://[::1"},
        {"url": "http://user:password@x/"},
        {"command": ["x"], "headers": {"A": "b"}},
        {"url": "http://x", "env": {"A": "b"}},
        {"url": "http://x", "headers": {"A": "b\r\nc"}},
        {"command": ["x"], "timeout": 0},
        {"command": ["x"], "event": "tool_call"},
        {"command": ["x"], "failure": "ajar"},
    ],
)
def test_a_hook_that_cannot_work_is_a_mistake_of_the_configuration(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HookSettings.model_validate({"event": BEFORE, **settings})


@pytest.mark.parametrize(
    ("settings", "is_closed"),
    [
        ({"event": BEFORE}, True),
        ({"event": AFTER}, False),
        ({"event": BEFORE, "failure": "open"}, False),
        ({"event": AFTER, "failure": "closed"}, True),
    ],
)
def test_what_guards_is_closed_and_what_looks_on_is_open(settings: dict[str, Any], is_closed: bool) -> None:
    assert HookSettings.model_validate({"command": ["x"], **settings}).is_closed == is_closed


def test_a_decorated_function_is_a_hook_and_can_still_be_called() -> None:
    @before
    def one(call: HookCall) -> None:
        """Nothing."""

    @after(tools="a/*", name="second", timeout=None, failure="closed")
    def two(call: HookCall) -> str:
        return call.tool

    assert isinstance(one, Hook)
    assert (one.event, one.name, one.failure) == (BEFORE, "one", "closed")
    assert (two.event, two.name, two.failure, two.tools) == (AFTER, "second", "closed", ("a/*",))
    call: Any = type("Call", (), {"tool": "a/b"})()
    assert two(call) == "a/b"


async def test_what_no_hook_matches_has_no_stage() -> None:
    """Costs nothing where it is not used."""
    hooks = Hooks([HookSettings(event=BEFORE, command=["x"], tools=["a/get_*"])], [])
    for tool, server, is_seen in (("get_x", "a", True), ("set_x", "a", False), ("get_x", "b", False)):
        what: Any = type("Tool", (), {"id": f"{server}/{tool}", "name": tool, "server": server})()
        assert (hooks.stage(what, CallOptions()) is not None) == is_seen
    assert hooks.stage(None, CallOptions()) is None


async def test_a_call_that_is_sent_again_in_the_same_breath_asks_nobody_and_one_that_nobody_knows_asks_anew() -> None:
    asked: list[dict[str, Any]] = []

    @before
    def change(call: HookCall) -> dict[str, Any]:
        asked.append(call.arguments)
        return {"n": len(asked)}

    what: Any = type("Tool", (), {"id": "s/t", "name": "t", "server": "s"})()
    stage = Hooks([], [change]).stage(what, CallOptions())
    assert stage is not None
    sent: list[Any] = []

    async def server(call: Call) -> Body:
        sent.append(Body(call.params.get("arguments") or b"").value())
        return Body(b'{"content":[]}')

    call = Call("tools/call", "s", "t", Body(b'{"name":"t","arguments":{"n":0}}'))
    await stage(call, server)
    call.continues = True  # its headers were not those that the server wants
    await stage(call, server)
    assert (asked, sent) == ([{"n": 0}], [{"n": 1}] * 2)
    later = Call("tools/call", "s", "t", Body(b'{"name":"t","arguments":{"n":0}}'))
    later.continues = True  # let through by another process
    await stage(later, server)
    assert (len(asked), sent[-1]) == (2, {"n": 2})


def test_what_is_remembered_of_calls_is_bounded() -> None:
    changes = Changes()
    for number in range(MAX_REMEMBERED + 1):
        changes.keep(("session", "tool", str(number)), b"{}")
    changes.keep(("session", "tool", "large"), b"x" * (LARGEST_REMEMBERED + 1))
    assert changes.of(("session", "tool", "0")) is None
    assert changes.of(("session", "tool", "1")) == b"{}"
    assert changes.of(("session", "tool", "large")) is None
    changes.drop(("session", "tool", "1"))
    assert changes.of(("session", "tool", "1")) is None


async def test_a_hook_does_not_decide_about_arguments_of_which_it_sees_half() -> None:
    seen: list[HookCall] = []
    what: Any = type("Tool", (), {"id": "up/echo", "name": "echo", "server": "up"})()
    stage = Hooks((), [before(seen.append)]).stage(what, CallOptions())
    assert stage is not None
    call = Call("tools/call", "up", "echo", Body(b'{"name":"echo","arguments":{"a":1,"a":2}}'))
    with pytest.raises(ArgumentsRefused, match="`a` is named twice"):
        await stage(call, _unreached)
    assert seen == []


async def _unreached(_: Call) -> Body:
    raise AssertionError("it passed")


def test_one_glob_may_stand_without_a_list() -> None:
    """As in `permissions`: what is written there for a tool can be copied."""
    hook = HookSettings.model_validate({"event": "tool_call.before", "command": ["x"], "tools": "a/*", "servers": "a"})
    assert (hook.tools, hook.servers) == (["a/*"], ["a"])
