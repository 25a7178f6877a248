"""How servers are started: which launcher a command is, how it can be mended, and what could be better about it. Pure.

Findings: fronts for URLs, packages that nobody maintains, relative paths that mean two things, secrets within reach,
servers that are listed twice.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Literal

from mcpbridge.app.client_config.importing.merge import start_of
from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.finding import Edit, Finding
from mcpbridge.upstream.settings import ServerSettings

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
    """The package that a launcher runs, without its version; empty if it is not known."""
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


_FRONTS = {"mcp-remote", "mcp-proxy", "supergateway", "@pyroprompts/mcp-stdio-to-streamable-http-adapter"}
"""Programs that speak stdio on this side and HTTP on the other."""
_URL = re.compile(r"https?://[^\s\"']+")
_ARCHIVED: Mapping[str, str] = {
    "@modelcontextprotocol/server-github": "GitHub's own: github/github-mcp-server (a container image)",
    "@modelcontextprotocol/server-brave-search": "Brave's own: @brave/brave-search-mcp-server",
    "@modelcontextprotocol/server-puppeteer": "@playwright/mcp",
    "@modelcontextprotocol/server-sentry": "Sentry's own: @sentry/mcp-server",
    **dict.fromkeys(
        (f"@modelcontextprotocol/server-{name}"
         for name in ("aws-kb-retrieval", "everart", "gdrive", "gitlab", "google-maps", "postgres", "redis", "slack")),
        "",
    ),
    "mcp-server-sqlite": "",
    "mcp-server-sentry": "Sentry's own: @sentry/mcp-server",
}  # fmt: skip
"""Reference servers that were archived in May 2025, and who continued them."""


def about_way(name: str, settings: ServerSettings, source: Source) -> Iterator[Finding]:
    """What there is to say of how a server is reached."""
    where, package = source.where("servers", name), package_of(settings)
    if package in _FRONTS or (launcher_of(settings) == "other" and settings.command in _FRONTS):
        url = next((found[0] for word in settings.args if (found := _URL.match(word))), "")
        if url:
            shown = url.partition("?")[0]  # what follows may hold a secret
            what = f"{package or settings.command} is an unnecessary step between the bridge and {shown}"
            fix = f'Write url = "{shown}" instead of command and args; to sign in: `mcpbridge login {name}`.'
            why = "The bridge speaks to URLs itself: one process less, and nothing is lost on the way."
            yield Finding("front-not-needed", "note", what, name, where, why, fix)
    if package in _ARCHIVED:
        successor = _ARCHIVED[package]
        fix = f"Use {successor}." if successor else "Look for one that is maintained."
        why = "It was archived in May 2025, and gets no security updates."
        yield Finding("archived", "note", f"{package} is not maintained any more", name, where, why, fix)


_SUFFIX = re.compile(r"[\w.-]+\.[A-Za-z]\w{0,9}")
"""What may be a file without a folder before it: `server.py`."""


def about_relative_paths(servers: Mapping[str, ServerSettings], source: Source, here: Path) -> Iterator[Finding]:
    """The daemon starts programs in the configuration's directory, `call` and `check` in that of the terminal, `here`.

    Of a server without `cwd`, a path that is there in one of the two only is reported.
    """
    daemons = source.path.absolute().parent
    for name, server in servers.items():
        if here == daemons or server.command is None or server.cwd is not None or server.share == "project":
            continue
        for path in filter(None, map(_relative, server.args)):
            in_daemon, in_terminal = (daemons / path).exists(), (here / path).exists()
            if in_daemon == in_terminal and path not in (".", ".."):
                continue
            where = source.where("servers", name, "args")
            place = "." if in_daemon else str(here)
            what = f"{path!r} among its arguments depends on where it is started"
            why = f"The daemon starts it in {daemons}, `mcpbridge call` and `check` in the directory you are in."
            yield Finding("relative-path", "note", what, name, where, why, _fix(path, place))
            break


def about_reach(servers: Mapping[str, ServerSettings], source: Source) -> Iterator[Finding]:
    """Servers that are given a directory which holds the private files beside the configuration."""
    secrets = source.path.absolute().parent / "secrets"
    if not secrets.is_dir():
        return
    for name, server in servers.items():
        given = [Path(word).expanduser() for word in server.args if word.startswith(("/", "~"))]
        wide = next((path for path in given if secrets.is_relative_to(path)), None)
        if wide is not None:
            what, where = f"{wide}, which it is given, holds {secrets}", source.where("servers", name, "args")
            why = "If it reads files there for a model, it reads the secrets of all servers."
            yield Finding("secrets-in-reach", "note", what, name, where, why, "Give it the directories that it needs.")


def about_copies(servers: Mapping[str, ServerSettings], source: Source) -> Iterator[Finding]:
    """Servers of one configuration that start the same."""
    written, first = source.servers(), dict[str, str]()
    for name in servers:
        if name not in written or servers[name].disabled:
            continue
        start = start_of(written[name])
        if (other := first.setdefault(start, name)) != name:
            what, where = f"it is the same server as {other!r}", source.where("servers", name)
            why = "Each has a process of its own, and models see every tool twice."
            yield Finding("same-server", "note", what, name, where, why, "Take one of them out, or disable it.")


def _relative(argument: str) -> str:
    """A relative path in an argument, after an option's `=` too; empty if it holds none."""
    word = argument.rpartition("=")[2] if argument.startswith("-") else argument
    if re.match(r"[-/~$@\\]|[A-Za-z]:", word) or "://" in word or re.search(r"[\0\s]", word) or len(word) > 1000:
        return ""
    return word if "/" in word or word in (".", "..") or _SUFFIX.fullmatch(word) else ""


def _fix(path: str, place: str) -> str:
    if path in (".", ".."):
        return 'Write the directory out, or cwd = "${PROJECT_ROOT}" for that of the client\'s project.'
    return f'Write cwd = "{place}" into its table.'
