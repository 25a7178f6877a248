"""A bridge without some of the rules that keep a fleet right: `python broken_bridge.py RULE,… serve …`.

The checker must notice each:

- `claims`: whoever asks for a session of a bridge that is gone has it, though another has taken it;
- `unknown`: a request whose bridge was lost counts as not sent;
- `approvals`: whoever decides leaves the question to others;
- `questions`: a call gets the answer to the one before;
- `progress`: so does its caller with the progress of the one before;
- `subscriptions`: they are not written down;
- `budgets`: what a bridge borrows is there for the others, too;
- `rates`: each bridge counts for itself.
"""

import sys
from typing import Any

from msgspec import Raw

from mcpbridge.__main__ import main
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.parked_calls import Parking
from mcpbridge.downstream.progress import CallUpdates
from mcpbridge.fleet import records, sessions
from mcpbridge.fleet.forwarding import Forwarding
from mcpbridge.fleet.link.connections import NotSent, OutcomeUnknown
from mcpbridge.pipeline.stages.rate_limit import Buckets
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.storage.redis import shares
from mcpbridge.storage.redis.connections import script
from mcpbridge.storage.redis.store import RedisStore


def break_claims() -> None:
    records._CLAIM = script(  # pyright: ignore[reportPrivateUsage]
        """
        if redis.call('HGET', KEYS[2], 'who') ~= ARGV[2] then return false end
        redis.call('HSET', KEYS[2], 'owner', ARGV[1])
        return {ARGV[1], redis.call('HGET', KEYS[2], 'record')}
        """
    )


def break_unknown() -> None:
    ask = Forwarding.ask

    async def asked(self: Forwarding, *arguments: Any, **named: Any) -> Any:
        try:
            return await ask(self, *arguments, **named)
        except OutcomeUnknown as error:
            raise NotSent("lost") from error

    Forwarding.ask = asked


def break_approvals() -> None:
    RedisStore.take = RedisStore.get


def break_questions() -> None:
    resume = Parking._resume  # pyright: ignore[reportPrivateUsage]

    before = list[dict[str, Raw]]()

    def resumed(self: Parking, id_: str, round_: int, client: Client, call: Call, answers: dict[str, Raw]) -> Any:
        before.append(answers)
        return resume(self, id_, round_, client, call, before[-2:][0])

    Parking._resume = resumed  # pyright: ignore[reportPrivateUsage]


def break_progress() -> None:
    pass_on, former = CallUpdates.__call__, list[tuple[str, Raw]]()

    def passed_on(self: CallUpdates, method: str, params: Raw) -> None:
        for one in former:
            pass_on(self, *one)
        former[:] = [(method, params)]
        pass_on(self, method, params)

    CallUpdates.__call__ = passed_on


def break_subscriptions() -> None:
    note = records.note

    def noted(messages: dict[str, Raw], frame: Frame) -> bool:
        return "subscribe" not in frame.method and note(messages, frame)

    sessions.note = noted


def break_budgets() -> None:
    shares._TAKE_CALLS = script("return tonumber(ARGV[3])")  # pyright: ignore[reportPrivateUsage]


def break_rates() -> None:
    make = Buckets.__init__

    def made(self: Buckets, together: object = None) -> None:
        make(self, None)

    Buckets.__init__ = made


RULES = {
    "claims": break_claims,
    "unknown": break_unknown,
    "approvals": break_approvals,
    "questions": break_questions,
    "progress": break_progress,
    "subscriptions": break_subscriptions,
    "budgets": break_budgets,
    "rates": break_rates,
}

if __name__ == "__main__":
    for rule in sys.argv.pop(1).split(","):
        RULES[rule]()
    sys.exit(main())
