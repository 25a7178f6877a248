"""`mcpbridge lock sign` and `lock verify`: a lock that only those can change who have a key."""

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpbridge.app.cli.config.audited import audit_of_user
from mcpbridge.app.cli.config.config_path import config_path
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import note, print_json, print_text, visible
from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.app.exit_codes import DIFFERS, OK, USAGE
from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.pins.lock_file import lock_path, read_lock, remove_unnamed
from mcpbridge.catalog.pins.signature import read_signature, sign_lock
from mcpbridge.catalog.pins.trusted_lock import (
    forget_seen,
    keys_folder,
    lock_is_trusted,
    must_be_signed,
    seen_project,
    seen_serial,
    signature_fault,
    signature_path,
)
from mcpbridge.storage.audit.checkpoints import key_id
from mcpbridge.storage.token_encryption_key import check_private, create_once

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY_FILE = "lock-signing.pem"
_PATIENCE = 30.0
"""Seconds that a running bridge has to read the lock."""
_LONGEST_PROJECT = 100
"""Characters of the name of a project."""


@click.command("sign")
@config_option
@click.option(
    "--key",
    metavar="FILE",
    help="The private key: Ed25519, PEM. Default: lock-signing.pem in your configuration directory.",
)
@click.option("--new-key", is_flag=True, help="Make the key, if there is none, and trust it here.")
@click.option(
    "--project",
    metavar="NAME",
    help="The project that the lock is for. Default: as signed before, else the directory's name and random digits.",
)
@as_json_option
def sign(*, config: str | None, key: str | None, new_key: bool, project: str | None, as_json: bool) -> int:
    """Sign servers.lock: the signature is written beside it, as servers.lock.sig.

    The private key never belongs into the project. Exit code 2: there is no key, or no lock.

    \u0008
    Examples:
      mcpbridge lock sign --new-key
      mcpbridge lock sign --key /media/key/lock-signing.pem
    """
    configuration = config_path(config)
    lock = lock_path(configuration)
    if (entries := read_lock(lock)) is None:
        fail(USAGE, f"there is no {lock}", "`mcpbridge lock` writes it.")
    if project is not None and not (0 < len(project) <= _LONGEST_PROJECT and project.isprintable()):
        raise click.UsageError(f"--project is a name of 1 to {_LONGEST_PROJECT} characters that can be printed.")
    path = Path(key).expanduser() if key else config_directory(os.environ) / _KEY_FILE
    if new_key and not path.exists():
        _make_key(path)
    private = _read_key(path)
    try:
        before = read_signature(signature_path(lock).read_bytes())
    except OSError:
        before = None
    newest = max(before.serial if before is not None else 0, seen_serial(lock))
    serial = max(int(time.time() * 1000), newest + 1)
    known = seen_project(lock) or (before.project if before is not None else "")
    project = project or known or f"{lock.resolve().parent.name[:80]}-{secrets.token_hex(4)}"
    try:
        _write(signature_path(lock), sign_lock(lock.read_bytes(), serial, private, project))
        remove_unnamed(lock, entries)
    except OSError as error:
        fail(USAGE, f"{signature_path(lock)} cannot be written: {error.strerror}")
    own = key_id(private.public_key())
    audit_of_user("lock.signed", {"detail": str(lock), "key": own, "serial": serial})
    survey(configuration.resolve()).ask("lock_written", patience=_PATIENCE)
    if as_json:
        signed = {"file": str(signature_path(lock)), "key": own, "serial": serial, "project": project}
        print_json("lock-sign/1", signed)
    else:
        note(f"{lock} is signed by key {own} for project {project}; commit {signature_path(lock).name} with it")
        if why := lock_is_trusted(lock):
            note(f"on this machine the lock {why}")
    return OK


@click.command("verify")
@config_option
@click.option(
    "--accept-older",
    is_flag=True,
    help="Take this version of the lock, also if a newer one, or that of another project, was seen here.",
)
@click.option("--project", metavar="NAME", help="The project that it has to be signed for.")
@as_json_option
def verify(*, config: str | None, accept_older: bool, project: str | None, as_json: bool) -> int:
    """Find out whether servers.lock is signed by a key that is trusted here, and not older than one seen before.

    Trusted keys are files that end in .pub, in lock-keys in your configuration directory. Exit code 1: it is not, or no
    key is trusted here.

    \u0008
    Examples:
      mcpbridge lock verify
      mcpbridge lock verify --accept-older
      mcpbridge lock verify --project webshop
    """
    lock = lock_path(config_path(config))
    try:
        signed = read_signature(signature_path(lock).read_bytes())
    except OSError:
        signed = None
    own = signed.project if signed is not None else ""
    is_for_another = project is not None and signed is not None and own != project
    if accept_older and not is_for_another:
        try:
            forget_seen(lock)
        except (OSError, ValueError) as error:
            fail(USAGE, f"what was seen before cannot be forgotten: {error}")
        audit_of_user("lock.older_accepted", {"detail": str(lock)})
    is_required = must_be_signed()
    # That of another project is not compared with what was seen, since the comparison notes what it has seen.
    why = f"is signed for {own or 'no project'}, not for {project}" if is_for_another else signature_fault(lock)
    if not is_required and not why:
        why = f"is not verified: no key is trusted here, so it needs no signature; keys belong into {keys_folder()}"
    if as_json:
        found = {"file": str(lock), "trusted": not why, "required": is_required, "reason": why, "project": own}
        print_json("lock-verify/1", found)
    elif why:
        print_text(visible(f"the lock {why}"))
    else:
        print_text(f"{lock} is signed by a key that is trusted here{f', for project {visible(own)}' if own else ''}")
    return DIFFERS if why else OK


def _make_key(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    made = Ed25519PrivateKey.generate()
    public = made.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    trusted = keys_folder() / "own.pub"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        trusted.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_once(path, made.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
        create_once(trusted, public)
    except OSError as error:
        fail(USAGE, f"the key cannot be written: {error}")
    note(f"the private key is {path}; others who shall trust it need {trusted}")
    note(
        "from now on every configuration of this user needs a signed lock: without one, all that its servers show is "
        f"held. To end that, remove {trusted}"
    )


def _read_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        check_private(path)
        found = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        fail(USAGE, f"there is no key in {path}", "`mcpbridge lock sign --new-key` makes one.")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"the key cannot be used: {error}", file=str(path)) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise ConfigError("this is no Ed25519 key", file=str(path))
    return found


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
