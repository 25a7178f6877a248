"""What the canaries found, and where that is remembered."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpbridge._version import __version__

__all__ = ["Readiness", "TierReport", "fingerprint", "recall", "remember"]


class TierReport(Struct, frozen=True):
    """One sandbox: what it stops, and what not."""

    tier: str
    holds: tuple[str, ...] = ()
    """Properties of which every canary was stopped."""
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
        return "no sandbox here keeps every promise: " + "; ".join(missing), " Or: ".join(fixes)


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
