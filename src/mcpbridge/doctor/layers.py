"""What this machine offers to confine programs with, and what the bridge confines with today (Linux).

Only looked at, nothing is tried out: a program that is there may still be forbidden to do its work.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

__all__ = ["available", "in_use", "runs_as_root"]

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
