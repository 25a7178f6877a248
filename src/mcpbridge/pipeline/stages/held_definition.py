"""Stage: a tool that its server changed, and whose old definition is listed, takes only calls that are safe to make.

Which calls these are is for others to decide (`Judge`). Other tools do not have the stage.
"""

from collections.abc import Awaitable, Callable

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body

Judge = Callable[[Call], None]
"""Raises NotPermitted for a call that is not safe."""


class HeldDefinition:
    """Makes the stages."""

    def __init__(self, judge: Callable[[Tool], Judge | None]) -> None:
        """`judge`: what decides about the calls of a tool; None: all pass."""
        self._judge = judge

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools of which an old definition is listed."""
        judge = self._judge(tool) if tool is not None else None
        if judge is None:
            return None

        def guard(call: Call, proceed: CallHandler) -> Awaitable[Body]:
            judge(call)
            return proceed(call)

        return guard
