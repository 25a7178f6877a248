"""The benchmark of access tokens runs, and says of each kind of request what it costs."""

import pytest

from benchmarks import access_tokens


async def test_a_token_that_is_remembered_costs_a_part_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is asserted but a ratio: the signature is not looked at again."""
    monkeypatch.setattr(access_tokens, "_ROUNDS", 500)
    figures = await access_tokens.measure()
    assert figures["remembered, 2 KB"] * 5 < figures["first check, RS256"]
    assert set(figures) >= {"remembered, 0.6 KB", "remembered, 8 KB", "a token of http.tokens", "first check, ES256"}
