"""The `store` and `call_log` sections of the configuration, and the paths of both files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.directories import state_directory
from mcpbridge.base.units import Bytes, Seconds


class StoreTlsSettings(BaseModel):
    """The `store.tls` table: which certificates to trust for a `rediss://` server, and which one to present.

    The files are PEM. A relative path starts at the directory of the configuration file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    ca: str | None = Field(default=None, min_length=1)
    """A file of certificates to trust instead of those of the system."""

    cert: str | None = Field(default=None, min_length=1)
    """The client certificate, with its chain."""

    key: str | None = Field(default=None, min_length=1)
    """Its private key. Default: it is in the file of the certificate."""

    key_password: str | None = Field(default=None, repr=False)
    """The password of the private key."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.cert is None and (self.key or self.key_password):
            raise ValueError("`key` goes with `cert`, the certificate it belongs to")
        return self


class RedisAddress(Struct, frozen=True):
    """Where a Redis or Valkey server is, and how to sign in there."""

    host: str
    port: int
    path: str
    """Its socket; empty: it is reached by host and port."""
    database: int
    username: str | None
    password: str | None
    is_tls: bool
    tls: StoreTlsSettings
    kind: Literal["single", "sentinel", "cluster"] = "single"
    nodes: tuple[tuple[str, int], ...] = ()
    """The Sentinels, or some nodes of the cluster; the first is `host` and `port`, too."""
    service: str = ""
    """What the Sentinels call the server."""
    sentinel_password: str | None = None

    @property
    def without_password(self) -> str:
        """The address without user and password, for people."""
        if self.path:
            return f"unix://{self.path}"
        scheme = f"{'rediss' if self.is_tls else 'redis'}{'' if self.kind == 'single' else f'+{self.kind}'}"
        nodes = self.nodes or ((self.host, self.port),)
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in nodes)
        service = f"{self.service}/" if self.service else ""
        return f"{scheme}://{hosts}{'' if self.kind == 'cluster' else f'/{service}{self.database}'}"

    def __repr__(self) -> str:
        return f"RedisAddress({self.without_password!r})"


class StoreSettings(BaseModel):
    """The `store` section: where the bridge keeps what must survive a call, such as kept results and approvals."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["sqlite", "memory", "redis"] = "sqlite"
    """`sqlite`: one file, shared by all bridges of this user and created when first needed. `memory`: nothing survives
    the process. `redis`: a Redis or Valkey server, shared by bridges on several machines; needs `url` and the extra
    `redis`: `pip install 'mcpbridge[redis]'`."""

    url: str | None = Field(default=None, min_length=1, repr=False)
    """The server of kind `redis`: `redis://HOST:PORT/DATABASE`, `rediss://…` with TLS, or `unix:///PATH`. Behind
    Sentinels: `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DATABASE`; a cluster: `redis+cluster://HOST:PORT,HOST:PORT`
    (with TLS `rediss+…`). Redis 7.0 or later, or Valkey, with `maxmemory-policy noeviction`."""

    username: str | None = Field(default=None, min_length=1)
    """The ACL user to sign in as at `url`. Default: the one in the URL, else the server's default user."""

    password: str | None = Field(default=None, min_length=1, repr=False)
    """Its password, such as `${REDIS_PASSWORD}` or `${file:/run/secrets/redis}`. Default: the one in the URL."""

    sentinel_password: str | None = Field(default=None, min_length=1, repr=False)
    """The password of the Sentinels, if they have one."""

    prefix: str = Field(default="mcpbridge", pattern=r"^[A-Za-z0-9._:-]{1,64}$")
    """What the keys on that server begin with. Bridges with the same prefix share everything."""

    tls: StoreTlsSettings = StoreTlsSettings.model_construct()
    """Certificates for a `rediss://` server."""

    path: str | None = None
    """The file. A relative path starts at the directory of the configuration file. Default: `store.db` in the user's
    state directory (`~/.local/state/mcpbridge` on Linux). It must be on a local disk: SQLite's locks do not work over a
    network."""

    max_bytes: Bytes | None = Field(default=None, ge=1024**2)
    """Bytes of all values together, compressed. Above that the least recently used are deleted, first of the kind that
    takes the most room. Default: 1 GiB in a file or on a server, 64 MiB in memory."""

    key: str | None = Field(default=None, min_length=16, repr=False)
    """A secret, such as `${MCPBRIDGE_STORE_KEY}` or `${file:/run/secrets/store}`. With it, values are encrypted before
    they are written (AES-256-GCM). 32 bytes as hex or base64 are best (`openssl rand -base64 32`); any other text is
    used as a passphrase. All bridges that share the file need the same key. Values written without a key stay readable;
    values written with another key count as missing."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind == "redis":
            redis_address(self)
        elif self.url or self.username or self.password:
            raise ValueError('`url`, `username` and `password` go with `kind = "redis"`')
        return self


_SCHEMES = ("redis", "rediss", "unix")
_OF_SEVERAL = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_PORT, _SENTINEL_PORT = 6379, 26379


def redis_address(settings: StoreSettings) -> RedisAddress:
    """Where the server of a store of kind `redis` is.

    A URL with a reference to a secret that was not read yet is not looked at.

    Raises:
        ValueError: the URL is missing or wrong. The message has no part of it but its scheme.
    """
    if settings.url is None:
        raise ValueError('`kind = "redis"` needs `url`, such as "redis://localhost:6379/0"')
    if "${" in settings.url:
        return RedisAddress("", 0, "", 0, None, None, is_tls=False, tls=settings.tls)
    scheme = settings.url.partition("://")[0].lower()
    if scheme in _OF_SEVERAL and "://" in settings.url:
        return _address_of_several(settings, scheme)
    if scheme not in _SCHEMES or "://" not in settings.url:
        raise ValueError(
            '`url` must begin with "redis://", "rediss://" or "unix://", or with "redis+sentinel://" or "redis+cluster://"'
        )
    if "," in settings.url.partition("://")[2].partition("/")[0]:
        raise ValueError('`url` names several servers: write "redis+sentinel://" or "redis+cluster://"')
    try:
        parts = urlsplit(settings.url)
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError:
        raise ValueError(
            "`url` has no valid host and port; write a password with special characters into `password`"
        ) from None
    path = unquote(parts.path) if scheme == "unix" else ""
    number = (parse_qs(parts.query).get("db") or ["0"])[0] if path else parts.path.strip("/") or "0"
    if not (host or path) or (scheme == "unix" and not path.strip("/")):
        raise ValueError(
            "`url` names no host" if scheme != "unix" else '`url` names no path, such as "unix:///run/redis.sock"'
        )
    if not number.isdecimal() or (parts.query and not path) or parts.fragment:
        raise ValueError('`url` must end with the number of a database, such as "/0", and nothing after it')
    username = settings.username or (unquote(parts.username) if parts.username else None)
    password = settings.password or (unquote(parts.password) if parts.password else None)
    if username and not password:
        raise ValueError("a user needs a `password`")
    return RedisAddress(host, port, path, int(number), username, password, is_tls=scheme == "rediss", tls=settings.tls)


def _address_of_several(settings: StoreSettings, scheme: str) -> RedisAddress:
    """The address behind Sentinels, or of a cluster. Raises as `redis_address`."""
    tls, _, kind = scheme.partition("+")
    rest, _, more = (settings.url or "").partition("://")[2].partition("/")
    who, at, hosts = rest.rpartition("@")
    is_cluster = kind == "cluster"
    try:
        nodes = hosts_in(hosts, _PORT if is_cluster else _SENTINEL_PORT)
    except ValueError:
        raise ValueError(
            "`url` has no valid hosts and ports, such as HOST:PORT,HOST:PORT; write a password with special characters "
            "into `password`"
        ) from None
    service, _, database = more.strip("/").partition("/")
    if is_cluster and more.strip("/"):
        raise ValueError("`url` of a cluster ends after its hosts: it has no databases")
    if not is_cluster and not service:
        raise ValueError('`url` must name what the Sentinels call the server, such as "…:26379/mymaster/0"')
    if not (database or "0").isdecimal() or "?" in more or "#" in more:
        raise ValueError('`url` must end with the number of a database, such as "/0", and nothing after it')
    user, _, secret = who.partition(":") if at else ("", "", "")
    username, password = settings.username or unquote(user) or None, settings.password or unquote(secret) or None
    if username and not password:
        raise ValueError("a user needs a `password`")
    (host, port), is_tls = nodes[0], tls == "rediss"
    return RedisAddress(
        host,
        port,
        "",
        int(database or "0"),
        username,
        password,
        is_tls=is_tls,
        tls=settings.tls,
        kind="cluster" if is_cluster else "sentinel",
        nodes=tuple(nodes),
        service=service,
        sentinel_password=settings.sentinel_password,
    )


def hosts_in(text: str, port: int) -> Sequence[tuple[str, int]]:
    """Hosts and ports of `HOST:PORT,HOST:PORT,…`.

    Raises:
        ValueError: one is none.
    """
    found: list[tuple[str, int]] = []
    for one in text.split(","):
        host, colon, number = one.rpartition(":") if not one.endswith("]") else (one, "", "")
        host, number = (host, number) if colon else (one, str(port))
        if not host.strip("[]") or not number.isdecimal() or not 0 < int(number) < 1 << 16:
            raise ValueError(one)
        found.append((host.strip("[]"), int(number)))
    return found


def store_path(settings: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the store, whether or not there is one."""
    return Path(settings.path).expanduser() if settings.path else state_directory(environ) / "store.db"


class CallLogSettings(BaseModel):
    """The `call_log` section: a record of every call, which `mcpbridge log` shows."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enabled: bool | None = None
    """`false`: no calls are recorded. `true`: every call is, and is written down before it is sent. Default: a history
    that takes at most some hundredths of a processor, so that calls beyond some hundred a second are only counted;
    where people sign in or have roles, it has every call. A bridge within a program (`Bridge`) has none by default, nor
    has one with `store.kind` `memory`. Decisions on approvals are always recorded."""

    path: str | None = None
    """The file. A relative path starts at the directory of the configuration file. Default: `calls.db` beside the file
    of `store`."""

    keep: Seconds = Field(default=30 * 86400, gt=0)
    """Seconds after which a record is deleted, such as `"30d"`."""

    max_rows: int = Field(default=1_000_000, ge=1)
    """The most records of calls, and the most of approvals, that are kept. The oldest are deleted first."""

    max_size: Bytes = Field(default=200 * 1024**2, ge=1024**2)
    """Bytes of the file. Above that the oldest records are deleted."""

    max_content: Bytes = 64 * 1024
    """Bytes of the arguments, and of the result, that are kept of one call with `log_content`."""


RunMode = Literal["own", "served", "embedded"]
"""How a bridge runs: for its user alone (the daemon, `serve` on stdio), for whoever comes over HTTP (`serve --http`),
or within a program."""

Grade = Literal["all", "history", "off"]
"""Which calls are recorded: each, as many as cost little, or none."""


class Recorded(Struct, frozen=True):
    """What the call log keeps, as the settings say or else how the bridge runs."""

    grade: Grade
    content: bool
    """With arguments and results, unless `log_content` of a tool, its server or all calls says otherwise."""
    is_whole: bool = False
    """Of a history: every call is in it, whatever that costs."""


def recorded(settings: CallLogSettings, store: StoreSettings, mode: RunMode, *, is_shared: bool = False) -> Recorded:
    """What the call log keeps. `is_shared`: several people use the bridge, and each call of theirs is on record.

    Who has values encrypted, or kept nowhere, does not get them into this file unasked; nor who asked for a call log,
    which has content only where `log_content` says so.
    """
    is_unasked = settings.enabled is None and (mode == "embedded" or store.kind == "memory")
    grade: Grade = "off" if settings.enabled is False or is_unasked else "all" if settings.enabled else "history"
    content = grade == "history" and mode == "own" and store.key is None and not is_shared
    return Recorded(grade, content, is_whole=grade == "history" and is_shared)


def call_log_path(settings: CallLogSettings, store: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the call log, whether or not there is one.

    It is a file of its own: many small writes must not hold up who waits for the store, its rows follow other rules of
    keeping, and it can be handed on, or removed, by itself.
    """
    if settings.path:
        return Path(settings.path).expanduser()
    return store_path(store, environ).with_name("calls.db")


def quotas_path(store: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file with what was used of quotas, whether or not there is one: beside that of the store."""
    return store_path(store, environ).with_name("quotas.db")
