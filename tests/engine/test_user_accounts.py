"""The keys of the account vault, as the configuration has them."""

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.engine.user_accounts import read_keys
from mcpbridge.upstream.accounts.settings import AccountsSettings

MISSING = "${cmd:kms decrypt accounts}"
"""A reference that is still there was not read."""


@pytest.mark.parametrize(
    ("accounts", "setting"),
    [({"key": MISSING}, "accounts.key"), ({"key": "k" * 32, "old_keys": ["o" * 32, MISSING]}, "accounts.old_keys")],
)
def test_a_key_that_was_not_read_is_no_key(accounts: dict[str, object], setting: str) -> None:
    """Else accounts would be encrypted with words that stand in the configuration."""
    with pytest.raises(ConfigError) as failed:
        read_keys(AccountsSettings.model_validate(accounts))
    assert failed.value.key == setting
    assert "mcpbridge check" in str(failed.value.hint)


def test_keys_that_were_read_are_taken_as_they_are() -> None:
    accounts = AccountsSettings.model_validate({"key": "k" * 32, "old_keys": ["o" * 32]})
    assert read_keys(accounts) == ("k" * 32, ["o" * 32])
    assert read_keys(AccountsSettings()) == (None, []), "a key of the bridge's own"
