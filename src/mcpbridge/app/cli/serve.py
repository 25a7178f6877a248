"""`mcpbridge serve`: run the bridge in this process until the client goes or a signal ends it.

Exit codes: 0 when the client closed its end or SIGTERM (SIGHUP) asked for the end, 130 on SIGINT, 2 for a wrong
configuration or an address that cannot be used.

When the bridge cannot begin, a client on stdio gets the reason as the answer to its first request: clients show that,
and standard error only some of them show. `click` is not loaded here: a client waits.
"""

import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.app.cli.access.http_address import (
    DEFAULT_ADDRESS,
    Address,
    find_local_token,
    open_entrance,
    parse_address,
    take_admin_token,
    warn_of_open_door,
)
from mcpbridge.app.cli.config.config_path import load_trusted
from mcpbridge.app.cli.signals import END_WITHIN, ended_by_signals
from mcpbridge.app.exit_codes import INTERRUPTED, OK
from mcpbridge.app.plain_options import LEVELS, Given, parser_of, read_options
from mcpbridge.app.stdio_proxy.handshake import project_of, working_directory
from mcpbridge.base.config_file import find_config
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded, only_server, read
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.trust.decisions import NotTrusted
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import encode_error

if TYPE_CHECKING:
    import asyncio
    from argparse import ArgumentParser

    from mcpbridge.app.plain_options import Options
    from mcpbridge.base.log import Level
    from mcpbridge.library.bridge import Bridge


_EXAMPLES = """\
Examples:
  mcpbridge serve
  mcpbridge serve --http
  mcpbridge serve --server github
  mcpbridge serve --http 0.0.0.0:8808 --token-env BRIDGE_TOKEN
"""
_DRAIN = 13.0
"""Seconds that the front may take to end, with the 10 that requests under way are granted (5 over HTTP)."""


def serve(arguments: Sequence[str], *, head: bytes = b"") -> int:
    """Run the bridge in this process, with the command line `arguments` (those after `serve`); returns the exit code.

    `head`: what was read from standard input already.
    """
    options = read_options(arguments, OPTIONS, options_parser)
    redact = Redactor()
    try:
        is_asked = options.http is not None or os.isatty(0)  # by a person or a service, in a directory of their choice
        loaded = _loaded(options.config, is_asked=is_asked)
        token, address = _access(options, loaded, os.environ)
        admin_token = take_admin_token(os.environ)
        http = loaded.settings.http
        local_token = find_local_token(
            http, loaded.settings.auth, address, os.environ, token=token, no_auth=options.no_auth
        )
        redact = Redactor([*loaded.secrets, *filter(None, [token, admin_token, local_token])])
        if options.no_auth:
            warn_of_open_door(http, loaded.settings.auth, address, token)
        view = _view(options)
        if view:  # the others are not even started
            loaded = replace(loaded, settings=only_server(loaded.settings, view))
        front = _Front(
            address,
            token,
            admin_token,
            local_token,
            options.no_auth,
            view,
            _profile(options, loaded),
            project_of(os.environ, working_directory(), options.project or ""),
            head,
        )
        return _run(loaded, redact, front, level=options.log_level)
    except (Exception, KeyboardInterrupt) as error:  # the end of the program: what it knows, it says
        if isinstance(error, ConfigError) and options.http is None:
            refuse(head, redact(f"mcpbridge cannot start: {error}"))
        from mcpbridge.app.cli.failures import report  # seldom needed

        code = report(error, as_json=False, redact=redact, command="serve")
        if code is None:
            raise
        return code


def _loaded(config: str | None, *, is_asked: bool) -> Loaded:
    """The configuration to serve. `is_asked`: a person at a terminal, or a service, chose the directory.

    A client starts this in whatever directory is opened. What lies there is left alone unless it is trusted.

    Raises:
        ConfigError: there is none, it is wrong, or it is not trusted.
    """
    try:
        return load_trusted(config)
    except NotTrusted:
        users = None if is_asked else find_config(None, os.environ, here=False)
        if users is None:
            raise
        return read(Path(users), os.environ, providers=Providers(os.environ))


OPTIONS: "Options" = {
    "--config": {"metavar": "FILE", "help": "servers.toml, or any mcpServers JSON"},
    "--http": {
        "metavar": "HOST:PORT",
        "nargs": "?",
        "const": DEFAULT_ADDRESS,
        "help": f"serve HTTP instead of stdio (default {DEFAULT_ADDRESS}); unix:PATH for a socket in the file system",
    },
    "--server": {"metavar": "NAME", "help": "serve this one server alone, by its own names (stdio)"},
    "--profile": {"metavar": "NAME", "help": "serve what belongs to this profile (stdio)"},
    "--project": {"metavar": "DIR", "help": "the directory that the client works in (stdio)"},
    "--standalone": {"action": "store_true", "help": "be the bridge in this process, without the daemon (stdio)"},
    "--no-auth": {
        "action": "store_true",
        "help": "ask for no token: anyone who reaches the address can call every tool",
    },
    "--token-env": {"metavar": "VAR", "help": "environment variable that holds a bearer token to ask for"},
    "--log-level": {"choices": LEVELS, "help": "the least severe level to log, instead of the file's"},
}
"""What the command line may say; see `plain_options.py`."""


def options_parser() -> "ArgumentParser":
    """The parser of `OPTIONS`; docs/reference/commands.md is written from it."""
    what = "Serve all configured MCP servers as one: on standard input and output, or over HTTP."
    return parser_of(OPTIONS, prog="mcpbridge serve", description=what, epilog=_EXAMPLES)


def _access(options: Given, loaded: Loaded, environ: Mapping[str, str]) -> tuple[str | None, Address | Path | None]:
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
    from mcpbridge.downstream.http.host_and_origin import is_loopback

    settings = loaded.settings
    has_tokens = bool(settings.http.tokens or settings.auth.is_on or token)
    if not is_loopback(address.host) and not (has_tokens or options.no_auth):
        hint = (
            "Let people sign in (`[auth]` with an issuer), make a token with `mcpbridge token new` and add it to the\n"
            "  configuration, give one with --token-env VAR, listen on 127.0.0.1, or say --no-auth if anyone who\n"
            "  reaches the address may use every tool."
        )
        raise ConfigError(f"{address.host} can be reached from other machines, and no token is set", hint=hint)
    return token, address


def _view(options: Given) -> str:
    """The one server to serve; empty: all of them.

    Raises:
        ConfigError: it is served over HTTP, where each has a path of its own.
    """
    name: str | None = options.server
    if name is None:
        return ""
    if options.http is not None:
        hint = f"Over HTTP every server has a path of its own: /servers/{name}/mcp."
        raise ConfigError("only means something on stdio", key="--server", hint=hint)
    return name


def _profile(options: Given, loaded: Loaded) -> str:
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
    local_token: str | None
    """The local user's own, where no other is asked for."""
    no_auth: bool
    view: str
    profile: str
    project: str
    """The directory that the client works in; empty: unknown."""
    head: bytes
    """What was read from standard input already."""


def _run(loaded: Loaded, redact: Redactor, front: _Front, *, level: "Level | None") -> int:
    # Standard output belongs to the protocol from here on. The imports below and all libraries get one that leads to
    # standard error, so that a stray print cannot reach the client.
    streams = _claim_standard_streams() if front.address is None else None
    from mcpbridge.app.logging_setup import set_up_logs

    set_up_logs(loaded.settings.log, redact, level=level)
    import anyio

    return anyio.run(
        _serve,
        loaded,
        redact,
        front,
        streams,
        level,
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
    level: "Level | None",
) -> int:
    import asyncio

    import anyio

    from mcpbridge.app.daemon.process import running, serve_over_http
    from mcpbridge.base.log import get_logger
    from mcpbridge.storage.http_token import http_token_path

    log = get_logger()
    received: list[signal.Signals] = []
    serving = anyio.CancelScope()  # ends the front alone, so that the bridge behind it stops in order
    token_file = str(http_token_path(os.environ)) if front.local_token else ""
    stopping = asyncio.Event()  # ends the stdio front in order
    part = front.view or front.profile
    shown = f"stdio ({part})" if part else "stdio"

    def ready(url: str) -> None:
        nonlocal shown
        shown = url
        log.info("listening", url=url, **({"token_file": token_file} if token_file else {}))

    def end(number: signal.Signals) -> None:
        received.append(number)
        log.info("stopping", signal=number.name)
        if streams:
            stopping.set()
        else:
            serving.cancel()  # which lets requests under way end, too

    address = front.address
    entrance = (
        nullcontext()
        if address is None
        else open_entrance(
            loaded.settings.http,
            address,
            oauth=loaded.settings.auth,
            token=front.token,
            admin_token=front.admin_token,
            local_token=front.local_token,
            no_auth=front.no_auth,
        )
    )
    with entrance as at, ended_by_signals(end, within=END_WITHIN + _DRAIN):
        async with running(
            loaded,
            redact,
            facts=lambda: {"front": shown, **({"token_file": token_file} if token_file else {})},
            is_interactive=streams is not None,
            view=front.view,
            mode="own" if streams else "served",
            log_level=level,
        ) as run:
            with serving:
                if streams:
                    await _serve_stdio(run.bridge, front, streams, stopping)
                elif at:
                    await serve_over_http(run.bridge, at, ready, run.console, run.connections, run.fleet)
    return INTERRUPTED if signal.SIGINT in received else OK


async def _serve_stdio(bridge: "Bridge", front: _Front, streams: tuple[int, int], stopping: "asyncio.Event") -> None:
    from mcpbridge.app.daemon.handshake import cut_short, project_uri
    from mcpbridge.base.log import get_logger
    from mcpbridge.downstream.stdio import serve_stdio

    log = get_logger()
    if os.isatty(streams[0]):
        log.info("waiting for an MCP client on standard input", end="Ctrl-D", http="mcpbridge serve --http")
    await serve_stdio(
        bridge.server,
        in_fd=streams[0],
        out_fd=streams[1],
        max_frame=bridge.settings.limits.max_frame,
        view=front.view,
        profile=front.profile,
        project=project_uri(front.project),
        head=front.head,
        stopping=stopping,
        last_words=cut_short,
    )
    if not stopping.is_set():
        log.info("stopping", reason="the client closed its end")


_PATIENCE = 0.5
"""Seconds for the first request to come."""
_MOST = 1 << 20
"""Bytes that are looked at."""


class _Request(Struct):
    id: Raw = Raw()
    method: str = ""


_decode = msgspec.json.Decoder(_Request).decode


def refuse(head: bytes, reason: str, *, in_fd: int = 0, out_fd: int = 1) -> None:
    """Answer the requests that are there with an error. `head`: what was read of the client already."""
    if os.isatty(in_fd):
        return
    with suppress(OSError, ValueError):
        if sys.platform != "win32" and b"\n" not in head and select.select([in_fd], [], [], _PATIENCE)[0]:
            head += os.read(in_fd, _MOST)
        for line in head[:_MOST].splitlines():
            if answer := _answer(line, reason):
                os.write(out_fd, answer + b"\n")


def _answer(line: bytes, reason: str) -> bytes:
    """Empty if the line is no request."""
    try:
        request = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return b""
    is_request = bool(request.method) and bytes(request.id) not in (b"", b"null")
    return encode_error(request.id, INTERNAL_ERROR, reason) if is_request else b""
