"""`SyncBridge`: the bridge for programs without an event loop, and with one that is not theirs."""

import asyncio
import contextlib
import contextvars
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from mcpbridge.base.errors import BridgeClosed, ConfigError
from mcpbridge.engine.requests import RequestFailed
from mcpbridge.library.agent.models.model import ModelRequest
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.calls.run_events import CallStarted
from mcpbridge.library.client import sync_loop as loop_thread
from mcpbridge.library.client import sync_loop as sync_run
from mcpbridge.library.client.sync_loop import LoopThread
from mcpbridge.library.sync_bridge import SyncBridge
from support.harness import python_server

APART = {"call_tools", "set_backend", "command", "artifacts_of", "answered", "paused_of"}
"""Methods of `Bridge` that the command line, the daemon and parts of the library need."""
PLAIN = ("open", "status", "calls_from", "results_for", "schema_of", "resolve_again", "clear_cache", "cache_status")
"""Methods of `Bridge` that wait for nothing."""
INNER = {("request", "session"), ("request", "notify")}
"""Parameters that parts of the bridge give one another."""


def tables(tmp_path: Path, **servers: Any) -> dict[str, Any]:
    return {"servers": servers, "store": {"path": str(tmp_path / "s.db")}}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., SyncBridge]]:
    """Opens bridges, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def open_(*tools: Any, **more: Any) -> SyncBridge:
            servers = more.pop("servers", {})
            return stack.enter_context(
                SyncBridge.open(tables(tmp_path, **servers), tools=tools, remember=False, **more)
            )

        yield open_


class Gate:
    """A tool that tells when it runs, and then waits."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.cancelled = threading.Event()

    async def hold(self) -> str:
        """Wait."""
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "never"


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


# -- the same as `Bridge`


def test_every_method_of_the_bridge_is_there_with_the_same_parameters() -> None:
    """Promise of the bridge: what is known of one holds for the other."""
    for name, method in inspect.getmembers(Bridge, inspect.isfunction):
        if name.startswith("_") or name in APART or not inspect.iscoroutinefunction(method):
            continue
        assert hasattr(SyncBridge, name), f"SyncBridge has no {name}"
        promised = [one for one in signature(method) if (name, one[0]) not in INNER]
        assert signature(getattr(SyncBridge, name)) == promised, name
    for name in PLAIN:
        assert signature(getattr(SyncBridge, name)) == signature(getattr(Bridge, name)), name
    assert signature(SyncBridge.run)[:-1] == signature(Bridge.run)[:-1]


def test_the_methods_are_what_is_written_from_the_bridge() -> None:
    """Promise of the bridge: what changes there changes here, with `make docs`."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, root / "scripts/sync_methods.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def signature(method: Any) -> list[tuple[Any, ...]]:
    found = inspect.signature(method)
    parameters = [(one.name, one.kind, one.default, str(one.annotation)) for one in found.parameters.values()]
    return [*parameters, ("", str(found.return_annotation))]


def test_a_script_lists_calls_and_reads(opened: Callable[..., SyncBridge]) -> None:
    bridge = opened(add, servers={"rich": python_server("rich")})
    assert bridge.settled(30)
    assert {"tools/add"} <= {tool.id for tool in bridge.list_tools()}
    assert bridge.call_tool("add", {"a": 1, "b": 2}).text == "3"
    assert bridge.status()["servers"][0]["state"] == "ready"
    for listed in (bridge.list_resources(), bridge.list_prompts()):
        assert isinstance(listed, list)
    with pytest.raises(RequestFailed):
        bridge.get_prompt("none")
    assert bridge.recall().text == "Nothing is kept."
    assert bridge.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})["content"][0]["text"] == "2"
    assert bridge.clear_cache() == 0
    assert isinstance(bridge.cache_status(), dict)
    bridge.resolve_again()
    bridge.remove_tool("add")
    assert not [tool for tool in bridge.list_tools() if tool.id == "tools/add"]


def test_what_is_wrong_is_told_where_it_is_opened(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="servers"):
        SyncBridge.open({"serverz": {}}, remember=False)
    with pytest.raises(ConfigError):
        SyncBridge.open(tmp_path / "none.toml", remember=False)
    assert bridge_threads(before) == []


def bridge_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """The threads of bridges that were not there before."""
    return [thread for thread in set(threading.enumerate()) - before if thread.name == "mcpbridge"]


async def test_it_works_where_an_event_loop_runs_already(opened: Callable[..., SyncBridge]) -> None:
    """As in a notebook."""
    assert opened(add).call_tool("add", {"a": 1, "b": 2}).text == "3"


def test_threads_use_it_side_by_side(opened: Callable[..., SyncBridge]) -> None:
    together = threading.Barrier(4, timeout=60)

    def meet(number: int) -> int:
        """Returns once all are here."""
        together.wait()
        return number

    bridge, found = opened(meet), dict[int, Any]()
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: bridge.call_tool("meet", {"number": n}).text}))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {n: str(n) for n in range(4)}


def test_a_tool_that_is_no_coroutine_may_wait_for_the_bridge_itself(opened: Callable[..., SyncBridge]) -> None:
    def twice(a: int) -> str:
        """Twice that."""
        return bridge.call_tool("add", {"a": a, "b": a}).text

    bridge = opened(add, twice)
    assert bridge.call_tool("twice", {"a": 21}).text == "42"


def test_a_coroutine_that_would_wait_for_its_own_thread_is_refused(opened: Callable[..., SyncBridge]) -> None:
    told: list[str] = []

    async def stuck() -> str:
        """Would never end."""
        try:
            bridge.call_tool("add", {"a": 1, "b": 2})
        except BridgeClosed as error:
            told.append(str(error))
        return "free"

    bridge = opened(add, stuck)
    assert bridge.call_tool("stuck").text == "free"
    assert "cannot wait for itself" in told[0]


# -- events


def test_events_are_iterated_until_nothing_happens(opened: Callable[..., SyncBridge]) -> None:
    bridge = opened(add)
    events = bridge.events(timeout=60)
    bridge.call_tool("add", {"a": 1, "b": 2})
    assert next(event for event in events if event.name == "call.finished").tool == "tools/add"
    assert list(bridge.events(timeout=0.01)) == []


def test_events_end_with_the_bridge(opened: Callable[..., SyncBridge]) -> None:
    bridge = opened(add)
    events, heard = bridge.events(), list[object]()
    listening = threading.Thread(target=lambda: heard.extend(events))
    listening.start()
    bridge.close()
    listening.join(60)
    assert not listening.is_alive()


# -- runs


async def model(request: ModelRequest) -> dict[str, Any]:
    """Adds once, and says what came of it."""
    results = [message["content"] for message in request.messages if message["role"] == "tool"]
    if results:
        message: dict[str, Any] = {"role": "assistant", "content": f"It is {results[-1]}."}
    else:
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


ASKED = [{"role": "user", "content": "1 + 2?"}]


def test_a_run_gives_its_outcome_or_is_iterated(opened: Callable[..., SyncBridge]) -> None:
    bridge = opened(add)
    outcome = bridge.run(model, ASKED, run="r1").outcome
    assert (outcome.status, outcome.text) == ("done", "It is 3.")
    running = bridge.run(model, ASKED)
    events = list(running)
    assert [event.name for event in events][-1] == "run.finished"
    assert running.outcome.text == "It is 3."


def test_a_turn_of_a_model_is_made_and_answered(opened: Callable[..., SyncBridge]) -> None:
    bridge = opened(add)
    offered = bridge.tools_for("openai", tools=["add"])
    [call] = bridge.calls_from(asyncio.run(model(ModelRequest(ASKED, [], "r", 1))), offered)
    [result] = bridge.run_tool_calls([call])
    assert bridge.results_for("openai", [result]) == [{"role": "tool", "tool_call_id": "c1", "content": "3"}]
    assert (bridge.schema_of("add") or {})["required"] == ["a", "b"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cancelled gets all the time that it takes, also on a busy machine."""
    monkeypatch.setattr(loop_thread, "END_SECONDS", 60)
    monkeypatch.setattr(sync_run, "END_SECONDS", 60)


@pytest.mark.usefixtures("patient")
def test_an_iteration_that_ends_early_cancels_the_run(opened: Callable[..., SyncBridge]) -> None:
    gate = Gate()

    async def asks(_: ModelRequest) -> Any:
        call = {"id": "c1", "type": "function", "function": {"name": "hold", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    events = iter(opened(gate.hold).run(asks, ASKED))
    assert any(isinstance(event, CallStarted) for event in events)
    assert gate.entered.wait(60)
    events.close()
    assert gate.cancelled.is_set()


def interrupt_after(entered: threading.Event) -> threading.Thread:
    """Ctrl-C, as soon as this is set."""

    def interrupt() -> None:
        assert entered.wait(60)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "nobody would hear of it"
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.mark.usefixtures("patient")
def test_an_interrupt_of_an_iteration_cancels_the_run_and_leaves_the_bridge(opened: Callable[..., SyncBridge]) -> None:
    gate = Gate()

    async def thinks(_: ModelRequest) -> Any:
        return await gate.hold()

    bridge = opened(add)
    running = bridge.run(thinks, ASKED)
    thread = interrupt_after(gate.entered)
    with pytest.raises(KeyboardInterrupt):
        list(running)
    thread.join(60)
    assert gate.cancelled.is_set(), "by the time that the program hears of it"
    with pytest.raises(asyncio.CancelledError):
        _ = running.outcome
    assert bridge.run(model, ASKED).outcome.text == "It is 3."


async def deaf(entered: threading.Event) -> None:
    """Does not heed that it is cancelled."""
    entered.set()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is given much time to end."""
    monkeypatch.setattr(loop_thread, "END_SECONDS", 0.05)
    monkeypatch.setattr(sync_run, "END_SECONDS", 0.05)
    monkeypatch.setattr(loop_thread, "LEAVE_SECONDS", 0.2)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("how", ["iterated", "awaited"])
def test_an_interrupt_comes_through_where_the_model_does_not_heed_it(
    opened: Callable[..., SyncBridge], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(loop_thread, "LEAVE_SECONDS", 15)
    entered = threading.Event()
    bridge = opened(add)
    running = bridge.run(lambda _: deaf(entered), ASKED)
    thread = interrupt_after(entered)
    with pytest.raises(KeyboardInterrupt):
        _ = list(running) if how == "iterated" else running.outcome
    thread.join(60)
    assert bridge.call_tool("add", {"a": 1, "b": 2}).text == "3"


# -- the end


def test_what_is_closed_says_so_and_can_be_closed_again(opened: Callable[..., SyncBridge]) -> None:
    bridge = opened(add)
    bridge.close()
    with pytest.raises(BridgeClosed, match="is closed"):
        bridge.call_tool("add", {"a": 1, "b": 2})
    with pytest.raises(BridgeClosed, match="is closed"):
        bridge.status()
    bridge.close()


@pytest.mark.usefixtures("patient")
def test_closing_cancels_calls_of_other_threads(opened: Callable[..., SyncBridge]) -> None:
    gate, told = Gate(), list[BaseException]()
    bridge = opened(gate.hold)

    def call() -> None:
        try:
            bridge.call_tool("hold")
        except BridgeClosed as error:
            told.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert gate.entered.wait(60)
    bridge.close()
    thread.join(60)
    assert gate.cancelled.is_set()
    assert "meanwhile" in str(told[0])


def test_several_end_side_by_side(tmp_path: Path) -> None:
    """Each has a loop of its own, and all share the guard of their servers and the search for what these left."""
    before = set(Path("/proc/self/fd").iterdir()) if sys.platform == "linux" else set[Path]()
    bridges = [
        SyncBridge.open(tables(tmp_path / str(n), plain=python_server("plain")), remember=False) for n in range(3)
    ]
    for bridge in bridges:
        assert bridge.call_tool("plain__echo", {"text": "hi"}).text == "hi"
    threads = [threading.Thread(target=bridge.close) for bridge in bridges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if before:
        assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 1, "of descriptors nothing is left"


def test_an_interrupt_cancels_the_call_and_leaves_the_bridge(opened: Callable[..., SyncBridge]) -> None:
    gate = Gate()
    bridge = opened(gate.hold, add)

    thread = interrupt_after(gate.entered)
    with pytest.raises(KeyboardInterrupt):
        bridge.call_tool("hold")
    thread.join(60)
    assert gate.cancelled.wait(60)
    assert bridge.call_tool("add", {"a": 1, "b": 2}).text == "3"


def test_a_forgotten_one_ends(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    bridge = SyncBridge.open(tables(tmp_path), tools=[add], remember=False)
    [thread] = bridge_threads(before)
    held = [bridge]
    del bridge
    with pytest.warns(ResourceWarning, match="<LoopThread open: 0 waited for, 0 tasks> was dropped without"):
        held.clear()
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_to_open_its_own_and_harms_nothing(tmp_path: Path) -> None:
    """In a process of its own: the test process has other threads, which a fork would lose."""
    program = f"""
import os, sys
from mcpbridge.base.errors import BridgeClosed
from mcpbridge.library.calls.run_events import CallStarted
from mcpbridge.library.sync_bridge import SyncBridge

def add(a: int, b: int) -> int:
    return a + b

with SyncBridge.open({tables(tmp_path, plain=python_server("plain"))!r}, tools=[add], remember=False) as bridge:
    assert bridge.settled(30)
    if (child := os.fork()) == 0:
        try:
            bridge.status()
        except BridgeClosed as error:
            print(error, flush=True)
        bridge.close()
        sys.exit(7)  # with all that runs at exit
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert bridge.call_tool("plain__echo", {{"text": "still here"}}).text == "still here"
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "open one here" in done.stdout


async def test_waiting_in_a_thread_of_another_loop_blocks_nobody_else(opened: Callable[..., SyncBridge]) -> None:
    gate = Gate()
    bridge = opened(gate.hold)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            call: Any = lambda: bridge.call_tool("hold")  # noqa: E731
            tasks.start_soon(anyio.to_thread.run_sync, _refused(call))
            await anyio.to_thread.run_sync(gate.entered.wait)
            await anyio.to_thread.run_sync(bridge.close)


def _refused(call: Callable[[], object]) -> Callable[[], None]:
    def refused() -> None:
        with pytest.raises(BridgeClosed):
            call()

    return refused


# -- the thread itself


def test_an_interrupt_while_it_opens_ends_the_opening() -> None:
    entered, left = threading.Event(), threading.Event()

    @contextlib.asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        yield

    thread = interrupt_after(entered)
    with pytest.raises(KeyboardInterrupt):
        LoopThread(slow)
    thread.join(60)
    assert left.wait(60)


def test_what_goes_wrong_at_the_end_is_told_by_close_once() -> None:
    @contextlib.asynccontextmanager
    async def ends_badly() -> AsyncIterator[int]:
        yield 1
        raise ValueError("at the end")

    thread = LoopThread(ends_badly)
    assert thread.do(lambda: thread.held) == 1
    with pytest.raises(ValueError, match="at the end"):
        thread.close()
    thread.close()
    with pytest.raises(BridgeClosed):
        thread.do(lambda: None)


@pytest.mark.usefixtures("brief")
def test_closing_does_not_wait_for_ever_for_what_does_not_heed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "LEAVE_SECONDS", 60)  # which takes none of it
    entered, is_left = threading.Event(), threading.Event()

    @contextlib.asynccontextmanager
    async def held() -> AsyncIterator[None]:
        yield
        is_left.set()

    async def work() -> None:
        await deaf(entered)

    thread = LoopThread(held)
    waiting = threading.Thread(target=_refused(lambda: thread.wait(work())))
    waiting.start()
    assert entered.wait(60)
    with capture_logs() as told:
        thread.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert is_left.is_set()
    assert [line["what"].rpartition(".")[2] for line in told] == ["work"]


@pytest.mark.usefixtures("brief")
def test_closing_does_not_wait_for_ever_for_its_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "END_SECONDS", 0.5)  # who closes it waits for some of these beyond the leaving
    entered = threading.Event()

    @contextlib.asynccontextmanager
    async def held() -> AsyncIterator[None]:
        yield
        await deaf(entered)

    thread = LoopThread(held)
    with capture_logs() as told:
        thread.close()
    assert entered.is_set()
    assert "killing its servers" in told[0]["event"]
    with pytest.raises(BridgeClosed):
        thread.do(lambda: None)


@pytest.mark.usefixtures("brief")
def test_closing_does_not_wait_for_ever_for_a_thread_that_is_blocked() -> None:
    entered, released = threading.Event(), threading.Event()

    async def blocks() -> None:
        entered.set()
        released.wait(60)

    thread = LoopThread(contextlib.nullcontext)
    waiting = threading.Thread(target=_refused(lambda: thread.wait(blocks())))
    waiting.start()
    assert entered.wait(60)
    with capture_logs() as told:
        thread.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert "blocks its thread" in told[0]["event"]
    with pytest.raises(BridgeClosed):
        thread.do(lambda: None)
    released.set()
    thread._thread.join(60)
    assert not thread._thread.is_alive()


def test_the_context_of_the_caller_is_there_in_the_loop() -> None:
    """As traces need it."""
    which = contextvars.ContextVar[str]("which")

    async def told() -> str:
        return which.get()

    thread = LoopThread(contextlib.nullcontext)
    which.set("of the caller")
    try:
        assert thread.wait(told()) == "of the caller"
    finally:
        thread.close()
