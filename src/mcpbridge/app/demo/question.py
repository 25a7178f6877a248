"""Answers the bridge's question whether a call may be made: a person at the terminal, else the demo itself."""

from collections.abc import Callable

from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from mcpbridge.app.demo.terminal import Screen, has_person, pressed_key

ANSWER_WITHIN = 10.0
"""Seconds that a person has; then the demo answers."""


class Question:
    """The client's side of approvals, in one run."""

    def __init__(self, screen: Screen, *, is_quiet: bool = False, seconds: float = ANSWER_WITHIN) -> None:
        self._screen, self._seconds = screen, seconds
        self._asks_person = has_person() and not is_quiet
        self.effect: Callable[[], bool] = lambda: False
        """Whether the call has been made."""
        self.asked = 0
        """How often the bridge has asked."""
        self.is_declined = False
        self.happened_before_answer = False

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer a form of the bridge."""
        self.asked += 1
        self._screen.pair("bridge asks", _in_short(params.message), "yellow")
        is_yes = await self._is_yes()
        self.happened_before_answer = self.effect()
        self.is_declined = not is_yes
        if not is_yes:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"decision": "once"})

    async def _is_yes(self) -> bool:
        if not self._asks_person:
            self._screen.pair("answer", "yes, by this demo's own client: there is no terminal to ask at")
            return True
        self._screen.prompt(f"Approve? [y/n] ({self._seconds:g} s, then this demo says yes)")
        key = (await pressed_key(self._seconds)).lower()
        if not key:
            self._screen.end_line("…")
            self._screen.pair("answer", f"yes, by this demo's own client: nobody answered in {self._seconds:g} s")
            return True
        is_yes = key in ("y", "j")
        self._screen.end_line("yes" if is_yes else "no")
        return is_yes


def _in_short(message: str) -> str:
    """The first line of the bridge's question, without what all of its questions begin with."""
    line = message.partition("\n")[0]
    return line.partition("asks: ")[2] or line
