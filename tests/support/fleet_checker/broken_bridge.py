"""A bridge without some of the rules that keep a fleet right: `python broken_bridge.py RULE,… serve …`.

The checker must notice each:

- `claims`: whoever asks for a session of a bridge that is gone has it, though another has taken it;
- `unknown`: a request whose bridge was lost counts as not sent;
- `approvals`: whoever decides leaves the question to others;
- `questions`: a call gets the answer to the one before;
- `progress`: so does its caller with the progress of the one before;
- `subscriptions`: they are not written down;
- `budgets`: what a bridge borrows is there for the others, too;
- `rates`: each bridge counts for itself;
- `fencing`: whoever has the process of a server for the fleet uses it, though its lease is over or another's;
- `waits`: whoever wants that server has it half a second after its lease was renewed;
- `uses`: what a call is continued with is good more than once;
- `runs`: each bridge runs a cached call, though others run the same one.
"""

import sys
from math import inf
from typing import Any

from msgspec import Raw, structs

from mcpbridge.__main__ import main
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.parked_calls import Parking
from mcpbridge.downstream.progress import CallUpdates
from mcpbridge.fleet import records
from mcpbridge.fleet.forwarding import Forwarding
from mcpbridge.fleet.link.connections import NotSent, OutcomeUnknown
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.servers import leases
from mcpbridge.fleet.servers.leases import ServerLeases
from mcpbridge.fleet.servers.process import SharedProcess
from mcpbridge.fleet.servers.shared_servers import SharedServers
from mcpbridge.fleet.sessions import written
from mcpbridge.fleet.sessions.sessions import FleetSessions
from mcpbridge.pipeline.stages.rate_limit import Buckets
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.storage.redis import shares
from mcpbridge.storage.redis.connections import script
from mcpbridge.storage.redis.run_leases import RunLeases
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

    written.note = noted


def break_budgets() -> None:
    shares._TAKE_CALLS = script("return tonumber(ARGV[3])")  # pyright: ignore[reportPrivateUsage]


def break_rates() -> None:
    make = Buckets.__init__

    def made(self: Buckets, together: object = None) -> None:
        make(self, None)

    Buckets.__init__ = made


def break_fencing() -> None:
    async def renew(*_: Any, **__: Any) -> bool:
        return True

    serve = SharedServers.serve

    async def served_any(self: SharedServers, served: Served) -> None:
        process = self._processes.get(served.head.path)  # pyright: ignore[reportPrivateUsage]
        epoch = served.head.query if process is None else b"%d" % process.epoch
        served.head = structs.replace(served.head, query=epoch)
        await serve(self, served)

    SharedServers.serve = served_any
    ServerLeases.renew = renew
    until = property(lambda _: inf, lambda _, __: None)
    SharedProcess.valid_until = until  # pyright: ignore[reportAttributeAccessIssue]
    SharedProcess._loop_time_of = staticmethod(lambda _: None)  # pyright: ignore


def break_waits() -> None:
    text = leases._ACQUIRE.text  # pyright: ignore[reportPrivateUsage]
    rule = "free_at = ends + ARGV[4]"
    assert rule in text
    soon = script(text.replace(rule, "free_at = ends - ARGV[3] + 500"))
    leases._ACQUIRE = soon  # pyright: ignore[reportPrivateUsage]


def break_uses() -> None:
    async def is_first_use(*_: Any, **__: Any) -> bool:
        return True

    FleetSessions.is_first_use = is_first_use


def break_runs() -> None:
    async def lead(*_: Any, **__: Any) -> None:
        return None

    RunLeases.lead = lead


RULES = {
    "claims": break_claims,
    "unknown": break_unknown,
    "approvals": break_approvals,
    "questions": break_questions,
    "progress": break_progress,
    "subscriptions": break_subscriptions,
    "budgets": break_budgets,
    "rates": break_rates,
    "fencing": break_fencing,
    "waits": break_waits,
    "uses": break_uses,
    "runs": break_runs,
}

if __name__ == "__main__":
    for rule in sys.argv.pop(1).split(","):
        RULES[rule]()
    sys.exit(main())
