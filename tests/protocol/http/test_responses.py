"""What is read out of the headers of answers over HTTP."""

from datetime import UTC, datetime

import pytest

from mcpbridge.base.errors import UpstreamHttpError
from mcpbridge.protocol.http.responses import LONGEST_RETRY_AFTER, seconds_to_wait

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("Sat, 28 Nov 2026 12:00:30 GMT", 30),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("99999999", LONGEST_RETRY_AFTER),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("9" * 400, None),
    ],
)
def test_a_retry_after_is_a_time_that_somebody_can_wait_for(header: str, seconds: float | None) -> None:
    """RFC 9110, Retry-After: seconds, or a date. Nobody is advised to try again in 8,000 years."""
    assert seconds_to_wait(header, NOW) == seconds


def test_the_advice_names_whole_seconds() -> None:
    assert UpstreamHttpError("s", 503, "busy", retry_after=86_400).advice.endswith("Try again in 86400 s.")
