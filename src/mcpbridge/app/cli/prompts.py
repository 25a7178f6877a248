"""Questions at the terminal: whether a call may be made, which of several things are meant, yes or no.

The bridge of a command ends with it and no other command finds it, so only the person at the terminal can be asked.
Without a terminal a call that needs approval is refused.
"""

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.output import is_at_terminal, visible
from mcpbridge.app.cli.tools.questions import answer_question
from mcpbridge.app.exit_codes import USAGE
from mcpbridge.base.errors import ApprovalUnavailable
from mcpbridge.pipeline.approvals.request import ApprovalRequest, readable_arguments


async def ask_at_terminal(request: ApprovalRequest) -> bool:
    """What the person at the terminal says.

    Raises:
        ApprovalUnavailable: there is no terminal.
    """
    why = f" ({request.reason})" if request.reason else ""
    if not is_at_terminal():
        refused = ApprovalUnavailable(
            f"A person has to approve calls of {request.tool}{why}, and this command runs without a terminal"
        )
        refused.advice = (
            "Nothing was sent. A person has to run it in a terminal; or call it through a running bridge "
            "(`mcpbridge serve`), where `mcpbridge approve` answers."
        )
        raise refused
    print(
        visible(f"{request.tool} needs your approval{why}:\n{readable_arguments(request.arguments_json)}"),
        file=sys.stderr,
    )
    print("Call it? [y/N] ", end="", file=sys.stderr, flush=True)
    return (await _line()).strip().lower() in ("y", "yes")


async def answer_beside_the_loop(params: dict[str, Any]) -> dict[str, Any]:
    """A question of a server, answered by the person at the terminal. See `answer_question`."""
    return await _in_thread(partial(answer_question, params))


async def _line() -> str:
    """The next line of standard input."""
    return await _in_thread(sys.stdin.readline)


T = TypeVar("T")


async def _in_thread(read: Callable[[], T]) -> T:
    """What it returns, from a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def deliver(value: T) -> None:
        if not outcome.done():
            outcome.set_result(value)

    def work() -> None:
        value = read()
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, value)

    threading.Thread(target=work, name="terminal", daemon=True).start()
    return await outcome


def choose(question: str, options: Sequence[T]) -> list[T]:
    """Those of the options that a person names by their numbers, from 1; asks until it is understood."""

    def read(typed: str) -> list[int]:
        numbers = chosen_numbers(typed, len(options))
        if numbers is None:
            raise click.UsageError(f"Say all, none, or numbers from 1 to {len(options)}, such as 1,3-4.")
        return numbers

    numbers: list[int] = click.prompt(f"{question} (all, none, or numbers)", "all", value_proc=read, err=True)
    return [options[number - 1] for number in numbers]


def chosen_numbers(typed: str, count: int) -> list[int] | None:
    """`all`, `none` or numbers such as `1,3-5 7`, as numbers up to `count` in order; None: it is none of these."""
    words = typed.lower().replace(",", " ").split()
    if words in (["all"], ["a"]):
        return list(range(1, count + 1))
    if words in (["none"], ["n"], ["0"]):
        return []
    chosen: set[int] = set()
    for word in words:
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= count:
            return None
        chosen.update(range(first, last + 1))
    return sorted(chosen) or None


def person_agrees(question: str, *, yes: bool) -> bool:
    """Whether a person agrees; `yes`: they have said so before. Without a terminal the command ends."""
    if yes:
        return True
    if not is_at_terminal():
        fail(USAGE, "a person has to agree to this, and the command runs without a terminal", "Say --yes.")
    return click.confirm(question, default=True, err=True)
