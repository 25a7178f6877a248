"""When a client of the stdio proxy gets a bridge of its own."""

from mcpbridge.app.stdio_proxy.crash_limit import MOST_CRASHES, MOST_MISSED, Crashes


def test_how_often_daemons_may_end_before_that_is_enough() -> None:
    """Crashes count while they are near each other; one that was about to end anyway is waited for."""
    crashes = Crashes()
    assert not crashes.add(0, was_greeted=True)
    assert not crashes.add(1, was_greeted=True)
    assert not crashes.add(11, was_greeted=True)
    assert [crashes.add(12, was_greeted=False) for _ in range(5)] == [False] * 5
    assert crashes.pause() > Crashes().pause()
    assert not crashes.add(20.5, was_greeted=True)
    assert crashes.add(20.7, was_greeted=True)
    assert any(crashes.add(21, was_greeted=False) for _ in range(MOST_MISSED))


def test_a_daemon_that_did_not_start_is_not_tried_again() -> None:
    why = Crashes().why_alone(0, was_started_here=True, was_greeted=False, is_crash=True)
    assert why == "it ended before it had started"


def test_too_many_crashes_are_a_reason_and_farewells_are_none() -> None:
    crashes = Crashes()

    def ended(*, is_crash: bool) -> str:
        return crashes.why_alone(0, was_started_here=True, was_greeted=True, is_crash=is_crash)

    assert [ended(is_crash=False) for _ in range(10)] == [""] * 10
    assert [ended(is_crash=True) for _ in range(MOST_CRASHES)] == [""] * (MOST_CRASHES - 1) + [
        "one after the other ended"
    ]
