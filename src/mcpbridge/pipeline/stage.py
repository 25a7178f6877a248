"""The Stage protocol: one concern of a call, wrapped around the rest of its way."""

from typing import Protocol

from mcpbridge.model import Call, Plan
from mcpbridge.wire.body import Body

__all__ = ["Stage", "chain"]


class Stage(Protocol):
    """One concern of a call."""

    async def __call__(self, call: Call, proceed: Plan) -> Body:
        """`proceed` once to pass, never to answer itself, again only to retry."""
        ...


def chain(stages: list[Stage], last: Plan) -> Plan:
    """The stages around `last`, the first outermost. Without stages it is `last` itself: no wrapper, no cost."""
    plan = last
    for stage in reversed(stages):
        plan = _wrap(stage, plan)
    return plan


def _wrap(stage: Stage, proceed: Plan) -> Plan:
    async def run(call: Call) -> Body:
        return await stage(call, proceed)

    return run
