"""The sandbox: who needs one, which of those there are here passes every check, and what is wrong with the others.

Each is tried out anew, with programs that attempt what must not work, but only if something that is configured needs
one: that takes seconds. What this machine offers (Linux) is only looked at: a program that is there may still be
forbidden to do its work.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.config.schema import Settings
from mcpbridge.engine.wiring.sandbox import programs
from mcpbridge.sandbox.isolation.self_test import Readiness, TierReport
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import PROPERTIES
from mcpbridge.upstream.isolation.install import why_not_before
from mcpbridge.upstream.isolation.packages import package_of
from mcpbridge.upstream.isolation.profiles import profile_of
from mcpbridge.upstream.settings import ServerSettings

_PROPERTIES: Mapping[str, str] = {
    "net": "the network",
    "fs": "files outside",
    "env": "the bridge's environment",
    "proc": "other processes",
    "tree": "leaving processes behind",
    "memory": "taking too much memory",
    "pids": "starting too many processes",
}
"""What programs are to be kept from, by property."""

_CALLED = {"builtin": "", "tools": "the tool ", "servers": "the server "}

_MOST_NAMES = 3


async def look_at_sandboxes(settings: Settings) -> Readiness | None:
    """Try out the sandboxes; None where nothing needs one."""
    if settings.sandbox.mode == "off" or not settings.sandbox.enabled or not list(_needed(settings, is_off=False)):
        return None
    return await Isolation(settings.sandbox).readiness(whole=True)


def about_sandboxes(settings: Settings, readiness: Readiness | None, source: Source) -> Iterator[Finding]:
    """What there is to say of it. `readiness`: what `look_at_sandboxes` came to."""
    needed, apart = [list(_needed(settings, is_off=is_off)) for is_off in (False, True)]
    if settings.sandbox.mode == "off":
        needed, apart = [], [*needed, *apart]
    yield from _off(settings, apart, source)
    if not settings.sandbox.enabled and needed:
        where, fix = source.where("sandbox", "enabled"), "Take out `sandbox.enabled = false`."
        what = f"{_enumerated(needed)} cannot run: sandboxes are switched off"
        yield Finding("sandbox-none", "fail", what, "", where, "Nothing is run outside of one unasked.", fix)
    if readiness is None:
        return
    if readiness.chosen:
        what = f"programs run in the sandbox `{readiness.chosen}`, which stopped every attempt to get out"
        yield Finding("sandbox-ready", "ok", what, "", "", f"It is needed by {_enumerated(needed)}.")
    elif (missing := readiness.why_none()) is not None:
        what = f"{_enumerated(needed)} cannot run: no sandbox here passes every check"
        yield Finding("sandbox-none", "fail", what, "", source.where("sandbox"), missing[0], missing[1])
    for report in readiness.tiers:
        yield from _tier(report, readiness)


def about_profiles(servers: Mapping[str, ServerSettings], source: Source) -> Iterator[Finding]:
    """Servers that run outside of a sandbox though it is known what they need in one."""
    known: dict[str, str] = {}
    for name, server in servers.items():
        if server.command is not None and server.sandbox is None and sys.platform.startswith("linux"):
            if profile := profile_of(package_of(server.command, server.args)):
                known[name] = profile
    if known:
        names = _enumerated(f"`{name}`" for name in known)
        what = f"{names} {'runs' if len(known) == 1 else 'run'} without a sandbox, and a profile is known"
        why = f"The profiles: {', '.join(dict.fromkeys(known.values()))}. Outside of one a program has all your rights."
        fix = 'Write `sandbox = "profile"` into the table of the server.'
        where = source.where("servers", next(iter(known)))
        yield Finding("sandbox-profile", "note", what, "", where, why, fix)


def about_installs(servers: Mapping[str, ServerSettings], source: Source) -> Iterator[Finding]:
    """Servers in the sandbox whose runner must download while they start, without the network for it."""
    for name, server in servers.items():
        own = server.sandbox
        if own is None or server.command is None or own.network == "open" or own.install_network == "none":
            continue
        if own.network is None and own.allow_network:
            continue
        package = package_of(server.command, server.args)
        if why := why_not_before(package):
            what = f"the packages of `{package.name}` cannot be installed before it starts: {why}"
            reason = "It downloads them while it starts, with the network that its sandbox has."
            fix = "Start it with `npx` or `uvx`, install it and name its program, or add the registries to its list."
            yield Finding("not-installed-before", "warn", what, name, source.where("servers", name), reason, fix)


def _tier(report: TierReport, readiness: Readiness) -> Iterator[Finding]:
    if readiness.chosen == report.tier and report.note:
        yield Finding("sandbox-note", "note", f"the sandbox `{report.tier}`: {report.note}")
    if report.lacks:
        what = f"the sandbox `{report.tier}` cannot be had here: {report.lacks}"
        yield Finding("sandbox-missing", "note", what, fix=report.fix)
    for name in (one for one in PROPERTIES if one in report.fails):
        is_required = name in readiness.required
        what = f"the sandbox `{report.tier}` does not keep programs from {_PROPERTIES[name]}"
        why = f"This got through: {report.fails[name]}."
        is_grave = report.tier == readiness.chosen or (is_required and not readiness.chosen)
        level = "warn" if is_grave else "note"
        yield Finding(f"sandbox-{name}", level, what, "", "", why, report.fix)


def _off(settings: Settings, apart: list[str], source: Source) -> Iterator[Finding]:
    if apart:
        what = f"{_enumerated(apart)} {'runs' if len(apart) == 1 else 'run'} outside of any sandbox"
        why = "What models make them do has all rights of this user."
        where = source.where("sandbox") if settings.sandbox.mode == "off" else ""
        yield Finding("sandbox-off", "warn", what, "", where, why, 'Take out `"off"` where it is not meant.')


def _needed(settings: Settings, *, is_off: bool) -> Iterator[str]:
    """Who needs a sandbox, or with `is_off` runs outside of it because its own settings say so.

    Neither: tools that judge the arguments of a program by a table, and run it in none (`never`), as they always may.
    """
    for one in programs(settings):
        if one.is_apart == is_off:
            yield f"{_CALLED[one.section]}`{one.name}`"


def _enumerated(names: Iterable[str]) -> str:
    listed = list(names)
    if len(listed) > _MOST_NAMES:
        return f"{', '.join(listed[:_MOST_NAMES])} and {len(listed) - _MOST_NAMES} more"
    return " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))


_LANDLOCK_CREATE_RULESET = 444
"""Number of the system call, on every architecture that Python runs on here."""
_LANDLOCK_VERSION = 1
"""The flag that asks for the version of the interface instead of a set of rules."""


def available() -> Mapping[str, str]:
    """The layers, each with what is there of it; empty: nothing is."""
    if not sys.platform.startswith("linux"):
        return {}
    return {
        "user namespaces": _user_namespaces(),
        "bubblewrap": shutil.which("bwrap") or "",
        "Landlock": _landlock(),
        "seccomp": "filters" if "Seccomp_filters" in _read("/proc/self/status") else "",
    }


def in_use() -> Mapping[str, str]:
    """What runs code that nobody vouches for, and in what; empty: it is not installed, so no such code runs."""
    limits = "a process of its own, empty environment, limits on memory, CPU time, files and processes"
    return {
        "JavaScript over results": f"QuickJS in {limits}" if find_spec("_quickjs") else "",
        "programs that call tools": f"Monty in {limits}" if find_spec("pydantic_monty") else "",
        "servers": "a process of their own with a small environment, and all rights of this user (but for `sandbox`)",
    }


def _user_namespaces() -> str:
    most = _read("/proc/sys/user/max_user_namespaces").strip()
    is_allowed = _read("/proc/sys/kernel/unprivileged_userns_clone").strip() != "0"
    is_hindered = _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1"
    if not most or most == "0" or not is_allowed:
        return ""
    return "for programs that AppArmor allows it" if is_hindered else "yes"


def _landlock() -> str:
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION))
        if version > 0:
            return f"version {version}"
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def runs_as_root() -> bool:
    """Whether this very process may do everything."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
