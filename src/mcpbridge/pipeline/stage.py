"""The Stage protocol: one concern of a call, wrapped around the rest of its way."""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Protocol

from msgspec import Raw, Struct

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.protocol.body import Body


class Stage(Protocol):
    """One concern of a call."""

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """`proceed` once to pass, never to answer itself, again only to retry."""
        ...


ExpressBegin = Callable[[Call, Raw], bool]
"""A stage that can do its part of a plain call without waiting has this as `express_begin`, or the next, or both.

It gets the call and its arguments before the call is sent. False: the call is not plain, and nothing has been done.
A stage that is to hear what the server says meanwhile puts itself into `Call.update`, for this sending of the call.
"""

ExpressEnd = Callable[[Call, Raw, float], bool]
"""The same with the result, as `express_end`: it came, is an object, and no error. Last the seconds that it took."""


ExpressSent = Callable[[Call, float], None]
"""The same once the call was sent, in the turn in which it began, as `express_sent`: here the stage counts the call,
takes what it holds, and records it. It gets the call, and when it was sent (`time.perf_counter`).

A call that continues in the full lane passes the stage as any other, with `Call.sent` set: what was done here is not
done again.
"""

ExpressOver = Callable[[Call], None]
"""The same once the call is over, as `express_over`: here the stage gives back what it holds. Before the outermost
stage gets the result; nothing is given back by a call that continues in the full lane.
"""

ExpressWithdrawn = Callable[[Call], None]
"""The same, as `express_withdrawn`, for a call that was cancelled, and did not continue in the full lane."""


ExpressUnsent = Callable[[Call], None]
"""The same for a call that is not plain after all, as `express_unsent`: what `express_begin` did is undone. Only a
stage that has it may do anything there that outlives the call. It may be called of one whose `express_begin` was not.
"""


ExpressAnswer = Callable[[Call], Raw | None]
"""A stage that may have the result of a plain call already has this as `express_answer`: the call is answered in the
turn in which it came, and not sent. None: it is not plain. The parts of this stage, and of those above it, are done
for it as for a call that is sent (`express_end` first); whatever was noted in a call that is not plain is forgotten.
`Call.original` is then the result as the server gave it, which the other parts look at.
"""


class Trigger(Struct, frozen=True):
    """What a call must have for a stage to do anything: any of these. A stage that has one says so in `trigger`.

    The plan leaves such a stage out of the way of all other calls (`Pipelines`), so the stage looks again by itself.
    """

    arguments: tuple[bytes, ...] = ()
    """One of these is somewhere in the bytes of the arguments."""
    meta: str = ""
    """A member of `_meta`."""
    while_any: Collection[object] | None = None
    """This is not empty, whatever the call is."""


class ExpressPlan(Struct, frozen=True):
    """The plan of a tool of which every stage can do its part of a plain call without waiting.

    `downstream/express_lane.py` sends such calls, and takes their results, without a task. A call that turns out to be
    less plain continues through `chain`, which is the plan itself.
    """

    chain: CallHandler
    begin: tuple[ExpressBegin, ...]
    """Outermost first. One that says False, as of `end`: the call is not plain."""
    sent: tuple[ExpressSent, ...]
    """Outermost first; once all of these were called, the call is under way."""
    end: tuple[ExpressEnd, ...]
    """Innermost first, without the outermost."""
    over: tuple[ExpressOver, ...]
    """Innermost first, when all of `end` have said True; also of a call that was withdrawn."""
    observe: tuple[ExpressEnd, ...]
    """Last: the outermost stage, which counts and records. It never says False."""
    withdrawn: tuple[ExpressWithdrawn, ...]
    """Of a call that was withdrawn, after `over`."""
    unsent: tuple[ExpressUnsent, ...]
    """Of a call that is not plain after all: one of `begin` said False, or it cannot be sent."""
    name: Raw | None
    """The name that the server knows the tool by, encoded; None: clients know it by the same."""
    arguments: tuple[bytes, ...] = ()
    """A call with one of these in its arguments is not plain."""
    while_any: tuple[Collection[object], ...] = ()
    """While one of these is not empty, none is."""
    answer: ExpressAnswer | None = None
    """What answers calls that then are not sent; None: all are sent. The stages below it are not in the plan."""


class StageFactory(Protocol):
    """What makes the stage of each tool, and keeps what they share. There is one for the whole bridge."""

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """The stage for calls of this tool; None: there is nothing to do for it, so it costs nothing.

        `tool` is None for the requests that call no tool (prompts, resources, completion, tasks).
        """
        ...


def chain(stages: list[Stage], last: CallHandler) -> CallHandler:
    """The stages around `last`, the first outermost. Without stages it is `last` itself: no wrapper, no cost."""
    plan = last
    for stage in reversed(stages):
        plan = partial(stage, proceed=plan)  # no function of our own in between: every call would pay for one more
    return plan
