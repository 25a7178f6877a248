"""How an error ends a command: people are shown the page that explains it, programs are not (issue 19)."""

import json

import pytest

from mcpbridge.app.cli.failures import CommandFailed, report
from mcpbridge.app.exit_codes import TIMED_OUT, USAGE
from mcpbridge.base.errors import ConfigError, UpstreamTimeout


def test_people_are_shown_the_page_of_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    error = UpstreamTimeout("db", 60)
    assert report(error, as_json=False) == TIMED_OUT
    assert capsys.readouterr().err.splitlines() == [
        "mcpbridge: Server 'db': no answer within 60 s",
        f"  {UpstreamTimeout.advice}",
        "  See docs/reference/errors.md#upstreamtimeout",
    ]


def test_programs_get_the_message_and_the_advice_alone(capsys: pytest.CaptureFixture[str]) -> None:
    report(UpstreamTimeout("db", 60), as_json=True)
    assert set(json.loads(capsys.readouterr().err)["error"]) == {"code", "message", "advice"}


def test_a_wrong_configuration_names_its_page_and_a_wrong_command_speaks_for_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(ConfigError("unknown key", file="servers.toml", key="x"), as_json=False) == USAGE
    assert capsys.readouterr().err.endswith("\n  See docs/reference/errors.md#configerror\n")
    report(CommandFailed(USAGE, "no such server"), as_json=False)
    assert "See" not in capsys.readouterr().err
