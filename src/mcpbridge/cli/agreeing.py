"""Who runs a command is asked at the terminal about calls that a person must agree to.

The bridge of a command ends with it and no other command finds it, so nobody else can be asked: without a terminal
such a call is refused.
"""

import asyncio
import sys
import threading

from mcpbridge.approvals.request import ApprovalRequest
from mcpbridge.approvals.showing import shown
from mcpbridge.cli.output import visible
from mcpbridge.errors import ApprovalUnavailable

__all__ = ["ask_at_terminal"]


async def ask_at_terminal(request: ApprovalRequest) -> bool:
    """What the person at the terminal says.

    Raises:
        ApprovalUnavailable: there is no terminal.
    """
    why = f" ({request.reason})" if request.reason else ""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        refused = ApprovalUnavailable(
            f"A person has to approve calls of {request.tool}{why}, and this command runs without a terminal"
        )
        refused.advice = (
            "Nothing was sent. A person has to run it in a terminal; or call it through a running bridge "
            "(`mcpbridge serve`), where `mcpbridge approve` answers."
        )
        raise refused
    print(visible(f"{request.tool} needs your approval{why}:\n{shown(request.arguments_json)}"), file=sys.stderr)
    print("Call it? [y/N] ", end="", file=sys.stderr, flush=True)
    return (await _line()).strip().lower() in ("y", "yes")


async def _line() -> str:
    """The next line of standard input. A thread waits for it that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def deliver(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = sys.stdin.readline()
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, text)

    threading.Thread(target=read, name="terminal", daemon=True).start()
    return await line
