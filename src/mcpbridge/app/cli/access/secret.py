"""`mcpbridge secret`: stores secrets that a configuration refers to as `${secret:NAME}`. Values are never shown."""

import getpass
import os
import sys

import click

from mcpbridge.app.cli.config.audited import audit_of_user
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option
from mcpbridge.app.cli.output import note, print_json, print_table, print_text, visible
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.suggestions import nearest
from mcpbridge.storage.named_secrets import LARGEST, NAME, NamedSecrets


@click.group("secret")
def secret_command() -> None:
    """Store secrets that the configuration refers to as ${secret:NAME}.

    They are in an encrypted file of yours. Its key is in the keyring of the system if there is one and the extra
    `keyring` is installed, else in a file that only you can read.

    \u0008
    Examples:
      mcpbridge secret set github
      mcpbridge secret list
    """


@secret_command.command("set")
@click.argument("name")
@as_json_option
def set_secret(*, name: str, as_json: bool) -> int:
    """Store a secret as NAME. The value is asked for without echo, or read from standard input.

    A running bridge that refers to it takes the new value by itself. Exit code 2: it cannot be stored.

    \u0008
    Examples:
      mcpbridge secret set github
      mcpbridge secret set team/deploy.key < FILE
    """
    if NAME.fullmatch(name) is None:  # before anybody has typed a secret in vain
        what = visible(f"not usable as the name of a secret: {name[:80]!r}")
        fail(USAGE, what, "Use letters, digits and _ . @ : / -: mcpbridge secret set github.")
    was_there = NamedSecrets(os.environ).set(name, _value(name))
    audit_of_user("secret.replaced" if was_there else "secret.stored", {"detail": name})
    if as_json:
        print_json("secret-set/1", {"name": name, "replaced": was_there})
        return OK
    print_text(f"{'replaced' if was_there else 'stored'} {name}")
    if not was_there:
        note(f"in servers.toml it is ${{secret:{name}}}")
    return OK


@secret_command.command("list")
@as_json_option
def list_secrets(*, as_json: bool) -> int:
    """List the names of the secrets, and when each was set.

    \u0008
    Examples:
      mcpbridge secret list
    """
    found = NamedSecrets(os.environ).list()
    if as_json:
        print_json("secret-list/1", {"secrets": [{"name": one.name, "set_at": one.at} for one in found]})
    elif found:
        print_table(["Name", "Set at"], [[one.name, one.at] for one in found])
    else:
        print_text("no secret is stored")
    return OK


@secret_command.command("rm")
@click.argument("name")
@as_json_option
def remove_secret(*, name: str, as_json: bool) -> int:
    """Delete the secret NAME. Servers that need it are off from then on. Exit code 2: there is none of this name.

    \u0008
    Examples:
      mcpbridge secret rm github
    """
    secrets = NamedSecrets(os.environ)
    if not secrets.remove(name):
        close = nearest(name, [one.name for one in secrets.list()], limit=1)
        advice = f"Did you mean {close[0]!r}?" if close else "`mcpbridge secret list` lists them."
        fail(USAGE, visible(f"no secret is called {name[:80]!r}"), advice)
    audit_of_user("secret.deleted", {"detail": name})
    if as_json:
        print_json("secret-rm/1", {"name": name, "removed": True})
    else:
        print_text(f"deleted {name}")
    return OK


def _value(name: str) -> str:
    """What to store: typed without echo, or all of standard input without the line end."""
    if sys.stdin.isatty():
        value = getpass.getpass(f"Value of {name} (not shown): ")
    else:
        data = sys.stdin.buffer.read(LARGEST + 3)
        try:
            value = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            fail(USAGE, "standard input is not UTF-8 text", "Encode it first, for instance with base64.")
    if not value:
        fail(USAGE, "there is no value", f"Type it, or pipe it in: mcpbridge secret set {name} < FILE.")
    return value
