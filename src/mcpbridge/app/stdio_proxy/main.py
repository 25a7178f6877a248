"""`mcpbridge serve` on stdio: hands the client to this user's daemon, which it starts if there is none.

Only the standard library is imported, and little of it, since clients wait for their servers one after the other, and
some not for long. Where no daemon can be, the bridge runs in this process (`standalone`).

Exit codes: 0 when the client has gone or SIGTERM (SIGHUP) asked for the end, 130 on SIGINT, 2 for a wrong command line,
1 if the bridge ended before it had answered a client that says nothing more.
"""

import gc
import os
import signal
import sys
from functools import partial

from mcpbridge.app.exit_codes import INTERRUPTED, USAGE
from mcpbridge.app.plain_options import LEVELS, Given, read_plain
from mcpbridge.app.stdio_proxy.handshake import hello, working_directory
from mcpbridge.app.stdio_proxy.start_daemon import SNAPSHOT, STANDALONE, log_path, start_daemon, start_standalone
from mcpbridge.base.config_file import find_config, is_found_in_working_directory
from mcpbridge.base.directories import key_of, runtime_path, snapshots_path

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from subprocess import Popen
    from types import FrameType

    from mcpbridge.app.plain_options import Options
    from mcpbridge.app.stdio_proxy.early_answers import EarlyAnswers
    from mcpbridge.app.stdio_proxy.relay import Relay
    from mcpbridge.app.stdio_proxy.replay import Memory


_OPTIONS: "Options" = {
    **{name: {"default": ""} for name in ("--config", "--profile", "--project", "--server")},
    "--log-level": {"default": "", "choices": LEVELS},
}
"""Those of `serve` with which the client gets a daemon."""


def read_proxy_options(arguments: "Sequence[str]") -> Given | None:
    """The options in `arguments`. None: something else is there, or is wrong; other code reports that better."""
    options = read_plain(arguments, _OPTIONS)
    return options if options is not None and not (options.server and options.profile) else None


def serve(arguments: "Sequence[str]", standalone: "Callable[[Sequence[str], bytes], int]") -> int:
    """Serve the client on standard input and output, with the command line after `serve`; returns the exit code.

    `standalone` does that without a daemon; it gets the command line and what was read of the client already.
    """
    environ = dict(os.environ)
    options = None if environ.get(STANDALONE, "0") not in ("", "0") else read_proxy_options(arguments)
    is_found = options is not None and is_found_in_working_directory(options.config, environ)
    if is_found and not _is_trusted():
        is_found = False
        if os.isatty(0):
            return USAGE
    config = None if options is None else find_config(options.config, environ, here=is_found)
    if options is None or config is None or not _are_open(0, 1):
        return standalone(arguments, b"")
    from mcpbridge.app.stdio_proxy.relay import Alone, Refused  # a bridge in this process needs nothing of it

    before = {number: signal.getsignal(number) for number in _ENDING}
    ends = signals_fd, wakes_fd = os.pipe()
    try:
        os.set_blocking(wakes_fd, False)
        signal.set_wakeup_fd(wakes_fd, warn_on_full_buffer=False)
        return _relay(options, config, arguments, environ, signals_fd, is_found=is_found)
    except Refused as refused:
        _say(str(refused))
        return USAGE
    except Alone as alone:
        _say(f"continuing without a daemon: {alone}")
        for number, handler in before.items():
            signal.signal(number, handler)
        head = alone.head
    finally:
        signal.set_wakeup_fd(-1)
        for end in ends:
            os.close(end)
    return standalone(arguments, head)


def _relay(
    options: Given,
    config: str,
    arguments: "Sequence[str]",
    environ: "Mapping[str, str]",
    signals_fd: int,
    *,
    is_found: bool,
) -> int:
    from mcpbridge.app.stdio_proxy.connections import ClientEnd
    from mcpbridge.app.stdio_proxy.relay import Relay
    from mcpbridge.app.stdio_proxy.start_retries import Daemons

    key, cwd = key_of(config), working_directory()
    level = ("--log-level", options.log_level) if options.log_level else ()
    more = (*level, *["--found"] * is_found)
    log = log_path(key, environ)
    daemons = Daemons(runtime_path(environ), key, lambda claim: start_daemon(claim, config, log, environ, *more))
    said = hello(environ, cwd, project=options.project, server=options.server, profile=options.profile)
    early = None
    if environ.get(SNAPSHOT) != "0" and os.path.isdir(snapshots_path(environ)):  # noqa: PTH112 - without `pathlib`
        early = partial(_open_snapshots, options, key, environ, is_found)
    relay = Relay(ClientEnd(0, 1, signals_fd), daemons, said, partial(_start_standalone, arguments, environ), early)
    _end_on_signals(relay)
    if os.isatty(0):
        _say("waiting for an MCP client on standard input; Ctrl-D ends it, `mcpbridge serve --http` serves HTTP")
    gc.freeze()  # what is loaded by now stays to the end: no collection has to look at it
    gc.enable()
    return relay.run()


def _open_snapshots(
    options: Given, key: str, environ: "Mapping[str, str]", is_found: bool, memory: "Memory"
) -> "EarlyAnswers":
    from mcpbridge.app.stdio_proxy.early_answers import EarlyAnswers, Snapshots  # late: most clients find a daemon

    folder, server, profile = snapshots_path(environ), options.server, options.profile
    return EarlyAnswers(Snapshots(folder, key, environ, is_found=is_found, server=server, profile=profile), memory)


def _start_standalone(
    arguments: "Sequence[str]", environ: "Mapping[str, str]", reason: str
) -> "tuple[socket.socket, Popen[bytes]]":
    _say(f"continuing without a daemon: {reason}")
    return start_standalone(arguments, environ)


def _is_trusted() -> bool:
    """Whether a person trusts the configuration of the working directory; asks them if there is a terminal.

    This loads all settings, and happens only where nobody named a configuration.
    """
    from mcpbridge.app.cli.config.config_path import load_trusted
    from mcpbridge.base.errors import ConfigError

    try:
        load_trusted(None, fetches=False)
    except ConfigError as error:
        if os.isatty(0):
            _say(str(error))
        return False
    return True


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end_on_signals(relay: "Relay") -> None:
    """End at once: nothing here has to be put in order, and the daemon stays. A bridge of our own is asked to end."""

    def end(number: int, _: "FrameType | None") -> None:
        code = INTERRUPTED if number == signal.SIGINT else 0
        child = relay.child
        if child is None or child.poll() is not None:
            os._exit(code)
        child.send_signal(number)

    for number in _ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # that is what `nohup` is for
            signal.signal(number, end)


def _are_open(*descriptors: int) -> bool:
    """Whether they lead anywhere. If standard error does not, it is made to, lest a socket gets its number."""
    try:
        for descriptor in descriptors:
            os.fstat(descriptor)
    except OSError:
        return False
    try:
        os.fstat(2)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return True


def _say(text: str) -> None:
    """One line for people."""
    line = f"mcpbridge: {' '.join(text.split())}\n"
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # nobody listens
