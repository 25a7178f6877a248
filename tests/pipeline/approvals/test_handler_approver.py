"""Functions of a program as approvers, of every kind that people write."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from mcpbridge.base.errors import ApprovalUnavailable
from mcpbridge.pipeline.approvals.approvers import HandlerApprover
from mcpbridge.pipeline.approvals.request import ApprovalRequest, Verdict
from support.upstreams.scripted_upstream import call_of

REQUEST = ApprovalRequest("id", "up", "up/echo", b'{"a":1}', "", "", "", "", 0.0, 1.0, "")


async def ask(handler: Any) -> Verdict | None:
    async with asyncio.timeout(60):
        return await HandlerApprover(handler).ask(REQUEST, call_of())


class Later:
    """An object that is called, and answers later."""

    async def __call__(self, request: ApprovalRequest) -> str:
        await asyncio.sleep(0)
        return "session"


async def later(request: ApprovalRequest) -> bool:
    await asyncio.sleep(0)
    return request.arguments == {"a": 1}


@pytest.mark.parametrize(
    ("handler", "granted"),
    [
        (lambda _: True, "once"),
        (lambda _: "session", "session"),
        (lambda _: False, ""),
        (lambda _: "yes", ""),
        (lambda _: 1, ""),
        (lambda _: {}, ""),
        (later, "once"),
        (lambda request: later(request), "once"),  # noqa: PLW0108 - not async itself
        (Later(), "session"),
    ],
)
async def test_only_a_clear_yes_is_one(handler: Any, granted: str) -> None:
    verdict = await ask(handler)
    assert verdict is not None
    assert (verdict.granted, verdict.by) == (granted, "handler")


async def test_a_function_that_does_not_decide_leaves_it_to_the_next() -> None:
    assert await ask(lambda _: None) is None


async def test_a_function_that_fails_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = await ask(lambda _: 1 / 0)
    assert verdict is not None
    assert not verdict.granted
    assert "handler failed" in verdict.why


async def test_a_function_that_can_ask_nobody_says_so_itself() -> None:
    def nobody(_: ApprovalRequest) -> bool:
        raise ApprovalUnavailable("the office is closed")

    with pytest.raises(ApprovalUnavailable, match="the office is closed"):
        await ask(nobody)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_a_function_that_wants_to_end_the_program_is_a_no(error: BaseException) -> None:
    def leave(_: ApprovalRequest) -> bool:
        raise error

    verdict = await ask(leave)
    assert verdict is not None
    assert not verdict.granted


def test_a_function_that_still_waits_keeps_no_process_from_ending() -> None:
    """A bridge that was told to stop ends, though somebody sits before `input()`."""
    program = """if True:
        import asyncio, threading
        from mcpbridge.pipeline.approvals.approvers import HandlerApprover

        began = threading.Event()

        def wait(request):
            began.set()
            threading.Event().wait()

        async def main():
            asking = asyncio.ensure_future(HandlerApprover(wait).ask(None, None))
            while not began.is_set():
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", program], timeout=90, check=True)


async def test_what_is_said_when_nobody_waits_any_more_is_dropped() -> None:
    person, said = threading.Event(), threading.Event()

    def wait(_: ApprovalRequest) -> bool:
        person.wait(60)
        said.set()
        return True

    asking = asyncio.ensure_future(ask(wait))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    person.set()
    assert await asyncio.to_thread(said.wait, 60)
    await asyncio.sleep(0)


async def test_a_function_that_waits_for_a_person_holds_up_nobody() -> None:
    """It runs in a thread of its own."""
    person = threading.Event()

    def wait(_: ApprovalRequest) -> bool:
        return person.wait(60)

    asking = asyncio.ensure_future(ask(wait))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asking.done()
    person.set()
    verdict = await asking
    assert verdict is not None
    assert verdict.granted == "once"
