"""The daemon's part of the handshake: reads the proxy's hello, and writes a greeting, a refusal or the last line. Pure.

Each is one line with a JSON object that has `mcpbridge`, the number of this protocol. The number, and the proxy's part,
are in `stdio_proxy/handshake.py`.
"""

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import msgspec

from mcpbridge.app.stdio_proxy.handshake import PROTOCOL
from mcpbridge.app.stdio_proxy.messages import NAME, UNKNOWN_EFFECT
from mcpbridge.base.suggestions import nearest
from mcpbridge.base.version import __version__
from mcpbridge.downstream.errors import failed_call
from mcpbridge.downstream.revisions.request_meta import reads_as_modern
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import Frame, encode_error, encode_response


class Hello(msgspec.Struct, frozen=True):
    """What a shim says of itself and its client."""

    version: str = ""
    pid: int = 0
    cwd: str = ""
    project: str = ""
    """The directory that its client works in; empty: unknown."""
    server: str = ""
    """Serve this one server alone; empty: all."""
    profile: str = ""
    """Serve what belongs to this profile; empty: to none in particular."""
    environ: dict[str, str] = {}
    """Variables of its environment; some are secrets."""


class HelloRefused(Exception):
    """The client is not served. `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def line(self) -> bytes:
        """What is said to it."""
        return _line(error=str(self), code=self.code)


def read_hello(line: bytes) -> Hello:
    """The hello in a line.

    Raises:
        HelloRefused: there is none.
    """
    try:
        said: Any = json.loads(line)  # not msgspec's: variables that are no text have halves of characters
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or "mcpbridge" not in said:
        raise HelloRefused("invalid-hello", "the first line is not what `mcpbridge serve` says")
    fields = cast("dict[str, Any]", said)
    if fields["mcpbridge"] != PROTOCOL:
        number = str(fields["mcpbridge"])[:20]
        message = f"this daemon (mcpbridge {__version__}) speaks protocol {PROTOCOL}, not {number}"
        raise HelloRefused("unknown-protocol", f"{message}; `mcpbridge restart` brings the installed one")
    try:
        return msgspec.convert(fields, Hello)
    except msgspec.ValidationError as error:
        raise HelloRefused("invalid-hello", f"the first line cannot be read: {error}") from None


def check(hello: Hello, *, servers: Collection[str], profiles: Collection[str]) -> None:
    """Find out whether there is what the client wants.

    Raises:
        HelloRefused: there is not.
    """
    if hello.server and hello.profile:
        raise HelloRefused("invalid-hello", "a server and a profile are named; one of them goes")
    for kind, name, known in (("server", hello.server, servers), ("profile", hello.profile, profiles)):
        if name and name not in known:
            close = nearest(name, known, limit=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(sorted(known)) or 'none'}."
            raise HelloRefused(f"unknown-{kind}", f"no {kind} is called {name[:80]!r}. {hint}")


def greeting(listings: str) -> bytes:
    """The answer to a hello. `listings` changes when what clients are listed does."""
    return _line(version=__version__, pid=os.getpid(), listings=listings)


def bye(*, again: bool) -> bytes:
    """The last line: what has no answer by now was not read. `again`: another daemon may be asked."""
    return _line(bye=True, again=again)


def project_uri(directory: str) -> str:
    """The `file://` URI of the client's directory; empty if it names none."""
    path = Path(directory)
    return path.as_uri() if directory and path.is_absolute() else ""


def _line(**fields: object) -> bytes:
    return json.dumps({"mcpbridge": PROTOCOL, **fields}).encode()


def cut_short(frame: Frame) -> bytes:
    """What is said to a request that took too long for the end."""
    if frame.method == "tools/call":
        return encode_response(bytes(frame.id), failed_call(UNKNOWN_EFFECT, NAME, modern=reads_as_modern(frame)))
    return encode_error(bytes(frame.id), INTERNAL_ERROR, "The bridge ended before the answer was there; ask again")
