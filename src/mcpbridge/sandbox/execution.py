"""One job in one sandbox: what it may reach is put together, it is run, and nothing of it is left."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mcpbridge.errors import ToolInactive
from mcpbridge.sandbox.folders import make_folder, remove_folder, temporary_directory
from mcpbridge.sandbox.job import Access, Job, Limits
from mcpbridge.sandbox.launcher import REFUSED
from mcpbridge.sandbox.launching import reads
from mcpbridge.sandbox.left import files_left
from mcpbridge.sandbox.supervision import Descriptors, Outcome, supervise
from mcpbridge.sandbox.tiers import Start, Tier

__all__ = ["SEARCHED", "environment", "execute", "prepared"]

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
) -> Start:
    """All of a start but the folder; `temporary` is where that will be. Raises as `execute`."""
    for path in (*access.read_only, *access.read_write):
        if not Path(path).is_absolute() or not Path(path).exists():
            raise ToolInactive("the sandbox", f"'{path}' of `allow_fs` is not there", "Make it, or take it out.")
    program = _found(argv, env, cwd)
    readable = [*reads(access), *access.read_write]
    added = [path for path in {program, str(Path(program).resolve())} if not _is_in(path, readable)]
    if cwd and tier.name != "off" and not _is_in(cwd, readable):
        fix = "Add it to `allow_fs`."
        raise ToolInactive("the sandbox", f"the working directory {cwd} is not among what may be read", fix)
    access = msgspec.structs.replace(access, read_only=(*access.read_only, *sorted(added)))
    who = tier.who(access, temporary)
    may_fork = limits.pids > 1 and (fork_as_root or not who.is_root)
    late = {name: value for name, value in env.items() if _is_for_the_loader(name)}
    return Start((program, *argv[1:]), cwd, "", limits, access, identity=who, may_fork=may_fork, late=late)


def environment(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables of a job, without those that would change how the sandbox itself is loaded (`Start.late`)."""
    own = {name: value for name, value in env.items() if not _is_for_the_loader(name)}
    return {"PATH": SEARCHED, "HOME": folder, "LANG": "C.UTF-8", "TMPDIR": folder, **own}


def _found(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
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
