"""When two descriptions mean one server, and when one means the bridge itself. Pure.

What is compared is what would be started or reached: program, arguments, variables, directory; address and headers.
How long to wait for it, what of it to offer and whether it is switched off say nothing about which server it is.
"""

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import cast

from mcpbridge.client_files.entries import runs_bridge
from mcpbridge.model import BRIDGE

__all__ = ["is_bridge", "program_of", "start_of"]

_LAUNCHERS = {"npx", "npm", "pnpm", "bunx", "bun", "deno", "node", "uvx", "uv", "pipx", "python", "docker", "podman"}
"""Programs that are the same wherever they are installed."""
_YES = {"npx": ("-y", "--yes"), "npm": ("-y", "--yes")}
"""Arguments that only keep a launcher from asking."""
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def program_of(server: Mapping[str, object]) -> tuple[str, list[str]]:
    """Program and arguments of a `command`, the program by its name alone if that tells it; else empty ones."""
    command = server.get("command")
    given = server.get("args")
    args = [str(one) for one in cast("list[object]", given)] if isinstance(given, list) else []
    if not isinstance(command, str) or not command:
        return "", args
    if _name(command) == "cmd" and len(args) > 1 and args[0].lower() == "/c":  # how Windows starts a script
        command, *args = args[1:]
    name = re.sub(r"(?<=^python)[0-9.]+$", "", _name(command))
    if name in _LAUNCHERS:
        return name, args
    return command, args


def start_of(server: Mapping[str, object], *, blind: bool = False) -> str:
    """What two descriptions of one server have in common, as a text to compare.

    `blind`: whatever variables bring in counts as equal, since a value may have been moved into one.
    """
    program, args = program_of(server)
    args = [one for one in args if one not in _YES.get(program, ())]
    url = str(server.get("url") or "").rstrip("/")
    headers = server.get("headers")
    named = cast("dict[str, object]", headers) if isinstance(headers, dict) else {}
    by_header = {name.lower(): value for name, value in named.items()}
    what = [program, args, server.get("env") or {}, server.get("cwd") or "", url, by_header, server.get("auth") or {}]
    text = json.dumps(what, sort_keys=True, default=str)
    return _REFERENCE.sub("${}", text) if blind else text


def is_bridge(name: str, server: Mapping[str, object]) -> bool:
    """Whether this is the bridge, as a client has it in its file."""
    url = str(server.get("url") or "")
    is_here = bool(re.match(r"[a-z]+://(localhost|127\.0\.0\.1|\[::1\])[:/]", url))
    return runs_bridge(server) or (name == BRIDGE and is_here)


def _name(program: str) -> str:
    """The name of a program without folders and the endings of Windows."""
    name = PureWindowsPath(PurePosixPath(program).name).name.lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)
