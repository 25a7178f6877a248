"""Signed checkpoints of the audit log: which line the chain had reached, with its hash, at a place outside the log.

They are what finds that the last lines were cut off, or that the whole chain was written anew. The newest is replaced
with every piece of work of the writer (`NAME.head`); others are kept for good (`NAME.jsonl`) and go to other machines.
Whoever has the private key can sign another history: only what lies on another machine is beyond the reach of somebody
who can do all that the bridge can do.
"""

import os
import re
from base64 import b64decode, b64encode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.token_encryption_key import check_private, create_once

if TYPE_CHECKING:  # loaded by who signs or verifies
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PURPOSE = b"mcpbridge audit checkpoint\n"
"""What is signed begins with it, so that a signature for something else is none of a checkpoint."""
_SIGNATURE = re.compile(rb',"sig":"([A-Za-z0-9+/]{86}==)"\}')
_SIGNATURE_SIZE = 98


class Checkpoint(Struct, frozen=True):
    """How far a chain had come."""

    chain: str
    seq: int
    """The number of the last line."""
    hash: str
    """The hash of that line."""
    first: int
    """The number of the oldest line that is kept; what is before was deleted by the retention."""
    at: str
    key: str
    """The id of the key that signed it."""


class SignedCheckpoint(Struct, frozen=True):
    """A checkpoint, and the line that it was read from."""

    checkpoint: Checkpoint
    body: bytes
    signature: bytes
    line: bytes


def key_id(public: "Ed25519PublicKey") -> str:
    """By what checkpoints name a key."""
    return sha256(public.public_bytes_raw()).hexdigest()[:16]


def sign(checkpoint: Checkpoint, private: "Ed25519PrivateKey") -> bytes:
    """The checkpoint as one line of JSON, without its end."""
    body = msgspec.json.encode(checkpoint)[:-1]
    return b'%b,"sig":"%b"}' % (body, b64encode(private.sign(_PURPOSE + body)))


def read_checkpoint(line: bytes) -> SignedCheckpoint | None:
    """What a line says; None: it is no checkpoint. The signature is not looked at: see `is_signed`."""
    line = line.removesuffix(b"\n")
    body, tail = line[:-_SIGNATURE_SIZE], _SIGNATURE.fullmatch(line[-_SIGNATURE_SIZE:])
    if tail is None:
        return None
    try:
        checkpoint = msgspec.json.decode(body + b"}", type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return SignedCheckpoint(checkpoint, body, b64decode(tail[1]), line)


def is_signed(one: SignedCheckpoint, public: "Ed25519PublicKey") -> bool:
    """Whether this key has signed it, as it is."""
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(one.signature, _PURPOSE + one.body)
    except InvalidSignature:
        return False
    return True


def parse_public_key(text: str) -> "Ed25519PublicKey":
    """A public key, from PEM, or its 32 bytes in hexadecimal or base64.

    Raises:
        ConfigError: it is none.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text = text.strip()
    with suppress(ValueError):
        if text.startswith("-----"):
            found = load_pem_public_key(text.encode())
            if isinstance(found, Ed25519PublicKey):
                return found
        elif len(text) == 64:
            return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
        else:
            return Ed25519PublicKey.from_public_bytes(b64decode(text, validate=True))
    raise ConfigError("this is no Ed25519 public key", hint="Expected PEM, or 32 bytes as hexadecimal or base64.")


class Anchor:
    """The checkpoints of one log, and the key, in a folder of their own."""

    def __init__(self, folder: Path, log: Path) -> None:
        """`log`: the folder of the log; several may have their checkpoints in one place."""
        self.folder = folder
        name = sha256(os.path.realpath(log).encode(errors="surrogateescape")).hexdigest()[:16]
        self.head_path, self.kept_path = folder / f"{name}.head", folder / f"{name}.jsonl"
        self.key_path, self.public_path = folder / "key.pem", folder / "key.pub"

    def private_key(self) -> "Ed25519PrivateKey":
        """The key that signs; it is made if there is none yet.

        Raises:
            ConfigError: it cannot be had, or others could have it too.
        """
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            if not self.key_path.exists():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                made = Ed25519PrivateKey.generate()
                create_once(
                    self.key_path,
                    made.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()),
                )
            check_private(self.key_path)
            key = form.load_pem_private_key(self.key_path.read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the key of the audit log cannot be used: {error}", file=str(self.key_path)) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError("this is no Ed25519 key", file=str(self.key_path))
        public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        with suppress(OSError):
            if not self.public_path.exists():
                create_once(self.public_path, public)
        return key

    def public_key(self) -> "Ed25519PublicKey | None":
        """The key that verifies; None: there is none yet.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            text = self.public_path.read_text(encoding="ascii")
        except FileNotFoundError:
            return self.private_key().public_key() if self.key_path.exists() else None
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot be read: {error}", file=str(self.public_path)) from error
        return parse_public_key(text)

    def head(self) -> bytes | None:
        """The line of the newest checkpoint; None: there is none."""
        try:
            return self.head_path.read_bytes()
        except FileNotFoundError:
            return None

    def all_lines(self) -> list[bytes]:
        """The lines of the kept checkpoints, oldest first."""
        try:
            return self.kept_path.read_bytes().splitlines()
        except FileNotFoundError:
            return []

    def replace_head(self, line: bytes) -> None:
        """This is the newest checkpoint.

        Raises:
            OSError: it cannot be written.
        """
        draft = self.head_path.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, line + b"\n")
        finally:
            os.close(descriptor)
        draft.replace(self.head_path)

    def keep(self, line: bytes) -> None:
        """Keep a checkpoint for good.

        Raises:
            OSError: it cannot be written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        descriptor = os.open(self.kept_path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = bool(size) and os.pread(descriptor, 1, size - 1) != b"\n"  # killed while it wrote
            os.write(descriptor, (b"\n" if is_torn else b"") + line + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def prune(self, first: int) -> None:
        """Forget kept checkpoints of lines before this one.

        Raises:
            OSError: the file cannot be replaced.
        """
        lines = self.all_lines()
        left = [line for line in lines if (one := read_checkpoint(line)) is None or one.checkpoint.seq >= first]
        if len(left) == len(lines):
            return
        draft = self.kept_path.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, b"".join(line + b"\n" for line in left))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(self.kept_path)
