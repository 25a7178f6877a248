"""A key that stands in the wrong section is told where it belongs."""

from pathlib import Path

import pytest

from mcpbridge import load
from mcpbridge.base.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "key", "value", "belongs"),
    [
        ("call_log", "log_content", "true", "`[calls]`"),
        ("results", "warm_up", "1", "`[daemon]`"),
        ("bridge", "max_rows", "5", "`[call_log]`"),
    ],
)
def test_a_key_of_another_section_is_told_where_it_belongs(
    tmp_path: Path, section: str, key: str, value: str, belongs: str
) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(f"[{section}]\n{key} = {value}\n")
    with pytest.raises(ConfigError, match="unknown key") as refused:
        load(file)
    assert f"`{key}` belongs in {belongs}" in str(refused.value)


def test_a_slip_is_told_as_a_slip(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text("[call_log]\nmax_row = 5\n")
    with pytest.raises(ConfigError, match="Did you mean `max_rows`"):
        load(file)
