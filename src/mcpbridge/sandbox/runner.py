"""Runs jobs in the best sandbox that this machine has: the entry to everything that isolates programs.

Which one that is, is decided in `isolation/choose_tier.py`. Where none is ready, jobs are refused, never run with less.
What a job may do is decided by the section `sandbox` and by what its tool has set otherwise. Of a finished job nothing
is left.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mcpbridge.base.errors import ToolInactive
from mcpbridge.sandbox.isolation.choose_tier import TierChoice
from mcpbridge.sandbox.isolation.launcher import reads
from mcpbridge.sandbox.isolation.launcher_main import REFUSED
from mcpbridge.sandbox.isolation.self_test import Readiness
from mcpbridge.sandbox.isolation.supervisor import Descriptors, Outcome, supervise
from mcpbridge.sandbox.isolation.tier import OwnNetwork, Start, Tier
from mcpbridge.sandbox.isolation.work_folder import make_folder, remove_folder, temporary_directory
from mcpbridge.sandbox.job import NO_ACCESS, Access, Job, JobResult, Limits, Runner, files_left
from mcpbridge.sandbox.settings import SandboxOverrides, SandboxSettings, limits_of

_SWITCHED_OFF = "`sandbox.enabled` is false", "Whoever runs the bridge can set it to true."


class Wrapped(NamedTuple):
    """How to start a long-running program in a sandbox; whoever starts it keeps its stdin and stdout."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """The whole environment."""
    cwd: str
    """Where to start the command; the program itself begins in the `cwd` that was asked for."""
    folder: str
    """Its private folder: its TMPDIR, and its HOME if it has no other. Whoever started it removes it afterwards
    (`Isolation.discard`)."""
    tier: str


class Isolation:
    """Runs jobs in the first sandbox that passes its self-test; a `Runner`."""

    def __init__(
        self, settings: SandboxSettings, *, cache: Path | None = None, tiers: Sequence[Tier] | None = None
    ) -> None:
        """`cache`: a directory that remembers which sandboxes are ready; None: each process asks anew.

        `tiers`: what to choose from, the best first; None: what the settings name.
        """
        self._settings = settings
        self._choice = TierChoice(settings, self._execute, cache=cache, tiers=tiers)

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
        return self._choice.known

    async def readiness(self, *, whole: bool = False) -> Readiness:
        """Which sandboxes keep what they promise; found out at the first need, which takes about a second.

        `whole`: ask all of them, also those behind the first that is ready, and nothing that is remembered.
        """
        if whole:
            return (await self._choice.probe(whole=True))[0]
        return (await self._choice.chosen())[0]

    async def why_none(self) -> tuple[str, str] | None:
        """What is missing and the fix, where no sandbox is ready; None where one is, or it is switched off."""
        return (await self.readiness()).why_none() if self._settings.enabled else _SWITCHED_OFF

    async def run(self, job: Job) -> JobResult:
        """Run a job to its end. Cancelled, all its processes are killed before this returns.

        Raises:
            ToolInactive: there is no sandbox here that keeps every promise; names the missing one and the fix.
            FileNotFoundError, PermissionError: the program is not there, or not to be run; the message says which.
            ValueError: a name in `files` is no plain one.
        """
        tier = await self._tier()
        outcome = await self._execute(tier, job)
        ended, code, stdout, stderr, cut = (
            outcome.ended,
            outcome.code,
            outcome.stdout,
            outcome.stderr,
            outcome.cut,
        )
        return JobResult(ended, code, stdout, stderr, cut, outcome.seconds, tier.name, outcome.files)

    async def wrapped(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str = "",
        limits: Limits | None = None,
        access: Access = NO_ACCESS,
        home: str = "",
        own_network: OwnNetwork | None = None,
    ) -> Wrapped:
        """How to start `argv` in the sandbox, for programs that live long: their time, output and disk have no limit.

        `env`: its variables beside PATH, HOME, LANG and TMPDIR. `cwd` empty: its HOME. `home`: a directory that
        is that and is kept; empty: its private folder. Whoever starts it ends its process group when it ends
        it. It ends with the process that asked for this.

        Raises:
            ToolInactive, FileNotFoundError, PermissionError: as `run`.
        """
        from mcpbridge.sandbox.isolation.work_folder import make_folder, temporary_directory

        tier = await self._tier()
        if own_network is not None and tier.name == "launcher":
            raise ToolInactive("the sandbox", *self._no_own_network())
        start = prepared(
            tier,
            argv,
            env,
            cwd,
            limits or Limits(),
            access,
            temporary_directory(),
            fork_as_root=self._choice.forks_as_root,
            home=home,
        )
        if home and (uid := start.identity.uid) is not None:
            os.chown(home, uid, uid)
        folder = make_folder({}, start.identity.uid)
        start = msgspec.structs.replace(start, cwd=start.cwd or home or folder, folder=folder, own_network=own_network)
        whole = {**({"HOME": home} if home else {}), **env}
        return Wrapped(tuple(tier.command(start)), environment(whole, folder), "/", folder, tier.name)

    def _no_own_network(self) -> tuple[str, str]:
        """Why no program can have a network of its own here, and the fix."""
        known = self.known
        report = next((one for one in known.tiers if one.tier == "bubblewrap"), None) if known is not None else None
        why = report.lacks or "; ".join(report.fails.values()) if report is not None else "`sandbox.mode` is `launcher`"
        fix = report.fix if report is not None else 'Take out `mode = "launcher"`.'
        return f"a list of hosts in `network` needs bubblewrap: {why}", fix

    @staticmethod
    def discard(folder: str) -> None:
        """Remove the private folder of a program that was `wrapped`, after its end."""
        from mcpbridge.sandbox.isolation.work_folder import remove_folder

        remove_folder(folder)

    async def _execute(self, tier: Tier, job: Job) -> Outcome:
        return await execute(tier, job, fork_as_root=self._choice.forks_as_root)

    async def _tier(self) -> Tier:
        if not self._settings.enabled:
            raise ToolInactive("the sandbox", *_SWITCHED_OFF)
        readiness, tier = await self._choice.chosen()
        if tier is None:
            missing, fix = readiness.why_none() or ("no sandbox is ready", "")
            raise ToolInactive("the sandbox", missing, fix)
        return tier


SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Directories where programs are looked for."""


async def execute(tier: Tier, job: Job, *, fork_as_root: bool) -> Outcome:
    """Run it there. `fork_as_root`: where no limit on processes holds, start them all the same.

    Raises:
        FileNotFoundError, PermissionError: the program is not there, or not to be run; the message says which.
        ToolInactive: something that the job was promised is not there, or the sandbox could not be set up.
        ValueError: a file's name, or a variable, is none.
    """
    temporary = temporary_directory()
    start = prepared(tier, job.argv, job.env, job.cwd, job.limits, job.access, temporary, fork_as_root=fork_as_root)
    folder = make_folder(job.files, start.identity.uid)
    pipes = Descriptors()
    try:
        start = msgspec.structs.replace(
            start,
            cwd=start.cwd or folder,
            folder=folder,
            lifeline=pipes.lifeline,
            information=pipes.information if tier.has_processes_of_its_own else None,
        )
        outcome = await supervise(
            tier.command(start),
            environment(job.env, folder),
            job.stdin,
            folder,
            job.limits,
            pipes,
            has_first=tier.has_processes_of_its_own,
            is_swept=not tier.has_processes_of_its_own and tier.name == "off",
        )
        left = await asyncio.to_thread(files_left, folder)
        outcome = msgspec.structs.replace(outcome, files=left)
    finally:
        pipes.close()
        await _removed(folder)
    _check(tier, outcome)
    return outcome if not tier.has_processes_of_its_own else _as_signal(outcome)


def prepared(
    tier: Tier,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    limits: Limits,
    access: Access,
    temporary: str,
    *,
    fork_as_root: bool,
    home: str = "",
) -> Start:
    """All of a start but the folder; `temporary` is where that will be. Raises as `execute`."""
    for path in (*access.read_only, *access.read_write):
        if not Path(path).is_absolute() or not Path(path).exists():
            raise ToolInactive("the sandbox", f"'{path}' of `allow_fs` does not exist", "Make it, or take it out.")
    program = _find_program(argv, env, cwd)
    readable = [*reads(access), *access.read_write, *filter(None, [home])]
    added = [path for path in {program, str(Path(program).resolve())} if not _is_in(path, readable)]
    if cwd and tier.name != "off" and not _is_in(cwd, readable):
        fix = "Add it to `allow_fs`."
        raise ToolInactive("the sandbox", f"the working directory {cwd} is not among what may be read", fix)
    access = msgspec.structs.replace(access, read_only=(*access.read_only, *sorted(added)))
    who = tier.who(access, temporary, home)
    may_fork = limits.pids > 1 and (fork_as_root or not who.is_root)
    late = {name: value for name, value in env.items() if _is_for_the_loader(name)}
    return Start((program, *argv[1:]), cwd, "", limits, access, identity=who, may_fork=may_fork, home=home, late=late)


def environment(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables of a job, without those that would change how the sandbox itself is loaded (`Start.late`)."""
    own = {name: value for name, value in env.items() if not _is_for_the_loader(name)}
    return {"PATH": SEARCHED, "HOME": folder, "LANG": "C.UTF-8", "TMPDIR": folder, **own}


def _find_program(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
    if not argv or not argv[0]:
        raise FileNotFoundError("no program is named")
    name = str(Path(cwd, argv[0])) if "/" in argv[0] and cwd else argv[0]
    found = shutil.which(name, path=env.get("PATH", SEARCHED))
    if found is None:
        if "/" in name and Path(name).is_file():
            raise PermissionError(f"the file is not executable: {argv[0]}")
        raise FileNotFoundError(f"command not found: {argv[0]}")
    return str(Path(found).absolute())


def _is_in(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _is_for_the_loader(name: str) -> bool:
    return name.startswith(("LD_", "MALLOC_", "GCONV_")) or name in ("GLIBC_TUNABLES", "LOCPATH", "NLSPATH")


async def _removed(folder: str) -> None:
    """In a thread: there may be much in it. Whoever is cancelled meanwhile leaves that to the thread."""
    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, remove_folder, folder))


def _check(tier: Tier, outcome: Outcome) -> None:
    """Whether it was the program that ran, and not the sandbox that failed."""
    says = outcome.stderr[:400].decode("utf-8", "replace").strip()
    failed = (outcome.code == 126 and says.startswith(REFUSED)) or (
        tier.has_processes_of_its_own and outcome.code == 1 and says.startswith("bwrap: ")
    )
    if failed and outcome.ended == "exit":
        raise ToolInactive("the sandbox", f"{tier.name} could not be set up: {says}", "Run `mcpbridge doctor`.")


def _as_signal(outcome: Outcome) -> Outcome:
    """Shells and bubblewrap say the signal that ended a program as 128 and its number."""
    if outcome.ended == "exit" and 128 < outcome.code <= 128 + 64:
        return msgspec.structs.replace(outcome, ended="signal", code=outcome.code - 128)
    return outcome


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
