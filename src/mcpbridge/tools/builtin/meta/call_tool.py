"""`call_tool`: calls any tool by its name, listed or not.

A front takes the call in its arguments for the call itself (`catalog/resolve.py`, which reads them), so
that policy, approval, progress, questions, tasks and errors are those of a direct call. Here are the calls that no
front unwrapped: those where rules are about `call_tool` itself, or that come from within.
"""

from collections.abc import Awaitable, Callable

from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.catalog.resolve import inner_call
from mcpbridge.core.model import Call
from mcpbridge.pipeline.validation.coercion import object_within
from mcpbridge.protocol.body import Body
from mcpbridge.tools.builtin.builtin import UNTREATED
from mcpbridge.tools.builtin.meta.definitions import CALL_TOOL

Within = Callable[[Call, str, Raw], Awaitable[Body]]
"""Makes a call within another: of the tool of this name, with these arguments."""


class CallTool:
    """The tool."""

    definition, treatment = CALL_TOOL, UNTREATED

    def __init__(self, within: Within) -> None:
        """`within`: how the call is made where rules are about `call_tool` itself, which the outer call has to obey."""
        self._within = within

    async def run(self, call: Call) -> Body:
        """See `Builtin`. Only calls that no front has unwrapped come here.

        Raises:
            ArgumentsRefused: no tool is named.
        """
        name, arguments = inner_call(call.params)
        if bytes(arguments)[:1] != b"{":
            arguments = object_within(arguments)
        if arguments is None:
            raise ArgumentsRefused(f"The arguments of {name[:100]} must be a JSON object")
        return await self._within(call, name, arguments)
