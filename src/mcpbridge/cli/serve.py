"""`mcpbridge serve`: run the bridge until the client goes or a signal ends it.

Exit codes: 0 when the client closed its end or SIGTERM (SIGHUP) asked for the end, 130 on SIGINT, 2 for a wrong
configuration or an address that cannot be used.
"""

import argparse
import gc
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcpbridge.cli.exits import INTERRUPTED, OK, report
from mcpbridge.cli.signals import END_WITHIN, ended_by_signals
from mcpbridge.config.load import Loaded, load
from mcpbridge.errors import ConfigError
from mcpbridge.redaction import Redactor

if TYPE_CHECKING:  # loaded where it is used: on stdio it is not
    from mcpbridge.bridge import Bridge
    from mcpbridge.downstream.http import Entrance
    from mcpbridge.downstream.http_mounts import App

__all__ = ["DEFAULT_ADDRESS", "Address", "parse_address", "serve"]

DEFAULT_ADDRESS = "127.0.0.1:8808"

_ADMIN_TOKEN = "MCPBRIDGE_ADMIN_TOKEN"  # noqa: S105 - a name
_SHORTEST_TOKEN = 16

_DRAIN = 8.0
"""Seconds that the front may take to end, with the 5 that open HTTP requests are granted."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    """A name or an IP address without brackets."""
    port: int
    """0: the system chooses."""


def parse_address(text: str) -> Address | Path:
    """`HOST:PORT`, `[IPV6]:PORT`, `:PORT` or `PORT`, without a host it is 127.0.0.1; or the path in `unix:PATH`.

    Raises:
        ConfigError: it is none of these.
    """
    if text.startswith("unix:") and text != "unix:":
        return Path(text.removeprefix("unix:")).expanduser().absolute()
    host, _, port = text.rpartition(":")
    if port.isascii() and port.isdigit() and int(port) < 65536:
        if host.startswith("[") and host.endswith("]"):
            return Address(host[1:-1], int(port))
        if ":" not in host:
            return Address(host or "127.0.0.1", int(port))
    hint = f"Expected HOST:PORT such as {DEFAULT_ADDRESS} or [::1]:8808, or unix:PATH."
    raise ConfigError(f"not an address to listen on: {text!r}", key="--http", hint=hint)


def serve(arguments: Sequence[str]) -> int:
    """Run the bridge with the command line `arguments` (those after `serve`); returns the exit code."""
    options = _options(arguments)
    redact = Redactor()
    try:
        loaded = load(options.config)
        token, address = _access(options, loaded, os.environ)
        admin_token = _admin_token(os.environ)
        redact = Redactor([*loaded.secrets, *filter(None, [token, admin_token])])
        view = _view(options, loaded)
        if view:  # the others are not even started
            alone = {view: loaded.settings.servers[view]}
            loaded = replace(loaded, settings=loaded.settings.model_copy(update={"servers": alone}))
        front = _Front(address, token, admin_token, options.no_auth, view, _profile(options, loaded))
        return _run(loaded, redact, front, level=options.log_level)
    except (Exception, KeyboardInterrupt) as error:  # the end of the program: what it knows, it says
        code = report(error, as_json=False, redact=redact)
        if code is None:
            raise
        return code


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mcpbridge serve",
        description="Serve all configured MCP servers as one: on standard input and output, or over HTTP.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="servers.toml, or any mcpServers JSON")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=DEFAULT_ADDRESS,
        help=f"serve HTTP instead of stdio (default {DEFAULT_ADDRESS}); unix:PATH for a socket in the file system",
    )
    parser.add_argument("--server", metavar="NAME", help="serve this one server alone, by its own names (stdio)")
    parser.add_argument("--profile", metavar="NAME", help="serve what belongs to this profile (stdio)")
    parser.add_argument(
        "--no-auth", action="store_true", help="allow anyone who reaches the address, also from outside"
    )
    parser.add_argument("--token-env", metavar="VAR", help="environment variable that holds a bearer token to ask for")
    levels = ["debug", "info", "warning", "error", "critical"]
    parser.add_argument("--log-level", choices=levels, help="the least severe level to log, instead of the file's")
    return parser.parse_args(arguments)


def _access(
    options: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]
) -> tuple[str | None, Address | Path | None]:
    """The token and address to serve with.

    Raises:
        ConfigError: they contradict each other, or anyone could use the bridge without having been let in.
    """
    if options.http is None:
        given = "--no-auth" if options.no_auth else "--token-env" if options.token_env else None
        if given:
            raise ConfigError("only means something with --http", key=given)
        return None, None
    address = parse_address(options.http)
    token = None
    if options.token_env:
        token = environ.get(options.token_env)
        if not token:
            raise ConfigError(f"the environment variable {options.token_env} is missing or empty", key="--token-env")
        os.environ.pop(options.token_env, None)  # no upstream has to know it, not even with `inherit_env = true`
    if isinstance(address, Path):
        return token, address
    from mcpbridge.downstream.http_guard import is_loopback

    if not is_loopback(address.host) and not (loaded.settings.http.tokens or token or options.no_auth):
        hint = (
            "Make a token with `mcpbridge token new` and add it to the configuration, give one with --token-env VAR,\n"
            "  listen on 127.0.0.1, or say --no-auth if anyone who reaches the address may use every tool."
        )
        raise ConfigError(f"{address.host} can be reached from other machines, and no token is set", hint=hint)
    return token, address


def _admin_token(environ: Mapping[str, str]) -> str | None:
    """The token of who administers the bridge over HTTP, from the environment.

    Raises:
        ConfigError: it can be guessed.
    """
    token = environ.get(_ADMIN_TOKEN)
    os.environ.pop(_ADMIN_TOKEN, None)  # no upstream has to know it, as above
    if token and len(token) < _SHORTEST_TOKEN:
        hint = "`mcpbridge token new` makes one."
        raise ConfigError(f"shorter than {_SHORTEST_TOKEN} characters", key=_ADMIN_TOKEN, hint=hint)
    return token or None


def _view(options: argparse.Namespace, loaded: Loaded) -> str:
    """The one server to serve; empty: all of them.

    Raises:
        ConfigError: there is no such server, or it is served over HTTP, where each has a path of its own.
    """
    name: str | None = options.server
    if name is None:
        return ""
    if options.http is not None:
        hint = f"Over HTTP every server has a path of its own: /servers/{name}/mcp."
        raise ConfigError("only means something on stdio", key="--server", hint=hint)
    enabled = [known for known, settings in loaded.settings.servers.items() if not settings.disabled]
    if name not in enabled:
        known = ", ".join(sorted(enabled)) or "none"
        raise ConfigError(f"no server is called {name!r}", key="--server", hint=f"Known: {known}.")
    return name


def _profile(options: argparse.Namespace, loaded: Loaded) -> str:
    """The profile to serve; empty: none in particular.

    Raises:
        ConfigError: there is none of that name, or it is served over HTTP, where each has a path of its own.
    """
    name: str | None = options.profile
    if name is None:
        return ""
    if options.http is not None:
        hint = f"Over HTTP every profile has a path of its own: /p/{name}/mcp."
        raise ConfigError("only means something on stdio", key="--profile", hint=hint)
    if options.server is not None:
        raise ConfigError("goes without --server, which serves a single one", key="--profile")
    if name not in loaded.settings.profiles:
        known = ", ".join(sorted(loaded.settings.profiles)) or "none"
        raise ConfigError(f"no profile is called {name!r}", key="--profile", hint=f"Known: {known}.")
    return name


class _Front(NamedTuple):
    """Where clients come in."""

    address: Address | Path | None
    """None: standard input and output."""
    token: str | None
    admin_token: str | None
    no_auth: bool
    view: str
    profile: str


def _run(loaded: Loaded, redact: Redactor, front: _Front, *, level: str | None) -> int:
    # Standard output belongs to the protocol from here on. The imports below and all libraries get one that leads to
    # standard error, so that a stray print cannot reach the client.
    streams = _claim_standard_streams() if front.address is None else None
    from mcpbridge.telemetry import set_up_logs

    log_settings = loaded.settings.log
    set_up_logs(log_settings.model_copy(update={"level": level}) if level else log_settings, redact)
    import anyio

    return anyio.run(
        _serve,
        loaded,
        redact,
        front,
        streams,
        backend_options={"use_uvloop": find_spec("uvloop") is not None},
    )


def _claim_standard_streams() -> tuple[int, int]:
    """Private descriptors for standard input and output; what others find in their places is empty, and stderr."""
    try:
        streams = os.dup(0), os.dup(1)
    except OSError as error:
        hint = "Without --http, a client talks to the bridge through them."
        raise ConfigError("standard input or output is closed", hint=hint) from error
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return streams


async def _serve(
    loaded: Loaded,
    redact: Redactor,
    front: _Front,
    streams: tuple[int, int] | None,
) -> int:
    import anyio

    from mcpbridge.admin.approvals import answers
    from mcpbridge.admin.cache import answers as cache_answers
    from mcpbridge.admin.control_socket import Document, publish, runtime_directory
    from mcpbridge.admin.stats import stats_of
    from mcpbridge.bridge import Bridge
    from mcpbridge.cli.pages import open_in_browser
    from mcpbridge.logs import get_logger

    gc.freeze()  # what is loaded by now stays to the end: no collection has to look at it
    gc.enable()
    log = get_logger()
    for warning in loaded.warnings:
        log.warning("configuration", note=warning)
    received: list[signal.Signals] = []
    serving = anyio.CancelScope()  # ends the front alone, so that the bridge behind it stops in order
    part = front.view or front.profile
    shown = f"stdio ({part})" if part else "stdio"

    def ready(url: str) -> None:
        nonlocal shown
        shown = url
        log.info("listening", url=url)

    def end(number: signal.Signals) -> None:
        received.append(number)
        log.info("stopping", signal=number.name)
        serving.cancel()

    async def run_front(bridge: Bridge, at: "Entrance | None") -> None:
        if streams:
            from mcpbridge.downstream.stdio import serve_stdio

            if os.isatty(streams[0]):
                log.info("waiting for an MCP client on standard input", end="Ctrl-D", http="mcpbridge serve --http")
            await serve_stdio(
                bridge.server,
                in_fd=streams[0],
                out_fd=streams[1],
                max_frame=loaded.settings.limits.max_frame,
                view=front.view,
                profile=front.profile,
            )
            log.info("stopping", reason="the client closed its end")
        elif at:
            from mcpbridge.downstream.http import serve_http

            await serve_http(bridge, loaded.settings.http, at, on_ready=ready, mounts=_mounts(bridge))

    with _entrance(loaded, front) as at, ended_by_signals(end, within=END_WITHIN + _DRAIN):
        show, is_interactive = open_in_browser(), streams is not None
        is_whole = not front.view
        async with Bridge(
            loaded.settings, redact=redact, show=show, is_interactive=is_interactive, is_whole=is_whole
        ) as bridge:

            def told(_: Document) -> Document:
                return redact.values_of({**bridge.status(), "front": shown})

            async def counted(_: Document) -> Document:
                await bridge.results.ledger.flush()  # who asks reads it in the store
                return redact.values_of(stats_of(bridge.metrics))

            told_and_done = {"status": told, "stats": counted, **answers(bridge.approvals), **cache_answers(bridge)}
            async with publish(told_and_done, runtime_directory(os.environ)):
                with serving:
                    await run_front(bridge, at)
    return INTERRUPTED if signal.SIGINT in received else OK


def _mounts(bridge: "Bridge") -> "dict[str, Callable[[], App]]":
    """What is served beside MCP, by the path that it begins with; made when it is asked for."""
    mounts = {"/api": lambda: _api(bridge)}
    if bridge.settings.observe.metrics:
        mounts["/metrics"] = lambda: _metrics(bridge)
    return mounts


def _metrics(bridge: "Bridge") -> "App":
    from mcpbridge.admin.prometheus import make_metrics

    return make_metrics(bridge, readers=frozenset(token.name for token in bridge.settings.http.tokens if token.metrics))


def _api(bridge: "Bridge") -> "App":
    from mcpbridge.admin.api import make_api

    return make_api(bridge.approvals, bridge.results.shelf, bridge.results.ledger)


def _entrance(loaded: Loaded, front: _Front) -> "AbstractContextManager[Entrance | None]":
    """The address, taken before any server is started: one that is in use must have no other effect."""
    address = front.address
    if address is None:
        return nullcontext()
    from mcpbridge.downstream.http import entrance, entrance_at_path

    settings = loaded.settings.http
    if isinstance(address, Path):
        return entrance_at_path(settings, address, token=front.token, admin_token=front.admin_token)
    return entrance(
        settings,
        host=address.host,
        port=address.port,
        no_auth=front.no_auth,
        token=front.token,
        admin_token=front.admin_token,
    )
