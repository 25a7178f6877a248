"""What can be set for a source of tools: a server, or tools that are not behind one."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import RateText
from mcpbridge.core.call_settings import CALL_SECONDS, CallSettings, call_deadlines
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.protocol.deadlines import Timeouts


class NameFilter(BaseModel):
    """Which names of one upstream are offered: those that match `include` and do not match `exclude`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    include: list[str] = ["*"]
    """Globs on the upstream's own names. A name must match one of them. Case counts."""

    exclude: list[str] = []
    """Globs on the upstream's own names. A name must match none of them."""


class ToolSettings(CallSettings, BaseModel):
    """Changes to one tool of an upstream, and how its calls are treated."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    rename: str | None = Field(default=None, min_length=1, max_length=128)
    """The name to use instead of the upstream's own. The prefix of the server stays."""

    description: str | None = None
    """The description to use instead of the upstream's own."""

    disabled: bool = False
    """`true`: the tool can be neither listed nor called."""

    max_concurrent: int = Field(default=0, ge=0)
    """Calls of this tool that run at a time. Further ones wait. 0: only the limit of the server applies."""

    rate_limit: RateText | None = None
    """How often all clients together may call it: `30/min`, `5/s`. Default: no limit of its own."""

    results: ResultSettings = ResultSettings.model_construct()
    """How its large results are shortened."""

    tags: list[str] = []
    """Words to find it by: `tag:billing` in a search, `tags` of a profile."""

    trusted: bool | None = None
    """Whether to believe its annotations. Default: as set for its server."""


class OfferSettings(CallSettings, BaseModel):
    """Settings of every source of tools, and of single tools of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    disabled: bool = False
    """`true`: it is neither started nor listed."""

    rate_limit: RateText | None = None
    """How often all clients together may call it: `30/min`, `5/s`. Default: no limit."""

    tools: NameFilter = NameFilter.model_construct()
    """Which of its tools are offered."""

    results: ResultSettings = ResultSettings.model_construct()
    """How large results of its tools are shortened."""

    title: str | None = Field(default=None, max_length=200)
    """Its title in searches, besides its name. Default: the title that it gives itself."""

    tags: list[str] = []
    """Words to find its tools by: `tag:billing` in a search, `tags` of a profile."""

    tool: dict[str, ToolSettings] = {}
    """Changes to single tools, by the upstream's own name."""

    trusted: bool = False
    """Whether to believe the annotations of its tools (`readOnlyHint`, `destructiveHint`, `idempotentHint`).
    Annotations that make a tool look more dangerous are always believed."""

    text_trust: Literal["high", "normal", "low"] = "normal"
    """What becomes of tools with suspicious texts. `high`: nothing. `normal`: `mcpbridge scan` and `mcpbridge doctor`
    warn of them. `low`: they are held: neither listed nor called until `accept_findings` names them."""

    accept_findings: list[str] = []
    """Findings that somebody has looked at: globs on the tool's own name (`instructions` for those of the server), or
    `TOOL:RULE` for one rule alone."""

    @property
    def is_over_http(self) -> bool:
        """Arguments may have to be repeated in HTTP headers."""
        return False

    @property
    def timeouts(self) -> Timeouts:
        """Deadlines of its calls, where a tool has none of its own."""
        return call_deadlines(self.call_timeout or CALL_SECONDS, self.max_call_timeout)
