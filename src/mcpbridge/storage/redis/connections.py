"""Connections to one Redis or Valkey server: how long a command may take, and what happens when there is no answer.

A connection carries one command at a time. Whoever is cancelled while a command is under way, or gets no answer in
time, closes its connection, so that no reply ever reaches another caller. After some failures in a row commands fail
at once, and only now and then one of them tries the server again: a slow server is no queue.
"""

import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from hashlib import sha1
from time import monotonic
from typing import Any

import anyio
from msgspec import Struct

from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.storage.settings import RedisAddress

COMMAND_SECONDS = 2.0
"""How long a command may take, with waiting for a connection and making one."""
_AT_ONCE = 16
"""Connections of one store."""
_FAILURES = 3
"""Failures in a row after which commands fail at once."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two attempts then; each takes twice as long as the one before."""

Argument = bytes | str | int | memoryview


class Script(Struct, frozen=True):
    """A program that the server runs as one step."""

    text: str
    digest: str


def script(text: str) -> Script:
    """A script of this text."""
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


class Connections:
    """Up to 16 connections, made when they are needed. For one event loop."""

    def __init__(self, address: RedisAddress, *, seconds: float = COMMAND_SECONDS) -> None:
        """`seconds`: how long a command may take."""
        self._address = address
        self._seconds = seconds
        self._idle = deque[Any]()
        self._slots: anyio.Semaphore | None = None
        self._make: Callable[[], Any] | None = None
        self._is_checked = False
        self._failures = 0
        self._retry_at = 0.0
        self.epoch = 0
        """Grows with each failure: what was known of the server's data may be wrong since then."""

    def __repr__(self) -> str:
        state = "failing" if self._failures >= _FAILURES else "working"
        return f"<Connections to {self._address.without_password}: {state}, {len(self._idle)} idle>"

    async def call(self, *command: Argument) -> Any:
        """The reply to one command. Cancelling closes the connection; the command may still take effect.

        Raises:
            StoreFailed: the server cannot be reached, does not answer in time, refuses the command, or must not be
                used.
        """
        return await self._bounded(lambda connection: _exchange(connection, command))

    async def run(self, program: Script, keys: list[str], *arguments: Argument) -> Any:
        """What a script returns. Cancelling and errors as for `call`."""
        rest = (len(keys), *keys, *arguments)

        async def work(connection: Any) -> Any:
            from redis.exceptions import NoScriptError

            try:
                return await _exchange(connection, ("EVALSHA", program.digest, *rest))
            except NoScriptError:  # nothing ran; EVAL also makes it known
                return await _exchange(connection, ("EVAL", program.text, *rest))

        return await self._bounded(work)

    async def check(self) -> None:
        """Look whether the server can be used.

        Raises:
            StoreFailed: it cannot be reached, or refuses the password.
            ConfigError: it is too old, removes values by itself, or is a kind of server that is not supported.
        """
        self._is_checked = False
        try:
            await self.call("PING")
        except StoreFailed as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            raise

    async def close(self) -> None:
        """Close the idle connections, within a second each; those in use close with their command."""
        while self._idle:
            connection = self._idle.pop()
            with anyio.move_on_after(1, shield=True):
                await connection.disconnect()

    # -- how

    async def _bounded(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        self._refuse_while_failing()
        reply: Any = None
        try:
            make = self._maker()
        except ConfigError as error:
            raise self._error(error.what) from error
        from redis import exceptions as redis_errors

        try:
            with anyio.move_on_after(self._seconds) as scope:
                reply = await self._on_connection(make, work)
            if scope.cancelled_caught:
                raise self._failed(f"did not answer within {self._seconds:g} s")
        except ConfigError as error:
            raise self._error(error.what) from error
        except redis_errors.AuthenticationError as error:
            raise self._failed("refuses the user or the password") from error
        except (redis_errors.BusyLoadingError, redis_errors.ReadOnlyError) as error:
            raise self._failed(str(error)) from error
        except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError) as error:
            raise self._failed(_reason(error)) from error
        except redis_errors.OutOfMemoryError as error:
            raise self._error("its memory is full: raise `maxmemory`, or lower `store.max_bytes`") from error
        except redis_errors.NoPermissionError as error:
            raise self._error(f"the user lacks a right: {error}") from error
        except redis_errors.RedisError as error:
            raise self._error(str(error)) from error
        self._failures = 0
        return reply

    async def _on_connection(self, make: Callable[[], Any], work: Callable[[Any], Awaitable[Any]]) -> Any:
        if self._slots is None:
            self._slots = anyio.Semaphore(_AT_ONCE)
        async with self._slots:
            connection = await self._connected(make)
            is_in_step = False
            try:
                if not self._is_checked:
                    _check_server(await _exchange(connection, ("INFO",)), self._address)
                    self._is_checked = True
                reply = await work(connection)
                is_in_step = True
                return reply
            except _refusals() as error:
                is_in_step = type(error).__name__ != "ReadOnlyError"  # that one is not where to write any more
                raise
            finally:
                if is_in_step and connection.is_connected:
                    self._idle.append(connection)
                else:  # its reply may still come: nobody else must get it
                    await connection.disconnect(nowait=True)

    async def _connected(self, make: Callable[[], Any]) -> Any:
        while self._idle:
            connection = self._idle.pop()
            try:
                if not await connection.can_read():
                    return connection
            except (OSError, _connection_error()):
                pass
            await connection.disconnect(nowait=True)
        connection = make()
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _maker(self) -> Callable[[], Any]:
        if self._make is None:
            self._make = _maker(self._address, self._seconds)
        return self._make

    def _refuse_while_failing(self) -> None:
        if self._failures < _FAILURES:
            return
        now = monotonic()
        if now < self._retry_at:
            raise self._error("does not answer; it is tried again in a moment")
        self._retry_at = now + self._pause()  # this command tries; the others need not wait for what it finds

    def _pause(self) -> float:
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(10, self._failures - _FAILURES))

    def _failed(self, reason: str) -> StoreFailed:
        self._failures += 1
        self.epoch += 1
        self._is_checked = False
        if self._failures >= _FAILURES:
            self._retry_at = monotonic() + self._pause()
        return self._error(reason)

    def _error(self, reason: str) -> StoreFailed:
        return StoreFailed(reason, file=self._address.without_password)


async def _exchange(connection: Any, command: tuple[Argument, ...]) -> Any:
    await connection.send_packed_command(connection.pack_command(*command), check_health=False)
    return await connection.read_response(disable_decoding=True)


def _refusals() -> type[Exception]:
    from redis.exceptions import ResponseError

    return ResponseError


def _connection_error() -> type[Exception]:
    from redis.exceptions import RedisError

    return RedisError


def _reason(error: BaseException) -> str:
    """What went wrong on the way, without what the server or the library put around it."""
    if "Authentication required" in str(error):
        return "wants a password"
    if "username-password pair" in str(error):
        return "refuses the user or the password"
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(cause, OSError) and cause.strerror:
        return f"cannot be reached: {cause.strerror}"
    return f"cannot be reached: {error}"


def _maker(address: RedisAddress, seconds: float) -> Callable[[], Any]:
    """What makes a connection.

    Raises:
        ConfigError: the package is not installed, or a file of `store.tls` cannot be used.
    """
    try:
        from redis.asyncio import connection as kinds
    except ImportError as error:
        raise ConfigError(
            "the package `redis` is not installed",
            key="store.kind",
            hint="Install the extra: `pip install 'mcpbridge[redis]'`.",
        ) from error
    options: dict[str, Any] = {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "protocol": 2,
        "driver_info": None,
        "client_name": "mcpbridge",
    }
    if address.path:
        return lambda: kinds.UnixDomainSocketConnection(path=address.path, **options)
    options |= {"host": address.host, "port": address.port}
    if not address.is_tls:
        return lambda: kinds.Connection(**options)
    tls = address.tls
    options |= {"ssl_keyfile": tls.key or tls.cert, "ssl_certfile": tls.cert, "ssl_password": tls.key_password}
    options |= {"ssl_ca_certs": tls.ca, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
    return lambda: kinds.SSLConnection(**options)


_OLDEST = (7, 0)


def _check_server(info: bytes, address: RedisAddress) -> None:
    """Raises ConfigError if the server that says this of itself must not be used."""
    lines = info.decode("utf-8", "replace").splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    version = facts.get("redis_version", "")
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < _OLDEST:
        raise _unusable(address, f"is version {version or 'unknown'}", "Redis 7.0 or later, or Valkey, is needed.")
    if (mode := facts.get("redis_mode", "standalone")) != "standalone":
        raise _unusable(
            address,
            f"runs as {mode}",
            "Sentinel and Cluster are not supported yet: name a single server that can be written to.",
        )
    if (policy := facts.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise _unusable(
            address,
            f"removes values by itself when its memory is full (`maxmemory-policy {policy}`)",
            "Type `redis-cli CONFIG SET maxmemory-policy noeviction`, and write the same into its configuration file. "
            "The bridge keeps to `store.max_bytes` by itself.",
        )


def _unusable(address: RedisAddress, what: str, hint: str) -> ConfigError:
    return ConfigError(f"the server {address.without_password} {what}", key="store.url", hint=hint)
