"""A bridge without one of the rules that keep a fleet right: `python broken_bridge.py RULE serve …`.

The checker must notice each. `claims`: whoever asks for a session of a bridge that is gone has it, though another has
taken it. `unknown`: a request whose bridge was lost counts as not sent.
"""

import sys
from typing import Any

from mcpbridge.__main__ import main
from mcpbridge.fleet import records
from mcpbridge.fleet.forwarding import Forwarding
from mcpbridge.fleet.link.connections import NotSent, OutcomeUnknown
from mcpbridge.storage.redis.connections import script


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


if __name__ == "__main__":
    {"claims": break_claims, "unknown": break_unknown}[sys.argv.pop(1)]()
    sys.exit(main())
