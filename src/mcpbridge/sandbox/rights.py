"""What a tool's jobs may do, and where they run: the section `sandbox` and what the tool has set otherwise."""

from mcpbridge.sandbox.isolation import Isolation
from mcpbridge.sandbox.job import Access, Limits, Runner
from mcpbridge.sandbox.settings import SandboxOverrides, SandboxSettings, limits_of

__all__ = ["outside", "rights_of", "why_none"]


def rights_of(runner: Runner, own: SandboxOverrides | None) -> tuple[Limits, Access, dict[str, str]]:
    """Limits, access and variables of a tool whose jobs this runs; `own`: what it has set otherwise."""
    return limits_of(_settings_of(runner), own)


def outside() -> Runner:
    """What runs jobs in no sandbox at all: for a tool whose settings say so."""
    return Isolation(SandboxSettings(mode="off"))


async def why_none(runner: Runner) -> tuple[str, str] | None:
    """What is missing and the fix, where it has no sandbox that is ready; None: it can run jobs."""
    if not _settings_of(runner).enabled:
        return "sandboxes are switched off", "Whoever runs the bridge can take out `sandbox.enabled = false`."
    return await runner.why_none() if isinstance(runner, Isolation) else None


def _settings_of(runner: Runner) -> SandboxSettings:
    """Those that it was made with; the defaults where it does not say."""
    return runner.settings if isinstance(runner, Isolation) else SandboxSettings()
