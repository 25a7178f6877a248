"""Whether `servers.lock` may be used: where keys are trusted, it must be signed by one, and not be older than before.

The trusted keys are the user's own: files in `lock-keys` of the user's configuration directory. Nothing that lies in a
project can add one. The newest serial of each lock that was seen, and its project, are in the state directory.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from mcpbridge.base.directories import config_directory, state_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.pins.signature import Signed, lock_digest, read_signature, why_not_signed
from mcpbridge.storage.audit.checkpoints import parse_public_key
from mcpbridge.storage.file_locks import locked

if TYPE_CHECKING:  # loaded where a key is trusted
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KEYS = "lock-keys"
"""The folder of trusted public keys, in the user's configuration directory: files that end in `.pub`."""
SIGNATURE_SUFFIX = ".sig"
"""Of the name of the file beside the lock."""
_SERIALS = "lock-serials.json"
_SIGN = "`mcpbridge lock sign` signs it"
_ACCEPT = "`mcpbridge lock verify --accept-older` takes it"


class _Seen(NamedTuple):
    """What was seen last of a lock."""

    serial: int = 0
    digest: str = ""
    project: str = ""
    """For which it was signed; empty: that was not said."""


def signature_path(lock: Path) -> Path:
    """Where the signature of a lock is."""
    return lock.with_name(lock.name + SIGNATURE_SUFFIX)


def keys_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the trusted keys are, whether or not there are any."""
    return config_directory(environ) / KEYS


def must_be_signed(environ: Mapping[str, str] = os.environ) -> bool:
    """Some key is trusted, so a lock without a signature agrees to nothing."""
    try:
        return any(name.endswith(".pub") for name in os.listdir(keys_folder(environ)))  # noqa: PTH208 - text is wanted
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be known; to say no would switch it off
        return True


def trusted_keys(environ: Mapping[str, str] = os.environ) -> "list[Ed25519PublicKey]":
    """The keys whose signatures count.

    Raises:
        ConfigError: one cannot be read, is none, or others could have put it there.
    """
    folder = keys_folder(environ)
    found: list[Ed25519PublicKey] = []
    try:
        for path in (folder, *sorted(folder.glob("*.pub"))):
            at = path.stat()
            if hasattr(os, "getuid") and (at.st_uid not in (0, os.getuid()) or at.st_mode & 0o022):
                raise ConfigError("others could have put it there", file=str(path), hint=f"Run: chmod go-w {path}")
            if path != folder:
                found.append(parse_public_key(path.read_text(encoding="ascii")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"a trusted key cannot be read: {error}", file=str(folder)) from error
    return found


def lock_is_trusted(lock: Path, data: bytes | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Why a lock agrees to nothing, though it can be read; completes "the lock …". Empty: it may be used.

    `data`: the bytes of the lock; None: they are read.
    Where no key is trusted every lock may be. One that is newer than what was seen is noted as seen.
    """
    if not must_be_signed(environ):
        return ""
    try:
        data = lock.read_bytes() if data is None else data
    except FileNotFoundError:
        return (
            f"does not exist, and keys are trusted in {keys_folder(environ)}: `mcpbridge lock` writes it, and {_SIGN}"
        )
    except OSError as error:
        return f"cannot be verified: {error.strerror}"
    try:
        keys = trusted_keys(environ)
        line = signature_path(lock).read_bytes()
    except FileNotFoundError:
        return f"is not signed, and keys are trusted in {keys_folder(environ)}: {_SIGN}"
    except ConfigError as error:
        return f"cannot be verified: {error}"
    except OSError as error:
        return f"cannot be verified: {error.strerror}"
    if why := why_not_signed(data, line, keys):
        return why
    signed = read_signature(line)
    assert signed is not None, "its signature is right"
    return _compare_with_seen(lock, signed, environ)


def signature_fault(lock: Path, environ: Mapping[str, str] = os.environ) -> str:
    """What is wrong with the signature of a lock that is there, completes "the lock …". Empty: nothing is.

    Where no key is trusted there may be none, and of one that is there only what it is for can be compared.
    """
    if must_be_signed(environ):
        return lock_is_trusted(lock, environ=environ)
    try:
        line = signature_path(lock).read_bytes()
        digest = lock_digest(lock.read_bytes())
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be verified: {error.strerror}"
    signed = read_signature(line)
    if signed is None:
        return "has a file beside it that is no signature"
    return "" if signed.lock == digest else "was changed after it was signed"


def forget_seen(lock: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Take the next signed version of a lock, also if it is older than what was seen, or of another project.

    Raises:
        OSError: that cannot be written down.
    """
    folder = state_directory(environ)
    with locked(folder / f"{_SERIALS}.lock"):
        seen = _seen(folder)
        seen.pop(os.path.realpath(lock), None)
        _write(folder, seen)


def seen_serial(lock: Path, environ: Mapping[str, str] = os.environ) -> int:
    """The newest serial of a lock that was seen; 0: none was."""
    return _seen(state_directory(environ)).get(os.path.realpath(lock), _Seen()).serial


def seen_project(lock: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The project for which a lock that was seen was signed; empty: none was, or that was not said."""
    return _seen(state_directory(environ)).get(os.path.realpath(lock), _Seen()).project


def _compare_with_seen(lock: Path, signed: Signed, environ: Mapping[str, str]) -> str:
    folder, name = state_directory(environ), os.path.realpath(lock)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(folder / f"{_SERIALS}.lock"):
            seen = _seen(folder)
            newest = seen.get(name, _Seen())
            if newest.project and signed.project != newest.project:
                of = f"project {signed.project}" if signed.project else "no project"
                return f"is signed for {of}, and that of project {newest.project} was seen here before: {_ACCEPT}"
            if signed.serial < newest.serial or (signed.serial == newest.serial and signed.lock != newest.digest):
                return f"is older than one that was seen here before: {_ACCEPT}"
            if signed.serial > newest.serial:
                seen[name] = _Seen(signed.serial, signed.lock, signed.project)
                _write(folder, seen)
    except (OSError, ValueError) as error:
        return f"cannot be compared with what was seen before: {error}"
    return ""


def _seen(folder: Path) -> dict[str, _Seen]:
    """By the path of a lock, what was seen last of it.

    Raises:
        ValueError: what was seen cannot be read: to take that for nothing would let an older lock in.
    """
    try:
        document = json.loads((folder / _SERIALS).read_bytes())
    except FileNotFoundError:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{folder / _SERIALS} is damaged")
    pairs = cast("dict[str, list[object]]", document)
    return {
        name: _Seen(int(str(serial)), str(digest), str(project[0]) if project else "")
        for name, (serial, digest, *project) in pairs.items()
    }


def _write(folder: Path, seen: Mapping[str, _Seen]) -> None:
    draft = folder / f".{_SERIALS}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(seen, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / _SERIALS)
