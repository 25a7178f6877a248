"""How servers are told of in one line."""

import pytest

from mcpbridge.app.cli.failures import failure_code
from mcpbridge.app.cli.server_states import describe
from mcpbridge.app.exit_codes import UNREACHABLE


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"state": "ready", "reason": ""}, "ready"),
        ({"state": "ready", "reason": "", "breaker": "closed"}, "ready"),
        ({"state": "ready", "reason": "", "breaker": "open"}, "ready, breaker open"),
        ({"state": "ready", "braked": ""}, "ready"),
        ({"state": "ready", "braked": "list changes"}, "ready, floods the bridge with list changes"),
        ({"state": "ready", "questions_refused": 0}, "ready"),
        ({"state": "ready", "questions_refused": 1}, "ready, 1 question to clients refused"),
        ({"state": "ready", "questions_refused": 40}, "ready, 40 questions to clients refused"),
        ({"state": "retrying", "reason": "retrying in 2 s:\n exit code 1"}, "retrying in 2 s: exit code 1"),
    ],
)
def test_a_state_is_told_on_one_line_with_what_calls_meet(server: dict[str, str], told: str) -> None:
    assert describe(server) == told


def test_a_server_that_is_left_alone_is_one_that_cannot_be_reached() -> None:
    assert failure_code({"mcpbridge/error": "UpstreamResting"}) == UNREACHABLE
