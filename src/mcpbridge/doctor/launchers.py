"""How servers are started: which launcher a command is, and where in its command line an argument belongs. Pure."""

import re
from pathlib import PurePath
from typing import Literal

from mcpbridge.doctor.finding import Edit
from mcpbridge.upstream.settings import ServerSettings

__all__ = [
    "Launcher",
    "fetches",
    "launcher_of",
    "package_of",
    "with_input",
    "with_older_sdk",
    "with_program",
    "with_python",
    "with_yes",
    "without_terminal",
]

Launcher = Literal["npx", "uvx", "uv run", "pipx", "docker", "python", "node", "other"]

_NPX = {"npx", "bunx", "pnpx"}
_DOCKER = {"docker", "podman", "nerdctl"}
_TAKES_VALUE = {
    "uvx": {"--from", "--with", "--with-editable", "--python", "-p", "--index", "--index-url", "--extra-index-url"},
    "npx": {"-p", "--package", "--registry", "--cache", "-w", "--workspace"},
    "pipx": {"--spec", "--python", "--pip-args", "--index-url"},
}
"""Options of launchers whose value is the next word."""
_TERMINAL = re.compile(r"-(?=[a-z]*t)[itd]+|--tty(=true)?")


def launcher_of(settings: ServerSettings) -> Launcher:
    """What starts the server; `other` is a program of its own, or nothing at all."""
    program = re.sub(r"\.(exe|cmd|bat)$", "", PurePath(settings.command or "").name.lower())
    if program in _NPX or (program in ("npm", "pnpm") and settings.args[:1] in (["exec"], ["x"], ["dlx"])):
        return "npx"
    if program == "uvx" or (program == "uv" and settings.args[:2] == ["tool", "run"]):
        return "uvx"
    if program == "uv" and settings.args[:1] == ["run"]:
        return "uv run"
    if program == "pipx" and settings.args[:1] == ["run"]:
        return "pipx"
    if program in _DOCKER:
        return "docker"
    if program == "node":
        return "node"
    return "python" if re.fullmatch(r"python[0-9.]*|py", program) else "other"


def fetches(settings: ServerSettings) -> bool:
    """Its first start may load it from somewhere, which takes time."""
    return launcher_of(settings) in ("npx", "uvx", "uv run", "pipx", "docker")


def package_of(settings: ServerSettings) -> str:
    """The package that a launcher runs, without its version; empty where it cannot be told."""
    launcher = launcher_of(settings)
    if launcher not in ("npx", "uvx", "pipx"):
        return ""
    words = iter(settings.args[_own_words(settings) :])
    for word in words:
        if word in _TAKES_VALUE[launcher]:
            value = next(words, "")
            if word in ("--from", "--spec", "-p", "--package") and word != _other_meaning(launcher):
                return _without_version(value)
        elif not word.startswith("-"):
            return _without_version(word)
    return ""


def with_older_sdk(server: str, settings: ServerSettings) -> Edit | None:
    """Run it with `mcp` 1.x. None where that takes more than another argument, or has been done."""
    at = _own_words(settings)
    if launcher_of(settings) not in ("uvx", "uv run") or any(word.startswith("mcp<") for word in settings.args):
        return None
    return Edit(server, args=("--with", "mcp<2"), at=at)


def with_python(server: str, settings: ServerSettings, version: str) -> Edit | None:
    """Run it with a newer Python; None where that takes more, or a version has been asked for."""
    if launcher_of(settings) not in ("uvx", "uv run") or not version or {"--python", "-p"} & set(settings.args):
        return None
    return Edit(server, args=("--python", version), at=_own_words(settings))


def with_yes(server: str, settings: ServerSettings) -> Edit | None:
    """Let npx install what it runs without asking; None where it does."""
    if launcher_of(settings) != "npx" or PurePath(settings.command or "").name not in ("npx", "npm"):
        return None
    if {"-y", "--yes"} & set(settings.args):
        return None
    return Edit(server, args=("-y",), at=_own_words(settings))


def with_program(server: str, settings: ServerSettings, names: str) -> Edit | None:
    """Name the program of a package where it is called otherwise. `names`: both, with a blank between."""
    package, _, program = names.partition(" ")
    if launcher_of(settings) != "uvx" or not program or package not in settings.args or "--from" in settings.args:
        return None
    return Edit(server, args=("--from", package, program), at=settings.args.index(package), instead=package)


def with_input(server: str, settings: ServerSettings) -> Edit | None:
    """Give a container its standard input, without which no server hears anything; None where it has it."""
    if launcher_of(settings) != "docker" or "run" not in settings.args:
        return None
    own = _options_of_run(settings.args)
    if any(re.fullmatch(r"-[a-z]*i[a-z]*|--interactive(=true)?", word) for word in own):
        return None
    return Edit(server, args=("-i",), at=settings.args.index("run") + 1)


def without_terminal(server: str, settings: ServerSettings) -> Edit | None:
    """Take a container's terminal away, which changes line ends and cannot be had under a client; None: it has none."""
    if launcher_of(settings) != "docker" or "run" not in settings.args:
        return None
    start = settings.args.index("run") + 1
    for at, word in enumerate(_options_of_run(settings.args), start):
        if _TERMINAL.fullmatch(word):
            rest = "" if word.startswith("--") else word.replace("t", "")
            return Edit(server, args=(rest,) if len(rest) > 1 else (), at=at, instead=word)
    return None


def _options_of_run(args: list[str]) -> list[str]:
    """The words of `docker run` up to the first that may be the image: one after an option may be its value."""
    words: list[str] = []
    was_option = False
    for word in args[args.index("run") + 1 :]:
        if not word.startswith("-") and not was_option:
            break
        was_option = (
            word.startswith("-") and "=" not in word and word not in ("--rm", "-i", "-t", "-it", "-ti", "--init")
        )
        words.append(word)
    return words


def _own_words(settings: ServerSettings) -> int:
    """How many arguments say only what launcher it is: `tool run` of uv, `run` of pipx, `exec` of npm."""
    launcher = launcher_of(settings)
    if launcher == "uvx":
        return 2 if settings.args[:2] == ["tool", "run"] else 0
    if launcher in ("uv run", "pipx"):
        return 1
    return 1 if launcher == "npx" and settings.args[:1] in (["exec"], ["x"], ["dlx"]) else 0


def _other_meaning(launcher: Launcher) -> str:
    return "-p" if launcher == "uvx" else ""  # there it is the Python


def _without_version(package: str) -> str:
    found = re.match(r"(@[^/@\s]+/)?[A-Za-z0-9._~-]+", package)
    return found[0] if found else ""
