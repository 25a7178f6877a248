"""Which package a server's command runs: `npx`, `uvx`, `pipx run` and the like, or an installed program. Pure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct

Runner = Literal["npx", "bunx", "uvx", "uv run", "pipx", ""]
"""A program that downloads packages and runs them; empty: none."""

_OF_UV = frozenset(
    {"--from", "--with", "-w", "--with-editable", "--with-requirements", "--python", "-p", "--index", "--index-url"}
    | {"-i", "--extra-index-url", "--default-index", "--constraints", "-c", "--overrides", "--cache-dir", "-f"}
    | {"--find-links", "--directory", "--project", "--config-file", "--prerelease", "--resolution"}
)
_WITH_VALUE: Mapping[str, frozenset[str]] = {
    "npx": frozenset({"-p", "--package", "-c", "--call", "--registry", "--cache", "-w", "--workspace", "--prefix"}),
    "bunx": frozenset({"-p", "--package"}),
    "uvx": _OF_UV,
    "uv run": _OF_UV | {"--extra", "--group", "--env-file", "-m", "--module"},
    "pipx": frozenset({"--spec", "--python", "--pip-args", "--index-url", "-i", "--with"}),
}
"""Options that are followed by a value, which is no package."""
_NAMES_IT: Mapping[str, frozenset[str]] = {
    "npx": frozenset({"-p", "--package"}),
    "bunx": frozenset({"-p", "--package"}),
    "uvx": frozenset({"--from"}),
    "pipx": frozenset({"--spec"}),
    "uv run": frozenset({"--with", "-m", "--module"}),
}
"""Options whose value is the package."""
_ENDINGS = re.compile(r"\.(?:exe|cmd|bat|ps1)$", re.IGNORECASE)
_VERSION = re.compile(r"(?<=.)[@=<>!~\[; ].*$", re.DOTALL)
_MODULE = re.compile(r"python[0-9.]*|py")


class Package(Struct, frozen=True):
    """What a command line runs."""

    runner: Runner
    name: str
    """The package without its version, or the name of the program."""
    spec: str = ""
    """The package as it is written, with its version; empty: there is no runner."""
    before: tuple[str, ...] = ()
    """Arguments of the runner: all up to the program that it runs, which is the last of them."""
    arguments: tuple[str, ...] = ()
    """Arguments of the server itself."""


def package_of(command: str, args: Sequence[str]) -> Package:
    """What `command` with these arguments runs."""
    program = _ENDINGS.sub("", PurePath(command.replace("\\", "/")).name)
    runner, skipped = _runner_of(program, args)
    if not runner:
        return _installed(program, command, args)
    place, named = skipped, ""
    while place < len(args) and args[place].startswith("-") and args[place] != "--":
        option, equals, value = args[place].partition("=")
        if not equals and option in _WITH_VALUE[runner]:
            value = args[place + 1] if place + 1 < len(args) else ""
            place += 1
        if option in _NAMES_IT[runner] and not named:
            named = value
        place += 1
    if place < len(args) and args[place] == "--":
        place += 1
    spec = named or (args[place] if place < len(args) else "")
    return Package(runner, _without_version(spec), spec, tuple(args[: place + 1]), tuple(args[place + 1 :]))


def _runner_of(program: str, args: Sequence[str]) -> tuple[Runner, int]:
    """Which one, and how many arguments only say that."""
    first, second = ([*args, "", ""])[:2]
    if program in ("npx", "bunx", "uvx"):
        return program, 0
    if program == "npm" and first in ("exec", "x"):
        return "npx", 1
    if program == "bun" and first == "x":
        return "bunx", 1
    if program == "uv" and first == "tool" and second == "run":
        return "uvx", 2
    if program == "uv" and first == "run":
        return "uv run", 1
    if program == "pipx" and first == "run":
        return "pipx", 1
    return "", 0


def _installed(program: str, command: str, args: Sequence[str]) -> Package:
    """A program that is there: a module of Python, a script in `node_modules`, or a program of a name of its own."""
    if _MODULE.fullmatch(program) and "-m" in args[:-1]:
        place = args.index("-m") + 1
        name = args[place].partition(".")[0].replace("_", "-")
        return Package("", name, "", tuple(args[: place + 1]), tuple(args[place + 1 :]))
    for place, text in enumerate((command, *args)):
        parts = PurePath(text.replace("\\", "/")).parts
        if "node_modules" in parts and program in ("node", "bun", "deno", PurePath(text).stem):
            rest = parts[len(parts) - parts[::-1].index("node_modules") :]
            scoped = 2 if rest and rest[0].startswith("@") else 1
            if rest and rest[0] != ".bin":
                return Package("", "/".join(rest[:scoped]), "", tuple(args[:place]), tuple(args[place:]))
    return Package("", program, "", (), tuple(args))


def _without_version(spec: str) -> str:
    return _VERSION.sub("", spec).strip()
