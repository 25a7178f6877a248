"""Play the demo: a bridge, a client, eight scenes; and leave nothing behind."""

import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import anyio
from mcp import MCPError

from mcpbridge.app.demo.bill import PRICE, Bill
from mcpbridge.app.demo.cast import Cast
from mcpbridge.app.demo.connection import Connected, bridge_client, tools_without_bridge
from mcpbridge.app.demo.question import ANSWER_WITHIN, Question
from mcpbridge.app.demo.scenes import SCENES, SceneFailed, Show, expect
from mcpbridge.app.demo.terminal import Screen, pressed_key
from mcpbridge.app.exit_codes import OK, TOOL_ERROR

LONGEST = 90.0
"""Seconds that a scene may take, on a slow machine too. A person's time to answer is part of them."""

MakeCast = Callable[[Path], AbstractAsyncContextManager[Cast]]
"""Makes the cast in an empty directory; what it started ends with the context."""

_FAILURES = (SceneFailed, MCPError, TimeoutError, OSError)
"""What a run that fails ends with; anything else is a fault of this program."""

_NEXT = {
    "init": "take over the servers that your clients have",
    "doctor": "see whether each of them works",
    "tokens": "see what their tools cost a model's context",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is shown."""

    is_paused: bool = False
    """Wait for a key between scenes."""
    price: float = PRICE
    """Dollars for a million tokens."""
    is_quiet: bool = False
    """Print nothing."""
    command: str = "mcpbridge"
    """How the commands to type next begin."""
    answer_within: float = ANSWER_WITHIN
    """Seconds that a person has to answer the question."""


@dataclass(slots=True)
class Played:
    """What has become of a run so far."""

    bill: Bill
    scenes: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    """`title`, `holds`, `seconds` and `says` of each that was played."""
    failure: str = ""
    """Why the run failed; empty: it did not."""

    @property
    def code(self) -> int:
        """The exit code of the program: 0, or 5 if a scene does not hold."""
        return TOOL_ERROR if self.failure else OK

    def as_json(self) -> dict[str, Any]:
        """The same as a document."""
        items = [{"what": one.what, "without": one.without, "with": one.through} for one in self.bill.items]
        total = self.bill.total
        return {
            "holds": not self.failure,
            **({"failure": self.failure} if self.failure else {}),
            "scenes": list(self.scenes),
            "tokens": {"items": items, "without": total.without, "with": total.through, "counted": "estimate"},
            "price_per_million": self.bill.price,
            "facts": self.bill.facts,
        }


async def play(make_cast: MakeCast, options: Options) -> Played:
    """Play all scenes; the first that does not hold is the last. Cancelling ends all processes and removes all files.

    A terminal is needed for `is_paused`.

    Raises:
        BrokenPipeError: nobody reads what is printed; maybe in a group.
    """
    screen = Screen(is_quiet=options.is_quiet)
    played = Played(Bill(options.price))
    with tempfile.TemporaryDirectory(prefix="mcpbridge-demo-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        screen.root = f"{directory}/"
        with (directory / "log").open("w+", encoding="utf-8", errors="replace") as log:
            played.failure = await _failure(make_cast, options, screen, played, directory, log)
            if played.failure:
                screen.failed(played.failure)
                for line in _last_lines(log):
                    screen.line(line, "dim")
                return played
    _say_what_next(screen, options.command)
    return played


async def _failure(
    make_cast: MakeCast, options: Options, screen: Screen, played: Played, directory: Path, log: TextIO
) -> str:
    """Why the run fails; empty: it does not."""
    try:
        async with make_cast(directory) as cast, started(cast, directory, log, screen, options) as show:
            show.bill = played.bill
            for number, title in enumerate(SCENES, 1):
                if options.is_paused and number > 1:
                    await _key(screen)
                screen.rule(f"{number} of {len(SCENES)} · {title}")
                await _play_scene(title, show, screen, played)
    except Exception as error:
        first = _first(error)
        if not isinstance(first, _FAILURES) or isinstance(first, BrokenPipeError):
            raise
        return str(first) or "it took too long"
    return ""


def _first(error: BaseException) -> BaseException:
    """What a task group failed with at first; else the error as it is."""
    while inner := getattr(error, "exceptions", ()):  # of an exception group
        error = inner[0]
    return error


async def _play_scene(title: str, show: Show, screen: Screen, played: Played) -> None:
    began = anyio.current_time()
    try:
        with anyio.fail_after(LONGEST):
            says = await SCENES[title](show)
    except BaseException as error:
        played.scenes.append({"title": title, "holds": False, "seconds": _seconds_since(began), "says": str(error)})
        raise
    screen.happened(says)
    played.scenes.append({"title": title, "holds": True, "seconds": _seconds_since(began), "says": says})


@asynccontextmanager
async def started(cast: Cast, directory: Path, log: TextIO, screen: Screen, options: Options) -> AsyncGenerator[Show]:
    """The bridge with its servers, and a client of it, for the time of the context."""
    screen.line("mcpbridge in eight scenes: real servers, a real client. Starting five servers …")
    if cast.remark:
        screen.line(cast.remark, "yellow")
    question = Question(screen, is_quiet=options.is_quiet, seconds=options.answer_within)
    question.effect = cast.has_happened
    async with bridge_client(cast, directory, log, question) as bridge:
        with anyio.fail_after(LONGEST):
            without = await tools_without_bridge(cast, directory, log)
        await _has_all(bridge, without)
        yield Show(cast, bridge, without, question, screen, Bill())


async def _has_all(bridge: Connected, servers: Mapping[str, object]) -> None:
    """Wait until all servers are ready, on a slow machine after the first list."""
    for server in servers:
        state: Mapping[str, Any] = {}
        with anyio.move_on_after(LONGEST):
            while (state := await bridge.state_of(server)).get("state") == "starting":  # noqa: ASYNC110 - of a process
                await anyio.sleep(0.1)
        expect(state.get("state") == "ready", f"the server {server!r} does not work: {state.get('reason')}")


async def _key(screen: Screen) -> None:
    screen.prompt("Press a key to continue …")
    await pressed_key()
    screen.end_line()


def _say_what_next(screen: Screen, command: str) -> None:
    screen.rule("Next")
    for name, about in _NEXT.items():
        screen.line(f"{command} {name:<8} # {about}")


def _last_lines(log: TextIO, count: int = 5) -> list[str]:
    log.seek(0)
    return log.read().splitlines()[-count:]


def _seconds_since(began: float) -> float:
    return round(anyio.current_time() - began, 3)


def command_here() -> str:
    """How the installed command is typed: by its name where a shell finds it, else by its path."""
    import shutil

    beside = Path(sys.executable).parent / "mcpbridge"
    found = shutil.which("mcpbridge")
    if (found and Path(found) == beside) or not beside.exists():
        return "mcpbridge"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
