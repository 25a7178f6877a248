"""Jobs in the best sandbox that there is here: the front of everything in this folder that isolates programs.

A sandbox is used once it has stopped every canary (`canaries`), bubblewrap before the launcher alone. Where none has,
jobs are refused, never run with less.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mcpbridge.errors import ToolInactive
from mcpbridge.sandbox.job import NO_ACCESS, Access, Job, Limits, Ran
from mcpbridge.sandbox.readiness import Readiness, TierReport, fingerprint, recall, remember
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.sandbox.tiers import Tier

__all__ = ["Isolation", "Wrapped"]


ASK_AGAIN = 60.0
"""Seconds after which it is asked once more, where no sandbox was ready: somebody may have mended it."""
_SWITCHED_OFF = "`sandbox.enabled` is false", "Whoever runs the bridge can set it to true."


class Wrapped(NamedTuple):
    """How to start a long-running program in a sandbox; whoever starts it keeps its stdin and stdout."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """The whole environment."""
    cwd: str
    """Where to start the command; the program itself begins in the `cwd` that was asked for."""
    folder: str
    """Its private folder, HOME and TMPDIR of it: whoever started it removes it afterwards (`Isolation.discard`)."""
    tier: str


class Isolation:
    """Runs jobs in the first sandbox that stops every canary; a `Runner`."""

    def __init__(
        self, settings: SandboxSettings, *, cache: Path | None = None, tiers: Sequence[Tier] | None = None
    ) -> None:
        """`cache`: a directory that remembers which sandboxes are ready; None: each process asks anew.

        `tiers`: what to choose from, the best first; None: what the settings name.
        """
        self._settings, self._cache = settings, cache
        self._tiers = tuple(tiers) if tiers is not None else None
        self._asking: asyncio.Task[tuple[Readiness, Tier | None]] | None = None
        self._ready: tuple[Readiness, Tier | None] | None = None
        self._again = 0.0

    @property
    def settings(self) -> SandboxSettings:
        """What it was made with."""
        return self._settings

    @property
    def is_off(self) -> bool:
        """The user switched it off: jobs run as any program of the user. Results say so."""
        return self._settings.mode == "off"

    @property
    def known(self) -> Readiness | None:
        """What was found out so far; None: nobody has asked yet."""
        return self._ready[0] if self._ready else None

    async def readiness(self, *, whole: bool = False) -> Readiness:
        """Which sandboxes keep what they promise; found out at the first need, which takes about a second.

        `whole`: ask all of them, also those behind the first that is ready, and nothing that is remembered.
        """
        if whole:
            return (await self._found_out(whole=True))[0]
        return (await self._chosen())[0]

    async def why_none(self) -> tuple[str, str] | None:
        """What is missing and the fix, where no sandbox is ready; None where one is, or it is switched off."""
        return (await self.readiness()).why_none() if self._settings.enabled else _SWITCHED_OFF

    async def run(self, job: Job) -> Ran:
        """Run a job to its end. Cancelled, all its processes are killed before this returns.

        Raises:
            ToolInactive: there is no sandbox here that keeps every promise; names the missing one and the fix.
            FileNotFoundError, PermissionError: the program is not there, or not to be run; the message says which.
            ValueError: a name in `files` is no plain one.
        """
        from mcpbridge.sandbox.execution import execute

        tier = await self._tier()
        outcome = await execute(tier, job, fork_as_root=self._forks_as_root())
        ended, code, stdout, stderr, cut = (
            outcome.ended,
            outcome.code,
            outcome.stdout,
            outcome.stderr,
            outcome.cut,
        )
        return Ran(ended, code, stdout, stderr, cut, outcome.seconds, tier.name, outcome.files)

    async def wrapped(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str = "",
        limits: Limits | None = None,
        access: Access = NO_ACCESS,
    ) -> Wrapped:
        """How to start `argv` in the sandbox, for programs that live long: their time, output and disk have no limit.

        `env`: its variables beside PATH, HOME, LANG and TMPDIR. `cwd` empty: its private folder. Whoever starts it ends
        its process group when it ends it. It ends with the process that asked for this.

        Raises:
            ToolInactive, FileNotFoundError, PermissionError: as `run`.
        """
        from mcpbridge.sandbox.execution import environment, prepared
        from mcpbridge.sandbox.folders import make_folder, temporary_directory

        tier = await self._tier()
        start = prepared(
            tier, argv, env, cwd, limits or Limits(), access, temporary_directory(), fork_as_root=self._forks_as_root()
        )
        folder = make_folder({}, start.identity.uid)
        start = msgspec.structs.replace(start, cwd=start.cwd or folder, folder=folder)
        return Wrapped(tuple(tier.command(start)), environment(env, folder), "/", folder, tier.name)

    @staticmethod
    def discard(folder: str) -> None:
        """Remove the private folder of a program that was `wrapped`, after its end."""
        from mcpbridge.sandbox.folders import remove_folder

        remove_folder(folder)

    def _forks_as_root(self) -> bool:
        return self.is_off or "pids" not in self._settings.require

    async def _tier(self) -> Tier:
        if not self._settings.enabled:
            raise ToolInactive("the sandbox", *_SWITCHED_OFF)
        readiness, tier = await self._chosen()
        if tier is None:
            missing, fix = readiness.why_none() or ("no sandbox is ready", "")
            raise ToolInactive("the sandbox", missing, fix)
        return tier

    async def _chosen(self) -> tuple[Readiness, Tier | None]:
        now = asyncio.get_running_loop().time()
        if self._ready is None or (self._ready[1] is None and now > self._again):
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._found_out(whole=False))
            # Whoever is cancelled leaves the answer to those who ask next.
            await asyncio.shield(self._asking)
        assert self._ready is not None
        return self._ready

    async def _found_out(self, *, whole: bool) -> tuple[Readiness, Tier | None]:
        from mcpbridge.sandbox.folders import remove_leftovers
        from mcpbridge.sandbox.launching import Bare

        await asyncio.to_thread(remove_leftovers)
        required, reports = self._settings.require, list[TierReport]()
        chosen: Tier | None = Bare() if self.is_off else None
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
        from mcpbridge.sandbox.bubblewrap import Bubblewrap
        from mcpbridge.sandbox.launching import Launcher

        mode = self._settings.mode
        made: dict[str, Sequence[type[Tier]]] = {
            "auto": (Bubblewrap, Launcher), "bubblewrap": (Bubblewrap,), "launcher": (Launcher,), "off": ()
        }  # fmt: skip
        return [make() for make in made[mode]]

    async def _report(self, tier: Tier, *, is_asked_anew: bool) -> TierReport:
        from mcpbridge.sandbox.canaries import examined
        from mcpbridge.sandbox.execution import execute
        from mcpbridge.sandbox.folders import temporary_directory

        if lacks := tier.lacks():
            return TierReport(tier.name, lacks=lacks[0], fix=lacks[1])
        may_fork = self._forks_as_root() or not tier.who(NO_ACCESS, temporary_directory()).is_root
        key = fingerprint((*tier.fingerprint(), str(may_fork)))
        if not is_asked_anew and (remembered := recall(self._cache, tier.name, key)):
            return remembered

        report = await examined(
            tier.name, lambda job: execute(tier, job, fork_as_root=self._forks_as_root()), may_fork=may_fork
        )
        remember(self._cache, report, key)
        return report
