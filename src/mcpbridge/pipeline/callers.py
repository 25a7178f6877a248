"""Who a call is counted for: the one place that says what "one client" is to limits, rates and budgets."""

from mcpbridge.model import Call

__all__ = ["client_of", "payer_of"]


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
