"""`mcpbridge daemon`: be the daemon of a configuration, in the foreground. Proxies, `up` and service managers start it.

Exit codes: 0 when it ended in order, or another daemon serves this configuration already (75 where a service manager
started it, which tries again later); 130 on SIGINT; 2 for a wrong configuration, or an address that cannot be used.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpbridge.app.cli.access.http_address import (
    DEFAULT_ADDRESS,
    find_local_token,
    open_entrance,
    parse_address,
    take_admin_token,
    warn_of_open_door,
)
from mcpbridge.app.cli.signals import END_WITHIN, ended_by_signals
from mcpbridge.app.exit_codes import INTERRUPTED, OK
from mcpbridge.app.plain_options import LEVELS, SWITCH, Given, parser_of, read_options
from mcpbridge.base.config_file import is_found_in_working_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded, find, read, require_trust
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.storage.http_token import http_token_path

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from mcpbridge.app.daemon.daemon import DaemonContext, Ending
    from mcpbridge.app.daemon.service_manager import Supervision
    from mcpbridge.app.daemon.socket_and_lock import Held
    from mcpbridge.app.plain_options import Options
    from mcpbridge.downstream.http.server import ListenAddress


_OF_THE_LAST = ("--managed-socket", "--no-idle-exit", "--anew")
"""Words of the command line that are said anew at a restart."""
_LAST_CHILDREN = 2.0
"""Seconds that processes have to end once they are asked to: the guard of the servers."""


def daemon(arguments: Sequence[str]) -> int:
    """Be the daemon, with the command line `arguments` (those after `daemon`); returns the exit code."""
    options = read_options(arguments, OPTIONS, options_parser)
    environ = dict(os.environ)  # what the next one in this process gets
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it asks for a reload, and nothing is loaded yet
    redact = Redactor()
    held, farewell = None, b""
    try:
        supervision = _supervision()
        config = find(options.config, os.environ).absolute()
        held = _hold(options, config, supervision)
        if held is None:
            print(f"mcpbridge: another daemon serves {config} already; see `mcpbridge status`", file=sys.stderr)
            return _busy() if supervision.is_supervised else OK
        if options.found or is_found_in_working_directory(options.config, os.environ):
            loaded = require_trust(read(config, os.environ), os.environ)
        else:
            loaded = read(config, os.environ, providers=Providers(os.environ))
        admin_token = take_admin_token(os.environ)
        redact = Redactor([*loaded.secrets, *filter(None, [admin_token])])
        ending = _run(options, config, loaded, redact, held, supervision, admin_token)
    except (Exception, KeyboardInterrupt) as error:  # the end of the program: what it knows, it says
        from mcpbridge.app.cli.failures import report  # seldom needed

        code = report(error, as_json=False, redact=redact, command="daemon")
        if code is None:
            raise
        return code
    else:
        if ending.restarts:
            _start_anew(arguments, held, environ, stays=ending.stays)
        elif not ending.again:
            farewell = _farewell()
    finally:
        if held is not None:
            held.let_go(farewell)
    return INTERRUPTED if ending.number == signal.SIGINT else OK


OPTIONS: "Options" = {
    "--config": {"metavar": "FILE", "help": "servers.toml, or any mcpServers JSON"},
    "--idle-exit": {"action": SWITCH, "help": "end when nobody was connected for `daemon.idle_exit` seconds"},
    "--http": {
        "metavar": "HOST:PORT",
        "nargs": "?",
        "const": DEFAULT_ADDRESS,
        "help": f"serve HTTP as well, there instead of at `daemon.http` (default {DEFAULT_ADDRESS}, or unix:PATH)",
    },
    "--no-auth": {"action": "store_true", "help": "ask for no token over HTTP: anyone can call every tool"},
    "--listen-fd": {"metavar": "N", "type": int, "help": "a listening socket that was handed over"},
    "--lock-fd": {"metavar": "N", "type": int, "help": "the lock that belongs to it"},
    "--managed-socket": {"action": "store_true"},
    "--also-listen-fd": {"type": int, "action": "append", "default": []},
    "--also-lock-fd": {"type": int, "action": "append", "default": []},
    "--found": {"action": "store_true"},
    "--anew": {"action": "store_true"},
    "--look-every": {"type": float, "default": 5.0},
    "--log-level": {"choices": LEVELS, "help": "the least severe level to log, instead of the file's"},
}
"""What the command line may say; see `plain_options.py`."""


def options_parser() -> "ArgumentParser":
    """The parser of `OPTIONS`; docs/reference/commands.md is written from it."""
    return parser_of(
        OPTIONS,
        prog="mcpbridge daemon",
        description="Run the daemon of a configuration in the foreground. `mcpbridge serve` on stdio connects to it,\n"
        "and starts one if none runs; so do `mcpbridge up` and service managers. SIGHUP makes it\n"
        "read its configuration again, SIGTERM ends it in order.",
        epilog="Examples:\n  mcpbridge daemon\n  mcpbridge daemon --idle-exit --http 127.0.0.1:8808\n",
    )


def _supervision() -> "Supervision":
    from mcpbridge.app.daemon.service_manager import take

    found = os.fstat(2)
    return take(os.environ, pid=os.getpid(), stderr=(found.st_dev, found.st_ino))


def _hold(options: Given, config: Path, supervision: "Supervision") -> "Held | None":
    """The socket and the lock of this configuration's daemon; None: another one has them."""
    from mcpbridge.app.daemon.socket_and_lock import hold, keep

    held = hold(
        config,
        os.environ,
        supervision,
        listen_fd=options.listen_fd,
        lock_fd=options.lock_fd,
        is_managed=options.managed_socket,
    )
    if held is None:
        return None
    more = list(zip(options.also_listen_fd, options.also_lock_fd, strict=False))
    return keep(held, config, os.environ, more, is_anew=options.anew)


def _farewell() -> bytes:
    """To clients that wait in the queue: this daemon was stopped, and another is started only if they need it."""
    from mcpbridge.app.daemon.handshake import bye

    return bye(again=False) + b"\n"


def _busy() -> int:
    from mcpbridge.app.exit_codes import BUSY

    return BUSY


def _run(
    options: Given,
    config: Path,
    loaded: Loaded,
    redact: Redactor,
    held: "Held",
    supervision: "Supervision",
    admin_token: str | None,
) -> "Ending":
    os.dup2(2, 1)  # a stray print of a library is for the log
    with suppress(OSError, ValueError):  # memory holds tokens, which a core file would write to disk
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    from mcpbridge.app.logging_setup import set_up_logs

    level = options.log_level
    set_up_logs(loaded.settings.log, redact, level=level)
    from mcpbridge.app.daemon.daemon import DaemonContext
    from mcpbridge.app.daemon.log_rotation import file_of

    around = DaemonContext(
        config=config,
        held=held,
        supervision=supervision,
        ends_when_idle=options.idle_exit,
        log_file=file_of(2),
        at=None,
        http_error="",
        token_file="",
        log_level=level,
        look_every=options.look_every,
    )
    with ExitStack() as stack:
        around = _with_http(around, options, loaded, admin_token, redact, stack.enter_context)
        import anyio

        return anyio.run(
            _serve,
            loaded,
            redact,
            around,
            backend_options={"use_uvloop": find_spec("uvloop") is not None},
        )


def _with_http(
    around: "DaemonContext",
    options: Given,
    loaded: Loaded,
    admin_token: str | None,
    redact: Redactor,
    enter: "Callable[[AbstractContextManager[ListenAddress]], ListenAddress]",
) -> "DaemonContext":
    """Take the address, before any server is started.

    One that only the file names may be in use, by the daemon of another file, or of the release before: clients on
    stdio need not suffer for that, so it is shown and the daemon goes on without.

    Raises:
        ConfigError: the address of the command line cannot be used.
    """
    asked: str | None = options.http
    text, http = asked or loaded.settings.daemon.http, loaded.settings.http
    if not text:
        return around
    try:
        address = parse_address(text, key="--http" if asked else "daemon.http")
        local_token = find_local_token(http, loaded.settings.auth, address, os.environ, no_auth=options.no_auth)
        redact.know(filter(None, [local_token]))
        if options.no_auth:
            warn_of_open_door(http, loaded.settings.auth, address, None)
        entrance = open_entrance(
            http,
            address,
            oauth=loaded.settings.auth,
            admin_token=admin_token,
            local_token=local_token,
            no_auth=options.no_auth,
        )
        token_file = str(http_token_path(os.environ)) if local_token else ""
        mode = "served" if options.no_auth else around.mode  # whoever comes in would count as this user
        return replace(around, at=enter(entrance), token_file=token_file, mode=mode)
    except ConfigError as error:
        if asked:
            raise
        from mcpbridge.base.log import get_logger

        get_logger("mcpbridge.daemon").error("HTTP is not served", reason=str(error))
        return replace(around, http_error=str(error))


async def _serve(loaded: Loaded, redact: Redactor, around: "DaemonContext") -> "Ending":
    from mcpbridge.app.daemon.daemon import END_TIME, serve_daemon

    def signals(end: Callable[[signal.Signals], None], reload: Callable[[], None]) -> AbstractContextManager[None]:
        return ended_by_signals(end, within=END_WITHIN + END_TIME, hang_up=reload)

    return await serve_daemon(loaded, redact, around, signals)


def _start_anew(arguments: Sequence[str], held: "Held", environ: dict[str, str], *, stays: bool) -> None:
    """Become a new daemon, with the same socket and lock: clients that connect meanwhile wait in its queue.

    Returns only if that is impossible.
    """
    handed = ("--listen-fd", "--lock-fd", "--also-listen-fd", "--also-lock-fd")
    kept = [
        word
        for before, word in zip(["", *arguments], arguments, strict=False)
        if not word.startswith(handed) and before not in handed and word not in _OF_THE_LAST
    ]
    kept += ["--anew", *["--no-idle-exit"] * stays]
    own = {name: value for name, value in environ.items() if name not in ("LISTEN_PID", "LISTEN_FDS")}
    program = [sys.executable, "-P", "-m", "mcpbridge", "daemon", *kept, *held.hand_over()]
    sys.stderr.flush()
    _bury_children()
    try:
        os.execve(sys.executable, program, own)
    except OSError as error:
        print(f"mcpbridge: cannot start anew: {error.strerror}", file=sys.stderr)


def _bury_children() -> None:
    """Take note of the ends of what this process has started: the next program in it knows nothing of them."""
    give_up = time.monotonic() + _LAST_CHILDREN
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < give_up:
            ended, _ = os.waitpid(-1, os.WNOHANG)
            if not ended:
                time.sleep(0.01)
