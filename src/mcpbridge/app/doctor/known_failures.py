"""Breakages that many people meet, by what the server says before it dies; and what to do about each. Pure.

The table grows with each one that somebody has met; the first row that fits counts, so the more special come first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcpbridge.app.doctor.finding import Edit
from mcpbridge.app.doctor.launchers import (
    Launcher,
    launcher_of,
    with_older_sdk,
    with_program,
    with_python,
    with_yes,
    without_terminal,
)
from mcpbridge.upstream.settings import ServerSettings

MakeEdit = Callable[[str, ServerSettings, str], Edit | None]
"""What `--fix` may do, from the server and what the pattern found."""


@dataclass(frozen=True, slots=True)
class Known:
    """One breakage. In its texts `{it}` is what the first group of the pattern that took part has found."""

    code: str
    pattern: re.Pattern[str]
    """Searched in what the server said, line ends included."""
    what: str
    why: str
    fix: str
    by: frozenset[Launcher] = frozenset()
    """The launchers that it happens with; empty: any."""
    edit: MakeEdit | None = None


def _pattern(*alternatives: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.MULTILINE | flags)


_ANY_CASE = re.IGNORECASE
_NAME = r"(?!ERR_|UNABLE_|CERTIFICATE_)([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"
"""A name of an environment variable, of two words at least; codes of errors look alike."""

_PROXY_ADVICE = (
    "Check the connection. Behind a proxy set HTTPS_PROXY and NO_PROXY where the bridge starts: servers get them too. "
    'An address with a password in it they get only by name: inherit_env = ["HTTPS_PROXY"].'
)

KNOWN: tuple[Known, ...] = (
    Known(
        "pypi-mcp-2",
        _pattern(
            r"AttributeError: '(?:\w+\.)?(?:Server|FastMCP)' object has no attribute '(?:list|call|get|read|set|sub"
            r"|unsub|progress|complet|request)\w*'",
            r"No module named 'mcp\.server\.fastmcp'",
            r"(?:ImportError|ModuleNotFoundError): .*'mcp\.(?:server|shared|types|client)\b[^']*'",
            r"ImportError: cannot import name '(?:FastMCP|McpError|ServerSession|RequestContext)'",
        ),
        "it is written for version 1 of the package `mcp`, and was installed with version 2",
        "The package does not say which versions of `mcp` it works with, so the newest one was taken.",
        "Pin it: `uvx --with 'mcp<2' …` (with pipx or pip: install 'mcp<2' beside it).",
        frozenset({"uvx", "uv run", "pipx", "python", "other"}),
        lambda server, settings, it: with_older_sdk(server, settings),
    ),
    Known(
        "npx-asks",
        _pattern(r"npx canceled due to missing packages", r"Need to install the following packages"),
        "npx wants to ask whether it may install the package, and nobody can answer",
        "Without `-y` it asks before it installs something for the first time.",
        "Put `-y` before the package in args.",
        frozenset({"npx"}),
        lambda server, settings, it: with_yes(server, settings),
    ),
    Known(
        "npm-no-package",
        _pattern(r"npm (?:error|ERR!) code E404", r"npm (?:error|ERR!) 404 .*'([^'@]+(?:@[^'@]+)?)'"),
        "npm knows no such package",
        "The name is wrong, the package was taken back, or it is in a registry that needs a sign-in.",
        "Look at the name in args.",
        frozenset({"npx"}),
    ),
    Known(
        "npm-no-program",
        _pattern(r"could not determine executable to run"),
        "the package has no program, or several",
        "npx does not know which one to start.",
        'Name it: args = ["-y", "-p", "PACKAGE", "PROGRAM"].',
        frozenset({"npx"}),
    ),
    Known(
        "npm-permission",
        _pattern(r"npm (?:error|ERR!) code E(?:ACCES|PERM)\b", r"cache folder contains root-owned files"),
        "npm may not write into its own directories",
        "Some files there belong to another user, mostly because npm once ran as root.",
        "Run `sudo chown -R $(id -u):$(id -g) ~/.npm`, then try again.",
        frozenset({"npx"}),
    ),
    Known(
        "npm-cache",
        _pattern(
            r"npm (?:error|ERR!) code (?:ENOTEMPTY|EEXIST|EINTEGRITY|ECOMPROMISED)\b",
            r"(?:ERR_MODULE_NOT_FOUND|Cannot find (?:module|package))[^\n]*_npx",
        ),
        "what npx has installed earlier is broken",
        "An installation was interrupted, or two ran at the same time.",
        "Remove it; it is created again: `rm -rf ~/.npm/_npx`.",
        frozenset({"npx"}),
    ),
    Known(
        "tls-not-trusted",
        _pattern(
            r"self[- ]signed certificate",
            r"unable to (?:get local issuer|verify the first) certificate",
            r"UNABLE_TO_(?:GET_ISSUER_CERT_LOCALLY|VERIFY_LEAF_SIGNATURE)",
            r"CERTIFICATE_VERIFY_FAILED",
            r"invalid peer certificate",
            flags=_ANY_CASE,
        ),
        "it does not trust the certificate of an address that it calls",
        "A proxy that looks into TLS, or a certificate of your own, is unknown to it.",
        "Name the certificates in its `env`: NODE_EXTRA_CA_CERTS for Node, SSL_CERT_FILE for Python and uv.",
    ),
    Known(
        "npm-network",
        _pattern(r"npm (?:error|ERR!) (?:code (?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET)|network)\b"),
        "npm cannot reach its registry",
        "There is no connection, or a proxy is in between.",
        _PROXY_ADVICE,
        frozenset({"npx"}),
    ),
    Known(
        "node-too-old",
        _pattern(
            r"npm (?:error|ERR!) code EBADENGINE",
            r"Unsupported engine",
            r"(?:requires|needs|Please (?:use|upgrade to)) Node(?:\.js)?(?: version)? ?(?:>=? ?)?v?(\d+)",
            r"ReferenceError: (?:File|fetch|WebSocket|CustomEvent|ReadableStream|Headers) is not defined",
            r"No such built-in module: node:",
            r"ERR_REQUIRE_ESM|ERR_UNKNOWN_BUILTIN_MODULE",
            r"The requested module 'node:[^']*' does not provide an export",
            r"SyntaxError: (?:Unexpected (?:token|identifier)|Invalid regular expression flags|Cannot use import)",
            r"TypeError: (?:Object\.groupBy|Promise\.withResolvers|Array\.fromAsync|\S+\.(?:toSorted|findLast"
            r"|difference|union)) is not a function",
        ),
        "its program needs a newer Node.js than the one that runs it",
        "It uses what this version of Node does not have.",
        "Install a newer Node.js (22 or later), and see that it comes first on the PATH that the bridge has.",
        frozenset({"npx", "node", "other"}),
    ),
    Known(
        "docker-permission",
        _pattern(r"permission denied while trying to connect to the [Dd]ocker"),
        "this user may not use Docker",
        "Its socket belongs to the group `docker`.",
        "Add yourself to it (`sudo usermod -aG docker $USER`, then sign in again), or use a rootless Docker.",
        frozenset({"docker"}),
    ),
    Known(
        "docker-not-running",
        _pattern(
            r"Cannot connect to the Docker daemon",
            r"failed to connect to the docker API",
            r"error during connect:",
            r"[Cc]annot connect to Podman",
        ),
        "Docker is installed, but its daemon is not running",
        "The server would run in a container.",
        "Start it: Docker Desktop, or `sudo systemctl start docker`.",
        frozenset({"docker"}),
    ),
    Known(
        "docker-terminal",
        _pattern(r"the input device is not a TTY", r"cannot attach stdin to a TTY-enabled container"),
        "`docker run` is asked for a terminal, and there is none",
        "A server talks over pipes.",
        "Write `-i` instead of `-it`.",
        frozenset({"docker"}),
        lambda server, settings, it: without_terminal(server, settings),
    ),
    Known(
        "docker-no-image",
        _pattern(r"pull access denied", r"manifest (?:for \S+ not found|unknown)", r"repository does not exist"),
        "there is no such image, or it requires a sign-in",
        "",
        "Look at its name in args; for a private one run `docker login`.",
        frozenset({"docker"}),
    ),
    Known(
        "python-too-old",
        _pattern(
            r"requested Python version[^\n]*does not satisfy Python ?>=? ?(3\.\d+)",
            r"[Rr]equires(?:-[Pp]ython:?| Python| a different Python)[^\n]*?>=? ?'?(3\.\d+)",
        ),
        "the package needs a newer Python",
        "It was started with the one that was found first.",
        "Name one: `uvx --python 3.13 …` loads it if need be.",
        frozenset({"uvx", "uv run", "pipx", "python"}),
        with_python,
    ),
    Known(
        "pypi-other-program",
        _pattern(r"Use `uvx --from (\S+ [^\s`]+)` instead"),
        "its program is called otherwise than the package: {it}",
        "uvx takes the package's name for the program's.",
        'Name both: args = ["--from", "PACKAGE", "PROGRAM"].',
        frozenset({"uvx"}),
        with_program,
    ),
    Known(
        "pypi-no-program",
        _pattern(r"executable named `([^`]+)` is not provided by package"),
        "the package has no program called {it}",
        "uvx takes the package's name for the program's.",
        'Name both: args = ["--from", "PACKAGE", "PROGRAM"]; its message on standard error lists the programs.',
        frozenset({"uvx"}),
    ),
    Known(
        "pypi-no-package",
        _pattern(r"Because (\S+) was not found in the package registry"),
        "there is no package {it}",
        "The name is wrong, or it is no Python package.",
        "Look at the name in args.",
        frozenset({"uvx", "uv run"}),
    ),
    Known(
        "pypi-network",
        _pattern(r"error sending request for url", r"Failed to fetch: ", r"Failed to download "),
        "uv cannot load what it needs",
        "There is no connection, or a proxy is in between.",
        _PROXY_ADVICE,
        frozenset({"uvx", "uv run"}),
    ),
    Known(
        "pypi-unsolvable",
        _pattern(r"No solution found when resolving"),
        "uv finds no versions of the packages that fit together",
        "",
        "Its message on standard error names the conflicting packages; choose versions with `--with` and `--python`.",
        frozenset({"uvx", "uv run"}),
    ),
    Known(
        "browser-missing",
        _pattern(
            r"playwright install",
            r"distribution '[^']*' is not found at",
            r"Executable doesn't exist at",
            r"(?:Could not find (?:Chrome|Chromium|browser)|Failed to launch the browser process)",
            flags=_ANY_CASE,
        ),
        "the browser that it drives is not installed",
        "The package brings no browser.",
        "Run `npx playwright install chromium`, or name the one you have (for @playwright/mcp: `--executable-path`).",
    ),
    Known(
        "directory-missing",
        _pattern(
            r"ENOENT: no such file or directory, (?:stat|lstat|scandir|access|realpath|open) '([^'\n]+)'",
            r"(?:Error accessing|[Cc]annot access) directory ([^\n:,]+)",
            r"(?:None of the specified|No valid root|No accessible) directories",
            r"(?:FileNotFoundError|NotADirectoryError): \[Errno \d+\] [^\n:]*: '([^'\n]+)'",
            r"ENOTDIR: not a directory",
        ),
        "a file or directory that it was given does not exist: {it}",
        "Paths in args are not expanded by a shell, and relative ones start in `cwd`.",
        "Correct the path in args; `~` and `$HOME` are written `${HOME}` there.",
    ),
    Known(
        "port-in-use",
        _pattern(
            r"EADDRINUSE[^\n]*?:(\d+)?$", r"Address already in use", r"\[Errno (?:98|48|10048)\]", flags=_ANY_CASE
        ),
        "the port that it listens on is already in use",
        "Another copy of it may be running, started by a client.",
        "End the other one, or give this one another port.",
    ),
    Known(
        "program-missing",
        _pattern(
            r"spawn (\S+) ENOENT",
            r"(?:sh|bash|env): (?:\d+: |line \d+: )?([^:\s]+): (?:command )?not found",
        ),
        "it starts a program that is not installed, or not on its PATH: {it}",
        "",
        'Install it, or give the server a PATH that has it: env = { PATH = "…" }.',
    ),
    Known(
        "variable-missing",
        _pattern(
            rf"\b{_NAME}`?'?\"? (?:environment variables? |env vars? )?(?:is|are|must be|needs to be|has to be|was|not)"
            r" (?:required|set|not|missing|undefined|provided|defined|empty)",
            r"\b(?:[Mm]issing|[Ss]et|[Pp]rovide|[Rr]equired?s?|[Dd]efine|[Ee]xport|[Nn]o|[Nn]eeds?)\b[^\n]{0,60}?"
            rf"\b{_NAME}",
            rf"KeyError: '{_NAME}'",
        ),
        "it needs the environment variable {it}",
        "Servers get a small, clean environment: what their `env` says, and PATH, HOME and the like.",
        "",
    ),
    Known(
        "host-not-found",
        _pattern(
            r"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)",
            r"[Nn]ame or service not known",
            r"[Tt]emporary failure in name resolution",
            r"nodename nor servname provided",
        ),
        "a host that it calls cannot be found: {it}",
        "There is no connection, or its name is wrong.",
        "Check the connection, and the address in args or env.",
    ),
    Known(
        "service-refuses",
        _pattern(r"ECONNREFUSED (\S+)", r"[Cc]onnection refused", r"could not connect to server"),
        "a service that it needs does not answer: {it}",
        "",
        "Start the service, or correct its address in args or env.",
    ),
    Known(
        "credentials-refused",
        _pattern(r"Bad credentials", r"401 Unauthorized", r"invalid[_ ](?:api[_ ]key|token|grant)", flags=_ANY_CASE),
        "the service behind it refuses its credentials",
        "",
        "Renew the token or key that `env` hands over.",
    ),
    Known(
        "out-of-memory",
        _pattern(r"JavaScript heap out of memory", r"^MemoryError", r"Cannot allocate memory"),
        "it ran out of memory",
        "",
        'Give it more: env = { NODE_OPTIONS = "--max-old-space-size=4096" } for Node; or raise its `memory_limit`.',
    ),
    Known(
        "library-missing",
        _pattern(
            r"error while loading shared libraries: ([^:\s]+)",
            r"ImportError: (lib\S+): cannot open shared object",
            r"version `(GLIBC\w*_[\d.]+)' not found",
        ),
        "a library of the system is missing or too old: {it}",
        "",
        "Install it with the system's package manager.",
    ),
    Known(
        "wrong-architecture",
        _pattern(r"[Ee]xec format error", r"Illegal instruction", r"bad CPU type in executable"),
        "its program is made for another kind of processor or system",
        "",
        "Install the one for this machine.",
    ),
    Known(
        "module-missing",
        _pattern(
            r"ModuleNotFoundError: No module named '([^']+)'",
            r"Cannot find (?:module|package) '([^']+)'",
            r"/python[0-9.]*: No module named (\S+)",
        ),
        "a part of its program is not installed: {it}",
        "",
        "Install it where the server runs (with uvx: `--with PACKAGE`).",
    ),
)
"""The more special first."""


_LOOKED_AT = 64_000
"""Characters of what a server said, its last."""
_LONGEST = 200
"""Characters that are repeated of what a pattern has found."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A breakage that was recognised."""

    code: str
    what: str
    why: str
    fix: str
    edit: Edit | None = None


def recognise(server: str, settings: ServerSettings, words: str, environ: Mapping[str, str]) -> Diagnosis | None:
    """What is wrong, going by what the server said before it failed; None: nothing that is known. Never raises.

    `environ`: the variables that the bridge has, and could hand over.
    """
    launcher, words = launcher_of(settings), words[-_LOOKED_AT:]
    for known in KNOWN:
        if known.by and launcher not in known.by:
            continue
        if (found := known.pattern.search(words)) is None:
            continue
        it = next((group.strip()[:_LONGEST] for group in found.groups() if group), "")
        if known.code == "variable-missing":
            fix, edit = _variable(server, settings, it, environ)
        else:
            fix, edit = known.fix, known.edit(server, settings, it) if known.edit is not None else None
        return Diagnosis(known.code, _filled(known.what, it), known.why, fix, edit)
    return None


def _filled(text: str, it: str) -> str:
    return text.replace("{it}", it).removesuffix(": ")


def _variable(server: str, settings: ServerSettings, name: str, environ: Mapping[str, str]) -> tuple[str, Edit | None]:
    """A variable that a program wants: it is handed over if the bridge has it."""
    if name in settings.env:
        fix = f"`env.{name}` of the server is set, so it may be empty, or the program needs another one too."
        return fix, None
    line = f'env = {{ {name} = "${{{name}}}" }}'
    if environ.get(name):
        return f"The bridge has it, but passes only variables that are configured: {line}", Edit(
            server, key=("env", name), value=f"${{{name}}}"
        )
    return f"Set it where the bridge starts, and hand it over: {line}", None
