"""Connections to one Redis or Valkey server: how long a command may take, and what happens when there is no answer.

A connection carries one command at a time. Whoever is cancelled while a command is under way, or gets no answer in
time, closes its connection, so that no reply ever reaches another caller; all others are for any part of the bridge
(`pool.py`). After some failures in a row commands fail at once, and only now and then one of them tries the server
again: a slow server is no queue.
"""

import ssl
from collections.abc import Awaitable, Callable
from hashlib import sha1
from math import inf
from time import monotonic
from typing import Any, Literal

import anyio
from msgspec import Struct

from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.storage.redis.nodes import Node, nodes_of
from mcpbridge.storage.redis.pool import Pool, pool_of
from mcpbridge.storage.settings import RedisAddress

COMMAND_SECONDS = 2.0
"""How long a command may take, with waiting for a connection and making one."""
_AT_ONCE = 16
"""Connections of one store."""
_FAILURES = 3
"""Failures in a row after which commands fail at once."""
_MOST_REDIRECTIONS = 5
_WAIT_MS = 500
"""Milliseconds that it may take until a replica has what was written."""
_ALONE_SECONDS = 5.0
"""Seconds after which it is asked again whether all replicas are down."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two attempts then; each takes twice as long as the one before."""

Argument = bytes | str | int | memoryview
Until = Literal["written", "on a replica", "on a replica that is up"]
"""When a command is done.

What a failover must not undo is done once a replica has it, where there are replicas; else it failed, though it may
still have been made. `on a replica that is up`: where all replicas are down none can take over, so none is waited for.
"""


Send = Callable[[tuple[Argument, ...]], Awaitable[Any]]
"""Sends one command, and returns the reply."""
Work = Callable[[Send], Awaitable[Any]]


class Script(Struct, frozen=True):
    """A program that the server runs as one step."""

    text: str
    digest: str


def script(text: str) -> Script:
    """A script of this text."""
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


class Connections:
    """Up to 16 connections, made when they are needed. For one event loop."""

    def __init__(
        self, address: RedisAddress, *, seconds: float = COMMAND_SECONDS, longest_pause: float = _LONGEST_PAUSE
    ) -> None:
        """`seconds`: how long a command may take; `longest_pause`: between two attempts while the server is away."""
        self._address = address
        self._seconds, self._longest_pause = seconds, longest_pause
        self._pool: Pool | None = None
        """Of the loop that this is used in; None: it was not used yet, or closed."""
        self._idle_epoch = 0
        """The epoch that those are of."""
        self._nodes = nodes_of(address, self._ask_node)
        self._slots: anyio.Semaphore | None = None
        self._make: Callable[[Node], Any] | None = None
        self._checked = set[Node]()
        self._alone_until: dict[Node, float] = {}
        """By node: how long its replicas count as down."""
        self._failures = 0
        self._retry_at = 0.0
        self.epoch = 0
        """Grows with each failure: what was known of the server's data may be wrong since then."""

    def __repr__(self) -> str:
        state = "failing" if self._failures >= _FAILURES else "working"
        idle = 0 if self._pool is None else len(self._pool)
        return f"<Connections to {self._address.without_password}: {state}, {idle} idle>"

    async def call(self, *command: Argument, until: Until = "written") -> Any:
        """The reply to one command. Cancelling closes the connection; the command may still take effect.

        Raises:
            StoreFailed: the server cannot be reached, does not answer in time, refuses the command, or must not be
                used; or no replica has the change in time.
        """
        key = str(command[1]) if len(command) > 1 else ""
        return await self._bounded(lambda send: send(command), key, until)

    async def run(self, program: Script, keys: list[str], *arguments: Argument, until: Until = "written") -> Any:
        """What a script returns. Cancelling and errors as for `call`."""
        rest = (len(keys), *keys, *arguments)

        async def work(send: Send) -> Any:
            from redis.exceptions import NoScriptError

            try:
                return await send(("EVALSHA", program.digest, *rest))
            except NoScriptError:  # nothing ran; EVAL also makes it known
                return await send(("EVAL", program.text, *rest))

        return await self._bounded(work, keys[0], until)

    async def check(self) -> None:
        """Look whether the server can be used.

        Raises:
            StoreFailed: it cannot be reached, or refuses the password.
            ConfigError: it is too old, removes values by itself, or is a kind of server that is not supported.
        """
        self._checked.clear()
        try:
            await self.call("PING")
        except StoreFailed as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            raise

    async def close(self) -> None:
        """Close the idle connections, unless other parts of the bridge use them, within a second each.

        Those in use close with their command.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.leave()

    # -- how

    async def _bounded(self, work: Work, key: str, until: Until = "written") -> Any:
        self._refuse_while_failing()
        reply: Any = None
        try:
            make = self._maker()
        except ConfigError as error:
            raise self._error(error.what) from error
        from redis import exceptions as redis_errors

        if self._slots is None:
            self._slots = anyio.Semaphore(_AT_ONCE)
        asked_at = inf
        try:
            with anyio.move_on_after(self._seconds) as scope:
                async with self._slots:
                    asked_at = monotonic()
                    reply = await self._redirected(make, work, key, until)
            if scope.cancelled_caught and monotonic() - asked_at < self._seconds / 2:  # that says nothing of the server
                raise self._error(f"all {_AT_ONCE} connections to it were in use for most of {self._seconds:g} s")
            if scope.cancelled_caught:
                raise self._failed(f"did not answer within {self._seconds:g} s")
        except ConfigError as error:
            raise self._error(error.what) from error
        except redis_errors.AuthenticationError as error:
            raise self._failed("refuses the user or the password") from error
        except (
            redis_errors.BusyLoadingError,
            redis_errors.ReadOnlyError,
            redis_errors.ClusterDownError,
            redis_errors.TryAgainError,
            redis_errors.MasterDownError,
        ) as error:
            raise self._failed(str(error)) from error
        except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError, RuntimeError) as error:
            # uvloop raises RuntimeError where something is written to a connection that was closed
            raise self._failed(_reason(error)) from error
        except redis_errors.OutOfMemoryError as error:
            raise self._error("its memory is full: raise `maxmemory`, or lower `store.max_bytes`") from error
        except redis_errors.NoPermissionError as error:
            raise self._error(f"the user lacks a right: {error}") from error
        except redis_errors.RedisError as error:
            raise self._error(str(error)) from error
        self._failures = 0
        return reply

    async def _redirected(self, make: Callable[[Node], Any], work: Work, key: str, until: Until) -> Any:
        """Do it at the node that has the key. One that has it no more did nothing, and says who has it."""
        from redis.exceptions import AskError, MovedError

        try:
            node, is_asking = await self._nodes.of(key), False
        except StoreFailed as error:
            raise self._failed(error.what) from error
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await self._on_connection(make, work, node, key, until, is_asking=is_asking)
            except MovedError as error:
                await self._joined_pool().close_idle(node)  # it may have left the cluster
                self._nodes.moved(error.slot_id, _host_of(error), error.port)
                node, is_asking = await self._nodes.of(key), False
            except AskError as error:  # the key is on its way there
                node, is_asking = Node(_host_of(error) or node.host, error.port, node.replicas), True
        raise self._failed("its nodes do not agree on who has a key")

    async def _ask_node(self, node: Node, command: tuple[str | bytes | int, ...]) -> Any:
        """What one node says: a Sentinel, or one of a cluster.

        On a connection of its own, and in a part of the time of a command: another one may have to be asked.

        Raises:
            StoreFailed: it does not answer.
        """
        from redis import exceptions as redis_errors

        seconds = self._seconds / 4
        connection = _maker(self._address, seconds, of_sentinel=self._address.kind == "sentinel")(node)
        try:
            with anyio.move_on_after(seconds):
                await connection.connect()
                return await _exchange(connection, command)
            raise self._error(f"{node}: did not answer within {seconds:g} s")
        except (redis_errors.RedisError, OSError, RuntimeError) as error:  # the last one as in `_bounded`
            raise self._error(f"{node}: {_reason(error)}") from error
        finally:
            await connection.disconnect(nowait=True)

    async def _on_connection(
        self,
        make: Callable[[Node], Any],
        work: Work,
        node: Node,
        key: str,
        until: Until,
        *,
        is_asking: bool,
    ) -> Any:
        pool = self._joined_pool()
        if self._idle_epoch != self.epoch:  # they may be of no use any more, and each would have to fail first
            self._idle_epoch = self.epoch
            await pool.close_idle()
        connection = await _connected(pool, make, node)
        is_in_step = False
        try:
            if node not in self._checked:
                _check_server(await _exchange(connection, ("INFO",)), self._address)
                self._checked.add(node)

            async def send(command: tuple[Argument, ...]) -> Any:
                if is_asking:  # holds for one command
                    await _exchange(connection, ("ASKING",))
                return await _exchange(connection, command)

            reply = await work(send)
            is_done = not reply or await self._is_done(connection, node, key, until)
            is_in_step = True
            if not is_done:  # the server answers, so this is no failure of it
                self._nodes.forget()
                raise self._error("no replica has what was written, so that a failover could undo it")
            return reply
        except _refusals() as error:
            is_in_step = type(error).__name__ != "ReadOnlyError"  # that one is not where to write any more
            raise
        finally:
            # Else its reply may still come: nobody else must get it.
            if not (is_in_step and connection.is_connected and pool.give_back(node, connection)):
                await connection.disconnect(nowait=True)

    async def _is_done(self, connection: Any, node: Node, key: str, until: Until) -> bool:
        """Whether what was just written on this connection is where it must be."""
        if until == "written":
            return True
        if not node.replicas:
            # One may have come since that was asked, and take over.
            if not self._nodes.fails_over or b"connected_slaves:0" in await _exchange(
                connection, ("INFO", "replication")
            ):
                return True
            self._nodes.forget()
        may_be_alone = until == "on a replica that is up"
        was_alone = may_be_alone and monotonic() < self._alone_until.get(node, 0.0)
        if await _exchange(connection, ("WAIT", 1, 1 if was_alone else _WAIT_MS)):
            self._alone_until.pop(node, None)
            return True
        if may_be_alone and not was_alone and await self._nodes.is_alone(key):
            self._alone_until[node] = monotonic() + _ALONE_SECONDS
            was_alone = True
        return was_alone

    def _joined_pool(self) -> Pool:
        if self._pool is None:
            self._pool = pool_of(self._address)
            self._pool.join()
        return self._pool

    def _maker(self) -> Callable[[Node], Any]:
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
        return min(self._longest_pause, _FIRST_PAUSE * 2 ** min(10, self._failures - _FAILURES))

    def _failed(self, reason: str) -> StoreFailed:
        self._failures += 1
        self.epoch += 1
        self._checked.clear()
        self._alone_until.clear()
        self._nodes.forget()
        if self._failures >= _FAILURES:
            self._retry_at = monotonic() + self._pause()
        return self._error(reason)

    def _error(self, reason: str) -> StoreFailed:
        return StoreFailed(reason, file=self._address.without_password)


def was_refused(error: StoreFailed) -> bool:
    """Whether the server refused the command, so that it surely did nothing: such as while its memory is full."""
    return isinstance(error.__cause__, _refusals())


async def _connected(pool: Pool, make: Callable[[Node], Any], node: Node) -> Any:
    """A connection to this node: an idle one, or a new one."""
    while (idle := pool.take(node)) is not None:
        try:
            if not await idle.can_read():
                return idle
        except (OSError, RuntimeError, _connection_error()):
            pass
        await idle.disconnect(nowait=True)
    connection = make(node)
    try:
        await connection.connect()
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return connection


async def _exchange(connection: Any, command: tuple[Argument, ...]) -> Any:
    await connection.send_packed_command(connection.pack_command(*command), check_health=False)
    return await connection.read_response(disable_decoding=True)


def _host_of(error: Any) -> str:
    return str(error.host)


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


def _maker(address: RedisAddress, seconds: float, *, of_sentinel: bool = False) -> Callable[[Node], Any]:
    """What makes a connection to a node, within so many seconds. `of_sentinel`: to a Sentinel.

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
        # Whoever sends bounds the time. With a time here the package would make a task for each command, and before
        # Python 3.12 a cancellation could get lost there.
        "socket_timeout": None,
        "socket_connect_timeout": seconds,
        "protocol": 2,
        "driver_info": None,
        "client_name": "mcpbridge",
    }
    if of_sentinel:
        options |= {"db": 0, "username": None, "password": address.sentinel_password}
    if address.path:
        return lambda _: kinds.UnixDomainSocketConnection(path=address.path, **options)
    if not address.is_tls:
        return lambda node: kinds.Connection(host=node.host, port=node.port, **options)
    tls = address.tls
    options |= {"ssl_keyfile": tls.key or tls.cert, "ssl_certfile": tls.cert, "ssl_password": tls.key_password}
    options |= {"ssl_ca_certs": tls.ca, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
    return lambda node: kinds.SSLConnection(host=node.host, port=node.port, **options)


_OLDEST = (7, 0)


def _check_server(info: bytes, address: RedisAddress) -> None:
    """Raises ConfigError if the server that says this of itself must not be used."""
    lines = info.decode("utf-8", "replace").splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    version = facts.get("redis_version", "")
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < _OLDEST:
        raise _unusable(address, f"is version {version or 'unknown'}", "Redis 7.0 or later, or Valkey, is needed.")
    mode, wanted = facts.get("redis_mode", "standalone"), "cluster" if address.kind == "cluster" else "standalone"
    if mode != wanted:
        schemes = {"sentinel": "redis+sentinel://…/SERVICE", "cluster": "redis+cluster://…", "standalone": "redis://…"}
        raise _unusable(address, f"runs as {mode}", f"Write the URL so: {schemes.get(mode, 'redis://…')}")
    if address.kind == "sentinel" and facts.get("role") != "master":
        from redis.exceptions import ReadOnlyError

        raise ReadOnlyError("a failover is under way: the server is a replica")
    if (policy := facts.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise _unusable(
            address,
            f"removes values by itself when its memory is full (`maxmemory-policy {policy}`)",
            "Type `redis-cli CONFIG SET maxmemory-policy noeviction`, and write the same into its configuration file. "
            "The bridge keeps to `store.max_bytes` by itself.",
        )


def _unusable(address: RedisAddress, what: str, hint: str) -> ConfigError:
    return ConfigError(f"the server {address.without_password} {what}", key="store.url", hint=hint)
