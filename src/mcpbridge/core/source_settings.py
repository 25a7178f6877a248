"""What can be set for a source of tools: a server, or tools that are not behind one."""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import RateText
from mcpbridge.core.call_settings import CALL_SECONDS, LONGEST_SECONDS, CallSettings
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.protocol.deadlines import Timeouts


class NameFilter(BaseModel):
    """Which names of one upstream to offer: those that match `include` and not `exclude`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: list[str] = ["*"]
    """Globs on the upstream's own names; one must match. Case counts."""

    exclude: list[str] = []
    """Globs on the upstream's own names; none may match."""


class ToolSettings(CallSettings, BaseModel):
    """What to change about one tool of an upstream, and how its calls are treated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rename: str | None = Field(default=None, min_length=1, max_length=128)
    """The name to use instead of the upstream's own, still behind the server's prefix."""

    description: str | None = None
    """The description to publish instead of the upstream's own."""

    disabled: bool = False
    """Neither listed nor callable."""

    max_concurrent: int = Field(default=0, ge=0)
    """Calls of this tool at a time; further ones wait. 0: only the server's limit counts."""

    rate_limit: RateText | None = None
    """How often it may be called, by all clients together: `30/min`, `5/s`. Left out: no limit of its own."""

    results: ResultSettings = ResultSettings()
    """What becomes of its large results."""

    tags: list[str] = []
    """Words to find it by: `tag:billing` in a search, `tags` of a profile."""

    trusted: bool | None = None
    """Whether to believe what it says of itself. Left out: as all tools that come from there."""


class OfferSettings(CallSettings, BaseModel):
    """What can be set of every source of tools, and of single tools of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    disabled: bool = False
    """Leave this out: neither started nor listed."""

    rate_limit: RateText | None = None
    """How often it may be called, by all clients together: `30/min`, `5/s`. Left out: no limit."""

    tools: NameFilter = NameFilter()
    """Which of its tools to offer."""

    results: ResultSettings = ResultSettings()
    """What becomes of large results of its tools."""

    title: str | None = Field(default=None, max_length=200)
    """What it is called in searches, besides its name. Left out: what it calls itself."""

    tags: list[str] = []
    """Words to find its tools by: `tag:billing` in a search, `tags` of a profile."""

    tool: dict[str, ToolSettings] = {}
    """Changes to single tools, by the upstream's own name."""

    trusted: bool = False
    """Whether to believe what its tools say of themselves (`readOnlyHint`, `destructiveHint`, `idempotentHint`). What
    makes a tool look more dangerous is believed in any case."""

    @property
    def is_over_http(self) -> bool:
        """Arguments may have to be repeated in HTTP headers."""
        return False

    @property
    def timeouts(self) -> Timeouts:
        """Deadlines of its calls, where a tool has none of its own."""
        idle = self.call_timeout or CALL_SECONDS
        return Timeouts(idle, max(idle, self.max_call_timeout or LONGEST_SECONDS))
