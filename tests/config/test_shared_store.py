"""The address of a store that several machines share, in a configuration file."""

from pathlib import Path

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import read
from mcpbridge.config.trust.description import what_runs

TABLE = '[store]\nkind = "redis"\n'


def test_passwords_count_as_secrets_and_files_start_where_the_file_is(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(TABLE + 'url = "rediss://ann:pass%2Fword@h/1"\ntls = {ca = "ca.pem"}\n')
    loaded = read(file, {})
    assert {"pass/word", "pass%2Fword"} <= set(loaded.secrets)
    assert loaded.settings.store.tls.ca == str(tmp_path / "ca.pem")
    assert any(line.endswith("at rediss://h:6379/1") for line in what_runs(loaded.settings))
    file.write_text(TABLE + 'url = "redis://h/1"\npassword = "${REDIS_PASSWORD}"\n')
    assert "from the environment" in read(file, {"REDIS_PASSWORD": "from the environment"}).secrets


@pytest.mark.parametrize("url", ["sentinel://:s3cret@h/0", "redis://:s3cret@h/name", "http://:s3cret@h"])
def test_a_wrong_address_is_named_without_its_password(tmp_path: Path, url: str) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(f'{TABLE}url = "{url}"\n')
    with pytest.raises(ConfigError, match="`url`") as refused:
        read(file, {})
    assert "s3cret" not in str(refused.value)
