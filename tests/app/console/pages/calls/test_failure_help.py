"""Calls that went wrong come with what to do."""

import inspect

import pytest

from mcpbridge.app.console.pages.calls.failure_help import help_for
from mcpbridge.base import errors

ABSTRACT = {"CallRefused", "UpstreamError"}
NOT_OF_CALLS = {
    "BridgeError",
    "CallFailed",
    "FormatError",
    "BridgeClosed",
    "NoBridge",
    "NotConnected",
    "ContextRefused",
    "ConfigError",
    "ValueTooLarge",
}
CLASSES = [
    name
    for name, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, errors.BridgeError) and name not in ABSTRACT | NOT_OF_CALLS
]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_of_a_call_has_a_fix(error: str) -> None:
    """Issue 20: failures and refusals are there too, with the fix."""
    refused = issubclass(getattr(errors, error), errors.CallRefused)
    found = help_for({"outcome": "refused" if refused else "failed", "error": error, "server": "git"})
    assert found is not None
    assert found.what.endswith(".")
    assert found.fix.endswith(".")
    assert found.page == f"docs/reference/errors.md#{error.lower()}"
    generic = help_for({"outcome": "failed", "error": "", "server": "git"})
    assert generic is not None
    assert found.what != generic.what


@pytest.mark.parametrize(
    ("row", "words", "link"),
    [
        ({"outcome": "tool_error", "error": "tool_error"}, "tool itself", "#again"),
        ({"outcome": "cancelled", "error": "cancelled"}, "cancelled", "#again"),
        ({"outcome": "interrupted"}, "may have taken effect", "#again"),
        ({"outcome": "failed", "error": "-32602", "server": "git"}, "parameters wrong", "#again"),
        ({"outcome": "failed", "error": "InternalError", "server": "a/b"}, "failed", "servers/a%2Fb"),
        ({"outcome": "failed", "error": "UpstreamUnavailable", "server": ""}, "not connected", "servers"),
    ],
)
def test_other_outcomes_have_one_too(row: dict[str, str], words: str, link: str) -> None:
    found = help_for(row)
    assert found is not None
    assert words in found.what
    assert found.link == link


@pytest.mark.parametrize("outcome", ["ok", "asked", "running"])
def test_a_call_that_went_well_needs_none(outcome: str) -> None:
    assert help_for({"outcome": outcome, "error": ""}) is None
