"""`mcpbridge token`: makes bearer tokens for the HTTP front."""

import hashlib
import secrets

import click

from mcpbridge.app.cli.options import as_json_option
from mcpbridge.app.cli.output import note, print_json


@click.group("token")
def token_command() -> None:
    """Make bearer tokens for the HTTP front.

    \u0008
    Examples:
      mcpbridge token new laptop
    """


@token_command.command("new")
@click.argument("name", default="me")
@click.option("--admin", is_flag=True, help="Its holder may administer the bridge, such as approve calls.")
@as_json_option
def new(*, name: str, admin: bool, as_json: bool) -> int:
    """Make a token for NAME. It is shown this once; the configuration keeps only its SHA-256.

    \u0008
    Examples:
      mcpbridge token new laptop
      mcpbridge token new me --admin
    """
    token = f"mcpb_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    if as_json:
        print_json(
            "token-new/1", {"name": name, "token": token, "sha256": digest, **({"admin": True} if admin else {})}
        )
        return 0
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    note("the token, which is not shown again; clients send it as `Authorization: Bearer TOKEN`:")
    print(token)
    note("and what to add to servers.toml:")
    print(f'\n[[http.tokens]]\nname = "{quoted}"\nsha256 = "{digest}"' + ("\nadmin = true" if admin else ""))
    return 0
