"""What people write under `[sandbox]`."""

import pytest
from pydantic import ValidationError

from mcpbridge.sandbox.job import Access, Limits
from mcpbridge.sandbox.settings import PROPERTIES, SandboxOverrides, SandboxSettings, limits_of


def test_the_defaults_are_those_of_the_issue() -> None:
    settings = SandboxSettings()

    assert settings.require == PROPERTIES
    limits, access, env = limits_of(settings)
    assert (limits.timeout, limits.memory, limits.pids, limits.file_size) == (30, 256_000_000, 64, 64 << 20)
    assert (limits.disk, limits.entries) == (512 << 20, 50_000)
    assert access == Access()
    assert env == {}


def test_a_word_stands_for_the_mode() -> None:
    assert SandboxSettings.model_validate("off").mode == "off"
    with pytest.raises(ValidationError):
        SandboxSettings.model_validate("none")


def test_what_a_tool_has_set_comes_first() -> None:
    settings = SandboxSettings.model_validate(
        {"memory": "1 GB", "allow_network": True, "allow_fs": {"read_only": ["/a"]}, "env": {"A": "1", "B": "1"}}
    )
    own = SandboxOverrides.model_validate(
        {
            "timeout": "2 min",
            "allow_network": False,
            "allow_fs": {"read_write": ["/b/../c"]},
            "env": {"B": "2"},
            "pids": 1,
            "disk": "2 MiB",
        }
    )

    limits, access, env = limits_of(settings, own)

    assert limits == Limits(timeout=120, memory=10**9, pids=1, file_size=64 << 20, disk=2 << 20, output=1 << 20)
    assert access == Access(network=False, read_only=(), read_write=("/c",))
    assert env == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow_fs": {"read_only": ["relative"]}}, {"allow_fs": {"read_write": ["/"]}}, {"memory": "1 kB"},
        {"timeout": 0}, {"pids": 0}, {"require": ["nothing"]}, {"unknown": 1}, {"allow_fs": {"read_only": ["/a\0b"]}},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SandboxSettings.model_validate(wrong)
