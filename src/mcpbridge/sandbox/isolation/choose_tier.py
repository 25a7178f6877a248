"""Which sandbox is used: the first that passes its self-test, bubblewrap before the launcher alone.

What was found out is remembered, in this process and in a file. Where no sandbox was ready it is asked once more after
`ASK_AGAIN` seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from mcpbridge.base.background_tasks import to_its_end
from mcpbridge.sandbox.isolation.self_test import Readiness, TierReport, fingerprint, recall, remember
from mcpbridge.sandbox.isolation.supervisor import Outcome
from mcpbridge.sandbox.isolation.tier import Tier
from mcpbridge.sandbox.job import NO_ACCESS, Job
from mcpbridge.sandbox.settings import SandboxSettings

ASK_AGAIN = 60.0
"""Seconds after which it is asked once more, where no sandbox was ready: somebody may have mended it."""

Execute = Callable[[Tier, Job], Awaitable[Outcome]]
"""Runs a job in a sandbox."""


class TierChoice:
    """The choice of one configuration."""

    def __init__(
        self, settings: SandboxSettings, execute: Execute, *, cache: Path | None, tiers: Sequence[Tier] | None
    ) -> None:
        """`cache`, `tiers`: see `Isolation`."""
        self._settings, self._execute, self._cache = settings, execute, cache
        self._tiers = tuple(tiers) if tiers is not None else None
        self._asking: _Shared | None = None
        self._ready: tuple[Readiness, Tier | None] | None = None
        self._again = 0.0

    @property
    def known(self) -> Readiness | None:
        """What was found out so far; None: nobody has asked yet."""
        return self._ready[0] if self._ready else None

    @property
    def forks_as_root(self) -> bool:
        """Where no limit on processes holds, since the job runs as root, it may start some all the same."""
        return self._settings.mode == "off" or "pids" not in self._settings.require

    async def chosen(self) -> tuple[Readiness, Tier | None]:
        """What was found out, and the sandbox to use; None where none is ready."""
        now = asyncio.get_running_loop().time()
        if self._ready is None or (self._ready[1] is None and now > self._again):
            if self._asking is None or self._asking.is_over:
                self._asking = _Shared(self.probe(whole=False))
            await self._asking.done()
        assert self._ready is not None
        return self._ready

    async def probe(self, *, whole: bool) -> tuple[Readiness, Tier | None]:
        """Find it out anew.

        `whole`: of all of them, also those behind the first that is ready, and nothing remembered.
        """
        from mcpbridge.sandbox.isolation.launcher import NoSandbox
        from mcpbridge.sandbox.isolation.work_folder import remove_leftovers

        await asyncio.to_thread(remove_leftovers)
        required, reports = self._settings.require, list[TierReport]()
        chosen: Tier | None = NoSandbox() if self._settings.mode == "off" else None
        for tier in self._candidates():
            report = await self._report(tier, is_asked_anew=whole)
            reports.append(report)
            if chosen is None and report.meets(required):
                chosen = tier
                if not whole:
                    break
        name = "" if chosen is None else chosen.name
        self._ready = Readiness(self._settings.mode, required, name, tuple(reports)), chosen
        self._again = asyncio.get_running_loop().time() + ASK_AGAIN
        return self._ready

    def _candidates(self) -> Sequence[Tier]:
        if self._tiers is not None:
            return self._tiers
        from mcpbridge.sandbox.isolation.bubblewrap import Bubblewrap
        from mcpbridge.sandbox.isolation.launcher import Launcher

        mode = self._settings.mode
        made: dict[str, Sequence[type[Tier]]] = {
            "auto": (Bubblewrap, Launcher), "bubblewrap": (Bubblewrap,), "launcher": (Launcher,), "off": ()
        }  # fmt: skip
        return [make() for make in made[mode]]

    async def _report(self, tier: Tier, *, is_asked_anew: bool) -> TierReport:
        from mcpbridge.sandbox.isolation.self_test import examined
        from mcpbridge.sandbox.isolation.work_folder import temporary_directory

        if lacks := tier.lacks():
            return TierReport(tier.name, lacks=lacks[0], fix=lacks[1])
        may_fork = self.forks_as_root or not tier.who(NO_ACCESS, temporary_directory()).is_root
        key = fingerprint((*tier.fingerprint(), str(may_fork)))
        if not is_asked_anew and (remembered := recall(self._cache, tier.name, key)):
            return remembered

        report = await examined(tier.name, lambda job: self._execute(tier, job), may_fork=may_fork)
        remember(self._cache, report, key)
        return report


class _Shared:
    """Work that several wait for. Whoever is cancelled leaves it to the others; with the last one it ends."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task, self._waiting, self._is_dropped = asyncio.ensure_future(work), 0, False

    @property
    def is_over(self) -> bool:
        """It has ended, or is about to since nobody waits for it any more: none may wait for it from here on."""
        return self._is_dropped or self._task.done()

    async def done(self) -> None:
        """Return when it is done. Raises what the work raises."""
        self._waiting += 1
        try:
            await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self._is_dropped = True
                self._task.cancel()
                await to_its_end(asyncio.wait({self._task}))
