"""How commands ask all bridges of a fleet: by way of one that runs on this machine."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.cli.config.config_path import config_path
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.output import note, visible
from mcpbridge.app.cli.running_bridges import RunningBridge, survey
from mcpbridge.app.exit_codes import UNREACHABLE, USAGE
from mcpbridge.config.schema import Settings

_PATIENCE = 15.0
"""Seconds: the bridge that is asked gives the others less."""


def member_to_ask(settings: Settings, config: str | None, only: str) -> RunningBridge | None:
    """The bridge that asks the others; None: what this machine has is all there is, and a person was notified of it.

    `only`: the one bridge that is wanted, if any.

    Raises:
        CommandFailed: one is wanted, and nobody can ask it.
    """
    if settings.fleet.listen is None:
        if only:
            fail(USAGE, "this configuration has no `[fleet]`, so there is one bridge", "Leave --bridge out.")
        return None
    members = [one for one in survey(config_path(config) if config else None).bridges if one.status.get("fleet")]
    if not members and only:
        fail(UNREACHABLE, "no bridge of the fleet runs on this machine that could be asked")
    if not members:
        note("no bridge of the fleet runs on this machine, so this is what its own file has")
        return None
    return members[0]


def ask_fleet(running: RunningBridge, do: str, **asked: object) -> Document:
    """What the bridge says of all.

    Raises:
        CommandFailed: it cannot say it.
    """
    answer = running.ask(do, patience=_PATIENCE, **asked)
    if "error" in answer:
        _fail(running, answer)
    return answer


def _fail(running: RunningBridge, answer: Document) -> NoReturn:
    if answer.get("code") == "unknown":
        fail(USAGE, str(answer["error"]), "`mcpbridge fleet members` lists all.")
    if answer.get("code") == "unsupported":
        fail(UNREACHABLE, f"process {running.pid} is of an older release", "Restart it, or add --here.")
    fail(UNREACHABLE, str(answer["error"]), "With --here, no other bridge is asked.")


def name_missing(answer: Mapping[str, Any]) -> None:
    """Say which bridges did not answer, so that sums are not taken for those of all."""
    for one in cast("Sequence[Mapping[str, Any]]", answer["missing"]):
        note(visible(f"bridge {one['bridge']} did not answer: its figures are missing ({one['reason']})"))
