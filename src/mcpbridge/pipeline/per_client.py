"""Who a call is counted for: the one place that says what "one client" is to limits, rates and budgets.

What is kept of clients, for a bounded number of them: those that were not heard of for longest are forgotten.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from mcpbridge.core.model import Call


def client_of(call: Call) -> str:
    """Names the client whose places and budgets a call takes: one session, or what stands for one."""
    return call.caller.session.id


def payer_of(call: Call) -> str:
    """Names the client whose rate a call counts for.

    Where clients are authenticated it is the principal: a new session must not be a way around the rate. What clients
    call themselves is no part of it, since anybody may declare anything.
    """
    principal = call.caller.principal
    return f"principal {principal}" if principal else call.caller.session.id


def shared_client_of(call: Call) -> str:
    """The same as `client_of` in all bridges of a fleet, where they can know."""
    session = call.caller.session
    return session.name or session.id


def shared_payer_of(call: Call) -> str:
    """The same as `payer_of` in all bridges of a fleet, where they can know."""
    principal = call.caller.principal
    return f"principal {principal}" if principal else shared_client_of(call)


_Value = TypeVar("_Value")

MOST = 10_000
"""Clients that are remembered, if nothing else is said."""


class Recent(Generic[_Value]):
    """Values by client, each made when the client is first heard of."""

    def __init__(self, make: Callable[[], _Value], *, most: int = MOST) -> None:
        self._make, self._most = make, most
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def of(self, key: Hashable) -> _Value:
        """The value of this client, which was heard of just now."""
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._make()
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        else:
            self._values.move_to_end(key)
        return value
