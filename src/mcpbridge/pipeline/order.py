"""The stages of a call, in order; compiles the plan of each tool.

A stage that has nothing to do for a tool is not in its plan, so the plan of a tool with nothing configured is the
delivery itself (DESIGN, section 3).
"""

from mcpbridge.model import Plan
from mcpbridge.pipeline.stage import chain

__all__ = ["compile_plan"]


def compile_plan(deliver: Plan) -> Plan:
    """The way of a call, outermost stage first."""
    return chain([], last=deliver)
