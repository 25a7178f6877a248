"""Why a server does not work, and what to do about it, from how one look at it ended. Pure."""

import re
from collections.abc import Mapping
from pathlib import PurePath

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.known_failures import recognise
from mcpbridge.app.doctor.launchers import fetches, package_of, with_input
from mcpbridge.app.doctor.start_servers import Boot
from mcpbridge.base.errors import SignInNeeded, UpstreamGone, UpstreamHttpError, UpstreamTimeout
from mcpbridge.upstream.settings import ServerSettings

_NODE = "Install Node.js (https://nodejs.org, or the system's package manager); npx comes with it."
_UV = "Install uv: https://docs.astral.sh/uv/getting-started/installation."
HOW_TO_GET: Mapping[str, str] = {
    "npx": _NODE,
    "npm": _NODE,
    "node": _NODE,
    "uvx": _UV,
    "uv": _UV,
    "docker": "Install Docker: https://docs.docker.com/get-docker.",
    "podman": "Install Podman: https://podman.io.",
    "bunx": "Install Bun: https://bun.sh.",
    "deno": "Install Deno: https://deno.com.",
    "pipx": "Install pipx: https://pipx.pypa.io.",
}
"""Launchers of servers, and where they come from."""


def explain(
    boot: Boot, settings: ServerSettings, source: Source, environ: Mapping[str, str], *, seconds: float
) -> Finding:
    """What is wrong with a server that was not ready; `seconds` is how long it had."""
    server = boot.server
    words = "\n".join([*boot.stderr, boot.noise, boot.what])
    known = recognise(server, settings, words, environ) if settings.command is not None else None
    if known is not None:
        why = f"{known.why} ({boot.what})" if known.why else boot.what
        where = source.where("servers", server)
        return Finding(known.code, "fail", known.what, server, where, why, known.fix, known.edit)
    if settings.image is not None:
        return _of_image(boot, settings, source, seconds)
    if settings.command is not None:
        return _of_command(boot, settings, source, seconds)
    return _of_url(boot, source, seconds)


def unavailable(server: str, reason: str, source: Source, table: tuple[str, ...] = ()) -> Finding:
    """A server that cannot be started as it is configured: a variable is missing, or the like.

    `table`: where it is, if it is a tool.
    """
    named = re.search(r" in ([A-Za-z0-9_.\"-]+)(?:;|$)", reason)
    key = [part.strip('"') for part in named[1].split(".")] if named else []
    fix = "Set it in the environment of the bridge, or write a default: ${NAME:-default}."
    return Finding(
        "variable-not-set" if "missing variable" in reason else "server-unavailable",
        "fail",
        reason,
        server,
        source.where(*(table or ("servers", server)), *key),
        f"A {'tool' if table else 'server'} is not started with parts of its configuration missing.",
        fix if "missing variable" in reason else "Correct it there.",
    )


def _of_command(boot: Boot, settings: ServerSettings, source: Source, seconds: float) -> Finding:
    server, what = boot.server, boot.what
    where = source.where("servers", server, "command")
    cause = boot.error.__cause__ if boot.error is not None else None
    if isinstance(cause, FileNotFoundError):
        program = PurePath(settings.command or "").name
        fix = HOW_TO_GET.get(program, "Install it, or write the whole path of the program.")
        why = "It is not on the PATH that the bridge has, which may be shorter than the one of your shell."
        return Finding("command-not-found", "fail", what, server, where, why, fix)
    if isinstance(cause, NotADirectoryError):
        fix = "Correct `cwd`; a relative one starts where the configuration file is."
        return Finding("cwd-missing", "fail", what, server, source.where("servers", server, "cwd"), fix=fix)
    if isinstance(cause, PermissionError):
        return Finding("not-executable", "fail", what, server, where, fix=f"Run `chmod +x {settings.command}`.")
    if isinstance(boot.error, UpstreamTimeout | TimeoutError):
        return _silent(boot, settings, where, seconds)
    if isinstance(boot.error, UpstreamGone) and "without answering" in what:
        edit = with_input(server, settings)
        if edit is not None:
            why = "A container without `-i` has no standard input, so it receives nothing."
            return Finding("docker-no-input", "fail", what, server, where, why, "Write `docker run -i …`.", edit)
        fix = "Check whether it needs an argument such as `stdio`, `serve` or `--transport stdio`."
        return Finding("ended-at-once", "fail", what, server, where, "It thinks that nothing went wrong.", fix)
    why = f"It wrote to standard output: {boot.noise}" if boot.noise else ""
    fix = f"Run it by hand to see more: {_by_hand(settings)}"
    return Finding("server-failed", "fail", what or "it failed", server, where, why, fix)


def _of_image(boot: Boot, settings: ServerSettings, source: Source, seconds: float) -> Finding:
    where = source.where("servers", boot.server, "image")
    engine = "docker" if settings.container.engine == "auto" else settings.container.engine
    if isinstance(boot.error, UpstreamTimeout | TimeoutError):
        why = "Its first start fetches the image, which may take longer."
        fix = f"Run `{engine} pull {settings.image}`, then again `mcpbridge doctor`."
        return Finding("no-answer", "fail", f"no answer within {seconds:g} s", boot.server, where, why, fix)
    fix = f"Run `{engine} run --rm -i {settings.image}` by hand to see more."
    return Finding("container-failed", "fail", boot.what or "it failed", boot.server, where, fix=fix)


def _silent(boot: Boot, settings: ServerSettings, where: str, seconds: float) -> Finding:
    why = "It runs, but says nothing."
    fix = f"If it is only slow, give it more time: init_timeout = {round(seconds * 4)}."
    if fetches(settings):
        why = "Its first start loads the package, or the image, which may take longer."
        fix = f"Run it once by hand: {_by_hand(settings)}; then again `mcpbridge doctor`."
    if boot.noise:
        why += f" It wrote to standard output: {boot.noise}"
    return Finding("no-answer", "fail", f"no answer within {seconds:g} s", boot.server, where, why, fix)


def _of_url(boot: Boot, source: Source, seconds: float) -> Finding:
    server, error, what = boot.server, boot.error, boot.what
    where = source.where("servers", server, "url")
    if isinstance(error, SignInNeeded):
        return Finding("sign-in-needed", "fail", what, server, where, fix=error.advice)
    if isinstance(error, UpstreamHttpError):
        fix = error.advice
        if error.status in (404, 405, 406):
            fix = 'Look at the path of `url`: most servers answer at /mcp, older ones at /sse (`transport = "sse"`).'
        return Finding(f"http-{error.status}", "fail", what, server, where, fix=fix)
    if re.search(r"certificate|\bTLS\b|\bSSL\b", what, re.IGNORECASE):
        fix = 'Name the authority that it trusts: tls = { ca = "/path/ca.pem" }; or correct the host in `url`.'
        return Finding("tls", "fail", what, server, where, fix=fix)
    if isinstance(error, UpstreamTimeout | TimeoutError):
        return Finding("no-answer", "fail", f"no answer within {seconds:g} s", server, where, fix="Look at the server.")
    fix = "Look whether it is running, and at host and port in `url`."
    return Finding("not-reached", "fail", what or "it failed", server, where, fix=fix)


def _by_hand(settings: ServerSettings) -> str:
    """How it is started, up to the package: what follows may be secret."""
    package = package_of(settings)
    at = next((at for at, word in enumerate(settings.args) if package and word.startswith(package)), -1)
    words = [PurePath(settings.command or "").name, *settings.args[: at + 1]]
    return f"`{' '.join(words)}{' …' if len(settings.args) > at + 1 else ''}`"
