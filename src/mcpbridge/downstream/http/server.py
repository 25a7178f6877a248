"""Serve the HTTP front: take the address, run the HTTP server in this event loop, stop it gently.

The address is a port, or a path in the file system. A path is for programs of the same user; the file system keeps
everyone else out. This file owns the socket and the server's life; `app.py` answers the requests.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.connection import Connections, Front
from mcpbridge.downstream.http.host_and_origin import Reach, is_loopback
from mcpbridge.downstream.http.routes import App
from mcpbridge.downstream.services import RunningBridge
from mcpbridge.downstream.settings import HttpSettings, ResourceServerSettings

if TYPE_CHECKING:
    from mcpbridge.downstream.auth.resource_server import ResourceServer
    from mcpbridge.downstream.http.tls import Certificate

_BACKLOG = 2048
_LONGEST_PATH = 100
"""Bytes of a socket's path; systems allow 104 to 108."""


@contextmanager
def listen(host: str, port: int) -> Generator[socket.socket]:
    """A listening socket; closed at the end.

    Raises:
        ConfigError: the address cannot be had; says why.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"cannot find the address of {host!r}: {error}", hint="Use an IP address.") from error
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere the option would let two programs share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        listener.setblocking(False)  # noqa: FBT003 - its only argument
        yield listener
    finally:
        listener.close()


@contextmanager
def listen_at_path(path: Path) -> Generator[socket.socket]:
    """A listening Unix-domain socket that only this user can use; closed and removed at the end.

    One that a dead bridge left there is replaced.

    Raises:
        ConfigError: the path cannot be had; says why.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("this system has no Unix-domain sockets", key="--http", hint="Use HOST:PORT.")
    # It gets its name when it listens and nobody else may use it: there is no moment in which it refuses a client, or
    # lets a stranger in.
    fresh = path.with_name(f".mcpb{os.getpid()}")
    if max(len(os.fsencode(path)), len(os.fsencode(fresh))) > _LONGEST_PATH:
        raise ConfigError(f"the path of a socket must be short: {path}", key="--http", hint="Use one in /run or /tmp.")
    _refuse_used_path(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own: os.stat_result | None = None
    try:
        try:
            fresh.unlink(missing_ok=True)  # left by a process that had the same number
            listener.bind(str(fresh))
            fresh.chmod(0o600)
            listener.listen(_BACKLOG)
            own = fresh.lstat()
            fresh.replace(path)
        except OSError as error:
            hint = "The directory must exist, and this user must be able to write there."
            raise ConfigError(f"cannot listen on {path}: {error.strerror}", key="--http", hint=hint) from error
        listener.setblocking(False)  # noqa: FBT003 - its only argument
        yield listener
    finally:
        listener.close()
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
            if own is not None and os.path.samestat(own, path.lstat()):  # else it is a later bridge's by now
                path.unlink()


def _refuse_used_path(path: Path) -> None:
    """Raise unless nothing is at the path, or the socket of a program that is gone."""
    try:
        found = path.lstat()
    except OSError:
        return  # whatever else is wrong, `bind` says it
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path} exists and is no socket", key="--http", hint="Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - its only argument; one that is too busy to answer lives
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError:
            pass  # it may be another user's, whose programs cannot be asked
    hint = "Is another bridge running (`mcpbridge status`)? Stop it, or choose another path."
    raise ConfigError(f"another program listens on {path}", key="--http", hint=hint)


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        hint = (
            "Is another bridge running (`mcpbridge status`)? Stop it, or choose another port with `--http HOST:PORT`."
        )
        return ConfigError(f"cannot listen on {where}: the port is in use", hint=hint)
    if error.errno == errno.EACCES:
        return ConfigError(f"cannot listen on {where}: not permitted", hint="Ports below 1024 need privileges.")
    if error.errno == errno.EADDRNOTAVAIL:
        hint = "Use 127.0.0.1, or 0.0.0.0 for all addresses of this machine."
        return ConfigError(f"cannot listen on {where}: this machine has no such address", hint=hint)
    return ConfigError(f"cannot listen on {where}: {error.strerror}")


_DRAIN = 5.0
"""Seconds that open requests get to finish when the bridge stops."""
_LAST_MOMENT = 1.0
"""Seconds for what was withdrawn then to send its last words."""


class ListenAddress(Struct, frozen=True):
    """An address that is ours, and who may come in there. Whoever connects waits until it is served."""

    listener: socket.socket
    auth: Authenticator
    reach: Reach
    """From where it can be reached."""
    origin: str
    """`http://HOST:PORT` with the port that was taken, or `unix:PATH`."""
    address: str = ""
    """The IP address; empty for a path."""
    port: int | None = None
    """None for a path."""
    certificate: "Certificate | None" = None
    """None: it speaks plain HTTP."""

    def url(self, path: str) -> str:
        """The address to show people where `path` is served."""
        return self.origin if self.reach == "path" else self.origin + path


@contextmanager
def bind_port(
    settings: HttpSettings,
    *,
    host: str,
    port: int,
    no_auth: bool = False,
    token: str | None = None,
    admin_token: str | None = None,
    local_token: str | None = None,
    oauth: ResourceServerSettings | None = None,
) -> Generator[ListenAddress]:
    """Take the address, which can fail, before anything is started that has effects.

    `port` 0 takes any free one. `token` is a plain bearer token besides the configured ones, `admin_token` one whose
    holder may administer the bridge, `local_token` the local user's own. `oauth`: whose tokens count as well.

    Raises:
        ConfigError: the address cannot be used, or would let anyone in without a token.
    """
    server = _resource_server(oauth, settings)
    auth = Authenticator(settings.tokens, token, admin_token, local_token, resource_server=server)
    certificate = _certificate(settings)
    with listen(host, port) as listener:
        address, actual_port = listener.getsockname()[:2]
        loopback = is_loopback(address)
        if auth.is_open and not no_auth:
            whom = "other programs and web pages" if loopback else "other machines"
            raise ConfigError(
                f"{host} can be reached from {whom}, and no token is configured",
                key="http.tokens",
                hint="Name an issuer in `[auth]`, make a token with `mcpbridge token new`, or allow anyone with "
                "`--no-auth`.",
            )
        shown_host = f"[{address}]" if ":" in address else address
        origin = f"http{'s' if certificate is not None else ''}://{shown_host}:{actual_port}"
        reach: Reach = "loopback" if loopback else "network"
        yield ListenAddress(listener, auth, reach, origin, address, actual_port, certificate)


@contextmanager
def bind_path(
    settings: HttpSettings,
    path: Path,
    *,
    token: str | None = None,
    admin_token: str | None = None,
    oauth: ResourceServerSettings | None = None,
) -> Generator[ListenAddress]:
    """A Unix-domain socket as the address.

    Who can open it is this user, so no token is needed; one that is configured is asked for all the same.

    Raises:
        ConfigError: the path cannot be used.
    """
    with listen_at_path(path) as listener:
        server = _resource_server(oauth, settings)
        auth = Authenticator(settings.tokens, token, admin_token, resource_server=server)
        yield ListenAddress(listener, auth, "path", f"unix:{path}")


def _certificate(settings: HttpSettings) -> "Certificate | None":
    if settings.tls.cert is None:
        return None
    from mcpbridge.downstream.http.tls import Certificate

    return Certificate(settings.tls)


def _resource_server(oauth: ResourceServerSettings | None, settings: HttpSettings) -> "ResourceServer | None":
    """What decides about the tokens of issuers; None: there is no issuer, and nothing of it is loaded."""
    if oauth is None or not oauth.is_on:
        return None
    from mcpbridge.downstream.auth.resource_server import ResourceServer

    return ResourceServer(oauth, path=settings.path)


async def serve_http(
    bridge: RunningBridge,
    settings: HttpSettings,
    at: ListenAddress,
    *,
    on_ready: Callable[[str], None],
    mounts: Mapping[str, Callable[[], App]] = MappingProxyType({}),
    pages: Mapping[str, Callable[[], App]] = MappingProxyType({}),
    public: Mapping[str, Callable[[], App]] = MappingProxyType({}),
    join: Callable[[HttpFront], None] = lambda _: None,
) -> None:
    """Serve until cancelled, then let open requests finish for some seconds.

    `join` gets the front before it serves: it may be one of several. `on_ready` gets the URL. `mounts`: what makes
    further applications, by the path that theirs begin with; `pages`: those that decide themselves who is let in;
    `public`: those that pages of any origin may lead to.
    """
    app = HttpFront(
        bridge,
        settings,
        at.auth,
        reach=at.reach,
        address=at.address,
        port=at.port,
        scheme="http" if at.certificate is None else "https",
        mounts=mounts,
        pages=pages,
        public=public,
    )
    join(app)
    connections = Connections(app, app.take)
    await _serve_connections(connections, at.listener, lambda: on_ready(at.url(settings.path)), at.certificate)


async def serve_front(front: Front, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve at this socket until cancelled, then let open requests finish for some seconds."""
    await _serve_connections(Connections(front), listener, on_ready)


async def _serve_connections(
    connections: Connections,
    listener: socket.socket,
    on_ready: Callable[[], None],
    certificate: "Certificate | None" = None,
) -> None:
    loop = asyncio.get_running_loop()
    context = None if certificate is None else certificate.context
    server = await loop.create_server(connections.connect, sock=listener, backlog=_BACKLOG, ssl=context)
    try:
        on_ready()
        await (loop.create_future() if certificate is None else certificate.watch())
    finally:
        server.close()  # open connections go on
        with anyio.CancelScope(shield=True), anyio.move_on_after(_DRAIN + _LAST_MOMENT + 2):
            await connections.front.stop(_DRAIN)
            await connections.close(_LAST_MOMENT)
