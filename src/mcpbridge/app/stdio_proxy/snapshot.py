"""The snapshot: what the last daemon would answer to the requests with which a client begins, kept on disk.

The daemon writes one file for each kind of client (`daemon/snapshots.py`), the proxy reads it while a daemon starts.
Both use what is here. A file begins with a line that has the digest of the next line; that is a JSON object with what
the answers depend on, and where each is in the rest of the file, with its digest.

A file is as good as none if any of this is not so: it and its folder are this user's alone, it is no link, it is whole,
this release wrote it, and all that the configuration was read from is as it was: its files, and the variables that it
names. What the file says is not secret: it is what clients are listed.
"""

# Without `pathlib` and `hashlib`: a client waits for it.
# ruff: noqa: PTH118, PTH123

import json
import os
import stat

from mcpbridge.app.stdio_proxy.daemon_lock import is_private
from mcpbridge.app.stdio_proxy.messages import items, members, parse
from mcpbridge.base.directories import sha256
from mcpbridge.base.version import __version__

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


SUFFIX = ".snapshot"
LARGEST = 16 << 20
"""Bytes of one file."""
_LARGEST_INPUT = 4 << 20
"""Bytes of a file that the configuration was read from."""
_LONGEST_HEAD = 1 << 20
"""Bytes of the two first lines."""
_MAGIC = b"mcpbridge-snapshot 1 "
_DIGEST = 64
"""Characters of a digest."""


def file_name(key: str, kind: str) -> str:
    """The snapshot for this kind of client, of the daemon of this key."""
    return f"{key}-{kind}{SUFFIX}"


def kind_of(
    version: str,
    capabilities: "Mapping[str, object]",
    info: "Mapping[str, object]",
    *,
    modern: bool,
    server: str = "",
    profile: str = "",
) -> str:
    """A digest of all that a client declares, and of what `mcpbridge serve` was asked for: what answers depend on."""
    declared = [modern, version, capabilities, info, server, profile]
    return digest(json.dumps(declared, sort_keys=True, separators=(",", ":")).encode())[:16]


def digest(data: bytes) -> str:
    """What two texts have in common only if they are the same."""
    return sha256(data).hexdigest()


def digest_of_values(names: "Iterable[str]", environ: "Mapping[str, str]") -> str:
    """What these variables are, in one digest for all of them."""
    values = [[name, environ.get(name)] for name in sorted(names)]
    return digest(json.dumps(values).encode(errors="surrogatepass"))


def address(method: str, cursor: str = "") -> str:
    """By what the answer to a request is found: its method, and which page it asks for."""
    return f"{method} {cursor}" if cursor else method


def encode(head: "dict[str, object]", answers: "Mapping[str, bytes]") -> bytes:
    """A file with these answers, by address. `head`: what they depend on, and what is good to know."""
    places: dict[str, object] = {}
    at = 0
    for name, body in answers.items():
        places[name] = [at, len(body), digest(body)]
        at += len(body)
    line = json.dumps({"version": __version__, **head, "answers": places}).encode(errors="surrogatepass")
    return b"".join([_MAGIC, digest(line).encode(), b"\n", line, b"\n", *answers.values()])


class Snapshot:
    """One file that is open."""

    def __init__(self, descriptor: int, head: dict[str, object], begin: int) -> None:
        """`begin`: where the first answer is."""
        self._descriptor, self._begin = descriptor, begin
        self.head = head
        self._places = members(head.get("answers"))

    def find(self, method: str, cursor: str = "") -> tuple[bytes, str] | None:
        """The result of this request, and its digest; None: it is not there, or damaged."""
        place = self._places.get(address(method, cursor))
        match place:
            case [int(at), int(length), str(expected)] if at >= 0 and 0 <= length <= LARGEST:
                body = os.pread(self._descriptor, length, self._begin + at)
                return (body, expected) if len(body) == length and digest(body) == expected else None
            case _:
                return None

    def holds(self, environ: "Mapping[str, str]", *, is_found: bool) -> bool:
        """Whether all that the answers depend on is as it was. `is_found`: nobody named the configuration."""
        head = self.head
        files, names = members(head.get("files")), [str(name) for name in items(head.get("variables"))]
        if head.get("version") != __version__ or head.get("found") is not is_found or not files:
            return False
        if head.get("values") != digest_of_values(names, environ):
            return False
        return all(_is_still(path, expected) for path, expected in files.items())

    def note_use(self) -> None:
        """Keep when it was used last, as the time of its file: what is not used goes first."""
        try:
            os.utime(self._descriptor)
        except OSError:
            pass  # a file system that is read only

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def open_snapshot(folder: str, name: str) -> Snapshot | None:
    """The file of this name, with what it says of itself; None: there is none that counts."""
    try:
        if not is_private(folder):
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(os.path.join(folder, name), flags)
    except OSError:
        return None
    snapshot = None
    try:
        if _is_private_file(os.fstat(descriptor)):
            snapshot = _read_head(descriptor)
    except OSError:
        snapshot = None
    finally:
        if snapshot is None:
            os.close(descriptor)
    return snapshot


def _read_head(descriptor: int) -> Snapshot | None:
    data = os.pread(descriptor, _LONGEST_HEAD, 0)
    begin = len(_MAGIC) + _DIGEST + 1
    end = data.find(b"\n", begin)
    if not data.startswith(_MAGIC) or end < 0:
        return None
    line = data[begin:end]
    if data[len(_MAGIC) : begin - 1] != digest(line).encode():
        return None
    return Snapshot(descriptor, members(parse(line)), end + 1)


def _is_private_file(status: os.stat_result) -> bool:
    is_ours = status.st_uid == os.getuid() and not status.st_mode & 0o077 and status.st_nlink == 1
    return stat.S_ISREG(status.st_mode) and is_ours and status.st_size <= LARGEST + _LONGEST_HEAD


def _is_still(path: str, expected: object) -> bool:
    """Whether a file has the text of which that is the digest; configurations are read without their line ends.

    An empty digest stands for a file that is not there.
    """
    try:
        if os.path.realpath(path) != path:
            return False
        with open(path, "rb") as file:
            data = file.read(_LARGEST_INPUT + 1)
    except FileNotFoundError:
        return expected == ""
    except OSError:
        return False
    if digest(data) == expected:
        return True
    plain = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    return plain != data and digest(plain) == expected
