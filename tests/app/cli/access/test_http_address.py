"""Whose token opens an address that only this machine reaches."""

from pathlib import Path

import pytest

from mcpbridge.app.cli.access.http_address import Address, find_local_token
from mcpbridge.downstream.settings import HttpSettings, ResourceServerSettings

SIGNED_IN = ResourceServerSettings.model_validate(
    {"resource": "https://b.example/mcp", "issuers": {"acme": {"issuer": "https://login.example.com"}}}
)


@pytest.mark.parametrize(("oauth", "counts"), [(ResourceServerSettings(), True), (SIGNED_IN, False)])
def test_the_local_users_token_does_not_count_where_people_sign_in(
    oauth: ResourceServerSettings, counts: bool, tmp_path: Path
) -> None:
    """Whoever holds it has no roles, and would be let in beside them."""
    places = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    token = find_local_token(HttpSettings(), oauth, Address("127.0.0.1", 8808), places)
    assert (token is not None) is counts
