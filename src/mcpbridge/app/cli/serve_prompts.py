"""Where the HTTP front listens, as people write it, and who may come in there.

Who runs a command is asked at the terminal about calls that a person must agree to.

The bridge of a command ends with it and no other command finds it, so nobody else can be asked: without a terminal
such a call is refused.

How a bridge that serves brings an authorization page before its user: in the browser, if there is one.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcpbridge.app.cli.output import visible
from mcpbridge.base.errors import ApprovalUnavailable, ConfigError
from mcpbridge.pipeline.approvals.request import ApprovalRequest, shown
from mcpbridge.upstream.auth.browser import has_browser, open_page
from mcpbridge.upstream.auth.oauth_tokens import Page, Show

if TYPE_CHECKING:
    from mcpbridge.downstream.http.server import Entrance
    from mcpbridge.downstream.settings import HttpSettings


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


def open_entrance(
    settings: "HttpSettings",
    address: Address | Path,
    *,
    token: str | None = None,
    admin_token: str | None = None,
    no_auth: bool = False,
) -> "AbstractContextManager[Entrance]":
    """The address, to be taken before any server is started: one that is in use must have no other effect.

    Entering raises ConfigError if it cannot be used.
    """
    from mcpbridge.downstream.http.server import entrance, entrance_at_path

    if isinstance(address, Path):
        return entrance_at_path(settings, address, token=token, admin_token=admin_token)
    return entrance(
        settings, host=address.host, port=address.port, no_auth=no_auth, token=token, admin_token=admin_token
    )


async def ask_at_terminal(request: ApprovalRequest) -> bool:
    """What the person at the terminal says.

    Raises:
        ApprovalUnavailable: there is no terminal.
    """
    why = f" ({request.reason})" if request.reason else ""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        refused = ApprovalUnavailable(
            f"A person has to approve calls of {request.tool}{why}, and this command runs without a terminal"
        )
        refused.advice = (
            "Nothing was sent. A person has to run it in a terminal; or call it through a running bridge "
            "(`mcpbridge serve`), where `mcpbridge approve` answers."
        )
        raise refused
    print(visible(f"{request.tool} needs your approval{why}:\n{shown(request.arguments_json)}"), file=sys.stderr)
    print("Call it? [y/N] ", end="", file=sys.stderr, flush=True)
    return (await _line()).strip().lower() in ("y", "yes")


async def _line() -> str:
    """The next line of standard input. A thread waits for it that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def deliver(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = sys.stdin.readline()
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, text)

    threading.Thread(target=read, name="terminal", daemon=True).start()
    return await line


def open_in_browser() -> Show | None:
    """Opens pages in the browser of this desktop; None where there is none."""
    if not has_browser(os.environ):
        return None

    async def show(page: Page) -> bool:
        return await open_page(page.url)

    return show
