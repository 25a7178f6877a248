"""Rules that `[calls]`, a server and a tool share."""

import pytest

from mcpbridge.core.call_settings import LONGEST_SECONDS, call_deadlines
from mcpbridge.protocol.deadlines import Timeouts


@pytest.mark.parametrize(
    ("idle", "longest", "deadlines"),
    [
        (60, None, Timeouts(60, LONGEST_SECONDS)),
        (900, None, Timeouts(900, 900)),
        (60, 30, Timeouts(60, 60)),
        (60, 120, Timeouts(60, 120)),
    ],
)
def test_the_longer_of_both_times_bounds_a_call(idle: float, longest: float | None, deadlines: Timeouts) -> None:
    """Bridge, configuration.md: no call ends sooner in all than it may stay silent."""
    assert call_deadlines(idle, longest) == deadlines
