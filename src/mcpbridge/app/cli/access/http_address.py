"""`--http`: the address to listen on as people write it, and who is let in there.

Without a configured token the local user's own is asked for (`storage/http_token.py`). Not where people sign in
(`[auth]`): whoever holds it is no person whom roles could name. `--no-auth` asks for none, and says what that means.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcpbridge.base.errors import ConfigError

if TYPE_CHECKING:
    from mcpbridge.downstream.http.server import ListenAddress
    from mcpbridge.downstream.settings import HttpSettings, ResourceServerSettings


DEFAULT_ADDRESS = "127.0.0.1:8808"

_ADMIN_TOKEN = "MCPBRIDGE_ADMIN_TOKEN"  # noqa: S105 - a name
_SHORTEST_TOKEN = 16


class Address(NamedTuple):
    """Where to listen."""

    host: str
    """A name or an IP address without brackets."""
    port: int
    """0: the system chooses."""


def parse_address(text: str, *, key: str = "--http") -> Address | Path:
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
    raise ConfigError(f"not an address to listen on: {text!r}", key=key, hint=hint)


def take_admin_token(environ: Mapping[str, str]) -> str | None:
    """The token of who administers the bridge over HTTP, from the environment.

    Raises:
        ConfigError: it can be guessed.
    """
    token = environ.get(_ADMIN_TOKEN)
    os.environ.pop(_ADMIN_TOKEN, None)  # no upstream has to know it, not even with `inherit_env = true`
    if token and len(token) < _SHORTEST_TOKEN:
        hint = "`mcpbridge token new` makes one."
        raise ConfigError(f"shorter than {_SHORTEST_TOKEN} characters", key=_ADMIN_TOKEN, hint=hint)
    return token or None


def find_local_token(
    settings: "HttpSettings",
    oauth: "ResourceServerSettings",
    address: Address | Path | None,
    environ: Mapping[str, str],
    *,
    token: str | None = None,
    no_auth: bool = False,
) -> str | None:
    """The local user's own token, if that is asked for at this address; None: another one is, or none.

    Raises:
        ConfigError: there is none, and it cannot be made.
    """
    if address is None or isinstance(address, Path) or token or no_auth:
        return None
    if settings.tokens or oauth.is_on:
        return None
    if not _is_local(address.host):
        return None  # who lets other machines in says with which token
    from mcpbridge.storage.http_token import http_token

    return http_token(environ)


def warn_of_open_door(
    settings: "HttpSettings", oauth: "ResourceServerSettings", address: Address | Path | None, token: str | None
) -> None:
    """Say on standard error what `--no-auth` means; in red, if people read it there."""
    if address is None or isinstance(address, Path) or settings.tokens or oauth.is_on or token:
        return  # a token is asked for, or only this user gets there
    whom = "Every user and every program of this machine" if _is_local(address.host) else "Everyone in the network"
    text = (
        f"mcpbridge: --no-auth: nobody is asked for a token. {whom} who reaches {address.host} port {address.port} can "
        "call every tool, with your rights."
    )
    in_red = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(f"\x1b[31m{text}\x1b[0m" if in_red else text, file=sys.stderr)


def _is_local(host: str) -> bool:
    from mcpbridge.downstream.http.host_and_origin import is_loopback

    return is_loopback(host)


def open_entrance(
    settings: "HttpSettings",
    address: Address | Path,
    *,
    oauth: "ResourceServerSettings",
    token: str | None = None,
    admin_token: str | None = None,
    local_token: str | None = None,
    no_auth: bool = False,
) -> "AbstractContextManager[ListenAddress]":
    """The address, to be taken before any server is started: one that is in use must have no other effect.

    Entering raises ConfigError if it cannot be used.
    """
    from mcpbridge.downstream.http.server import bind_path, bind_port

    if isinstance(address, Path):
        return bind_path(settings, address, token=token, admin_token=admin_token, oauth=oauth)
    return bind_port(
        settings,
        host=address.host,
        port=address.port,
        no_auth=no_auth,
        token=token,
        admin_token=admin_token,
        local_token=local_token,
        oauth=oauth,
    )
