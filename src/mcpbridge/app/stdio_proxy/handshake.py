"""What a shim and a daemon say to each other beside the frames. Pure.

Each is a line with a JSON object that begins with `mcpbridge`, the number of this protocol: the shim's hello, the
daemon's greeting or refusal as its first line, and its farewell as the last. They differ from frames in their first
bytes, so both sides write that member first.
"""

# Without `pathlib`: a client waits for it.
# ruff: noqa: PTH109, PTH111, PTH117, PTH118

import json
import os

from mcpbridge.app.stdio_proxy.messages import members, parse
from mcpbridge.base.version import __version__

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Mapping


PROTOCOL = 1

_START = b'{"mcpbridge"'


class Greeting:
    """The daemon serves this client."""

    __slots__ = ("listings",)

    def __init__(self, listings: str) -> None:
        """`listings`: a digest of what clients are listed; empty if it is not sent."""
        self.listings = listings


class Refusal:
    """It does not, and says why."""

    __slots__ = ("code", "message")

    def __init__(self, code: str, message: str) -> None:
        """`code` is for programs, the message for people."""
        self.code, self.message = code, message


class Farewell:
    """It ends in order: what has no answer by now was not read."""

    __slots__ = ("again",)

    def __init__(self, *, again: bool) -> None:
        """`again`: another daemon is wanted in its place."""
        self.again = again


def hello(environ: "Mapping[str, str]", cwd: str, *, project: str = "", server: str = "", profile: str = "") -> bytes:
    """The shim's first line. `project`, `server` and `profile` are those of the command line."""
    said = {
        "mcpbridge": PROTOCOL,
        "version": __version__,
        "pid": os.getpid(),
        "cwd": cwd,
        "project": project_of(environ, cwd, project),
        "server": server,
        "profile": profile,
        "environ": {name: value for name, value in environ.items() if _is_text(name + value)},
    }
    return json.dumps(said).encode() + b"\n"


def project_of(environ: "Mapping[str, str]", cwd: str, named: str = "") -> str:
    """The directory that the client works in; empty if nothing says it.

    Somebody named it, or it is the working directory (`cwd`, empty if that is gone): of clients that have one. Others
    are started in the home directory, or above it.
    """
    named = named or environ.get("MCPBRIDGE_PROJECT") or environ.get("CLAUDE_PROJECT_DIR") or ""
    if named:
        directory = os.path.normpath(os.path.join(cwd, os.path.expanduser(named)))
        return directory if os.path.isabs(directory) else ""
    if not cwd:
        return ""
    home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    here = os.path.realpath(cwd)
    return "" if os.path.commonpath([here, home]) == here else cwd


def working_directory() -> str:
    """The one that the client works in; empty if it is not there any more."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def is_own(line: bytes) -> bool:
    """Whether a line of the daemon is no frame but of the kinds that `read` distinguishes."""
    return line.startswith(_START)


def read(line: bytes) -> Greeting | Refusal | Farewell | None:
    """What the daemon says. None: nothing that is known here."""
    said = members(parse(line))
    if said.get("mcpbridge") != PROTOCOL:
        return None
    if "error" in said:
        return Refusal(str(said.get("code", "")), str(said["error"]))
    if said.get("bye"):
        return Farewell(again=bool(said.get("again")))
    return Greeting(str(said.get("listings", "")))


def _is_text(value: str) -> bool:
    """Variables may hold any bytes; what is no text is not for a configuration."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
