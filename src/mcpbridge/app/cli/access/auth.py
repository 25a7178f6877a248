"""`mcpbridge auth`: who may do what, and why."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import click

from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option, standalone_option
from mcpbridge.app.cli.output import print_json, visible
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import OK, UNREACHABLE
from mcpbridge.base.units import parse_seconds, show_seconds


@click.group("auth")
def auth_command() -> None:
    """Find out who may do what, and take a role for an emergency.

    \u0008
    Examples:
      mcpbridge auth explain --user ci github/create_issue
    """


@auth_command.command("explain")
@click.argument("tool")
@click.option(
    "--user",
    required=True,
    metavar="U",
    help="A name in `http.tokens`, ISSUER#SUBJECT for a person, or nothing (`''`) for the local user.",
)
@click.option(
    "--claims", metavar="FILE|JSON", help="What a token of the person says: a JSON object, or a file with it."
)
@click.option("--args", "arguments", metavar="JSON", default="{}", help="Arguments of the call, for rules about them.")
@config_option
@as_json_option
@standalone_option
@header_option
def explain_command(
    *, tool: str, user: str, claims: str | None, arguments: str, config: str | None, as_json: bool, standalone: bool
) -> int:
    """Show whether a user may call TOOL, and which role and which rule decide.

    \u0008
    Examples:
      mcpbridge auth explain --user ci github/create_issue
      mcpbridge auth explain --user ann --claims '{"groups": ["eng-core"]}' github/create_issue
    """
    asked = {
        "tool": tool,
        "user": user,
        "claims": None if claims is None else _object(_text_of(claims), "--claims"),
        "arguments": _object(arguments, "--args"),
    }

    async def explaining(session: Session) -> int:
        answer = await session.ask("explain", **asked)
        if as_json:
            print_json("auth-explain/1", {key: value for key, value in answer.items() if key != "notes"})
        else:
            _show(answer)
        return OK

    return run(explaining, config, standalone=standalone, as_json=as_json)


@auth_command.command("break-glass")
@click.argument("role")
@click.option("--user", required=True, metavar="U", help="Who takes it, as in `mcpbridge auth explain`.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; the audit log keeps it.")
@click.option("--for", "time", metavar="TIME", default="15m", show_default=True, help="For how long, such as 15m.")
@config_option
@as_json_option
def break_glass_command(*, role: str, user: str, reason: str, time: str, config: str | None, as_json: bool) -> int:
    """Take ROLE, one with `break_glass = true`, in the running daemon for a time.

    It counts only if the role is for the user.

    \u0008
    Examples:
      mcpbridge auth break-glass oncall --user ci --reason "the site is down" --for 30m
    """
    try:
        seconds = parse_seconds(time)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from None

    async def taking(session: Session) -> int:
        answer = await session.ask("break_glass", role=role, user=user, reason=reason, seconds=seconds)
        if as_json:
            print_json("auth-break-glass/1", {key: value for key, value in answer.items() if key != "notes"})
        else:
            print(visible(f"{answer['user']} has the role {answer['role']} for {show_seconds(seconds)}"))
        return OK

    async def without_daemon(_: object, __: object) -> int:
        fail(
            UNREACHABLE,
            "no daemon of this configuration runs, and a role lasts as long as its bridge",
            "`mcpbridge up`",
        )

    return run(taking, config, standalone=False, as_json=as_json, alone=without_daemon)


def _text_of(claims: str) -> str:
    if claims == "-":
        return sys.stdin.read()
    if claims.lstrip().startswith("{"):
        return claims
    try:
        return Path(claims).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"neither a JSON object nor a file that can be read: {error}", param_hint="--claims"
        ) from None


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise click.BadParameter("expected a JSON object", param_hint=option)
    return cast("dict[str, Any]", value)


_WORDS = {
    "allow": "may call it",
    "require_approval": "may call it if a person agrees",
    "deny": "may not call it",
    "unknown": "does not see it: for this user there is no such tool",
    "insufficient_scope": "may call it, but not with this token",
}


def _show(answer: Mapping[str, Any]) -> None:
    user = answer["user"] or "the local user"
    print(visible(f"{user}: {_WORDS.get(answer['decision'], answer['decision'])} ({answer['tool']})"))
    lines = {
        "decided by": f"{answer['rule']}{': ' + answer['reason'] if answer['reason'] else ''}",
        "roles": ", ".join(answer["roles"]) or "none",
        "opened by": ", ".join(answer["opened_by"]),
        "denied by": ", ".join(answer["denied_by"]),
        "missing scopes": " ".join(answer["missing_scopes"]),
        "roles that would open it": ", ".join(answer["would_open"]),
    }
    for name, text in lines.items():
        if text:
            print(visible(f"  {name}: {text}"))
