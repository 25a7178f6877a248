"""Installs the packages of a server in the sandbox before it starts: `npx` and `uvx` download what they run.

The phase has the network that it needs (the package registries) and may write the server's home alone; it gets no
variables of the server but those about packages. The server then starts without that network: `npx` and `uvx` find in
its home what they want. A phase that succeeded is not repeated until the command line, or where packages come from,
changes.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.sandbox.egress.report import EgressReport
from mcpbridge.sandbox.isolation.tier import OwnNetwork
from mcpbridge.sandbox.job import Access, Limits
from mcpbridge.sandbox.runner import Isolation, Wrapped
from mcpbridge.upstream.isolation.network import filtered_network
from mcpbridge.upstream.isolation.packages import Package

log = get_logger("mcpbridge.upstream")

SECONDS = 600.0
"""Seconds for an installation."""

_ABOUT_PACKAGES = re.compile(
    r"(?i:npm_config_|uv_|pip_|node_extra_ca_certs|ssl_cert_|requests_ca_|curl_ca_|bun_config_)"
)
_NPM_REGISTRY = re.compile(r"(?i:npm_config_(@[^:]+:)?registry)")
_NPM_DEFAULT = ("registry.npmjs.org:443",)
_UV_DEFAULT = ("pypi.org:443", "files.pythonhosted.org:443")
_URL = re.compile(r"https?://[^\s'\"<>]+")
_KEPT_OUTPUT = 4096
"""Bytes of what an installation printed last."""
_CLOSING_SECONDS = 5.0

_OFFLINE: Mapping[str, Mapping[str, str]] = {
    "npx": {"npm_config_offline": "true", "npm_config_update_notifier": "false", "npm_config_yes": "true"},
    "uvx": {"UV_OFFLINE": "1"},
    "uv run": {"UV_OFFLINE": "1"},
}
"""Variables with which a runner takes what is installed and asks nobody."""

_locks: dict[str, asyncio.Lock] = {}


class Plan(Struct, frozen=True):
    """How to install what a command line runs."""

    args: tuple[str, ...]
    """Arguments of the runner with which it installs the package, and runs nothing of it."""
    registries: tuple[str, ...]
    """Where packages come from, as entries of a list of hosts."""
    offline: Mapping[str, str]
    """Variables of the server's start."""


class Place(Struct, frozen=True):
    """Where and as what an installation runs."""

    runner: Isolation
    program: str
    """The runner of packages, as an absolute path."""
    env: Mapping[str, str]
    limits: Limits
    access: Access
    home: str


def plan_for(package: Package, env: Mapping[str, str], directory: str = "") -> Plan | None:
    """How to install it; None: it needs no installation, or cannot be installed without running it. Pure.

    A cache of packages that the environment names lies elsewhere than in the home: its user takes care of it.
    `directory`: where the server runs. A project in it is its user's to install, too: `uv run` writes into it.
    """
    if package.runner not in _OFFLINE or not package.spec:
        return None
    if any(name.lower() in ("npm_config_cache", "uv_cache_dir") for name in env):
        return None
    options = [option for option in package.before[:-1] if option != "--"]
    if package.runner == "uv run":
        return _plan_of_uv_run(package, env, options, directory)
    is_named = package.before[-1] != package.spec or package.spec in package.before[:-1]
    offline = _OFFLINE[package.runner]
    if package.runner == "npx":
        if any(option.partition("=")[0] in ("-c", "--call") for option in options):
            return None
        first = [options.pop(0)] if options[:1] in (["exec"], ["x"]) else []
        named = [] if is_named else [f"--package={package.spec}"]
        args = (*first, "--yes", *(one for one in options if one not in ("-y", "--yes")), *named, "--call", "true")
    else:
        named = [] if is_named else ["--from", package.spec]
        args = (*options, *named, "python", "-c", "")
    return Plan(args, registries(package, env), offline)


def why_not_before(package: Package) -> str:
    """Why what a runner downloads cannot be installed before the server starts; empty: it can, or there is no runner.

    Pure.
    """
    if package.runner == "uv run":
        is_with = {"--with", "-w"}.intersection(package.before)
        return "" if is_with else "`uv run` installs into a directory of a project"
    if package.runner == "bunx":
        return "`bunx` installs nothing without running it"
    if package.runner == "pipx":
        return "`pipx run` installs again after some days"
    is_call = any(word.partition("=")[0] in ("-c", "--call") for word in package.before)
    return "`npx --call` names no package" if package.runner == "npx" and is_call else ""


def _plan_of_uv_run(package: Package, env: Mapping[str, str], options: Sequence[str], directory: str) -> Plan | None:
    """Of `uv run --with PACKAGE PROGRAM` outside of a project."""
    places = {option.partition("=")[0] for option in options}
    if not {"--with", "-w"} & places or {"-m", "--module", "--directory", "--project", "--script", "-s"} & places:
        return None
    if directory and "--no-project" not in places:
        return None
    first, *rest = options
    own = [] if "--no-project" in places else ["--no-project"]
    return Plan((first, *own, *rest, "python", "-c", ""), registries(package, env), _OFFLINE["uv run"])


def registries(package: Package, env: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts that packages come from, by the variables and arguments of the runner. Pure."""
    found = [url for text in package.before for url in _URL.findall(text)]
    if package.runner == "npx":
        own = {name: value for name, value in env.items() if _NPM_REGISTRY.fullmatch(name)}
        found += own.values()
        has_default = any(":" not in name for name in own) or any("--registry" in one for one in package.before)
        defaults = () if has_default else _NPM_DEFAULT
    else:
        names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
        found += [url for name in names for url in _URL.findall(env.get(name, ""))]
        has_default = bool(env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL"))
        defaults = () if has_default else _UV_DEFAULT
    hosts = [*defaults, *filter(None, map(_host_of, found))]
    return tuple(dict.fromkeys(hosts))


async def ensure_installed(
    server: str,
    plan: Plan,
    place: Place,
    network: Literal["open"] | Sequence[str] | None,
) -> None:
    """Install it, unless that was done. `network`: what the phase reaches; None: the registries.

    Cancelling ends the installation; the next start repeats it.

    Raises:
        UpstreamUnavailable: it failed; says what the runner printed last.
        ToolInactive: there is no sandbox for it.
    """
    hosts = plan.registries if network is None else network
    stamp = Path(place.home) / f".installed-{_digest(plan, place, hosts)}"
    async with _locks.setdefault(place.home, asyncio.Lock()):
        if await asyncio.to_thread(stamp.exists):
            return
        log.info("installing the packages of a server", upstream=server, command=[place.program, *plan.args])
        async with _started(server, plan, place, hosts) as (process, why_refused):
            assert process.stdout is not None
            printed = await _last_of(process.stdout)
            code = await process.wait()
            if code:
                raise UpstreamUnavailable(server, _failure(code, printed, why_refused()))
        await asyncio.to_thread(stamp.touch)


@asynccontextmanager
async def _started(
    server: str, plan: Plan, place: Place, hosts: str | Sequence[str]
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Callable[[], str]]]:
    """The running installation, which has ended afterwards, and why something was refused to it."""
    if isinstance(hosts, str):
        wrapped = await _wrapped(plan, place, {}, None)
        async with _process(server, wrapped, ()) as process:
            yield process, str
        return
    async with filtered_network(server, hosts, EgressReport(server, "install_network")) as filtered:
        wrapped = await _wrapped(plan, place, filtered.env, filtered.own)
        async with _process(server, wrapped, (filtered.own.control,)) as process:
            filtered.started()
            yield process, lambda: filtered.report.last_reason


async def _wrapped(plan: Plan, place: Place, env: Mapping[str, str], own: OwnNetwork | None) -> Wrapped:
    access = Access(network=own is None, read_only=place.access.read_only)
    argv = [place.program, *plan.args]
    return await place.runner.wrapped(argv, {**place.env, **env}, "", place.limits, access, place.home, own)


@asynccontextmanager
async def _process(
    server: str, wrapped: Wrapped, descriptors: tuple[int, ...]
) -> AsyncGenerator[asyncio.subprocess.Process]:
    try:
        process = await asyncio.create_subprocess_exec(
            *wrapped.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=wrapped.env,
            cwd=wrapped.cwd,
            start_new_session=True,
            pass_fds=descriptors,
        )
        try:
            async with asyncio.timeout(SECONDS):
                yield process
        except TimeoutError:
            raise UpstreamUnavailable(server, f"its packages were not installed within {SECONDS:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await process.wait()
    finally:
        await asyncio.shield(asyncio.to_thread(Isolation.discard, wrapped.folder))


def variables_of_installation(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment without what the server's settings added to it, but for what is about packages. Pure."""
    return {name: value for name, value in env.items() if name not in own or _ABOUT_PACKAGES.match(name)}


def _digest(plan: Plan, place: Place, hosts: str | Sequence[str]) -> str:
    about = sorted((name, value) for name, value in place.env.items() if _ABOUT_PACKAGES.match(name))
    return sha256(repr((place.program, plan.args, hosts, about)).encode(errors="surrogateescape")).hexdigest()[:16]


async def _last_of(stream: asyncio.StreamReader) -> str:
    kept = b""
    while data := await stream.read(_KEPT_OUTPUT):
        kept = (kept + data)[-_KEPT_OUTPUT:]
    return kept.decode("utf-8", "replace")


def _failure(code: int, printed: str, why_refused: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if "err" in line.lower()] or lines
    reason = "; ".join(telling[-3:])[-600:] or f"exit code {code}"
    return f"its packages cannot be installed: {f'{why_refused}. It says: ' if why_refused else ''}{reason}"


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""
