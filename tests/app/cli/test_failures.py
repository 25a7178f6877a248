"""How an error ends a command: what went wrong, what to do about it, and the page that explains it (issue 19)."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpbridge.app.cli.commands import COMMANDS
from mcpbridge.app.cli.failures import page_of, page_of_key, report
from mcpbridge.app.exit_codes import TIMED_OUT, USAGE
from mcpbridge.base.errors import ConfigError, UpstreamTimeout
from mcpbridge.config.schema import Settings
from support.harness import Finished
from support.json_output import check, documents

ROOT = Path(__file__).parents[3]

Run = Callable[..., Finished]


def test_people_are_shown_the_page_of_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    error = UpstreamTimeout("db", 60)
    assert report(error, as_json=False) == TIMED_OUT
    assert capsys.readouterr().err.splitlines() == [
        "mcpbridge: Server 'db': no answer within 60 s",
        f"  {UpstreamTimeout.advice}",
        "  See docs/reference/errors.md#upstreamtimeout",
    ]


def test_programs_get_the_same_as_fields(capsys: pytest.CaptureFixture[str]) -> None:
    report(UpstreamTimeout("db", 60), as_json=True)
    document = json.loads(capsys.readouterr().err)
    check(document)
    assert document["error"] == {
        "code": TIMED_OUT,
        "message": "Server 'db': no answer within 60 s",
        "advice": UpstreamTimeout.advice,
        "page": "docs/reference/errors.md#upstreamtimeout",
    }


@pytest.mark.parametrize(
    ("key", "page"),
    [
        ("servers.git.comand", "docs/reference/configuration.md#serversname"),
        ("call_log.enable", "docs/reference/configuration.md#call_log"),
        ("permissions[1].tool", "docs/reference/configuration.md#permissions"),
        ("serverz", "docs/reference/configuration.md"),
        ("--profile", "docs/reference/errors.md#configerror"),
        (None, "docs/reference/errors.md#configerror"),
    ],
)
def test_a_wrong_key_names_its_section(capsys: pytest.CaptureFixture[str], key: str | None, page: str) -> None:
    assert report(ConfigError("unknown key", file="servers.toml", key=key), as_json=False, command="search") == USAGE
    assert capsys.readouterr().err.splitlines()[-1] == f"  See {page}"


def test_a_failed_command_names_its_own_section(alone: Run) -> None:
    failed = alone("approve", "zz")
    assert failed.err.splitlines()[-1] == "  See docs/reference/commands.md#approvals-approve-deny"
    [document] = documents(["--json"], "", alone("results", "show", "zz", "--json").err)
    assert document["error"]["page"] == "docs/reference/commands.md#results"


def test_wrong_usage_is_a_document_too(alone: Run) -> None:
    failed = alone("status", "--json", "--colour")
    [document] = documents(["--json"], failed.out, failed.err)
    assert (failed.code, document["error"]["code"]) == (2, 2)
    assert "--colour" in document["error"]["message"]
    assert "mcpbridge status --help" in document["error"]["advice"]


def test_every_section_of_the_configuration_has_its_place_on_the_page() -> None:
    for section in Settings.model_fields.keys() - {"source"}:
        page, _, anchor = page_of_key(f"{section}.x").partition("#")
        assert anchor in anchors(ROOT / page), section


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_place_on_the_page(command: str) -> None:
    page, _, anchor = page_of(command).partition("#")
    assert anchor in anchors(ROOT / page)


def anchors(page: Path) -> set[str]:
    """Headings, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
