"""How commands ask the bridges of this user: one request to a control socket, one JSON document back.

The bridges' side is `control_socket.py`. Commands wait for this module: the standard library is all that it loads.
"""

import json
import os
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

from mcpbridge.app.stdio_proxy.daemon_lock import is_private
from mcpbridge.base.errors import ConfigError

Document = Mapping[str, object]
"""A JSON object: a request, or what is said to it."""

SILENT = "silent"
"""`code` of what is put in the place of a document by `ask`, where no answer of a bridge comes that can be read."""

LONGEST_WAIT = 10.0
"""Seconds for a peer to take, or to give, the document, unless it takes long to make. What did nothing for long may
have to be read back into memory first, and does not hang."""
LARGEST_REQUEST = 64 * 1024
"""Bytes of a request, without the end of its line."""
LARGEST_DOCUMENT = 16 * 1024**2
"""Bytes of an answer, unless who asks takes more."""

STATUS: Document = {"do": "status"}
"""The request of those who send none."""
HAS_ENDED = "it ended before it had answered"
"""`error` of such a document: the bridge was about to end, and may be gone by now."""


def sockets(directory: Path) -> list[Path]:
    """The sockets of this user's bridges, in order of process number; some may be of dead ones.

    Raises:
        ConfigError: someone else could have put them there.
    """
    if not directory.is_dir():
        return []
    check_private(directory)
    found = [path for path in directory.glob("*.sock") if path.stem.isdecimal()]  # the others are of daemons
    return sorted(found, key=lambda path: (len(path.name), path.name))


def ask_all(directory: Path, request: Document = STATUS) -> list[Document]:
    """What every running bridge of this user says. Sockets of dead ones are removed.

    Raises:
        ConfigError: someone else could have put sockets there.
    """
    found = [ask(path, request) for path in sockets(directory)]
    return [document for document in found if document is not None]


def ask(
    path: Path, request: Document, *, patience: float = LONGEST_WAIT, largest: int = LARGEST_DOCUMENT
) -> Document | None:
    """What one bridge says to a request; `error` is in it if that is nothing useful. None: it is dead.

    `patience`: seconds that it has for the answer. `largest`: bytes that this may have.
    """
    try:
        return _ask(path, request, patience, largest)
    except ConnectionRefusedError:
        if not _is_alive(path):  # else it is about to listen, or not any more
            path.unlink(missing_ok=True)
        return None
    except FileNotFoundError:
        return None
    except _Unread as error:
        why = str(error)
    except ConnectionError:
        why = HAS_ENDED
    except OSError:
        why = "it does not answer"
    except (ValueError, RecursionError):
        why = "its answer cannot be read"
    return {"pid": int(path.stem) if path.stem.isdigit() else None, "code": SILENT, "error": why}


class _Unread(Exception):
    """There is no whole answer; says why."""


def _is_alive(path: Path) -> bool:
    """The process that a socket is named after may still be there."""
    try:
        os.kill(int(path.stem), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _ask(path: Path, request: Document, patience: float, largest: int) -> Document:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(patience)
        connection.connect(str(path))
        # Bridges of older releases read nothing, and what is unread when they close could cost us their answer.
        words = b"" if request == STATUS else json.dumps(dict(request)).encode() + b"\n"
        with suppress(OSError):  # it may have answered and closed already
            connection.sendall(words)
            connection.shutdown(socket.SHUT_WR)
        received = bytearray()
        while piece := connection.recv(65536):
            received += piece
            if len(received) > largest:
                raise _Unread(f"its answer is larger than {largest >> 20} MiB")
    if not received:
        raise _Unread(HAS_ENDED)
    document: object = json.loads(received)
    if not isinstance(document, dict):
        raise ValueError("the document is no object")
    return cast("Document", document)


def check_private(directory: Path) -> None:
    """Make sure that nobody else can put sockets there.

    Raises:
        ConfigError: somebody can.
    """
    if not is_private(directory):
        hint = "Remove it, or set XDG_RUNTIME_DIR to a directory of your own."
        raise ConfigError("not a directory that only this user can use", file=str(directory), hint=hint)
