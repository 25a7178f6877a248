"""The self-test: whether a sandbox keeps what it promises, and where the result is remembered.

A program (`self_test_main.py`) is run in the sandbox that tries everything, against real bait outside. What the program
says got through counts, and so does what the bait shows: files that changed, a datagram that arrived, a process that
died. A program that gives no full answer proves nothing.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpbridge.base.errors import ToolInactive
from mcpbridge.base.process.orphan_reaper_main import COOKIE_NAME, carriers, kill_carriers
from mcpbridge.base.version import __version__
from mcpbridge.sandbox.isolation import self_test_main as canary
from mcpbridge.sandbox.isolation.readable_files import interpreter
from mcpbridge.sandbox.isolation.supervisor import Outcome
from mcpbridge.sandbox.job import Job, Limits
from mcpbridge.sandbox.settings import PROPERTIES


class TierReport(Struct, frozen=True):
    """One sandbox: what it stops, and what not."""

    tier: str
    holds: tuple[str, ...] = ()
    """Properties of which every attempt was stopped."""
    fails: Mapping[str, str] = {}
    """The others, and what got through, or why that could not be found out."""
    lacks: str = ""
    """Why it could not be tried; empty: it was."""
    fix: str = ""
    note: str = ""
    """What is as promised, but not as one might expect."""

    def meets(self, required: Sequence[str]) -> bool:
        """Whether it may be used."""
        return not self.lacks and all(name in self.holds for name in required)

    def as_json(self) -> dict[str, Any]:
        """For `status` and `doctor`."""
        shown: dict[str, Any] = {"tier": self.tier, "holds": list(self.holds), "fails": dict(self.fails)}
        shown |= {key: value for key in ("lacks", "fix", "note") if (value := getattr(self, key))}
        return shown


class Readiness(Struct, frozen=True):
    """All sandboxes that were asked, the best first, and the one that is used."""

    mode: str
    required: tuple[str, ...]
    chosen: str
    """Its name; `off` where it is switched off, empty where there is none."""
    tiers: tuple[TierReport, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For `status` and `doctor`."""
        tiers = [report.as_json() for report in self.tiers]
        return {"mode": self.mode, "chosen": self.chosen, "required": list(self.required), "tiers": tiers}

    def why_none(self) -> tuple[str, str] | None:
        """What is missing and the fix; None if one is ready or it is switched off."""
        if self.chosen:
            return None
        missing = [_missing(report, self.required) for report in self.tiers]
        fixes = [report.fix for report in self.tiers if report.fix]
        if not fixes:
            fixes = ["Run `mcpbridge doctor` to see what each sandbox lets through."]
        return "no sandbox here passes every check: " + "; ".join(missing), " Or: ".join(fixes)


def fingerprint(parts: Sequence[str]) -> str:
    """Changes whenever the kernel, its rules for name spaces, our rights, our release or `parts` do."""
    kernel = os.uname()
    facts = [__version__, kernel.release, kernel.version, kernel.machine, str(os.geteuid()), *parts]
    rules = (
        "/proc/self/uid_map", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/unprivileged_userns_clone",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "/proc/self/attr/current",
    )  # fmt: skip
    for path in rules:
        with suppress(OSError):
            facts.append(f"{path}={Path(path).read_text('utf-8', 'replace')}")
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        facts += [line for line in lines if line.startswith(("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"))]
    return sha256("\0".join(facts).encode()).hexdigest()[:24]


def recall(directory: Path | None, tier: str, key: str) -> TierReport | None:
    """What was found out before; None: nothing, or about something else."""
    if directory is None:
        return None
    try:
        said = json.loads((directory / f"sandbox-{tier}.json").read_text("utf-8"))
        if said["fingerprint"] != key:
            return None
        return TierReport(tier, tuple(map(str, said["holds"])), dict(said["fails"]), note=str(said["note"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(directory: Path | None, report: TierReport, key: str) -> None:
    """For the next process. Only what holds whatever it takes: a failure is looked at anew, it may have been mended."""
    if directory is None or report.fails or report.lacks:
        return
    said: dict[str, Any] = {"fingerprint": key, "holds": report.holds, "fails": {}, "note": report.note}
    with suppress(OSError):  # then it is asked again
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = directory / f".sandbox-{report.tier}-{os.getpid()}.json"
        fresh.write_text(json.dumps(said), "utf-8")
        fresh.replace(directory / f"sandbox-{report.tier}.json")


def _missing(report: TierReport, required: Sequence[str]) -> str:
    if report.lacks:
        return f"{report.tier}: {report.lacks}"
    return f"{report.tier} lacks " + ", ".join(
        f"{name} ({report.fails.get(name, 'not tried')})" for name in required if name not in report.holds
    )


MEMORY, PIDS = 64 << 20, 32
"""Bytes and processes that the program may have while it tries to get more."""
_WITHIN = 30.0
_TOGETHER_WITHIN = 30.0
"""Seconds for the program; and until the system must have noticed that several processes hold too much."""
_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PWD", "LC_CTYPE", COOKIE_NAME)
_WAITS = (0.1, 0.5, 2.0)
"""Seconds until it is tried once more where the processes of the user, which come and go, left no room."""
_SHARE, _CHILDREN = 0.6, 2
"""Of the memory, and processes beside the first, which together hold 1.8 times what they may."""

Run = Callable[[Job], Awaitable[Outcome]]


async def examined(tier: str, run: Run, *, may_fork: bool) -> TierReport:
    """What this sandbox stops. `run` runs a job in it; `may_fork`: jobs may start processes there at all."""
    bait = _Bait()
    try:
        outcome = await run(_job(bait.world(), Limits(timeout=_WITHIN, memory=MEMORY, pids=PIDS)))
        survivors = carriers({outcome.cookie})
        kill_carriers({outcome.cookie})
        found = _findings(outcome)
        for name, seen in bait.losses().items():
            found[name] = [*found.get(name, ()), *seen]
        found["tree"] = [f"{len(survivors)} processes outlived it"] if survivors else []
        if may_fork and not found.get("memory"):
            found["memory"] = await _together(run)
    except (OSError, ValueError, ToolInactive) as error:
        why = str(error).rpartition("is inactive: ")[2]
        return TierReport(tier, lacks=f"it could not be tried: {why}", fix=_UNTRIED)
    finally:
        bait.clear_away()
    fails = {name: "; ".join(found[name]) for name in PROPERTIES if found[name]}
    note = "" if may_fork else "programs may start no further processes there (threads they may)"
    return TierReport(tier, tuple(name for name in PROPERTIES if name not in fails), fails, note=note, fix=_fix(fails))


_UNTRIED = (
    "Allow user name spaces for it (containers and some distributions forbid them: see `docs/explanation/sandbox.md`), "
    "or use a kernel with Landlock, for which no right is needed."
)


def _fix(fails: Mapping[str, str]) -> str:
    if not fails:
        return ""
    if set(fails) == {"pids"}:
        return "Set `pids = 1` for the tool, run the bridge as a user other than root, or install bubblewrap."
    return "Use a kernel with Landlock and seccomp, or install bubblewrap where user name spaces are allowed."


async def _together(run: Run) -> list[str]:
    """More memory than is allowed in several processes, each of which has less."""
    world = {"together": int(MEMORY * _SHARE), "children": _CHILDREN}
    for wait in _WAITS:
        outcome = await run(_job(world, Limits(timeout=_TOGETHER_WITHIN, memory=MEMORY, pids=PIDS)))
        kill_carriers({outcome.cookie})
        if outcome.code != canary.NONE_LEFT:
            break
        await asyncio.sleep(wait)
    else:
        raise ValueError("other processes of the user leave no room for any")
    return [] if outcome.ended == "memory" else ["more memory in several processes"]


def _job(world: Mapping[str, Any], limits: Limits) -> Job:
    source = Path(canary.__file__).read_bytes()
    argv = (interpreter(), "-I", "-S", "canary.py")
    return Job(argv, stdin=json.dumps(world).encode(), files={"canary.py": source}, limits=limits)


def _findings(outcome: Outcome) -> dict[str, list[str]]:
    """What the program found.

    Raises:
        ValueError: it could not be heard out.
    """
    try:
        said: dict[str, list[str]] = json.loads(outcome.stdout)
        return {name: [str(what) for what in said[name]] for name in PROPERTIES if name != "tree"}
    except (ValueError, KeyError, TypeError):
        last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ValueError(f"{outcome.ended} {outcome.code}: {last[:300] or 'it said nothing'}") from None


class _Bait:
    """What lies outside: files that anybody may read and write, listening sockets, and another process."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)
        self._place = Path(tempfile.mkdtemp(prefix="mcpbridge-canary-"))
        self._place.chmod(0o777)
        self._file = self._place / "file"
        self._file.write_text(self._secret)
        self._file.chmod(0o666)
        self._streams = socket.create_server(("127.0.0.1", 0))
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind(("127.0.0.1", 0))
        self._sockets = [self._streams, self._datagrams]
        self._abstract = f"mcpbridge-canary-{self._secret}"
        for address in (str(self._place / "socket"), f"\0{self._abstract}"):
            self._listen(address)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", self._secret],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"CANARY": self._secret},
        )

    def world(self) -> dict[str, Any]:
        """What the program is told of it."""
        return {
            "port": self._streams.getsockname()[1],
            "datagrams": self._datagrams.getsockname()[1],
            "socket": str(self._place / "socket"),
            "abstract": self._abstract,
            "outside": str(self._place),
            "file": str(self._file),
            "secret": self._secret,
            "process": self._process.pid,
            "variables": _VARIABLES,
            "memory": MEMORY,
            "pids": PIDS,
        }

    def losses(self) -> dict[str, list[str]]:
        """What shows that something got through."""
        seen: dict[str, list[str]] = {"net": [], "fs": [], "proc": []}
        self._datagrams.settimeout(0)
        with suppress(OSError):
            self._datagrams.recv(1)
            seen["net"].append("UDP")
        if {entry.name for entry in self._place.iterdir()} != {"file", "socket"}:
            seen["fs"].append("making files outside")
        if not self._file.is_file() or self._file.read_text("utf-8", "replace") != self._secret:
            seen["fs"].append("changing files outside")
        elif self._file.stat().st_mode & 0o777 != 0o666:
            seen["fs"].append("changing modes outside")
        if self._process.poll() is not None:
            seen["proc"].append("killing another process")
        return seen

    def clear_away(self) -> None:
        """End and remove all of it."""
        for opened in self._sockets:
            opened.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._place, ignore_errors=True)

    def _listen(self, address: str) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(listening)
        listening.bind(address)
        if address[0] != "\0":
            os.chmod(address, 0o777)  # noqa: PTH101, S103 - not this is what is to stop it
        listening.listen(4)
