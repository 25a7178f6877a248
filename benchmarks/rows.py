"""The rows: what is done with the subjects, and what is noted.

In each row all subjects run side by side and take turns: one short batch each, round after round, in an order that
rotates, so that a machine that gets slower or busier does so for all of them.
"""

import shutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.book import Book
from benchmarks.clients import CallFailed
from benchmarks.running import Running, Starting, start, start_http_upstream
from benchmarks.subjects import Bridge, Direct, Subject, Unsupported, Upstream, Wire

__all__ = ["FULL", "FULL_SERVER", "ROWS", "Lab"]

MANY = 20
"""Upstreams of the rows with many."""
TOOLS = 3_000
"""Tools of the rows with many, of all upstreams together."""
BIG_RESULT = 8_600
"""Records that make a result of 1 MB."""


@dataclass(frozen=True, slots=True)
class Lab:
    """One run."""

    subjects: Sequence[Subject]
    folder: Path
    book: Book
    rounds: int
    starts: int
    """Rounds of the rows that time a start: each is long, and steadier than a call."""
    seconds: float
    """Length of one batch."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    @contextmanager
    def turn(self, row: str, subject: str) -> Generator[None]:
        """What goes wrong here is noted under this subject and hurts no other."""
        try:
            yield
        except Unsupported as error:
            self.book.unsupported.append((row, subject, str(error)))
            self.book.forget(row, subject)
        except (CallFailed, OSError, KeyError) as error:
            self.book.failures.append((row, subject, str(error) or type(error).__name__))
            self.book.forget(row, subject)

    def rotated(self, running: Sequence[Running], round_: int) -> list[Running]:
        """Those still alive, beginning with another one each round."""
        alive = [each for each in running if not self._failed(each)]
        first = round_ % max(len(alive), 1)
        return [*alive[first:], *alive[:first]]

    def _failed(self, running: Running) -> bool:
        return any(running.label == subject and running.row == row for row, subject, _ in self.book.failures)


@contextmanager
def _side_by_side(
    lab: Lab, row: str, front: Wire, upstreams: Sequence[Upstream], tools: int, *, only: Sequence[Subject] | None = None
) -> Generator[list[Running]]:
    """Each subject in front of these upstreams, ready."""
    with ExitStack() as stack:
        running: list[Running] = []
        for subject in lab.subjects if only is None else only:
            with lab.turn(row, subject.name):
                each = start(subject, front, upstreams, lab.folder / row / subject.name)
                stack.callback(each.stop)
                each.row = row
                each.await_tools(tools)
                running.append(each)
        yield running


def _calls(front: Wire, back: Wire) -> Callable[[Lab, str], None]:
    """tools/call of a tool that returns its argument: one after another, and sixteen in flight."""

    def measure(lab: Lab, row: str) -> None:
        with ExitStack() as stack:
            upstream = Upstream.stdio("up")
            if back == "HTTP":
                started, upstream = start_http_upstream(lab.folder / row / "upstream")
                stack.callback(started.stop)
            running = stack.enter_context(_side_by_side(lab, row, front, [upstream], 2))
            for round_ in range(-1, lab.rounds):  # the first round warms up
                for each in lab.rotated(running, round_):
                    with lab.turn(row, each.label):
                        _one_round_of_calls(lab, row, each, counted=round_ >= 0)

    return measure


def _one_round_of_calls(lab: Lab, row: str, running: Running, *, counted: bool) -> None:
    params = running.params("echo", {"text": "hello"})
    metrics: dict[str, float | None] = {}
    for in_flight in (1, 16):
        cpu = running.cpu()
        batch = running.client.load("tools/call", params, marker=b'"hello"', in_flight=in_flight, seconds=lab.seconds)
        spent = None if cpu is None else ((running.cpu() or 0) - cpu) * 1e6 / batch.calls
        metrics |= {
            f"p50_us_{in_flight}": batch.microseconds(0.5),
            f"p99_us_{in_flight}": batch.microseconds(0.99),
            f"per_s_{in_flight}": batch.calls / batch.seconds,
            f"cpu_us_{in_flight}": spent,
            f"client_us_{in_flight}": batch.own * 1e6 / batch.calls,
        }
    if counted:
        lab.book.add(row, running.label, **metrics)


def _big_result(lab: Lab, row: str) -> None:
    """tools/call whose result is 1 MB of JSON in a text, one after another."""
    # Nobody else stands in the way of a large result, so the bridge must not either: see `result_scores` for that.
    subjects = [each.configured(sections=_AS_THEY_COME) if isinstance(each, Bridge) else each for each in lab.subjects]
    with _side_by_side(lab, row, "stdio", [Upstream.stdio("up")], 2, only=subjects) as running:
        for round_ in range(-1, lab.rounds):
            for each in lab.rotated(running, round_):
                with lab.turn(row, each.label):
                    params = each.params("rows", {"n": BIG_RESULT})
                    _timed(lab, row, each, "tools/call", params, marker=b"commit number 8000", counted=round_ >= 0)


def _listing(lab: Lab, row: str) -> None:
    """tools/list of 3,000 tools of one upstream."""
    with _side_by_side(lab, row, "stdio", [Upstream.stdio("up", TOOLS)], TOOLS) as running:
        for round_ in range(-1, lab.rounds):
            for each in lab.rotated(running, round_):
                with lab.turn(row, each.label):
                    if each.subject.wraps:
                        raise Unsupported("lists tools of its own only")
                    _timed(lab, row, each, "tools/list", {}, marker=b"tool_2997", counted=round_ >= 0)


def _timed(
    lab: Lab, row: str, running: Running, method: str, params: dict[str, object], *, marker: bytes, counted: bool
) -> None:
    cpu = running.cpu()
    batch = running.client.load(method, params, marker=marker, in_flight=1, seconds=lab.seconds)
    spent = None if cpu is None else ((running.cpu() or 0) - cpu) * 1e3 / batch.calls
    if counted:
        p50, p99 = batch.microseconds(0.5) / 1e3, batch.microseconds(0.99) / 1e3
        lab.book.add(row, running.label, p50_ms=p50, p99_ms=p99, cpu_ms=spent)


def _start(count: int, tools: int) -> Callable[[Lab, str], None]:
    """From the start of the process to the answer of tools/list, and to one that has all tools; then memory, idle."""
    upstreams = [Upstream.stdio(f"up{number}", tools // count) for number in range(count)]

    def measure(lab: Lab, row: str) -> None:
        dead: set[str] = set()
        for round_ in range(lab.starts):
            first = round_ % len(lab.subjects)
            for subject in [*lab.subjects[first:], *lab.subjects[:first]]:
                if subject.name in dead:
                    continue
                dead.add(subject.name)
                with lab.turn(row, subject.name):
                    folder = lab.folder / row / subject.name
                    shutil.rmtree(Bridge.cache_of(folder), ignore_errors=True)
                    metrics = (
                        _start_all(subject, upstreams, folder)
                        if isinstance(subject, Direct)
                        else _start_one(subject, upstreams, folder, tools)
                    )
                    lab.book.add(row, subject.name, **metrics)
                    if isinstance(subject, Bridge):
                        again = _start_one(subject, upstreams, folder, tools)
                        lab.book.add(row, f"{subject.name}, servers known", **again)
                    dead.discard(subject.name)

    return measure


def _start_one(subject: Subject, upstreams: Sequence[Upstream], folder: Path, tools: int) -> dict[str, float | None]:
    begin = time.perf_counter()
    running = start(subject, "stdio", upstreams, folder)
    try:
        running.list_tools()
        answered = time.perf_counter() - begin
        running.await_tools(tools)
        complete = time.perf_counter() - begin
        time.sleep(1)  # let it come to rest: what is asked is memory when idle
        memory = running.memory()
    finally:
        running.stop()
    return {
        "first_ms": answered * 1e3,
        "complete_ms": complete * 1e3,
        "rss_mib": memory.get("rss"),
        "pss_mib": memory.get("pss"),
    }


def _start_all(direct: Subject, upstreams: Sequence[Upstream], folder: Path) -> dict[str, float | None]:
    """What the upstreams alone need: each started at once, each with a client of its own."""
    begin = time.perf_counter()
    with ExitStack() as stack:
        # Python takes most of the time before it reads its input: so they start together and are greeted in turn.
        waiting = [Starting(direct, "stdio", [upstream], folder / upstream.name) for upstream in upstreams]
        for each in waiting:
            stack.callback(each.stop)
        for each in waiting:
            each.greet().list_tools()
        return {"complete_ms": (time.perf_counter() - begin) * 1e3}


def _neighbours(lab: Lab, row: str) -> None:
    """Calls to one upstream of the bridge, while others stand beside it, well or sick."""
    bridge = [subject for subject in lab.subjects if subject.name == "mcpbridge"]
    if not bridge:
        return
    beside: dict[str, tuple[list[Upstream], int]] = {
        "alone": ([], 0),
        "alone, again": ([], 0),  # the same once more: what differs here is noise
        "1 more": ([Upstream.stdio("idle")], 2),
        f"{MANY - 1} more": ([Upstream.stdio(f"idle{number}") for number in range(MANY - 1)], 2 * (MANY - 1)),
        "1 that crashes": ([Upstream.sick("sick", "crash")], 0),
        "1 that never answers": ([Upstream.sick("sick", "mute")], 0),
    }
    with ExitStack() as stack:
        running: list[Running] = []
        for label, (others, tools) in beside.items():
            with lab.turn(row, label):
                folder = lab.folder / row / label.replace(", ", "-").replace(" ", "-")
                each = start(bridge[0], "stdio", [Upstream.stdio("up"), *others], folder)
                stack.callback(each.stop)
                each.row, each.label = row, label
                each.await_tools(2 + tools)
                running.append(each)
        for round_ in range(-1, lab.rounds):
            for each in lab.rotated(running, round_):
                with lab.turn(row, each.label):
                    _one_round_of_calls(lab, row, each, counted=round_ >= 0)


_AS_THEY_COME = """
[results]
strategy = "off"
code_transform = false
"""
"""No look at results."""

_BARE = f"""{_AS_THEY_COME}
[calls]
arguments = "pass"
inject_defaults = false

[observe]
metrics = false
"""
"""Everything off that can be."""

FULL = """
[calls]
max_per_client = 64
rate_limit = "1000000/s"
max_calls = 1000000000

[observe]
metrics = true

[call_log]
enabled = true

[[permissions]]
principals = ["nobody"]
permission = "deny"

[[permissions]]
tools = ["up/*"]
when = "args.text.startsWith('secret')"
permission = "require_approval"
"""
FULL_SERVER = """
trusted = true
rate_limit = "1000000/s"

[servers.up.tool.echo]
read_only = true
call_timeout = "20s"
max_concurrent = 64
rate_limit = "1000000/s"
retry = 3
"""
"""Everything that can be on without a person or another process, so that each call reaches the server."""


def _way(lab: Lab, row: str) -> None:
    """What the stages of a call cost: with everything off, with nothing configured, with everything configured."""
    bridge = next((subject for subject in lab.subjects if isinstance(subject, Bridge)), None)
    if bridge is None:
        return
    ways = {
        "bare": bridge.configured(sections=_BARE),
        "bare, again": bridge.configured(sections=_BARE),  # the same once more: what differs here is noise
        "results as they come": bridge.configured(sections=_AS_THEY_COME),
        "nothing configured": bridge,
        "everything configured": bridge.configured(sections=FULL, server=FULL_SERVER),
        "answered from the cache": bridge.configured(sections="", server='[servers.up.tool.echo]\ncache = "10 min"'),
    }
    with ExitStack() as stack:
        running: list[Running] = []
        for label, subject in ways.items():
            with lab.turn(row, label):
                folder = lab.folder / row / label.replace(", ", "-").replace(" ", "-")
                each = start(subject, "stdio", [Upstream.stdio("up")], folder)
                stack.callback(each.stop)
                each.row, each.label = row, label
                each.await_tools(2)
                running.append(each)
        for round_ in range(-1, lab.rounds):
            for each in lab.rotated(running, round_):
                with lab.turn(row, each.label):
                    _one_round_of_calls(lab, row, each, counted=round_ >= 0)


ROWS: dict[str, Callable[[Lab, str], None]] = {
    "stdio-stdio": _calls("stdio", "stdio"),
    "stdio-http": _calls("stdio", "HTTP"),
    "http-stdio": _calls("HTTP", "stdio"),
    "http-http": _calls("HTTP", "HTTP"),
    "big-result": _big_result,
    "listing": _listing,
    "start-1": _start(1, 2),
    f"start-{MANY}": _start(MANY, TOOLS),
    "neighbours": _neighbours,
    "way": _way,
}
"""Each measures and notes under its own name, the second argument. Transports: the client's, then the upstream's."""
