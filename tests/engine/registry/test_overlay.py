"""Entries of the registry over the settings of the file."""

import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.engine.registry.format import Entry
from mcpbridge.engine.registry.overlay import NO_OVERLAY
from mcpbridge.upstream.settings import PinPolicy, ServerSettings


@pytest.mark.parametrize(("own", "expected"), [(None, "hold"), ("warn", "warn")])
def test_a_server_in_the_place_of_one_of_the_file_stays_held(own: PinPolicy | None, expected: str) -> None:
    """Over HTTP nobody can say `pin`, so nobody can weaken it there (issue 22)."""
    file = Settings.model_validate({"servers": {"up": {"url": "https://a.example", "pin": "hold"}}})
    table = {"url": "https://b.example"}
    parsed = ServerSettings.model_validate({**table, "pin": own})
    over = NO_OVERLAY.having(Entry("servers", "up", table=table), parsed).over(file)
    assert (over.servers["up"].url, over.servers["up"].pin) == ("https://b.example", expected)
