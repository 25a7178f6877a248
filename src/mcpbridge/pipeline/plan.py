"""The stages of a call, in order; compiles the plan of each tool.

A stage that has nothing to do for a tool is not in its plan, so a tool with nothing configured has the shortest one and
pays for nothing. The order, outermost first, and why:

- observe: refusals are counted and logged too
- compress: above all that runs or repeats a call, so that the cache and late results hold whole results
- guard: before anything costs time; what is denied whatever the arguments are ends here
- references: all below see what a handle among the arguments stands for, and decide about that
- hooks: they see calls as clients make them, and may change the arguments; so they come before those are checked
- arguments: nobody is asked about a call that cannot work; rules see arguments as the tool gets them
- permit: rules with conditions on the arguments
- rates and budgets: nobody is asked about a call that may not run yet
- approval: below this a person has agreed, if one had to
- late: a client that gives up from here on does not lose the result
- cache: below approval, since a hit needs the same permission; above retries, since it keeps only what came of them
- time: the deadline counts from here on, so waiting and retries are part of it
- retry: above the limits, so that a call that waits for its next try holds no place
- limits: the last thing before the server
"""

from collections.abc import Awaitable, Callable, Sequence

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.deliver import mirroring
from mcpbridge.pipeline.stage import Concern, Stage, chain
from mcpbridge.protocol.body import Body

MOST_PLANS = 50_000
"""Plans that are kept: a server that gives its tools new names all the time must not fill the memory."""


class Plans:
    """What happens to each call: the plan of its tool, compiled at its first call."""

    def __init__(
        self, deliver: CallHandler, concerns: Sequence[Concern], options_of: Callable[[Tool], CallOptions]
    ) -> None:
        """`concerns`: outermost first. `options_of`: how calls of a tool are treated."""
        self.configure(deliver, concerns, options_of)

    def configure(
        self, deliver: CallHandler, concerns: Sequence[Concern], options_of: Callable[[Tool], CallOptions]
    ) -> None:
        """Other concerns for all calls that begin from now on. Those under way keep their plan to the end."""
        self._deliver, self._concerns, self._options_of = deliver, concerns, options_of
        self._plans: dict[str, tuple[bytes, CallHandler]] = {}
        self._rest = chain(self._stages(None, CallOptions()), last=deliver)

    def __call__(self, call: Call) -> Awaitable[Body]:
        """Let a call go its way."""
        tool = call.tool
        if tool is None:
            return self._rest(call)
        known = self._plans.get(tool.id)
        if known is not None and known[0] is tool.definition:
            return known[1](call)
        return self._compile(tool)(call)

    def _compile(self, tool: Tool) -> CallHandler:
        deliver = mirroring(tool.headers, self._deliver) if tool.headers else self._deliver
        plan = chain(self._stages(tool, self._options_of(tool)), last=deliver)
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        self._plans[tool.id] = tool.definition, plan
        return plan

    def _stages(self, tool: Tool | None, options: CallOptions) -> list[Stage]:
        found = (concern.stage(tool, options) for concern in self._concerns)
        return [stage for stage in found if stage is not None]
